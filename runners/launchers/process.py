"""The process launcher: a rank is a detached job on its node."""

from __future__ import annotations

import time
from collections.abc import Sequence

import orjson

from runners.cluster import Cluster
from runners.engines.base import RankCommand
from runners.ingest import Feed, Ingest
from runners.nodes import jobs
from runners.spec import Deployment
from store.database import Store
from store.masking import is_secret, mask_env
from store.queries import literal
from store.records import Command, Job, Life
from store.text import shell_line

TTL_MARGIN_S = 900


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
    for c in commands:
        name = c.node.name
        link = await cluster.link(name)
        for script in c.payloads:
            await cluster.push(name, script)
        job_id = server_job_id(life.life_id, c.rank)
        spec = job_spec(job_id, c.argv, c.env, int(dep.ready_timeout) + TTL_MARGIN_S, dep.cpus)
        root = await cluster.root(name)
        job = Job(
            job_id=job_id,
            run_id=run_id,
            life_id=life.life_id,
            node=name,
            kind="server",
            folder=f"{root}/jobs/{job_id}",
            rank=c.rank,
            ttl_s=spec.ttl_s,
            started_wall_ns=time.time_ns(),
            context=orjson.dumps({"engine": dep.engine, "utc_offset_s": cluster.utc_offset_s(name)}).decode(),
        )
        await record_job(store, job, "server", c.argv, c.env)
        await jobs.start(link, spec)
        feeds.append(ingest.follow(link, job))
    return feeds


def job_spec(job_id: str, argv: list[str], env: dict[str, str], ttl_s: int, cpus: str | None = None) -> jobs.JobSpec:
    """A job whose secret variables travel by a file of mode 0600 and are in no `cmd` file."""
    return jobs.JobSpec(
        job_id=job_id,
        argv=argv,
        env={k: v for k, v in env.items() if not is_secret(k)},
        secrets={k: v for k, v in env.items() if is_secret(k)},
        ttl_s=ttl_s,
        cpus=cpus,
    )


async def record_job(store: Store, job: Job, purpose: str, argv: Sequence[str], env: dict[str, str]) -> None:
    """Make a job known before it exists, so that a crash in between leaves nothing unknown on a node.

    A job that is known already keeps its rows: a new owner only takes it over.
    """
    if not store.query(f"select 1 from jobs where job_id = {literal(job.job_id)}").rows:
        await store.commit([job, command_row(job, purpose, argv, env)])


def command_row(job: Job, purpose: str, argv: Sequence[str], env: dict[str, str], cwd: str | None = None) -> Command:
    """The audit row of a job's command, secrets masked."""
    return Command(
        command_id=job.job_id,
        run_id=job.run_id,
        attempt_id=job.attempt_id,
        life_id=job.life_id,
        job_id=job.job_id,
        node=job.node,
        purpose=purpose,
        text=shell_line(argv),
        cwd=cwd or job.folder,
        env=orjson.dumps(mask_env(env), option=orjson.OPT_SORT_KEYS).decode(),
        started_wall_ns=job.started_wall_ns,
    )
