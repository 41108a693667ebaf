"""A GPU that does not answer any more."""

from __future__ import annotations

from runners.alerts.base import BaseRule, Row


class GpuLost(BaseRule):
    name = "gpu_lost"
    flag = "gpu_lost"
    severity = "fatal"
    source = "nvidia-smi, kernel log"
    next_step = "dmesg on the node; the GPU needs a reset or the node a reboot"

    def title(self, row: Row) -> str:
        return f"{row['subject']} is lost"

    def detail(self, row: Row) -> str:
        return str(row["said"] or "no answer")
