"""A window of a timeline in cells: ranks x streams, a letter a family, with a cursor, pan and zoom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from screens.widgets.panel import Panel
from screens.widgets.text import Line, Span, fit, line, width_of

HALF = 0.5
GAP = "·"
LEAST_NS = 200


@dataclass(frozen=True)
class Window:
    """What is on screen: `[start_ns, end_ns)` of the common axis in `width` cells."""

    start_ns: int
    end_ns: int
    width: int

    def edge(self, cell: int) -> int:
        """Where a cell begins."""
        return self.start_ns + (self.end_ns - self.start_ns) * cell // max(self.width, 1)


@dataclass(frozen=True)
class Lanes:
    """Cells of one window. rows: who and lane (rank and stream in words), rank, name, family, share, first_ns,
    last_ns."""

    window: Window
    rows: Sequence[dict[str, Any]]


class Timeline(Panel[Lanes]):
    """Upper-case letter: the cell is busy for half its time or more; lower-case: less; a dot: a gap.

    Posts `Wanted` when it needs the cells of another window, `Opened` on enter.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", "cursor to the left; at the edge the window moves"),
        Binding("right", "step(1)", "cursor to the right"),
        Binding("h,shift+left", "pan(-1)", "half a window earlier"),
        Binding("l,shift+right", "pan(1)", "half a window later"),
        Binding("plus,equals_sign", "zoom(-1)", "zoom in at the cursor"),
        Binding("minus", "zoom(1)", "zoom out"),
        Binding("w", "whole", "the whole capture"),
        Binding("up,k", "lane(-1)", "row above"),
        Binding("down,j", "lane(1)", "row below"),
        Binding("pageup", "lane(-8)", "rows above", show=False),
        Binding("pagedown", "lane(8)", "rows below", show=False),
        Binding("enter", "open", "the events under the cursor"),
    ]

    class Wanted(Message):
        """Cells of this window, please."""

        def __init__(self, window: Window) -> None:
            super().__init__()
            self.window = window

    class Opened(Message):
        """Enter on a cell of a row."""

        def __init__(self, row: dict[str, Any], start_ns: int, end_ns: int) -> None:
            super().__init__()
            self.row, self.start_ns, self.end_ns = row, start_ns, end_ns

    def __init__(self, title: str, *, ident: str) -> None:
        super().__init__(title, empty="reading the timeline", ident=ident)
        self.letters: Sequence[Span] = ()
        self.names: Sequence[str] = ()
        self.span_ns = 0
        self.start_ns, self.end_ns = 0, 0
        self.cell, self.row_at, self._top = 0, 0, 0
        self._asked: Window | None = None

    # --- for screens

    def reset(self, span_ns: int, names: Sequence[str], letters: Sequence[Span]) -> None:
        """A new profile: all of it. names, letters: of the families that cells give by number."""
        self.data = None
        self.names, self.letters = names, letters
        self.span_ns, self.start_ns, self.end_ns = max(span_ns, 1), 0, max(span_ns, 1)
        self.cell = self.row_at = self._top = 0
        self._asked = None
        self._ask()

    def go_to(self, start_ns: int, end_ns: int, rank: int, name: str) -> None:
        """Centre on an event, so that it takes about a tenth of the window, with the cursor on it."""
        room = max(5 * (end_ns - start_ns), LEAST_NS)
        middle = (start_ns + end_ns) // 2
        self._place(middle - room, middle + room)
        self.cell = min((middle - self.start_ns) * self._cells() // (self.end_ns - self.start_ns), self._cells() - 1)
        rows = self.data.rows if self.data else ()
        for i, row in enumerate(rows):
            if row["rank"] == rank and row["name"] == name:
                self.row_at = i
        self._ask()

    # --- drawing

    def _label(self) -> int:
        return 12 if self.size.width < 100 else 18

    def _cells(self) -> int:
        return max(self.size.width - self._label() - 2, 8)

    def draw(self, data: Lanes, width: int, height: int) -> list[Line]:
        label, shown = self._label(), max(height - 2, 1)
        self.cell = min(self.cell, data.window.width - 1)
        self.row_at = min(self.row_at, max(len(data.rows) - 1, 0))
        self._top = min(max(self._top, self.row_at - shown + 1, 0), self.row_at, max(len(data.rows) - shown, 0))
        lines = [self._ruler(data.window, label)]
        for i, row in enumerate(data.rows[self._top : self._top + shown], self._top):
            here = i == self.row_at
            mark: Span = ("▸" if here else " ", "accent")
            lane = row["lane"]
            who = fit(row["who"], max(min(label - len(lane) - 1, width_of([(row["who"], "")])), 2))
            spans = [mark, (fit(f"{who} {lane}", label), "strong" if here else "dim"), (" ", "")]
            lines.append(Line((*spans, *self._row(data.window, row, here))))
        return [*lines[: height - 1], self._told(data)] if height > 2 else lines

    def _row(self, window: Window, row: dict[str, Any], here: bool) -> list[Span]:
        found: list[Span] = []
        for cell, (family, share) in enumerate(zip(row["family"], row["share"], strict=True)):
            if family >= 0:
                letter, role = self.letters[family]
                text = letter if share >= HALF else letter.lower()
            else:
                inside = window.edge(cell + 1) > row["first_ns"] and window.edge(cell) < row["last_ns"]
                text, role = (GAP if inside else " "), "dim"
            found.append((text, "found" if here and cell == self.cell and self.has_focus else role))
        return [("".join(t for t, _ in group), role) for role, group in groupby(found, key=lambda span: span[1])]

    def _ruler(self, window: Window, label: int) -> Line:
        step = 20 if window.width >= 60 else 15
        marks = "".join(
            fit("│" + at(window.edge(c), window.end_ns - window.start_ns), min(step, window.width - c))
            for c in range(0, window.width, step)
        )
        return line((" " * (label + 2), ""), (marks, "dim"))

    def _told(self, data: Lanes) -> Line:
        if not data.rows:
            return line("")
        row, window = data.rows[self.row_at], data.window
        family, share = row["family"][self.cell], row["share"][self.cell]
        begin = window.edge(self.cell)
        each = (window.end_ns - window.start_ns) / window.width
        what = "gap" if family < 0 else f"mostly {self.names[family]}, busy {100 * share:.1f} %"
        where = f", {length(each)} a cell at {at(begin, window.end_ns - window.start_ns)}, {row['who']} {row['lane']}"
        keys = "   +/- zoom  w all  enter events" if self.size.width >= 100 else ""
        return line(" ", (what, "strong"), (where, "dim"), (keys, "dim"))

    def side_title(self) -> Line:
        rows = len(self.data.rows) if self.data else 0
        whole = f"{length(self.end_ns - self.start_ns)} of {length(self.span_ns)}"
        return line((whole + (f"  row {self.row_at + 1}/{rows}" if rows else ""), "dim"))

    # --- the window

    def _ask(self) -> None:
        wanted = Window(self.start_ns, self.end_ns, self._cells())
        if self.span_ns and self.size.width and wanted != self._asked:
            self._asked = wanted
            self.post_message(self.Wanted(wanted))
        self.redraw()

    def _place(self, start: int, end: int) -> None:
        size = min(max(end - start, LEAST_NS, self._cells()), max(self.span_ns, LEAST_NS, self._cells()))
        start = min(max(start, 0), max(self.span_ns - size, 0))
        self.start_ns, self.end_ns = start, start + size

    def on_resize(self, event: Any) -> None:
        super().on_resize(event)
        self._ask()

    def action_step(self, by: int) -> None:
        to = self.cell + by
        if 0 <= to < self._cells():
            self.cell = to
            self.redraw()
        else:
            self._pan(by * (self.end_ns - self.start_ns) // 8)

    def action_pan(self, by: int) -> None:
        self._pan(by * (self.end_ns - self.start_ns) // 2)

    def _pan(self, by: int) -> None:
        self._place(self.start_ns + by, self.end_ns + by)
        self._ask()

    def action_zoom(self, by: int) -> None:
        """In or out by 2, the instant under the cursor staying where it is."""
        size = self.end_ns - self.start_ns
        new = max(size // 2, LEAST_NS) if by < 0 else size * 2
        share = (self.cell + HALF) / self._cells()
        held = self.start_ns + size * share
        self._place(int(held - new * share), int(held - new * share) + new)
        self._ask()

    def action_whole(self) -> None:
        self._place(0, self.span_ns)
        self._ask()

    def action_lane(self, by: int) -> None:
        rows = len(self.data.rows) if self.data else 0
        self.row_at = min(max(self.row_at + by, 0), max(rows - 1, 0))
        self.redraw()

    def action_open(self) -> None:
        if self.data and self.data.rows:
            window = self.data.window
            row = self.data.rows[self.row_at]
            self.post_message(self.Opened(row, window.edge(self.cell), window.edge(self.cell + 1)))


def length(ns: float) -> str:
    """A duration with the unit that fits: 840 ns, 12.3 us, 4.56 ms, 1.223 s."""
    for unit, size, digits in (("s", 1e9, 3), ("ms", 1e6, 2), ("us", 1e3, 1)):
        if abs(ns) >= size:
            return f"{ns / size:.{digits}f} {unit}"
    return f"{ns:.0f} ns"


def at(ns: int, span_ns: int) -> str:
    """An instant with as many digits as a window of this length needs, in ms."""
    digits = 1 if span_ns >= 1e9 else 3 if span_ns >= 1e6 else 6
    return f"{ns / 1e6:.{digits}f} ms"
