"""A node whose clock moves against the owner's."""

from __future__ import annotations

from runners.alerts.base import BaseRule, Row, number


class Clock(BaseRule):
    name = "clock"
    flag = "clock_moved"
    source = "clock measurements over the link"
    next_step = "chrony or ntpd on the node; instants of this node are corrected by the newest offset"

    def title(self, row: Row) -> str:
        return "the clock moved"

    def detail(self, row: Row) -> str:
        return f"{number(row['moved_ms'], 1)} ms since the run began, known to {number(row['error_ms'], 1)} ms"
