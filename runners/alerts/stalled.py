"""Requests that run while no token moves."""

from __future__ import annotations

from runners.alerts.base import BaseRule, Row, number


class Stalled(BaseRule):
    name = "stalled"
    flag = "stalled"
    severity = "bad"
    source = "/metrics"
    next_step = "the last lines of every rank; py-spy or the engine's watchdog says where it waits"

    def title(self, row: Row) -> str:
        return "the engine moves no token"

    def detail(self, row: Row) -> str:
        return f"{number(row['running'])} running, no token for {number(row['still_s'])} s"
