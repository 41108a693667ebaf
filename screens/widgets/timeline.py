"""The strip of phases: how far an attempt is, in one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from screens.widgets.panel import Panel
from screens.widgets.text import Line, Span, clean, span_s

ORDER = ("launch", "ready", "warmup", "ramp", "steady", "drain", "collect")
SHORT = {"warmup": "warm"}
BEFORE = ("launch", "ready")  # said with their time; blocks are for the load


@dataclass(frozen=True)
class PhaseBit:
    """One phase: seconds it took or takes, `left_s` what remains (None: not known), and whether it is on now."""

    name: str
    took_s: float
    left_s: float | None = None
    now: bool = False


class PhaseStrip(Panel[tuple[PhaseBit, ...]]):
    """Blocks in proportion to time: filled for what was, empty for what remains."""

    titled: ClassVar[bool] = False

    def draw(self, data: tuple[PhaseBit, ...], width: int, height: int) -> list[Line]:
        if not data:
            return []
        words = [SHORT.get(b.name, b.name) for b in data]
        label = "phases     " if width >= 100 else "phases "
        after = [SHORT.get(n, n) for n in ORDER if data[-1].now and n in ("drain",) and n not in {b.name for b in data}]
        times = [f" {span_s(b.took_s)}" if b.now or b.name in BEFORE else "" for b in data]
        room = width - len(label) - sum(len(w) + len(t) + 2 for w, t in zip(words, times, strict=True))
        room -= sum(len(w) + 1 for w in after)
        blocks = [b for b in data if b.now or b.name not in BEFORE]
        total = sum(b.took_s + (b.left_s or 0) for b in blocks) or 1.0
        room = max(room, 0)
        spans: list[Span] = [(label, "dim")]
        for b, word, time in zip(data, words, times, strict=True):
            full = max(int(room * b.took_s / total), 1 if room else 0) if b in blocks else 0
            rest = int(room * (b.left_s or 0) / total)
            spans += [(clean(word, 12), "accent" if b.now else ""), (time + " ", "dim")]
            spans += [("▪" * full, "accent" if b.now else "dim"), ("░" * rest, "dim"), (" ", "")]
        spans += [(w + " ", "dim") for w in after]
        return [Line(tuple(spans))]
