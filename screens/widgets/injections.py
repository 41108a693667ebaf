"""A strip under a chart: when each long request was on its way, and up to where it was prefill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from screens.widgets.panel import Panel
from screens.widgets.text import Line
from screens.widgets.text import Span as Text


@dataclass(frozen=True)
class Span:
    """One injected request in seconds on the chart's axis; None: not yet."""

    sent: float | None
    first: float | None
    ended: float | None
    number: int


class Injections(Panel[tuple[Span, ...]]):
    """Solid while it waits and is prefilled, light while it decodes; its number where it begins."""

    titled: ClassVar[bool] = False

    def __init__(self, *, ident: str | None = None) -> None:
        super().__init__(ident=ident, focusable=False)
        self._x1 = 1.0
        self._margin = 6

    def place(self, x1: float, margin: int) -> None:
        """The chart above: its x axis goes from 0 to `x1` and begins `margin` cells from the left."""
        self._x1, self._margin = max(x1, 1e-9), margin

    def draw(self, data: tuple[Span, ...], width: int, height: int) -> list[Line]:
        columns = width - self._margin
        if columns < 8:
            return []
        cells: list[Text] = [(" ", "")] * columns

        def at(seconds: float) -> int:
            return min(max(int(seconds / self._x1 * columns), 0), columns - 1)

        for s in data:
            begin, end = at(s.sent or 0.0), at(self._x1 if s.ended is None else s.ended)
            first = end if s.first is None else at(s.first)
            for x in range(begin, end + 1):
                cells[x] = ("▬", "warn") if x <= first else ("─", "dim")
            for i, char in enumerate(str(s.number)):
                if begin + i < columns:
                    cells[begin + i] = (char, "strong")
        spans: list[Text] = [("inject".ljust(self._margin), "dim")]
        for char, role in cells:
            if spans[-1][1] == role and len(spans) > 1:
                spans[-1] = (spans[-1][0] + char, role)
            else:
                spans.append((char, role))
        return [Line(tuple(spans))]
