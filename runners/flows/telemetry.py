"""The probes of a run: detached jobs on every node, followed like any other."""

from __future__ import annotations

import asyncio
import hashlib
import time

import orjson

from runners.flows.alerting import AlertWatch
from runners.flows.life import LifeHandle
from runners.flows.rollups import Rollups
from runners.flows.services import Services
from runners.flows.sweep import stop_jobs
from runners.launchers import LAUNCHERS
from runners.launchers.base import record_job
from runners.nodes import jobs
from runners.nodes.link import NodeError
from runners.probes import PROBES
from runners.probes.base import Probe, wanted_on
from runners.spec import Deployment, Node
from store.queries import literal
from store.records import Job

TTL_S = 1800
STOP_GRACE_S = 3.0
BRACKET_S = 6.0


class Telemetry:
    """Starts, follows and stops the probes of one run. Starting again takes over what runs."""

    def __init__(self, services: Services, run_id: str, dep: Deployment, nodes: list[Node]) -> None:
        self.services = services
        self.run_id = run_id
        self.dep = dep
        self.nodes = nodes
        self.alerts = AlertWatch(services, run_id, nodes)
        self.rollups = Rollups(services, run_id)

    async def start(self) -> None:
        """The probes that need no server. One that cannot start costs its figures, not the run."""
        await asyncio.gather(
            *(
                self._launch(node, probe, None)
                for node in self.nodes
                for probe in PROBES.values()
                if not probe.needs_server and wanted_on(probe, node)
            )
        )

    async def follow_server(self, handle: LifeHandle) -> None:
        """The probes that ask the server, on rank 0's node, for this life."""
        for probe in PROBES.values():
            if probe.needs_server:
                await self._launch(handle.nodes[0], probe, handle)
        await self.bracket(handle)

    async def bracket(self, handle: LifeHandle) -> None:
        """Until the server's metrics of this moment are in: a scrape before the load and one after it, so that no
        request falls outside. An engine that does not answer is not waited for long."""
        asked = self.job_id(handle.life.life_id, "engine", handle.nodes[0].name)
        feed = self.services.ingest.feeds.get(asked)
        if feed is None:
            return
        changed = self.services.ingest.changed
        try:
            async with asyncio.timeout(BRACKET_S), changed:
                for _ in range(2):  # the first one to come may have been taken a moment ago
                    before = feed.offsets.get("stdout", 0)
                    while feed.offsets.get("stdout", 0) == before and not feed.drained.is_set():
                        await changed.wait()
        except TimeoutError:
            return

    def job_id(self, life_id: str | None, probe: str, node: str) -> str:
        """Name of a probe's job. A life that another run began may have had a probe of that run's: ours is another."""
        scope = life_id or self.run_id
        if not f"{scope}.".startswith(f"{self.run_id}."):
            scope = f"{self.run_id}.{hashlib.sha256(scope.encode()).hexdigest()[:4]}"
        return f"{scope}.{probe}.{node}"

    async def _launch(self, node: Node, probe: Probe, handle: LifeHandle | None) -> None:
        services = self.services
        life_id = handle.life.life_id if handle else None
        job_id = self.job_id(life_id, probe.name, node.name)
        try:
            link = await services.cluster.link(node.name)
            argv = probe.argv(node, url=handle.url if handle else None)
            root = await services.cluster.root(node.name)
            job = Job(
                job_id=job_id,
                run_id=self.run_id,
                life_id=life_id,
                node=node.name,
                kind=f"probe.{probe.name}",
                folder=f"{root}/jobs/{job_id}",
                ttl_s=TTL_S,
                started_wall_ns=time.time_ns(),
                context=orjson.dumps({"engine": self.dep.engine}).decode(),
            )
            launcher = LAUNCHERS[self.dep.launcher if probe.needs_server else "process"]
            launch = await launcher.probe(link, root, job_id, TTL_S, self.dep, argv, dict(node.env))
            await record_job(services.store, job, "probe", launch.shown, launch.env)
            await jobs.start(link, launch.job)
        except NodeError:
            return  # the check and the missing samples say so
        services.ingest.follow(link, job)

    async def background(self) -> None:
        """What goes on beside the probes for as long as the run is on: alerts are judged, long histories rolled up."""
        await asyncio.gather(self.alerts.run(), self.rollups.run())

    async def judge_last(self) -> None:
        """The alerts of the figures that came last. Raises StoreError when findings cannot be written."""
        await self.alerts.look()

    async def stop(self) -> None:
        """End all probes of the run."""
        table = self.services.store.query(
            f"select node, list(job_id) from jobs where run_id = {literal(self.run_id)} and kind like 'probe.%' "
            "group by node"
        )
        await asyncio.gather(
            *(stop_jobs(self.services, str(node), job_ids, STOP_GRACE_S) for node, job_ids in table.rows),
            return_exceptions=True,  # what could not be stopped is the sweeper's
        )
