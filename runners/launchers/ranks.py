"""The ranks of a server: their commands, whoever launches them, and their start as detached jobs."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence

import orjson

from runners.cluster import Cluster
from runners.engines import ENGINES
from runners.engines.base import Payload, RankCommand, fingerprint
from runners.ingest import Feed, Ingest
from runners.launchers import LAUNCHERS
from runners.launchers.base import is_known, record_job
from runners.launchers.surroundings import nccl_files, placed
from runners.nodes import jobs
from runners.nodes.link import Link
from runners.spec import Deployment, Node
from store.database import Store
from store.records import Job, Life, Variable

TTL_MARGIN_S = 900


def rank_commands(dep: Deployment, nodes: Sequence[Node], payload: Payload) -> list[RankCommand]:
    """The engine's commands, as its launcher has them run. Empty for a server that is not ours to start."""
    return ENGINES[dep.engine].commands(*LAUNCHERS[dep.launcher].view(dep, nodes), payload)


def mark_of(dep: Deployment, commands: Sequence[RankCommand]) -> str:
    """Fingerprint of a server of ours, with what its launcher makes of the commands."""
    own, more = fingerprint(commands), LAUNCHERS[dep.launcher].mark(dep)
    return hashlib.sha256((own + more).encode()).hexdigest()[:16] if more else own


def server_job_id(life_id: str, rank: int) -> str:
    """Job of one rank; deterministic, so that a new owner finds what an old one started."""
    return f"{life_id}.r{rank}"


async def start_ranks(
    cluster: Cluster,
    ingest: Ingest,
    store: Store,
    life: Life,
    dep: Deployment,
    commands: Sequence[RankCommand],
    run_id: str | None,
) -> list[Feed]:
    """Start every rank in order and follow its output. Starting again finds what already runs.

    Raises:
        NodeError: a node cannot be reached or refuses; ranks started before it run on and are the caller's to stop.
    """
    feeds = []
    for planned in commands:
        c = planned
        name = c.node.name
        link = await cluster.link(name)
        for script in c.payloads:
            await cluster.push(name, script)
        job_id = server_job_id(life.life_id, c.rank)
        root = await cluster.root(name)
        ttl_s = int(dep.ready_timeout) + TTL_MARGIN_S
        job = Job(
            job_id=job_id,
            run_id=run_id,
            life_id=life.life_id,
            node=name,
            kind="server",
            folder=f"{root}/jobs/{job_id}",
            rank=c.rank,
            ttl_s=ttl_s,
            started_wall_ns=time.time_ns(),
            context=orjson.dumps({"engine": dep.engine, "utc_offset_s": cluster.utc_offset_s(name)}).decode(),
        )
        if not (is_known(store, job_id) and await _is_there(link, job_id)):
            c, found = await placed(link, root, job_id, dep, c)
            launch = await LAUNCHERS[dep.launcher].server(link, root, job_id, ttl_s, dep, c)
            await record_job(store, job, "server", launch.shown, launch.env)
            await store.commit([_fact(life, name, c.rank, *fact) for fact in {**found, **launch.facts}.items()])
            await jobs.start(link, launch.job)
        feeds.append(ingest.follow(link, job))
    return feeds


async def follow_nccl(cluster: Cluster, ingest: Ingest, feeds: Sequence[Feed], commands: Sequence[RankCommand]) -> None:
    """Follow the files that NCCL's processes have begun since; each belongs to one process. Raises NodeError."""
    for feed, command in zip(feeds, commands, strict=False):
        if "NCCL_DEBUG" in command.env and not feed.drained.is_set():
            link = await cluster.link(feed.job.node)
            names = await nccl_files(link, await cluster.root(feed.job.node), feed.job.job_id)
            await ingest.also(link, feed.job.job_id, names)


async def _is_there(link: Link, job_id: str) -> bool:
    """Whether the node knows the job: then it is only taken over, whatever has become of images and folders since."""
    return (await jobs.status(link, [job_id]))[job_id].state != "unknown"


def _fact(life: Life, node: str, rank: int, name: str, value: str) -> Variable:
    return Variable(
        run_id=life.run_id or life.life_id,
        life_id=life.life_id,
        name=name,
        value=value[:2000],
        node=node,
        rank=rank,
        source="reported",
        wall_ns=time.time_ns(),
    )
