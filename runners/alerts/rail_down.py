"""A rail whose link is not up."""

from __future__ import annotations

from runners.alerts.base import BaseRule, Row


class RailDown(BaseRule):
    name = "rail_down"
    flag = "rail_down"
    severity = "bad"
    source = "port state and link_downed"
    next_step = "cable, transceiver, switch port; `dmesg` names the moment"
    takes_rails = True

    def title(self, row: Row) -> str:
        return f"rail {row['device']} is {row['state'] or 'unknown'}"

    def detail(self, row: Row) -> str:
        return f"the link went down {row['downs']} times; state {row['state']}"
