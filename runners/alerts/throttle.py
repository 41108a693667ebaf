"""GPUs held back by heat, a brake or their power cap."""

from __future__ import annotations

from runners.alerts.base import BaseRule, Row, number


class Throttle(BaseRule):
    name = "throttle"
    flag = "throttled"
    source = "clock event reasons of the driver"
    next_step = "look at cooling and power of this GPU; expect it to be the slowest rank"

    def title(self, row: Row) -> str:
        return f"{row['subject']} throttles ({row['reason']})"

    def detail(self, row: Row) -> str:
        return (
            f"{number(row['sm_mhz'])} MHz against {number(row['free_mhz'])} of the others, {number(row['temp_c'])} C, "
            f"in {number(row['share_pct'])} % of the samples"
        )
