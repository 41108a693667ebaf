"""Preflight: what must be right on every node before a server is started. Each verdict says how to put it right."""

from __future__ import annotations

import asyncio
import shlex
import time

from runners.flows.services import Services
from runners.launchers import LAUNCHERS
from runners.nodes import lock
from runners.nodes.clock import measure
from runners.nodes.link import NodeError
from runners.spec import Deployment, Node
from store.masking import mask_text
from store.records import Gate

DISK_WARN_BYTES = 5 << 30
DISK_FAIL_BYTES = 256 << 20
CLOCK_WARN_MS = 50.0


async def preflight(services: Services, dep: Deployment | None, run_id: str | None = None) -> list[Gate]:
    """Checks of all nodes of the deployment (of the whole inventory without one), nodes in parallel."""
    nodes = services.inventory.nodes_of(dep) if dep else services.inventory.nodes
    checks = [NodeCheck(services, node, run_id) for node in nodes]
    found = await asyncio.gather(*(c.run(dep, first=c.node is nodes[0]) for c in checks))
    return [g for gates in found for g in gates]


class NodeCheck:
    """The checks of one node."""

    def __init__(self, services: Services, node: Node, run_id: str | None) -> None:
        self.services = services
        self.node = node
        self.run_id = run_id

    async def run(self, dep: Deployment | None, *, first: bool) -> list[Gate]:
        """All verdicts; with `dep` also what its ranks need here, and on the `first` node its load client."""
        try:
            link = await self.services.cluster.link(self.node.name)
            await link.up(15.0)
            root = await self.services.cluster.root(self.node.name)
        except NodeError as e:
            fix = f"twinrail trust {self.node.name}" if e.kind == "hostkey" else f"try: ssh {self.node.host} true"
            return [self.gate("ssh", "fail", str(e), fix)]
        gates = [self.gate("ssh", "pass", f"{self.node.host}, folder {root}")]
        try:
            gates += [await self.disk(root), await self.clock(), await self.held(), await self.gpus()]
            if dep is not None:
                gates += (launched := await self.launcher(dep))
                if any(g.status == "fail" for g in launched):
                    return gates
            if dep is not None and first:
                gates += await self.server_side(dep)
            elif dep is not None and dep.launcher == "process" and (dep.engine == "sim" or dep.python):
                gates.append(await self.interpreter(dep))
        except NodeError as e:
            gates.append(self.gate("ssh", "fail", str(e), "the link broke during the check; run it again"))
        return gates

    def gate(self, name: str, status: str, detail: str = "", fix: str = "") -> Gate:
        return Gate(
            run_id=self.run_id,
            node=self.node.name,
            name=name,
            status=status,
            detail=mask_text(detail) or None,
            fix=fix or None,
            wall_ns=time.time_ns(),
        )

    async def disk(self, root: str) -> Gate:
        link = await self.services.cluster.link(self.node.name)
        done = await link.run(f"df -Pk {shlex.quote(root)} | tail -n 1")
        fields = done.stdout.split()
        if done.exit_code != 0 or len(fields) < 4 or not fields[3].isdigit():
            return self.gate("disk", "unknown", "df gave no figure")
        free = int(fields[3]) * 1024
        status = "fail" if free < DISK_FAIL_BYTES else "warn" if free < DISK_WARN_BYTES else "pass"
        fix = "" if status == "pass" else f"make room under {root}; `twinrail jobs --reap` removes finished jobs"
        return self.gate("disk", status, f"{free / 2**30:.1f} GiB free for job files", fix)

    async def clock(self) -> Gate:
        reading = await measure(await self.services.cluster.link(self.node.name))
        off, error = reading.offset_ns / 1e6, reading.error_ns / 1e6
        status = "warn" if abs(off) - error > CLOCK_WARN_MS else "pass"
        detail = f"{off:+.1f} ms against this machine (± {error:.1f} ms); corrected in every query"
        return self.gate("clock", status, detail, "run chrony or ntpd on the node" if status == "warn" else "")

    async def held(self) -> Gate:
        claims = await lock.inspect(await self.services.cluster.link(self.node.name))
        others = [c for c in claims if c.run_id != self.run_id]
        if not others:
            return self.gate("node_lock", "pass", "nobody else's run is on")
        fix = "wait for that run, or ask its owner; the lock ends by itself when the run does"
        said = ", ".join(f"{c.who} (run {c.run_id})" for c in others)
        return self.gate("node_lock", "warn", f"held by {said}", fix)

    async def gpus(self) -> Gate:
        """Count and memory in use, by the vendor's own tool. Other vendors than NVIDIA are not counted yet."""
        devices = self.node.devices
        if devices.vendor != "nvidia" or devices.count == 0:
            return self.gate("gpu", "not_applicable", f"vendor {devices.vendor}")
        link = await self.services.cluster.link(self.node.name)
        done = await link.run("timeout 15 nvidia-smi --query-gpu=index,memory.used --format=csv,noheader,nounits")
        if done.exit_code != 0:
            why = (done.stderr or done.stdout).decode(errors="replace").strip()[:200]
            fix = "GPU figures will be missing; check the driver, or set devices = { count = 0 } for this node"
            return self.gate("gpu", "warn", f"nvidia-smi gave no answer: {why}", fix)
        rows = [r.split(",") for r in done.stdout.decode(errors="replace").splitlines() if r.strip()]
        used = [int(r[1]) for r in rows if len(r) > 1 and r[1].strip().isdigit()]
        if len(rows) != devices.count:
            return self.gate(
                "gpu", "fail", f"{len(rows)} GPUs answer, {devices.count} expected", "nvidia-smi -L; dmesg"
            )
        busy = sum(u > 1024 for u in used)
        fix = "nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv names the holders" if busy else ""
        detail = f"{len(rows)} GPUs, {busy} with more than 1 GiB in use"
        return self.gate("gpu", "warn" if busy else "pass", detail, fix)

    async def launcher(self, dep: Deployment) -> list[Gate]:
        """What the deployment's launcher needs here; nothing for a server that is not ours."""
        if dep.engine == "external":
            return []
        link = await self.services.cluster.link(self.node.name)
        found = await LAUNCHERS[dep.launcher].check(link, dep)
        return [self.gate(v.name, v.status, v.detail, v.fix) for v in found]

    async def interpreter(self, dep: Deployment) -> Gate:
        """A rank above 0 needs the interpreter, but no aiohttp."""
        try:
            found = await self.services.ask(self.node, dep, "client")
        except NodeError as e:
            return self.gate("python", "fail", str(e), "set python = in [[nodes]] or in the deployment")
        return self.gate("python", "pass", f"Python {found.get('python')}")

    async def server_side(self, dep: Deployment) -> list[Gate]:
        python = dep.python or self.node.python
        try:
            client = await self.services.ask(self.node, dep, "client")
        except NodeError as e:
            return [self.gate("client", "fail", str(e), "set python = in [[nodes]] or in the deployment")]
        if not client.get("ok"):
            fix = f"{python} -m pip install aiohttp, or set python = to an interpreter that has it"
            if dep.launcher == "docker" and not dep.python:
                python, fix = f"image {dep.image}", "set python = in the deployment to one of the node that has aiohttp"
            return [self.gate("client", "fail", f"{python}: {client.get('detail')}", fix)]
        gates = [self.gate("client", "pass", f"Python {client['python']}, aiohttp {client['aiohttp']}")]
        if dep.engine == "external":
            answer = await self.services.ask(self.node, dep, "get", str(dep.url), "/v1/models")
            if answer.get("ok"):
                gates.append(self.gate("server", "pass", f"{dep.url} answers"))
            else:
                fix = "start the server, or correct url ="
                gates.append(self.gate("server", "fail", f"{dep.url}: {answer.get('detail')}", fix))
        return gates
