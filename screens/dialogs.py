"""Small dialogs: ask for a line of text or several, read a text, choose from rows."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from screens.data import Row
from screens.widgets.bars import TextPanel
from screens.widgets.table import Column, Table
from screens.widgets.text import Line, clean


class Ask(ModalScreen[str | None]):
    """One line of text. Enter gives it, escape gives None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "leave it")]

    def __init__(self, title: str, hint: str, value: str = "") -> None:
        super().__init__()
        self._title, self._hint, self._value = title, hint, value

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static(self._title, id="dialog-title", markup=False)
            yield Input(self._value, placeholder=self._hint)
            yield Static(f"{self._hint}    enter takes it, esc leaves it", classes="hint", markup=False)

    @on(Input.Submitted)
    def _given(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())

    def action_cancel(self) -> None:
        self.dismiss(None)


class Reader(ModalScreen[None]):
    """A text to read; arrow keys scroll."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "close", "close"),
        Binding("y", "copy", "copy"),
    ]

    def __init__(self, title: str, lines: tuple[Line, ...]) -> None:
        super().__init__()
        self._title, self._texts = title, lines

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog", classes="wide"):
            yield TextPanel(self._title, ident="reader")
            yield Static("esc closes, arrows scroll, y copies", classes="hint", markup=False)

    def on_mount(self) -> None:
        self._fill()
        self.query_one(TextPanel).focus()

    def on_resize(self) -> None:
        self._fill()

    def _fill(self) -> None:
        self.query_one(TextPanel).show(self._texts)

    def action_close(self) -> None:
        self.dismiss(None)

    def action_copy(self) -> None:
        self.app.copy_to_clipboard("\n".join(entry.text for entry in self._texts))
        self.notify("copied")


class Pick(ModalScreen[tuple[Row, ...] | None]):
    """Rows to choose from: enter takes the one under the cursor, or those that x has marked; escape gives None.

    `rows` have a key, a kind, a name and what they are; only those of a kind in `several` can be marked together.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "leave it"),
        Binding("x", "mark", "mark, to take several"),
    ]

    def __init__(
        self, title: str, rows: list[Row], *, at: str | None = None, several: frozenset[str] = frozenset()
    ) -> None:
        super().__init__()
        self._title, self._rows, self._at, self._several = title, rows, at, several
        self._marked: set[str] = set()

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog", classes="wide"):
            yield Table(
                self._title,
                (
                    Column("", 1, lambda r: ("■" if r["key"] in self._marked else " ", "accent")),
                    Column("", 7, lambda r: (r["kind"], "dim"), keep=3),
                    Column("", 18, lambda r: (clean(r["name"], 60), "strong")),
                    Column("", 0, lambda r: (clean(r["what"], 200), "dim"), keep=2),
                ),
                key="key",
                ident="pick",
                header=False,
            )
            marks = "  x marks several" if self._several else ""
            yield Static(f"enter takes it{marks}  esc leaves it", classes="hint", markup=False)

    def on_mount(self) -> None:
        self._fill()
        table = self.query_one(Table)
        table.select(self._at)
        table.focus()

    def on_resize(self) -> None:
        self._fill()

    def _fill(self) -> None:
        table = self.query_one(Table)
        table.styles.height = min(len(self._rows) + 1, max(self.size.height - 6, 4))
        table.show(self._rows)

    def action_mark(self) -> None:
        table = self.query_one(Table)
        if table.row and table.row["kind"] in self._several:
            self._marked ^= {table.row["key"]}
            table.redraw()
            table.action_move(1)

    @on(Table.Chosen)
    def _chosen(self, event: Table.Chosen) -> None:
        self.dismiss(tuple(r for r in self._rows if r["key"] in self._marked) or (event.row,))

    def action_cancel(self) -> None:
        self.dismiss(None)


class Questions(ModalScreen[dict[str, str] | None]):
    """Several lines of text. Enter goes to the next and gives all at the last; escape gives None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "leave it"),
        Binding("up", "app.focus_previous", "question before"),
        Binding("down", "app.focus_next", "next question"),
    ]

    def __init__(self, title: str, questions: dict[str, str], answers: dict[str, str], hint: str) -> None:
        super().__init__()
        self._title, self._questions, self._answers, self._hint = title, questions, answers, hint

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog", classes="wide"):
            yield Static(self._title, id="dialog-title", markup=False)
            for name, question in self._questions.items():
                yield Static(question, classes="question", markup=False)
                yield Input(self._answers.get(name, ""), id=f"answer-{name}", max_length=4000)
            yield Static(self._hint, classes="hint", markup=False)

    def on_mount(self) -> None:
        self.query(Input).first().focus()

    @on(Input.Submitted)
    def _given(self, event: Input.Submitted) -> None:
        inputs = list(self.query(Input))
        at = inputs.index(event.input)
        if at + 1 < len(inputs):
            inputs[at + 1].focus()
            return
        self.dismiss({name: i.value.strip() for name, i in zip(self._questions, inputs, strict=True)})

    def action_cancel(self) -> None:
        self.dismiss(None)
