"""While the owner lives no job that it follows runs into its time-to-live: a server that is up without a run stays."""

from __future__ import annotations

import asyncio
import logging

from runners.flows.services import Services
from runners.nodes import jobs
from runners.nodes.link import LinkState, NodeError

log = logging.getLogger("twinrail.upkeep")

EVERY_S = 60.0
TTL_S = 1800


async def keep_jobs(services: Services) -> None:
    """For as long as the owner lives. A node that cannot be reached now is a matter for the next turn."""
    while True:
        await asyncio.sleep(EVERY_S)
        by_node: dict[str, list[str]] = {}
        for feed in services.ingest.feeds.values():
            if not feed.drained.is_set():
                by_node.setdefault(feed.job.node, []).append(feed.job.job_id)
        await asyncio.gather(*(_extend(services, node, job_ids) for node, job_ids in by_node.items()))


async def _extend(services: Services, node: str, job_ids: list[str]) -> None:
    try:
        link = await services.cluster.link(node)
        if link.state is LinkState.UP:
            await jobs.extend(link, job_ids, TTL_S)
    except NodeError as e:
        log.warning("%s: time-to-live not extended: %s", node, e)
