"""Somebody else on the GPUs."""

from __future__ import annotations

from runners.alerts.base import BaseRule, Row, size


class OtherProcess(BaseRule):
    name = "other_process"
    flag = "shared_gpus"
    source = "nvidia-smi --query-compute-apps"
    next_step = "end it or wait: figures of shared GPUs prove nothing"

    def title(self, row: Row) -> str:
        return f"another process on the GPUs: {row['process'] or row['subject']}"

    def detail(self, row: Row) -> str:
        return f"{row['subject']} holds {size(row['mem_bytes'])} on {row['gpus']} GPUs"
