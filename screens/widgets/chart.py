"""A line chart in braille dots: two series or more, axes, phase marks, limit lines, and a cursor that reads values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from screens.widgets.panel import Panel
from screens.widgets.text import BLANK, Line, Span, clean, line, milli, span_s

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # braille bit of (row, column) in a cell


@dataclass(frozen=True)
class Series:
    """One curve. `ys` may hold None: the curve breaks there. `dots`: points only, no joining lines."""

    name: str
    role: str
    xs: Sequence[float]
    ys: Sequence[float | None]
    dots: bool = False


@dataclass(frozen=True)
class Plot:
    """What a chart shows. x in seconds; `marks` are (x, word); `limits` are (y, word), for example an SLO."""

    series: Sequence[Series]
    x0: float
    x1: float
    marks: Sequence[tuple[float, str]] = ()
    limits: Sequence[tuple[float, str]] = ()
    zero: bool = True  # the y axis starts at zero
    unit: str = ""
    origin_ns: int | None = field(default=None, compare=False)  # the run's clock at x = 0


def nice(top: float) -> float:
    """The next of 1, 1.5, 2, 3, 4, 5, 6, 8, 10 times a power of ten at or above `top`."""
    if top <= 0 or not math.isfinite(top):
        return 1.0
    power = 10.0 ** math.floor(math.log10(top))
    return next((m * power for m in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if m * power >= top * (1 - 1e-9)), 10 * power)


class Canvas:
    """Dots in cells: 2 x 4 dots a cell; the last series to touch a cell gives it its colour."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.bits = [bytearray(width) for _ in range(height)]
        self.roles: list[list[str]] = [[""] * width for _ in range(height)]

    def dot(self, x: int, y: int, role: str) -> None:
        if 0 <= x < self.width * 2 and 0 <= y < self.height * 4:
            cx, cy = x >> 1, y >> 2
            self.bits[cy][cx] |= _DOTS[y & 3][x & 1]
            self.roles[cy][cx] = role

    def join(self, x0: int, y0: int, x1: int, y1: int, role: str) -> None:
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for i in range(steps + 1):
            self.dot(x0 + (x1 - x0) * i // steps, y0 + (y1 - y0) * i // steps, role)


class Chart(Panel[Plot]):
    """`left` and `right` move a cursor that reads the curves; `escape` puts it away."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "cursor(-1)", "cursor left"),
        Binding("right", "cursor(1)", "cursor right"),
        Binding("shift+left", "cursor(-10)", "cursor far left"),
        Binding("shift+right", "cursor(10)", "cursor far right"),
        Binding("enter", "here", "what happened here: every panel and the logs at this instant"),
        Binding("escape", "no_cursor", "no cursor"),
    ]

    class Here(Message):
        """The operator asks what happened at this instant of the run's clock."""

        def __init__(self, at_ns: int) -> None:
            super().__init__()
            self.at_ns = at_ns

    def __init__(self, title: str = "", *, empty: str = "", ident: str | None = None) -> None:
        super().__init__(title, empty=empty, ident=ident)
        self.at: float | None = None  # cursor, x in seconds
        self.margin = 6  # cells left of the x axis, as drawn last

    def draw(self, data: Plot, width: int, height: int) -> list[Line]:
        known = [y for s in data.series for y in s.ys if y is not None]
        if not known or data.x1 <= data.x0 or height < 3:
            return []
        low, high = self._range(data, known)
        margin = self.margin = max(len(self._label(high)), len(self._label(low)), 3) + 2
        columns, rows = width - margin, height - 1
        if columns < 8:
            return []
        canvas = Canvas(columns, rows)

        def px(x: float) -> int:
            return round((x - data.x0) / (data.x1 - data.x0) * (columns * 2 - 1))

        def py(y: float) -> int:
            return round((high - y) / (high - low) * (rows * 4 - 1))

        for y, _ in data.limits:
            for step in range(0, columns * 2, 4):
                canvas.dot(step, py(y), "warn")
        for s in data.series:
            last: tuple[int, int] | None = None
            for x, value in zip(s.xs, s.ys, strict=True):
                if value is None or not data.x0 <= x <= data.x1:
                    last = None
                    continue
                here = px(x), py(min(max(value, low), high))
                if last and not s.dots:
                    canvas.join(*last, *here, s.role)
                else:
                    canvas.dot(*here, s.role)
                last = here
        return self._lines_of(data, canvas, low, high, margin)

    def _range(self, data: Plot, known: list[float]) -> tuple[float, float]:
        top = max([*known, *(y for y, _ in data.limits if y <= 3 * max(known))])
        if data.zero:
            return 0.0, nice(top * 1.04)
        bottom = min(known)
        pad = max((top - bottom) * 0.1, abs(top) * 0.01, 1e-9)
        return max(bottom - pad, 0.0) if bottom >= 0 else bottom - pad, top + pad

    def _label(self, value: float) -> str:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"

    def _lines_of(self, data: Plot, canvas: Canvas, low: float, high: float, margin: int) -> list[Line]:
        rows, columns = canvas.height, canvas.width
        middle = (high + low) / 2
        labels = {0: high, rows - 1: low, (rows - 1) // 2: middle} if rows >= 5 else {0: high, rows - 1: low}
        marks = {self._cell(data, x, columns): word for x, word in data.marks if data.x0 < x < data.x1}
        cursor = None if self.at is None else self._cell(data, self.at, columns)
        lines: list[Line] = []
        for row in range(rows):
            label = f"{self._label(labels[row]):>{margin - 2}} ┤" if row in labels else " " * (margin - 1) + "│"
            spans: list[Span] = [(label, "dim")]
            text, role = "", ""
            for col in range(columns):
                bits = canvas.bits[row][col]
                if bits:
                    char, kind = chr(0x2800 + bits), canvas.roles[row][col]
                elif col == cursor:
                    char, kind = "┃", "accent"
                elif col in marks:
                    char, kind = "┊", "dim"
                else:
                    char, kind = " ", role if role else ""
                if kind != role and text:
                    spans.append((text, role))
                    text = ""
                text, role = text + char, kind
            spans.append((text, role))
            lines.append(Line(tuple(spans)))
        lines.append(self._axis(data, marks, columns, margin))
        return lines

    @staticmethod
    def _cell(data: Plot, x: float, columns: int) -> int:
        return min(max(int((x - data.x0) / (data.x1 - data.x0) * columns), 0), columns - 1)

    def _axis(self, data: Plot, marks: dict[int, str], columns: int, margin: int) -> Line:
        left, right = span_s(data.x0), span_s(data.x1)
        axis = [" "] * columns
        named = sorted(marks.items(), key=lambda m: (m[1] != "steady", m[0]))  # the one that matters most has room
        for at, word in ((0, left), (columns - len(right), right), *((c + 1, w) for c, w in named)):
            word = clean(word, 12)
            if (
                at >= 0
                and at + len(word) <= columns
                and all(c == " " for c in axis[max(at - 1, 0) : at + len(word) + 1])
            ):
                axis[at : at + len(word)] = list(word)
        return line((" " * (margin - 1) + "└", "dim"), ("".join(axis), "dim"))

    def side_title(self) -> Line:
        if self.data is None:
            return BLANK
        spans: list[Span] = []
        if self.at is not None:
            spans += [(f"at {span_s(self.at)}  ", "accent")]
        for s in self.data.series:
            value = self._value(s)
            if value is None:
                continue
            spans += [("⠒ ", s.role), (clean(s.name, 20) + " ", "dim"), (milli(value) + " ", "")]
        spans += [(f"┄ {clean(word, 12)} {milli(y)} ", "warn") for y, word in self.data.limits]
        return Line(tuple(spans))

    def _value(self, s: Series) -> float | None:
        """The value under the cursor, else the last one."""
        known = [(x, y) for x, y in zip(s.xs, s.ys, strict=True) if y is not None]
        if not known:
            return None
        if self.at is None:
            return known[-1][1]
        at = self.at
        return min(known, key=lambda p: abs(p[0] - at))[1]

    def action_cursor(self, by: int) -> None:
        if self.data is None:
            return
        step = (self.data.x1 - self.data.x0) / max(self.size.width - 8, 1)
        start = self.data.x1 if self.at is None else self.at
        self.at = min(max(start + by * step, self.data.x0), self.data.x1)
        self.redraw()

    def action_no_cursor(self) -> None:
        self.at = None
        self.redraw()

    def action_here(self) -> None:
        if self.at is not None and self.data is not None and self.data.origin_ns is not None:
            self.post_message(self.Here(self.data.origin_ns + int(self.at * 1e9)))
