"""All places and their keys: what `g` shows. The next key goes there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from screens.data import Place
from screens.widgets.bars import TextPanel
from screens.widgets.text import Line, Span, crop, fit, line, width_of


def columns(lines: Sequence[Line], width: int, height: int) -> tuple[Line, ...]:
    """The lines cut to `width`, side by side in as many columns as it takes to be `height` high."""
    n = -(-len(lines) // max(height, 1))
    rows, each = -(-len(lines) // n), width // n
    cells = [[crop(entry.spans, each - 1) for entry in lines[c * rows : (c + 1) * rows]] for c in range(n)]
    blank: tuple[Span, ...] = ()
    out = []
    for y in range(rows):
        spans: list[Span] = []
        for column in cells:
            cell = column[y] if y < len(column) else blank
            spans += [*cell, (" " * (each - width_of(cell)), "")]
        out.append(Line(tuple(spans)))
    return tuple(out)


def place_lines(places: Iterable[Place], here: str = "") -> list[Line]:
    """A line a place: key, name, what is there. The one called `here` is marked."""
    return [
        line(
            ("▸ " if p.name == here else "  ", "accent"),
            (fit(p.key, 5), "accent"),
            (fit(p.name, 12), "strong"),
            (p.about, "dim"),
        )
        for p in places
        if p.key
    ]


class PlacesScreen(ModalScreen[str | None]):
    """Gives the name of the place whose digit or leader letter was pressed; None for any other key."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "cancel", "stay here")]

    def __init__(self, places: Sequence[Place], here: str) -> None:
        super().__init__()
        self._places, self._here = places, here

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog", classes="places"):
            yield TextPanel("go to", ident="places")
            yield Static("a digit or the letter after g goes there, esc stays", classes="hint", markup=False)

    def on_mount(self) -> None:
        self._fill()

    def on_resize(self) -> None:
        self._fill()

    def _fill(self) -> None:
        panel = self.query_one(TextPanel)
        width = min(self.size.width * 96 // 100, 100) - 4  # of the dialog, less its border and padding
        texts = columns(place_lines(self._places, self._here), width, self.size.height * 9 // 10 - 4)
        panel.styles.height = len(texts) + 1
        panel.show(texts)

    def on_key(self, event: events.Key) -> None:
        pressed = event.character or event.key
        for p in self._places:
            if p.key.split()[-1:] == [pressed]:
                event.stop()
                self.dismiss(p.name)
                return

    def action_cancel(self) -> None:
        self.dismiss(None)
