"""A rail that carries little or nothing while the others move data."""

from __future__ import annotations

from runners.alerts.base import BaseRule, Row, number


class RailUnequal(BaseRule):
    name = "rail_unequal"
    flag = "rail_unequal"
    source = "RDMA port counters"
    next_step = "NCCL_IB_HCA, NCCL_CROSS_NIC, rank-NIC-NUMA affinity; the gate shows what NCCL chose"
    takes_rails = True

    def title(self, row: Row) -> str:
        return f"rail {row['device']} {'idle' if row['idle'] else 'unequal'}"

    def detail(self, row: Row) -> str:
        return (
            f"{number(row['bytes'] / 1e9, 1)} of {number(row['all_bytes'] / 1e9, 1)} GB, "
            f"{number(row['share_pct'], 1)} % with {row['rails']} rails"
        )
