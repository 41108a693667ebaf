"""A KV cache that is full."""

from __future__ import annotations

from runners.alerts.base import BaseRule, Row, number


class KvFull(BaseRule):
    name = "kv_full"
    flag = "kv_full"
    source = "/metrics"
    next_step = "fewer concurrent requests, a smaller context limit, or FP8 KV"

    def title(self, row: Row) -> str:
        return "KV cache is nearly full"

    def detail(self, row: Row) -> str:
        return f"{number(row['kv_pct'], 1)} % used, {number(row['running'])} running, {number(row['waiting'])} waiting"
