"""Errors of the NVIDIA driver."""

from __future__ import annotations

from runners.alerts.base import BaseRule, Row


class Xid(BaseRule):
    name = "xid"
    flag = "xid"
    severity = "bad"
    source = "kernel log"
    next_step = "NVIDIA's Xid catalogue says what the number means; 48, 79, 94 and 95 end the work on that GPU"

    def title(self, row: Row) -> str:
        return str(row["subject"])

    def detail(self, row: Row) -> str:
        return str(row["said"])
