"""A watch: probes and logs with no run. Every node that can be reached is looked at, and every server that is up.

It claims no node, starts and stops no server, and asks none for a token. A node that cannot be reached is tried again
until the watch ends; a server that comes up on the way is looked at from then on.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace

import orjson

from runners.engines import ENGINES
from runners.flows import manifest
from runners.flows.life import LifeHandle, Lives
from runners.flows.run_case import RunFlow
from runners.flows.services import Services
from runners.flows.sweep import stop_jobs
from runners.flows.telemetry import STOP_GRACE_S, Telemetry
from runners.nodes.link import NodeError
from runners.orders import StartWatch
from runners.probes.base import Probe
from runners.spec import ConfigError, Deployment, Inventory, Node
from store.masking import mask_text
from store.queries import literal
from store.records import Life, Run

LOOK_S = 2.0
REACH_S = 10.0
AGAIN_S = 60.0  # a probe that has ended is not started anew more often


def place_of(inventory: Inventory, deployment: str | None) -> Deployment:
    """The deployment that is watched; without a name one that stands for all nodes and whatever is up there.

    Raises:
        ConfigError: no such deployment, or no node at all.
    """
    if deployment is not None:
        return inventory.deployment(deployment)
    if not inventory.nodes:
        raise ConfigError("no node is configured, so there is nothing to watch; `twinrail init` asks and writes one")
    return Deployment(engine="external", url="http://none.invalid", nodes=[n.name for n in inventory.nodes])


def new_watch(run_id: str, order: StartWatch, inventory: Inventory) -> Run:
    """The row of a watch that was ordered."""
    deployments = [inventory.deployment(order.deployment)] if order.deployment else [*inventory.deployments.values()]
    return Run(
        run_id=run_id,
        kind="watch",
        deployment=order.deployment,
        simulated=bool(deployments) and all(ENGINES[d.engine].simulated for d in deployments),
        created_wall_ns=time.time_ns(),
        who=order.who,
        why=order.why,
        results_dir=str(inventory.results_path / run_id),
        spec=orjson.dumps(
            {"seconds": order.seconds, "asked": order.model_dump(exclude={"who", "why"}, exclude_none=True)}
        ).decode(),
    )


class Probes(Telemetry):
    """Probes of a watch, on one node or for one server. Started again and again, it starts what does not run: a probe
    that has ended (its time-to-live, somebody's kill) comes again under another name."""

    def __init__(self, services: Services, run_id: str, dep: Deployment, nodes: list[Node]) -> None:
        super().__init__(services, run_id, dep, nodes)
        self._rounds: dict[str, int] = {}
        self._again_at: dict[str, float] = {}

    def job_id(self, life_id: str | None, probe: str, node: str) -> str:
        name = super().job_id(life_id, probe, node)
        number = self._rounds.get(name, 1)
        return name if number == 1 else f"{name}.{number}"

    async def _launch(self, node: Node, probe: Probe, handle: LifeHandle | None) -> None:
        life_id = handle.life.life_id if handle else None
        feed = self.services.ingest.feeds.get(self.job_id(life_id, probe.name, node.name))
        if feed is not None:
            name, now = super().job_id(life_id, probe.name, node.name), time.monotonic()
            if not feed.drained.is_set() or now < self._again_at.get(name, 0.0):
                return
            self._again_at[name] = now + AGAIN_S
            self._rounds[name] = self._rounds.get(name, 1) + 1
        await super()._launch(node, probe, handle)


class WatchFlow(RunFlow):
    """Carries one watch from planned to done. `quiet` is set once none of its probes runs any more."""

    def __init__(self, services: Services, lives: Lives, run: Run, dep: Deployment) -> None:
        super().__init__(services, lives, run, dep)
        self.keep = True
        self.quiet = asyncio.Event()
        self.why = "ended by the operator"  # said when it is cancelled
        self._errors: dict[str, str] = {}
        self._followed: dict[str, Probes] = {}  # by life

    async def _keep_jobs(self) -> None:
        """The owner keeps the jobs of all feeds alive, and a watch claims no node."""

    async def _work(self) -> tuple[str, str]:
        until = await self._begin()
        tasks = [asyncio.create_task(self._attend(node)) for node in self.nodes]
        try:
            while not self.cancel.is_set() and time.time_ns() < until:
                await self._servers()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(LOOK_S, max(0.0, (until - time.time_ns()) / 1e9))):
                        await self.cancel.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if not self._probed():
            said = "; ".join(self._errors.values()) or "ended before any node was reached"
            return "START_FAILED", f"no node was reached: {said}"
        left = "; ".join(self._errors.values())
        end = self.why if self.cancel.is_set() else "the time asked for is over"
        return "OK", f"{end}; not reached: {left}" if left else end

    async def _begin(self) -> int:
        """When it is to end, as wall ns; kept in its row, so that a resumed one ends when the first would have."""
        options = orjson.loads(self.row.spec or "{}")
        if "until_wall_ns" not in options:
            options["until_wall_ns"] = time.time_ns() + int(options["seconds"] * 1e9)
        spec = orjson.dumps(options).decode()
        await self._state("running", spec=spec, clock_node=self.nodes[0].name)
        self._helpers.append(asyncio.create_task(self.telemetry.background()))
        return int(options["until_wall_ns"])

    def _probed(self) -> bool:
        mine = f"run_id = {literal(self.row.run_id)} and kind like 'probe.%'"
        return bool(self.services.store.query(f"select 1 from jobs where {mine} limit 1").rows)

    # -- nodes

    async def _attend(self, node: Node) -> None:
        """Keep the probes of one node running, from when it is first reached; its facts and clock once."""
        services, run_id = self.services, self.row.run_id
        probes = Probes(services, run_id, self.dep, [node])
        known = False
        while True:
            try:
                link = await services.cluster.link(node.name)
                await link.up(REACH_S)
                await services.cluster.root(node.name)
                if not known:
                    known = True
                    self._helpers.append(asyncio.create_task(services.cluster.watch_clock(node.name, run_id)))
                    await self._facts(node)
                await probes.start()
                self._errors.pop(node.name, None)
            except NodeError as e:
                self._errors[node.name] = str(e)
            await asyncio.sleep(LOOK_S)

    async def _facts(self, node: Node) -> None:
        mine = f"run_id = {literal(self.row.run_id)} and node = {literal(node.name)}"
        if not self.services.store.query(f"select 1 from variables where {mine} limit 1").rows:
            await self.services.store.commit(await manifest.node_facts(self.services, node, self.row.run_id))

    # -- servers

    async def _servers(self) -> None:
        """Look at each server that has come up, and no longer at one that is gone."""
        up = self._up_lives()
        for life_id in self._followed.keys() - up.keys():
            await self._leave(life_id)
        for life in up.values():
            dep = self.services.inventory.deployment(life.deployment)
            nodes = self.services.inventory.nodes_of(dep)
            probes = self._followed.setdefault(life.life_id, Probes(self.services, self.row.run_id, dep, nodes))
            await probes.follow_server(LifeHandle(life, dep, nodes, []))
        for dep in self._external_deployments():
            if not any(life.deployment == dep.name for life in up.values()):
                await self._see_external(dep)

    def _up_lives(self) -> dict[str, Life]:
        known = self.services.inventory.deployments
        rows = self.services.store.query("from lives where state = 'ready' order by started_wall_ns").dicts()
        lives = [Life(**row) for row in rows]
        return {x.life_id: x for x in lives if x.deployment in known and self.row.deployment in (None, x.deployment)}

    def _external_deployments(self) -> list[Deployment]:
        all_of = self.services.inventory.deployments.values()
        return [d for d in all_of if d.engine == "external" and self.row.deployment in (None, d.name)]

    async def _see_external(self, dep: Deployment) -> None:
        """The life of somebody else's server begins when it is first seen to answer. Nothing is generated."""
        nodes = self.services.inventory.nodes_of(dep)
        if not nodes:
            return
        url = ENGINES[dep.engine].url(dep, nodes)
        try:
            answer = await self.services.ask(nodes[0], dep, "get", url, "/v1/models")
        except NodeError as e:
            self._errors[f"server of {dep.name}"] = str(e)
            return
        if not answer.get("ok"):
            self._errors[f"server of {dep.name}"] = f"{mask_text(url)} does not answer: {answer.get('detail')}"
            return
        self._errors.pop(f"server of {dep.name}", None)
        now, store = time.time_ns(), self.services.store
        mine = f"run_id = {literal(self.row.run_id)}"
        count = int(store.query(f"select count(*) from lives where {mine}").rows[0][0])
        life = Life(
            life_id=f"{self.row.run_id}.L{count + 1}",
            run_id=self.row.run_id,
            deployment=dep.name,
            state="ready",
            external=True,
            url=mask_text(url),
            engine=dep.engine,
            started_wall_ns=now,
            ready_wall_ns=now,
        )
        await store.commit([life])

    async def _leave(self, life_id: str) -> None:
        """End the probes of a server that is gone."""
        self._followed.pop(life_id)
        mine = f"run_id = {literal(self.row.run_id)} and life_id = {literal(life_id)} and kind like 'probe.%'"
        rows = self.services.store.query(f"select node, list(job_id) from jobs where {mine} group by node").rows
        for node, job_ids in rows:
            with contextlib.suppress(NodeError):  # its time-to-live ends it
                await stop_jobs(self.services, str(node), job_ids, STOP_GRACE_S)

    async def _clean_up(self) -> None:
        await super()._clean_up()
        mine = f"run_id = {literal(self.row.run_id)} and external and state = 'ready'"
        seen = [Life(**row) for row in self.services.store.query(f"from lives where {mine}").dicts()]
        now = time.time_ns()
        await self.services.store.commit(
            [replace(x, state="gone", ended_wall_ns=now, outcome="OK", detail="the watch ended") for x in seen]
        )
        self.quiet.set()
