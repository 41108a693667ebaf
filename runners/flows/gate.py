"""The RDMA gate within a run: judged after the first real generation, armed until the end, since channels may connect
late. Fail closed: only PASS, or NOT_APPLICABLE on one node, lets a benchmark start; an override needs words."""

from __future__ import annotations

import asyncio
import time

import orjson

from runners.flows.life import LifeHandle
from runners.flows.services import Services
from runners.formats.base import Event
from runners.gates.rdma import FAIL, Expectation, Verdict, judge, overridden
from runners.spec import Deployment, Node
from store.queries import literal
from store.records import Gate

NAME = "rdma"
SETTLE_S = 15.0


def expectation(dep: Deployment, nodes: list[Node]) -> Expectation:
    """What must be seen in the logs, from the topology and the rails of the configuration."""
    topo = dep.topology
    return Expectation(
        nodes=tuple(n.name for n in nodes),
        ranks_per_node=max(1, topo.ranks // len(nodes)),
        tp=topo.tp,
        pp=topo.pp,
        ep=topo.ep,
        hcas={n.name: tuple(r.hca for r in n.rails) for n in nodes if n.rails},
        deepep=any("deepep" in f.lower() for f in dep.flags),
        all_to_all=not any("allgather_reducescatter" in f.lower() for f in dep.flags),
    )


def verdict_of(services: Services, handle: LifeHandle) -> Verdict:
    """The verdict over everything that the life's ranks have printed so far, on all nodes."""
    table = services.store.query(
        "select e.node, e.rank, e.name, e.detail, e.severity from log_events e join jobs j using (job_id) "
        f"where j.life_id = {literal(handle.life.life_id)} and j.kind = 'server' "
        'order by e.node, e.job_id, e.stream, e."offset"'
    )
    rows, events = [], []
    for node, rank, name, detail, severity in table.rows:
        if name.startswith("nccl_") and severity == "info":
            row = orjson.loads(detail)
            rows.append({**row, "node": node})
        else:
            events.append(Event(name, node=node, rank=rank, detail={"line": detail}))
    return judge(rows, events, expectation(handle.dep, handle.nodes))


async def check_gate(services: Services, handle: LifeHandle, run_id: str, override: str | None) -> str | None:
    """Why no benchmark may go on with this life; None when it may. The verdict is stored with each call.

    A server that somebody else started shows no logs: over several nodes its transport is unknown, which refuses.
    """
    verdict = await _settled(services, handle)
    if override and not verdict.allows:
        verdict = overridden(verdict, override)
    row = Gate(
        run_id=run_id,
        life_id=handle.life.life_id,
        name=NAME,
        status=verdict.gate.lower(),
        detail="; ".join(verdict.reasons)[:4000] or None,
        fix=None if verdict.allows else "put the transport right, or --gate-override 'why it may be passed'",
        wall_ns=time.time_ns(),
        override_why=verdict.override,
    )
    await services.store.commit([row])
    return None if verdict.allows else f"{verdict.gate}: {row.detail or ''}"


async def _settled(services: Services, handle: LifeHandle) -> Verdict:
    """The verdict, once the lines that the ranks have printed until now are rows.

    A refusal is worth a short wait: a rank whose COMPLETE line is still on its way looks like one that hangs.
    """
    deadline = time.monotonic() + SETTLE_S
    while True:
        verdict = await asyncio.to_thread(verdict_of, services, handle)
        if verdict.allows or not handle.feeds or time.monotonic() > deadline:
            return verdict
        await asyncio.sleep(0.5)


def late_evidence(services: Services, handle: LifeHandle, override: str | None) -> str | None:
    """Evidence of a wrong transport that came after the verdict; an override covers it too."""
    verdict = verdict_of(services, handle)
    return "; ".join(verdict.reasons) if verdict.gate == FAIL and not override else None
