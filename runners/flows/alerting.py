"""Asks the alert rules every few seconds while a run is on, and keeps the findings."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Final

from runners.alerts import RULES
from runners.alerts.base import Row, Rule
from runners.alerts.book import Span, judge
from runners.flows.services import Services
from runners.spec import Node
from store.errors import StoreError
from store.queries import call, literal
from store.records import Finding

log = logging.getLogger("twinrail.alerts")

EVERY_S: Final = 5.0
LOOK_BACK_S: Final = 60  # before the point up to which every node's figures were judged
LONGEST_S: Final = 3600  # of a window: a node that was away for longer is judged for its last hour
SHARE: Final = 0.05  # of the owner's time that judging may take


class AlertWatch:
    """The alerts of one run. Figures that come late (a cut link) are judged when they have come."""

    def __init__(self, services: Services, run_id: str, nodes: Sequence[Node]) -> None:
        self.services = services
        self.run_id = run_id
        self.rails = [f"{n.name} {rail.hca}" for n in nodes for rail in n.rails]
        self._judged: dict[str, int] = {}  # node -> instant up to which its figures were judged
        self._known: dict[str, Finding] | None = None

    async def run(self) -> None:
        """For as long as the run is on. A query that fails costs this look."""
        while True:
            begun = time.monotonic()
            try:
                await self.look()
            except StoreError as e:
                log.warning("%s: alerts not judged: %s", self.run_id, e)
            await asyncio.sleep(max(EVERY_S, (time.monotonic() - begun) / SHARE))

    async def look(self) -> list[Finding]:
        """Judge what has come since the last look; the findings written. Raises StoreError."""
        changed = await asyncio.to_thread(self._look)
        if changed:
            await self.services.store.commit(changed)
            self._known = {**(self._known or {}), **{f.finding_id: f for f in changed}}
        return changed

    def _look(self) -> list[Finding]:
        store, run_id = self.services.store, self.run_id
        if self._known is None:
            rows = store.query(f"from findings where run_id = {literal(run_id)}").dicts()
            names = {r.name for r in RULES}
            self._known = {f.finding_id: f for f in (Finding(**row) for row in rows) if f.rule in names}
        clock = store.query(call("live_clock", run_id)).dicts()
        shift = {c["node"]: int(c["shift_ns"]) for c in clock}
        apart = [(node, ns) for node, ns in shift.items() if node and ns]
        clocks = {"names": [n for n, _ in apart], "shifts": [ns for _, ns in apart]}
        now = time.time_ns() - shift.get("", 0)
        since = min(self._judged.values(), default=now) - LOOK_BACK_S * 10**9
        t0 = max(since, now - LONGEST_S * 10**9)
        reach = {r["node"]: r["at_ns"] for r in store.query(call("alert_reach", run_id, t0, **_typed(clocks))).dicts()}
        t1 = max([now, *reach.values()])
        told = [(rule, said) for rule in RULES if (said := self._rows(rule, t0, t1, clocks)) is not None]
        self._judged.update(reach)
        return judge(run_id, self._known, told, {**self._judged, **reach}, self._attempts(shift.get("", 0)))

    def _rows(self, rule: Rule, t0: int, t1: int, clocks: dict[str, list[str] | list[int]]) -> list[Row] | None:
        """None when the query failed: a defect of one rule must not cost the others, or the run."""
        more = {"rails": self.rails} if rule.takes_rails and self.rails else {}
        asked = call(f"alert_{rule.name}", self.run_id, t0, t1, **_typed(clocks), **more)
        try:
            return list(self.services.store.query(asked).dicts())
        except StoreError as e:
            log.warning("%s: %s not judged: %s", self.run_id, rule.name, e)
            return None

    def _attempts(self, owner_shift: int) -> list[Span]:
        rows = self.services.store.query(
            "select attempt_id, started_wall_ns, ended_wall_ns from attempts "
            f"where run_id = {literal(self.run_id)} and started_wall_ns is not null"
        ).rows
        return [Span(a, s - owner_shift, None if e is None else e - owner_shift) for a, s, e in rows]


def _typed(clocks: dict[str, list[str] | list[int]]) -> dict[str, list[str] | list[int]]:
    """Without clocks apart the queries' own defaults hold: an empty list has no type."""
    return {k: v for k, v in clocks.items() if v}
