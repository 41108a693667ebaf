"""A node whose disk is nearly full."""

from __future__ import annotations

from runners.alerts.base import BaseRule, Row, size


class Disk(BaseRule):
    name = "disk"
    flag = "disk_full"
    severity = "bad"
    source = "df"
    next_step = "make room there: job files and logs cannot be written on a full disk"

    def title(self, row: Row) -> str:
        return "the disk is nearly full"

    def detail(self, row: Row) -> str:
        return f"{size(row['free_bytes'])} of {size(row['total_bytes'])} free under twinrail's folder"
