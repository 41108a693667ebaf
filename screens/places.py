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
from screens.widgets.text import Line, fit, line


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
        with Vertical(id="dialog"):
            yield TextPanel("go to", ident="places")
            yield Static("a digit or the letter after g goes there, esc stays", classes="hint", markup=False)

    def on_mount(self) -> None:
        self._fill()

    def on_resize(self) -> None:
        self._fill()

    def _fill(self) -> None:
        panel = self.query_one(TextPanel)
        texts = place_lines(self._places, self._here)
        panel.styles.height = min(len(texts) + 1, max(self.size.height - 5, 4))
        panel.show(tuple(texts))

    def on_key(self, event: events.Key) -> None:
        pressed = event.character or event.key
        for p in self._places:
            if p.key.split()[-1:] == [pressed]:
                event.stop()
                self.dismiss(p.name)
                return

    def action_cancel(self) -> None:
        self.dismiss(None)
