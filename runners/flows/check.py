"""Preflight: what must be right on every node before a server is started. Each verdict says how to put it right.

What can be read in one look is judged by runners.gates.preflight; here are the link, the clock, the lock of the node
and what the load client needs, which have to be tried.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from runners.flows.services import Services
from runners.gates.preflight import CHECKS
from runners.gates.preflight.base import Scope, Seen
from runners.gates.preflight.gather import ask_node, reach
from runners.launchers import LAUNCHERS
from runners.launchers.base import Verdict
from runners.nodes import lock
from runners.nodes.clock import ClockOffset, measure
from runners.nodes.link import NodeError
from runners.spec import Deployment, Node
from store.errors import StoreError
from store.masking import mask_text
from store.queries import call
from store.records import Gate

log = logging.getLogger("twinrail.check")

CLOCK_WARN_MS = 50.0
Living = Mapping[str, tuple[str, int]]  # job id -> (node, pid)


@dataclass(slots=True)
class Preflight:
    """The verdicts, and what they stand on: the manifest takes its facts from the same look."""

    gates: list[Gate]
    seen: dict[str, Seen] = field(default_factory=dict)


async def preflight(services: Services, dep: Deployment | None, run_id: str | None = None) -> list[Gate]:
    """Verdicts on all nodes of the deployment (of the whole inventory without one)."""
    return (await inspect(services, dep, run_id)).gates


async def inspect(
    services: Services,
    dep: Deployment | None,
    run_id: str | None = None,
    *,
    full: bool = False,
    living: Living | None = None,
    said: Callable[[str], None] = lambda _: None,
) -> Preflight:
    """The whole preflight, nodes in parallel.

    Args:
        full: hash whole model files instead of their first and last MiB.
        living: jobs that are meant to run; default: those of the store.
        said: told what is being done now.
    """
    nodes = services.inventory.nodes_of(dep) if dep else services.inventory.nodes
    living = living_jobs(services) if living is None else living
    said(f"asking {len(nodes)} nodes" + (", hashing whole model files" if full else ""))
    checks = [NodeCheck(services, node, dep, run_id, living) for node in nodes]
    await asyncio.gather(*(c.look(first=c.node is nodes[0], full=full) for c in checks))
    seen = {c.node.name: c.seen for c in checks if c.seen is not None}
    said("asking who reaches whom")
    await asyncio.gather(*(c.matrix(seen) for c in checks))
    gates: list[Gate] = []
    for check in checks:
        gates += check.judged(seen, first=check.node is nodes[0])
    return Preflight(gates + _across(checks, seen, run_id), seen)


async def recorded(services: Services, dep: Deployment | None, *, full: bool = False) -> None:
    """A preflight of its own, outside any run: its verdicts go into the store, for whoever watches."""
    check_id = f"check-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    try:
        await services.store.commit((await inspect(services, dep, check_id, full=full)).gates)
    except (NodeError, StoreError) as e:
        log.warning("check: %s", e)


def living_jobs(services: Services) -> dict[str, tuple[str, int]]:
    """Jobs of the store that are meant to be on the nodes."""
    rows = services.store.query(call("check_living_jobs")).dicts()
    return {str(r["job_id"]): (str(r["node"]), int(r["pid"] or 0)) for r in rows}


def _across(checks: list[NodeCheck], seen: Mapping[str, Seen], run_id: str | None) -> list[Gate]:
    """What is judged over all nodes together; nothing when none answered."""
    first = next((c for c in checks if c.seen is not None), None)
    if first is None or first.seen is None:
        return []
    scope = Scope(first.seen, seen, first.dep)
    return [gate(v, None, run_id) for check in CHECKS if check.across for v in check.judge(scope)]


def gate(verdict: Verdict, node: str | None, run_id: str | None) -> Gate:
    """A verdict as a row, secrets masked."""
    return Gate(
        run_id=run_id,
        node=node,
        name=verdict.name,
        status=verdict.status,
        detail=mask_text(verdict.detail) or None,
        fix=mask_text(verdict.fix) or None,
        wall_ns=time.time_ns(),
    )


class NodeCheck:
    """The checks of one node."""

    def __init__(
        self, services: Services, node: Node, dep: Deployment | None, run_id: str | None, living: Living
    ) -> None:
        self.services = services
        self.node = node
        self.dep = dep
        self.run_id = run_id
        self.living = {job: pid for job, (where, pid) in living.items() if where == node.name}
        self.seen: Seen | None = None
        self._verdicts: list[Verdict] = []

    async def look(self, *, first: bool, full: bool) -> None:
        """Try the link, then everything that has to be asked, side by side."""
        cluster = self.services.cluster
        try:
            link = await cluster.link(self.node.name)
            await link.up(15.0)
            root = await cluster.root(self.node.name)
        except NodeError as e:
            fix = f"twinrail trust {self.node.name}" if e.kind == "hostkey" else f"try: ssh {self.node.host} true"
            self._verdicts.append(Verdict("ssh", "fail", str(e), fix))
            return
        try:
            reading = await measure(link)  # alone on the line: round trips are its error
            seen, held, needs = await asyncio.gather(
                ask_node(link, root, self.dep, first=first, full=full), self._held(), self._needs(first=first)
            )
        except NodeError as e:
            self._verdicts.append(Verdict("ssh", "fail", str(e), "the link broke during the check; run it again"))
            return
        self.seen = seen
        who = seen.facts.values.get("host.user")
        self._verdicts.append(Verdict("ssh", "pass", f"{self.node.host}{f' as {who}' if who else ''}, folder {root}"))
        self._verdicts += [_clock(reading), held, *needs]

    async def matrix(self, seen: Mapping[str, Seen]) -> None:
        """Whom this node's rails reach; needs the others' addresses."""
        if self.seen is not None and len(seen) > 1:
            await reach(await self.services.cluster.link(self.node.name), self.seen, seen)

    def judged(self, seen: Mapping[str, Seen], *, first: bool) -> list[Gate]:
        """All verdicts of this node as rows."""
        verdicts = list(self._verdicts)
        if self.seen is not None:
            scope = Scope(self.seen, seen, self.dep, self.living, first)
            verdicts += [v for check in CHECKS if not check.across for v in check.judge(scope)]
        return [gate(v, self.node.name, self.run_id) for v in verdicts]

    async def _held(self) -> Verdict:
        claims = await lock.inspect(await self.services.cluster.link(self.node.name))
        others = [c for c in claims if c.run_id != self.run_id]
        if not others:
            return Verdict("node_lock", "pass", "nobody else's run is on")
        fix = "wait for that run, or ask its owner; the lock ends by itself when the run does"
        said = ", ".join(f"{c.who} (run {c.run_id})" for c in others)
        return Verdict("node_lock", "warn", f"held by {said}", fix)

    async def _launcher(self) -> list[Verdict]:
        """What the deployment's launcher needs here; nothing for a server that is not ours."""
        if self.dep is None or self.dep.engine == "external":
            return []
        return await LAUNCHERS[self.dep.launcher].check(await self.services.cluster.link(self.node.name), self.dep)

    async def _needs(self, *, first: bool) -> list[Verdict]:
        """What the launcher says, then the load client, which a missing image would only make fail again."""
        launched = await self._launcher()
        return launched if any(v.status == "fail" for v in launched) else launched + await self._client(first=first)

    async def _client(self, *, first: bool) -> list[Verdict]:
        """The load client's interpreter on rank 0's node; elsewhere only one that starts."""
        dep = self.dep
        if dep is None:
            return []
        if first:
            return await self._server_side(dep)
        if dep.launcher == "process" and (dep.engine == "sim" or dep.python):
            return [await self._interpreter(dep)]
        return []

    async def _interpreter(self, dep: Deployment) -> Verdict:
        """A rank above 0 needs the interpreter, but no aiohttp."""
        try:
            found = await self.services.ask(self.node, dep, "client")
        except NodeError as e:
            return Verdict("python", "fail", str(e), "set python = in [[nodes]] or in the deployment")
        return Verdict("python", "pass", f"Python {found.get('python')}")

    async def _server_side(self, dep: Deployment) -> list[Verdict]:
        python = dep.python or self.node.python
        try:
            client = await self.services.ask(self.node, dep, "client")
        except NodeError as e:
            return [Verdict("client", "fail", str(e), "set python = in [[nodes]] or in the deployment")]
        if not client.get("ok"):
            fix = f"{python} -m pip install aiohttp, or set python = to an interpreter that has it"
            if dep.launcher == "docker" and not dep.python:
                python, fix = f"image {dep.image}", "set python = in the deployment to one of the node that has aiohttp"
            return [Verdict("client", "fail", f"{python}: {client.get('detail')}", fix)]
        verdicts = [Verdict("client", "pass", f"Python {client['python']}, aiohttp {client['aiohttp']}")]
        if dep.engine == "external":
            answer = await self.services.ask(self.node, dep, "get", str(dep.url), "/v1/models")
            if answer.get("ok"):
                verdicts.append(Verdict("server", "pass", f"{dep.url} answers"))
            else:
                fix = "start the server, or correct url ="
                verdicts.append(Verdict("server", "fail", f"{dep.url}: {answer.get('detail')}", fix))
        return verdicts


def _clock(reading: ClockOffset) -> Verdict:
    off, error = reading.offset_ns / 1e6, reading.error_ns / 1e6
    status = "warn" if abs(off) - error > CLOCK_WARN_MS else "pass"
    detail = f"{off:+.1f} ms against this machine (± {error:.1f} ms); corrected in every query"
    return Verdict("clock", status, detail, "run chrony or ntpd on the node" if status == "warn" else "")
