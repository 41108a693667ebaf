"""The frontier of a search: a mark a point where two of its figures meet, each with its load, rings on the answers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from screens.widgets.chart import Canvas, nice
from screens.widgets.panel import Panel
from screens.widgets.text import BLANK, Line, Span, clean, fit, line, width_of

AXIS_LIMIT = 3.0  # an SLO further away than this many times the farthest point would press the points together


@dataclass(frozen=True)
class Spot:
    """One point. `rings`: letters of the answers it gives, "" for none. `live`: measured at this moment."""

    x: float
    y: float
    label: str
    sign: str
    role: str
    rings: str = ""
    live: bool = False
    chosen: bool = False


@dataclass(frozen=True)
class Cloud:
    """What a frontier shows. `spots` in order of load; `limits` are (x, word) of the metric to the right."""

    spots: Sequence[Spot]
    x_name: str
    y_name: str
    limits: Sequence[tuple[float, str]] = ()
    legend: Line = BLANK


class _Letters:
    """Cells of text over a canvas: whoever comes first keeps its place."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.cells: dict[tuple[int, int], Span] = {}

    def free(self, x: int, y: int, text: str) -> bool:
        inside = 0 <= y < self.height and x >= 0 and x + len(text) <= self.width
        return inside and all((x + i, y) not in self.cells for i in range(-1, len(text) + 1))

    def put(self, x: int, y: int, text: str, role: str) -> None:
        for i, char in enumerate(text):
            if 0 <= x + i < self.width and 0 <= y < self.height:
                self.cells[(x + i, y)] = (char, role)


class Frontier(Panel[Cloud]):
    """Points joined in order of load. A ring is a pair of brackets with letters: it needs no colour."""

    def draw(self, data: Cloud, width: int, height: int) -> list[Line]:
        legend = [data.legend] if data.legend.spans and height >= 8 else []
        rows = height - 1 - len(legend)
        if not data.spots or rows < 3:
            return []
        x0, x1 = _span([s.x for s in data.spots], [x for x, _ in data.limits])
        top = nice(max(s.y for s in data.spots) * 1.04)
        margin = max(len(_label(top)), 3) + 2
        columns = width - margin
        if columns < 12:
            return []
        canvas, letters = Canvas(columns, rows), _Letters(columns, rows)

        def dots(x: float, y: float) -> tuple[int, int]:
            return round((x - x0) / (x1 - x0) * (columns * 2 - 1)), round((top - y) / top * (rows * 4 - 1))

        known = [(x, word) for x, word in data.limits if x0 <= x <= x1]
        for x, _ in known:
            for y in range(0, rows * 4, 2):
                canvas.dot(dots(x, 0)[0], y, "warn")
        places = [dots(s.x, s.y) for s in data.spots]
        for (ax, ay), (bx, by) in itertools.pairwise(places):
            canvas.join(ax, ay, bx, by, "calm")
        cells = [(x >> 1, y >> 2) for x, y in places]
        self._write(data.spots, cells, letters)
        for x, word in known:
            self._word(letters, dots(x, 0)[0] >> 1, clean(word, 20))
        return [*self._rows(canvas, letters, top, margin), self._axis(data, x0, x1, columns, margin), *legend]

    def _write(self, spots: Sequence[Spot], cells: Sequence[tuple[int, int]], letters: _Letters) -> None:
        """Signs first, so that no label hides one; then labels, those of answers and of the chosen point first."""
        order = sorted(range(len(spots)), key=lambda i: (not spots[i].chosen, not spots[i].rings, not spots[i].live))
        for i in reversed(order):
            (x, y), s = cells[i], spots[i]
            role = "found" if s.chosen else s.role
            letters.put(x, y, s.sign, role)
            if s.rings:
                letters.put(x - 1, y, "(", "strong")
                letters.put(x + 1, y, ")", "strong")
        for i in order:
            (x, y), s = cells[i], spots[i]
            text = clean(s.label, 12) + (f" {s.rings}" if s.rings else "")
            far = 2 + bool(s.rings)
            for at in ((x + far, y), (x - far + 1 - len(text), y), (x - len(text) // 2, y - 1), (x, y + 1)):
                if letters.free(*at, text):
                    letters.put(*at, text, "found" if s.chosen else "strong" if s.rings else s.role or "dim")
                    break

    @staticmethod
    def _word(letters: _Letters, x: int, word: str) -> None:
        """The limit's name beside its line, at the foot."""
        for y in range(letters.height - 1, -1, -1):
            for at in (x + 1, x - len(word)):
                if letters.free(at, y, word):
                    letters.put(at, y, word, "warn")
                    return

    @staticmethod
    def _rows(canvas: Canvas, letters: _Letters, top: float, margin: int) -> Iterator[Line]:
        rows = canvas.height
        labels = {0: top, rows - 1: 0.0} | ({(rows - 1) // 2: top / 2} if rows >= 5 else {})
        for row in range(rows):
            label = f"{_label(labels[row]):>{margin - 2}} ┤" if row in labels else " " * (margin - 1) + "│"
            spans: list[Span] = [(label, "dim")]
            for col in range(canvas.width):
                bits = canvas.bits[row][col]
                char, role = letters.cells.get((col, row)) or (
                    (chr(0x2800 + bits), canvas.roles[row][col]) if bits else (" ", "")
                )
                if spans[-1][1] == role and len(spans) > 1:
                    spans[-1] = (spans[-1][0] + char, role)
                else:
                    spans.append((char, role))
            yield Line(tuple(spans))

    @staticmethod
    def _axis(data: Cloud, x0: float, x1: float, columns: int, margin: int) -> Line:
        left, right = _label(x0), f"{_label(x1)} {clean(data.x_name, 20)} →"
        between = " " * max(columns - len(left) - len(right), 1)
        return line((" " * (margin - 1) + "└", "dim"), (fit(left + between + right, columns), "dim"))

    def side_title(self) -> Line:
        if self.data is None:
            return BLANK
        side = line((f"{clean(self.data.y_name, 20)} ↑", "dim"))
        return side if width_of(side.spans) < self.size.width // 2 else BLANK


def _label(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _span(xs: Sequence[float], limits: Sequence[float]) -> tuple[float, float]:
    """The x axis: from zero unless all lies far from it, with room at both ends, and the SLO on it where it is near."""
    known = [*xs, *(x for x in limits if x <= AXIS_LIMIT * max(xs))]
    low, high = min(known), max(known)
    if low < high / 2:
        return 0.0, nice(high * 1.04)
    pad = max((high - low) * 0.12, high * 0.02, 1e-9)
    return max(low - pad, 0.0), high + pad
