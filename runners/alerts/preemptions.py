"""Requests taken out of the batch, to be computed again."""

from __future__ import annotations

from runners.alerts.base import BaseRule, Row, number


class Preemptions(BaseRule):
    name = "preemptions"
    flag = "preempted"
    source = "/metrics, else the engine's log"
    next_step = "memory capacity: concurrency and context limits, memory fraction, FP8 KV"

    def title(self, row: Row) -> str:
        return "requests are pre-empted"

    def detail(self, row: Row) -> str:
        return f"{number(row['preempted'])} in the window, KV cache up to {number(row['kv_pct'], 1)} %"
