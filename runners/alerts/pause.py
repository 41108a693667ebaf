"""PFC or global pauses on a rail."""

from __future__ import annotations

from runners.alerts.base import BaseRule, Row, number


class Pause(BaseRule):
    name = "pause"
    flag = "paused"
    source = "ethtool -S"
    next_step = (
        "received pauses: the switch or the peer is full; sent ones: this host does not take its data fast enough"
    )

    def title(self, row: Row) -> str:
        return f"rail {row['device']} is paused"

    def detail(self, row: Row) -> str:
        return (
            f"received {number(row['rx_frames'])} pause frames ({number(row['rx_pct'], 2)} % of the time), "
            f"sent {number(row['tx_frames'])} ({number(row['tx_pct'], 2)} %)"
        )
