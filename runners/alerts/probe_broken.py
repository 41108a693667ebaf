"""A source of figures that fails or hangs."""

from __future__ import annotations

from runners.alerts.base import BaseRule, Row


class ProbeBroken(BaseRule):
    name = "probe_broken"
    flag = "probe_broken"
    source = "what the tool said"
    next_step = "run the tool by hand on the node; the run goes on without these figures"

    def title(self, row: Row) -> str:
        return f"{row['subject']} {'hangs' if row['what'] == 'source_hung' else 'fails'}"

    def detail(self, row: Row) -> str:
        return str(row["said"])
