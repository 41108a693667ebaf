"""Rolls the samples of long runs up to steps of 10 and 60 s, so that hours and days are drawn from few rows.

A run of a few minutes needs none: its history reads the samples. What comes late (a cut link) is rolled up again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from runners.flows.services import Services
from store.errors import StoreError
from store.queries import call, literal
from store.records import GpuRollup, RailRollup, Record

log = logging.getLogger("twinrail.rollups")

EVERY_S: Final = 60.0
FROM_S: Final = 600  # a run shorter than this is left alone
STEPS_S: Final = (10, 60)
PIECE_S: Final = 3600  # rolled up at a time: an owner that comes late does not do a day in one query
MOST_PIECES: Final = 24  # in one go
_MINUTE: Final = 60 * 10**9
_START: Final = 2**62


class Rollups:
    """The roll-ups of one run."""

    def __init__(self, services: Services, run_id: str) -> None:
        self.services = services
        self.run_id = run_id
        self._done: dict[str, int] = {}  # node -> instant of its own clock up to which its samples are rolled up

    async def run(self) -> None:
        """For as long as the run is on."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                for _ in range(MOST_PIECES):
                    if not await self.roll():
                        break
            except StoreError as e:
                log.warning("%s: not rolled up: %s", self.run_id, e)

    async def roll(self) -> bool:
        """Roll up what has come; whether there is more. Raises StoreError."""
        records, reach = await asyncio.to_thread(self._records)
        if not records:
            return False
        await self.services.store.commit(records)
        before, self._done = self._done, {**self._done, **reach}
        return any(reach[node] > before.get(node, 0) for node in reach) and self._behind(reach)

    def _behind(self, reach: dict[str, int]) -> bool:
        newest = self._newest()
        return any(newest.get(node, 0) - at > 2 * _MINUTE for node, at in reach.items())

    def _newest(self) -> dict[str, int]:
        rows = self.services.store.query(
            f"select node, max(wall_ns) from host_samples where run_id = {literal(self.run_id)} group by node"
        ).rows
        return {str(node): int(at) for node, at in rows}

    def _first(self) -> int:
        """Where to begin: behind what an earlier owner rolled up, at the start of the run when nothing was."""
        mine = f"where run_id = {literal(self.run_id)}"
        each = f"select node, max(wall_ns) as until_ns from gpu_rollups {mine} and step_s = 60 group by node"
        ((since,),) = self.services.store.query(f"select min(until_ns) from ({each})").rows
        if since is None:
            ((since,),) = self.services.store.query(f"select min(wall_ns) from host_samples {mine}").rows
        return int(since) if since is not None else _START

    def _records(self) -> tuple[list[Record], dict[str, int]]:
        newest = self._newest()
        start = min(self._done.values(), default=0) or self._first()
        if not newest or max(newest.values()) - start < (0 if self._done else FROM_S * 10**9):
            return [], {}
        t0 = start // _MINUTE * _MINUTE
        t1 = min(t0 + PIECE_S * 10**9, max(newest.values()) + 1)
        store, records = self.services.store, list[Record]()
        begun = time.monotonic()
        for step in STEPS_S:
            records += [GpuRollup(**r) for r in store.query(call("rollup_gpu", self.run_id, t0, t1, step)).dicts()]
            records += [RailRollup(**r) for r in store.query(call("rollup_rail", self.run_id, t0, t1, step)).dicts()]
        log.debug("%s: %d rows of roll-ups in %.2f s", self.run_id, len(records), time.monotonic() - begun)
        return records, {node: min(at, t1) for node, at in newest.items()}
