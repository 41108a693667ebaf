"""The sweeper: what a finished run left running on a node that could not be reached is stopped as soon as it can be."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from runners.flows.services import Services
from runners.nodes import jobs
from runners.nodes.link import NodeError
from store.errors import StoreError
from store.records import Job

log = logging.getLogger("twinrail.sweep")

EVERY_S = 10.0
PATIENCE_S = 45.0  # a link that comes back within this does not leave a run's end ragged
DRAIN_S = 30.0
GRACE_S = 5.0

# Jobs that nobody needs any more: their run is done, and no server life that is still up holds them.
_LEFTOVERS = """
    from jobs j where j.state in ('starting', 'running')
    and exists (select 1 from runs r where r.run_id = j.run_id and r.state = 'done')
    and not exists (select 1 from lives l where l.life_id = j.life_id and l.state in ('starting', 'ready'))
    order by j.started_wall_ns
"""


async def stop_jobs(services: Services, node: str, job_ids: Iterable[str], grace_s: float) -> None:
    """Stop jobs of one node, waiting a while for its link. Raises NodeError when it does not come back."""
    link = await services.cluster.link(node)
    await link.up(PATIENCE_S)
    for job_id in job_ids:
        await jobs.stop(link, job_id, grace_s)


class Sweeper:
    """A background task of the owner."""

    def __init__(self, services: Services) -> None:
        self.services = services

    @property
    def left(self) -> list[Job]:
        """Jobs to stop, oldest first, of nodes that the configuration still knows."""
        known = {n.name for n in self.services.inventory.nodes}
        found = (Job(**row) for row in self.services.store.query(_LEFTOVERS).dicts())
        return [j for j in found if j.node in known]

    async def run(self) -> None:
        """For as long as the owner lives."""
        while True:
            await asyncio.sleep(EVERY_S)
            for job in await asyncio.to_thread(lambda: self.left):
                try:
                    await self._end(job)
                except (NodeError, StoreError) as e:
                    log.info("%s still runs on %s: %s", job.job_id, job.node, e)

    async def _end(self, job: Job) -> None:
        """Stop it and read its last bytes."""
        link = await self.services.cluster.link(job.node)
        await link.up(1.0)
        await jobs.stop(link, job.job_id, GRACE_S)
        feed = self.services.ingest.follow(link, job)
        try:
            async with asyncio.timeout(DRAIN_S):
                await feed.drained.wait()
        except TimeoutError:
            log.warning("%s is stopped but not read to the end", job.job_id)
        self.services.ingest.unfollow(job.job_id)
