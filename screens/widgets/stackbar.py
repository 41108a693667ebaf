"""One bar per rank whose parts add up to its wall clock, in letters and with the numbers beside it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from screens.widgets.table import Table
from screens.widgets.text import NONE, Line, Span, fit, line, num, width_of

Row = dict[str, Any]
Part = tuple[str, str, str, int]  # letter, role, name, ns

HEAD = ("comp", "both", "comm", "wait", "copy", "idle")


def cells(parts: Sequence[Part], width: int) -> list[Span]:
    """`width` letters shared out by length: edges are rounded, so that no part moves another by more than a cell."""
    total = sum(part[3] for part in parts)
    if total <= 0 or width <= 0:
        return []
    edges, before = [0], 0
    for part in parts:
        before += part[3]
        edges.append((before * width + total // 2) // total)
    return [(part[0] * (b - a), part[1]) for part, (a, b) in zip(parts, pairwise(edges), strict=True) if b > a]


class StackBars(Table):
    """Rows: key, title, wall, parts (in the order of the bar) and shares (under HEAD; None: not known).

    Below the bars, as far as there is room, what the parts of the chosen one are, longest first.
    """

    def __init__(self, title: str, *, key: str, ident: str) -> None:
        super().__init__(title, (), key=key, ident=ident)

    def draw(self, data: list[Row], width: int, height: int) -> list[Line]:
        if not data:
            return []
        title = min(max(width_of([(row["title"], "")]) for row in data), max(width // 6, 8))
        room = max(width - title - 13 - 5 * len(HEAD) - 1, 8)
        head = f" {fit('rank', title)} {fit('wall', 10, '>')} {fit('', room)} " + " ".join(
            fit(word, 4, ">") for word in HEAD
        )
        lines = [line((head, "dim"), (" %", "dim"))]
        legend = self._legend(data, width)
        bars = self._rows_shown = max(min(len(data), height - 1 - (height > 3)), 1)
        self._top = min(max(self._top, self.cursor - bars + 1, 0), self.cursor, max(len(data) - bars, 0))
        for i, row in enumerate(data[self._top : self._top + bars], self._top):
            here = i == self.cursor
            spans: list[Span] = [
                ("▸" if here else " ", "accent"),
                (fit(row["title"], title), "strong" if here else ""),
                (" " + fit(row["wall"], 10, ">") + " ", ""),
                *cells(row["parts"], room),
                (" ", ""),
            ]
            for word, share in zip(HEAD, row["shares"], strict=True):
                text = NONE if share is None else num(100 * share, 1)
                spans.append((fit(text, 4, ">") + " ", "strong" if word in ("comm", "idle") else ""))
            lines.append(Line(tuple(spans), "sel" if here and self.has_focus else ""))
        return [*lines, *legend[: max(height - len(lines), 0)]]

    def _legend(self, data: list[Row], width: int) -> list[Line]:
        row = data[min(self.cursor, len(data) - 1)]
        total = sum(part[3] for part in row["parts"]) or 1
        lines: list[Line] = []
        now: list[Span] = [(" ", "")]
        for letter, role, name, ns in sorted(row["parts"], key=lambda part: -part[3]):
            if not ns:
                continue
            piece: list[Span] = [(letter, role), (f" {name} ", "dim"), (f"{100 * ns / total:.1f}%  ", "")]
            if width_of(now) + width_of(piece) > width:
                lines.append(Line(tuple(now)))
                now = [(" ", "")]
            now += piece
        return [*lines, Line(tuple(now))]
