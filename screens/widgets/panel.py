"""The base of every panel: lines in roles, drawn on data or resize, repainted only where they changed."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from screens.widgets.text import BLANK, Line, Span, line, width_of

D = TypeVar("D")
ROLES = (
    "dim",
    "accent",
    "ok",
    "warn",
    "bad",
    "strong",
    "title",
    "sel",
    "badge",
    "found",
    "calm",
    "one",
    "two",
    "three",
)


class Panel(Widget, Generic[D]):
    """A region with a title rule and lines below it.

    Subclasses implement `draw`, which turns `self.data` into at most `height` lines of `width` cells. `show` takes new
    data: the lines are drawn once, compared with the old ones, and only lines that differ are repainted.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"panel--{role}" for role in ROLES}
    titled: ClassVar[bool] = True

    def __init__(self, title: str = "", *, empty: str = "", ident: str | None = None, focusable: bool = True) -> None:
        super().__init__(id=ident)
        self.title = title
        self.empty = empty
        self.can_focus = focusable
        self.compact = False
        self.data: D | None = None
        self._lines: list[Line] = []
        self._strips: dict[int, Strip] = {}

    # --- for subclasses

    def draw(self, data: D, width: int, height: int) -> list[Line]:
        """The lines of the body. Called only when data, size or view state changed."""
        raise NotImplementedError

    def side_title(self) -> Line:
        """What stands at the right end of the title rule."""
        return BLANK

    # --- for screens

    def show(self, data: D | None) -> None:
        """Take new data and repaint what it changes."""
        self.data = data
        self.redraw()

    def set_compact(self, compact: bool) -> None:
        """Without a title rule, for small terminals."""
        if compact != self.compact:
            self.compact = compact
            self.redraw()

    def redraw(self) -> None:
        width, height = self.size
        if not width or not height:
            return
        self._replace(self._all_lines(width, height))

    def plain(self) -> str:
        """The panel as plain text: what `y` copies."""
        return "\n".join(entry.text.rstrip() for entry in self._lines)

    # --- machinery

    def _all_lines(self, width: int, height: int) -> list[Line]:
        rule = 0 if self.compact or not self.titled else 1
        room = height - rule
        body: list[Line] = []
        if room > 0:
            body = self.draw(self.data, width, room) if self.data is not None else []
            if not body and self.empty:
                asked = getattr(self.screen, "ticks", 1)  # nothing is known to be empty before the first answer
                body = [line((part, "dim")) for part in self.empty.split("\n")] if asked else [line(("…", "dim"))]
        return [*([self._rule(width)] if rule else []), *body[:room]]

    def _rule(self, width: int) -> Line:
        mark: Span = ("─▸ ", "accent") if self.has_focus else ("─ ", "dim")
        head = (mark, (self.title, "title"), (" ", ""))
        side = self.side_title().spans
        tail = ((" ", ""), *side, (" ─", "dim")) if side else ()
        gap = width - width_of(head) - width_of(tail)
        if gap < 1:
            tail, gap = (), width - width_of(head)
        return Line((*head, ("─" * max(gap, 0), "dim"), *tail))

    def _replace(self, lines: list[Line]) -> None:
        old, self._lines = self._lines, lines
        width = self.size.width
        changed = [
            y
            for y in range(max(len(old), len(lines)))
            if (old[y] if y < len(old) else BLANK) != (lines[y] if y < len(lines) else BLANK)
        ]
        for y in changed:
            self._strips.pop(y, None)
        if changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def _style(self, role: str) -> Style:
        return self.get_component_rich_style(f"panel--{role}", partial=True) if role else Style.null()

    def render_line(self, y: int) -> Strip:
        strip = self._strips.get(y)
        width = self.size.width
        if strip is None or strip.cell_length != width:
            entry = self._lines[y] if y < len(self._lines) else BLANK
            base = self.rich_style + self._style(entry.base)
            segments = [Segment(text, base + self._style(role)) for text, role in entry.spans]
            strip = Strip(segments).adjust_cell_length(width, base)
            self._strips[y] = strip
        return strip

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    def on_resize(self, event: events.Resize) -> None:
        self._strips.clear()
        self._lines = []
        self.redraw()
        self.refresh()

    def on_focus(self) -> None:
        self.redraw()

    def on_blur(self) -> None:
        self.redraw()
