"""RoCE packets that had to be sent again."""

from __future__ import annotations

from runners.alerts.base import BaseRule, Row, number


class Retransmits(BaseRule):
    name = "retransmits"
    flag = "retransmits"
    source = "RDMA hw_counters"
    next_step = "loss on the path: PFC and ECN classes, cable, the switch port of this rail"

    def title(self, row: Row) -> str:
        return f"rail {row['device']} sends again"

    def detail(self, row: Row) -> str:
        return (
            f"{number(row['retransmits'])} retransmissions ({number(row['per_million'], 2)} a million packets), "
            f"{number(row['timeouts'])} acknowledgements timed out, {number(row['out_of_sequence'])} out of sequence"
        )
