"""Samples that come late or stayed away."""

from __future__ import annotations

from runners.alerts.base import BaseRule, Row, number


class ProbeSlow(BaseRule):
    name = "probe_slow"
    flag = "probe_slow"
    source = "instants of the samples"
    next_step = "the node or its tool was held up: load, a frozen host, a slow driver; the gap stays a gap"

    def title(self, row: Row) -> str:
        return f"{row['subject']} are late"

    def detail(self, row: Row) -> str:
        return f"every {number(row['every_s'], 1)} s, the longest gap {number(row['longest_s'], 1)} s"
