"""The one-line bars: what this is on top, where to go at the bottom, what is wrong in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from screens.widgets.panel import Panel
from screens.widgets.text import Line, Span, crop, line, width_of, wrap


@dataclass(frozen=True)
class Ends:
    """A bar's left and right end."""

    left: tuple[Span, ...]
    right: tuple[Span, ...] = ()


class Bar(Panel[Ends]):
    """One line; the right end is kept, the left one is cut where both do not fit."""

    titled: ClassVar[bool] = False

    def __init__(self, *, ident: str | None = None) -> None:
        super().__init__(ident=ident, focusable=False)

    def draw(self, data: Ends, width: int, height: int) -> list[Line]:
        tail = width_of(data.right)
        room = width - tail if tail < width // 2 else width
        left = crop(data.left, room)
        gap = width - width_of(left) - tail
        return [Line((*left, (" " * gap, ""), *data.right) if gap >= 0 else left)]


class TextPanel(Panel[tuple[Line, ...]]):
    """Lines made elsewhere, scrolled with the arrow keys when they do not fit."""

    def __init__(self, title: str = "", *, empty: str = "", ident: str | None = None) -> None:
        super().__init__(title, empty=empty, ident=ident)
        self.top = 0
        self._room = 1
        self._wrapped: tuple[Line, ...] = ()

    def draw(self, data: tuple[Line, ...], width: int, height: int) -> list[Line]:
        self._wrapped = wrap(data, width)
        self._room = height
        self.top = min(self.top, max(len(self._wrapped) - height, 0))
        return list(self._wrapped[self.top : self.top + height])

    def side_title(self) -> Line:
        n = len(self._wrapped)
        return line((f"{self.top + 1}-{min(self.top + self._room, n)}/{n}", "dim")) if n > self._room else Line(())

    def bottom(self) -> None:
        """Show the end."""
        self.top = len(self._wrapped)
        self.redraw()

    def key_up(self) -> None:
        self._scroll(-1)

    def key_down(self) -> None:
        self._scroll(1)

    def key_pageup(self) -> None:
        self._scroll(-self._room)

    def key_pagedown(self) -> None:
        self._scroll(self._room)

    def on_mouse_scroll_up(self) -> None:
        self._scroll(-2)

    def on_mouse_scroll_down(self) -> None:
        self._scroll(2)

    def _scroll(self, by: int) -> None:
        self.top = max(self.top + by, 0)
        self.redraw()
