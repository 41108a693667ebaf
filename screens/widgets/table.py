"""A list of rows with a cursor, on the Line API: runs, jobs, attempts, cases. Cheap to update, keeps its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from screens.widgets.panel import Panel
from screens.widgets.text import Line, Span, fit, line

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: `cell` turns a row into (text, role). The one with width 0 takes the rest; low `keep` goes first."""

    label: str
    width: int
    cell: Callable[[Row], Span]
    align: str = "<"
    keep: int = 9


def cut(columns: Sequence[Column], width: int) -> list[tuple[Column, int]]:
    """Columns that fit in `width` with their widths; the least important ones are left out."""
    chosen = list(columns)

    def need() -> int:
        return sum((c.width or 8) + 1 for c in chosen)

    while need() > width and len(chosen) > 1:
        least = min(c.keep for c in chosen)
        chosen.remove(next(c for c in reversed(chosen) if c.keep == least))
    rest = max(width - sum(c.width + 1 for c in chosen), 1)
    flexible = sum(1 for c in chosen if not c.width)
    return [(c, c.width or rest // max(flexible, 1)) for c in chosen]


class Table(Panel[list[Row]]):
    """Rows under a header. Enter posts `Chosen`; moving the cursor posts `Moved`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("home", "edge(0)", "first", show=False),
        Binding("end", "edge(1)", "last", show=False),
        Binding("enter", "choose", "open", show=False),
    ]

    class _OfRow(Message):
        def __init__(self, table: Table, row: Row) -> None:
            super().__init__()
            self.table = table
            self.row = row

        @property
        def control(self) -> Table:
            return self.table

    class Chosen(_OfRow):
        """Enter on a row, or a click on the row under the cursor."""

    class Moved(_OfRow):
        """The cursor stands on another row."""

    def __init__(
        self,
        title: str,
        columns: Sequence[Column],
        *,
        key: str,
        empty: str = "",
        ident: str | None = None,
        header: bool = True,
    ) -> None:
        super().__init__(title, empty=empty, ident=ident)
        self.columns = columns
        self.key = key
        self.header = header
        self.cursor = 0
        self._top = 0
        self._rows_shown = 1

    @property
    def row(self) -> Row | None:
        """The row under the cursor."""
        return self.data[self.cursor] if self.data and self.cursor < len(self.data) else None

    def show(self, data: list[Row] | None) -> None:
        at = self.row
        if data and at is not None:
            same = [i for i, r in enumerate(data) if r.get(self.key) == at.get(self.key)]
            self.cursor = same[0] if same else min(self.cursor, len(data) - 1)
        elif data:
            self.cursor = min(self.cursor, len(data) - 1)
        super().show(data)

    def select(self, value: object) -> None:
        """Put the cursor on the row whose key is `value`, if it is there."""
        for i, r in enumerate(self.data or []):
            if r.get(self.key) == value:
                self._go(i)

    def draw(self, data: list[Row], width: int, height: int) -> list[Line]:
        if not data:
            return []
        columns = cut(self.columns, width - 1)
        lines = []
        if self.header and height > 2:
            lines.append(line(" ", (" ".join(fit(c.label, w, c.align) for c, w in columns), "dim")))
        room = self._rows_shown = max(height - len(lines), 1)
        self._top = min(max(self._top, self.cursor - room + 1, 0), self.cursor, max(len(data) - room, 0))
        for i, row in enumerate(data[self._top : self._top + room], self._top):
            here = i == self.cursor
            spans: list[Span] = [("▸" if here and self.has_focus else " ", "accent")]
            for c, w in columns:
                text, role = c.cell(row)
                spans += [(fit(text, w, c.align), role), (" ", "")]
            lines.append(Line(tuple(spans), "sel" if here and self.has_focus else ""))
        return lines

    def side_title(self) -> Line:
        n = len(self.data or [])
        return line((f"{self.cursor + 1}/{n}", "dim")) if n > self._rows_shown else Line(())

    def _go(self, to: int) -> None:
        n = len(self.data or [])
        to = min(max(to, 0), max(n - 1, 0))
        if to != self.cursor and self.data:
            self.cursor = to
            self.redraw()
            self.post_message(self.Moved(self, self.data[to]))

    def action_move(self, by: int) -> None:
        self._go(self.cursor + by)

    def action_page(self, by: int) -> None:
        self._go(self.cursor + by * self._rows_shown)

    def action_edge(self, end: int) -> None:
        self._go(len(self.data or []) - 1 if end else 0)

    def action_choose(self) -> None:
        if self.row is not None:
            self.post_message(self.Chosen(self, self.row))

    def on_click(self, event: events.Click) -> None:
        first = (0 if self.compact else 1) + (1 if self.header else 0)
        at = event.y - first + self._top
        if self.data and 0 <= at < len(self.data):
            if at == self.cursor:
                self.action_choose()
            self._go(at)

    def on_mouse_scroll_down(self) -> None:
        self._go(self.cursor + 1)

    def on_mouse_scroll_up(self) -> None:
        self._go(self.cursor - 1)
