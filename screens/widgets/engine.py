"""What the engine says of itself: batch, queue, KV, rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from screens.widgets.panel import Panel
from screens.widgets.text import Line, Span, line, num, short, spark

Row = dict[str, Any]


@dataclass(frozen=True)
class EngineView:
    """`now` is the row of `live_engine`; None when the engine has not spoken within the window."""

    now: Row | None
    cap: int | None = None  # concurrency asked for: the scale of the queue's bars


class Engine(Panel[EngineView]):
    def draw(self, data: EngineView, width: int, height: int) -> list[Line]:
        now = data.now
        if now is None:
            return []
        if self.compact or height == 1:
            return [self._one(now)]
        bars = max((width - 36) // 2, 0)
        stale: list[Span] = [(f"  ▲ no data for {now['age_s']:.0f} s", "warn")] if now["stale"] else []
        top = float(data.cap or 0) or None
        lines = [
            line(
                ("running ", "dim"),
                num(now["running"], 0, 5),
                (" " + spark(now["running_series"] or [], bars, top), "calm"),
                ("  waiting ", "dim"),
                (num(now["waiting"], 0, 5), "warn" if (now["waiting"] or 0) > 0 else ""),
                (" " + spark(now["waiting_series"] or [], bars, top), "calm"),
                *stale,
            ),
            line(
                ("KV used ", "dim"),
                (self._pct(now["kv_usage"], 5), "warn" if (now["kv_usage"] or 0) >= 0.95 else ""),
                (" " + spark(now["kv_series"] or [], min(bars, max(width - 54, 0)), 1.0), "calm"),
                ("  preempted ", "dim"),
                (short(now["preemptions"]), "warn" if now["preemptions"] else ""),
                ("  prefix hits ", "dim"),
                self._pct(now["prefix_hit_share"]),
            ),
            line(
                ("prefill ", "dim"),
                short(now["prompt_tps"], 5),
                (" tok/s", "dim"),
                ("   decode ", "dim"),
                short(now["generation_tps"], 5),
                (" tok/s ", "dim"),
                (spark(now["generation_series"] or [], max(width - 44, 0)), "calm"),
            ),
            line(
                ("TTFT ", "dim"),
                num(now["ttft_ms"], 0, 6),
                ("   ITL ", "dim"),
                num(now["itl_ms"], 1, 6),
                ("   queue ", "dim"),
                num(now["queue_ms"], 0, 6),
                (" ms (engine, 1 min)", "dim"),
            ),
        ]
        return lines[:height]

    def _one(self, now: Row) -> Line:
        return line(
            ("engine  running ", "dim"),
            num(now["running"]),
            ("  waiting ", "dim"),
            (num(now["waiting"]), "warn" if (now["waiting"] or 0) > 0 else ""),
            ("  KV ", "dim"),
            self._pct(now["kv_usage"]),
            ("  decode ", "dim"),
            short(now["generation_tps"]),
            (" tok/s  preempted ", "dim"),
            (short(now["preemptions"]), "warn" if now["preemptions"] else ""),
        )

    @staticmethod
    def _pct(share: float | None, width: int = 0) -> str:
        return num(None if share is None else share * 100, 1, width) + " %"
