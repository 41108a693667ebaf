"""Help: made from the bindings of the screen in front and of its panels, so that it cannot be out of date."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.dom import DOMNode
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from screens.data import Place
from screens.places import place_lines
from screens.widgets.bars import TextPanel
from screens.widgets.panel import Panel
from screens.widgets.text import Line, fit, line

KEYS = {
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "full_stop": ".",
    "comma": ",",
    "slash": "/",
    "question_mark": "?",
    "plus": "+",
    "minus": "-",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
}
SIGNS = (
    ("● up, ready, OK", "ok"),
    ("◐ on its way", "warn"),
    ("▲ needs a look", "warn"),
    ("✖ failed or lost", "bad"),
    ("○ not there, or not asked", "dim"),
    ("? not known", "warn"),
    ("– no value: it could not be read; never a zero", "dim"),
    ("* p99 of fewer than 100 requests", "dim"),
)

TERMINAL = (
    ("copy", "y copies by OSC 52; in tmux it needs  set -g set-clipboard on"),
    ("colours", "over ssh: COLORTERM=truecolor; in tmux  set -as terminal-features ',*:RGB'; NO_COLOR=1: none"),
    ("mouse", "shift selects text; TWINRAIL_MOUSE=0 leaves the mouse to the terminal"),
    ("keys", "tmux holds Esc back for a while:  set -sg escape-time 10"),
)


def bindings_of(node: DOMNode) -> list[Binding]:
    """A node's own bindings with a description, in the order they were written."""
    found: list[Binding] = []
    for cls in type(node).__mro__:
        for b in cls.__dict__.get("BINDINGS", ()):
            if isinstance(b, Binding) and b.description and b.key not in {f.key for f in found}:
                found.append(b)
        if cls in (Panel, Screen):
            break
    return found


def shown(binding: Binding) -> str:
    keys = [KEYS.get(k.strip(), k.strip()) for k in binding.key.split(",")]
    return " ".join(keys)


def help_lines(app: Iterable[Binding], screen: Screen[Any], places: Iterable[Place] = ()) -> list[Line]:
    """Sections: everywhere, this screen, each kind of panel on it, where to go, signs."""
    sections: list[tuple[str, list[Binding]]] = [("everywhere", [b for b in app if b.description])]
    place = getattr(screen, "PLACE", "") or "this screen"
    sections.append((place, bindings_of(screen)))
    kinds: dict[type, Panel[Any]] = {}
    for panel in screen.query(Panel):
        if panel.can_focus and type(panel) not in kinds:
            kinds[type(panel)] = panel
    sections += [
        (f"{panel.title.split('  ')[0] or kind.__name__} (tab to it)", bindings_of(panel))
        for kind, panel in kinds.items()
    ]
    lines: list[Line] = []
    for title, bindings in sections:
        if bindings:
            lines.append(line((title, "title")))
            lines += [line("  ", (fit(shown(b), 14), "accent"), " ", b.description) for b in bindings]
            lines.append(line(""))
    if known := place_lines(places):
        lines += [line(("places", "title")), *known, line("")]
    lines.append(line(("terminal", "title")))
    lines += [line("  ", (fit(name, 14), "accent"), " ", said) for name, said in TERMINAL]
    lines += [line(""), line(("signs", "title"))]
    lines += [line("  ", (text, role)) for text, role in SIGNS]
    return lines


class HelpScreen(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "close", "close")]

    def __init__(self, app_bindings: Iterable[Binding], behind: Screen[Any], places: Iterable[Place] = ()) -> None:
        super().__init__()
        self._lines = help_lines(app_bindings, behind, places)

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog", classes="tall"):
            yield TextPanel("help", ident="help")
            yield Static("esc closes, arrows scroll", classes="hint", markup=False)

    def on_mount(self) -> None:
        panel = self.query_one(TextPanel)
        panel.show(tuple(self._lines))
        panel.focus()

    def action_close(self) -> None:
        self.dismiss(None)
