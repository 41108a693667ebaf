"""What a launcher must be able to say: how a command of an engine or a load client becomes a detached job of a node."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import orjson

from runners.engines.base import RankCommand
from runners.nodes.jobs import JobSpec
from runners.nodes.link import Link
from runners.spec import Deployment, Node
from store.database import Store
from store.masking import is_secret, mask_env
from store.queries import literal
from store.records import Command, Job
from store.text import shell_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start one command on one node.

    Attributes:
        shown: the command as an operator would type it, for the audit.
        env: what the command's environment gets, for the audit.
        job: the detached job.
        facts: what the node told on the way, as manifest variables: name -> value.
    """

    shown: list[str]
    env: dict[str, str]
    job: JobSpec
    facts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of a preflight check; `status` as in the gates table."""

    name: str
    status: str
    detail: str
    fix: str = ""


class Launcher(Protocol):
    """One way to start things on nodes. Stateless."""

    name: str

    def view(self, dep: Deployment, nodes: Sequence[Node]) -> tuple[Deployment, list[Node]]:
        """Deployment and nodes as a rank sees them, e.g. with the interpreter of its container."""

    def mark(self, dep: Deployment) -> str:
        """What the launch adds to a server's fingerprint: a server with another mark has to be restarted."""

    def planned(self, dep: Deployment, command: RankCommand, root: str) -> list[str]:
        """The command as it would be typed, said without asking the node."""

    def planned_client(self, dep: Deployment, node: Node, root: str, argv: list[str]) -> list[str]:
        """The same for the load client; `argv` without its interpreter."""

    async def server(
        self, link: Link, root: str, job_id: str, ttl_s: int, dep: Deployment, command: RankCommand
    ) -> Launch:
        """How to start a rank; `root` is twinrail's folder there. Raises NodeError when it cannot be started."""

    async def client(
        self, link: Link, root: str, job_id: str, ttl_s: int, dep: Deployment, argv: list[str], env: dict[str, str]
    ) -> Launch:
        """How to start the load client; `argv` without its interpreter. Raises NodeError."""

    async def probe(
        self, link: Link, root: str, job_id: str, ttl_s: int, dep: Deployment, argv: list[str], env: dict[str, str]
    ) -> Launch:
        """How to start a probe that asks the server; `argv` begins with the node's interpreter. Raises NodeError."""

    def ask(self, dep: Deployment, node: Node, root: str, argv: list[str], *, as_client: bool) -> str:
        """Shell line that runs a payload script once; `as_client`: by the interpreter that the load client has."""

    async def check(self, link: Link, dep: Deployment) -> list[Verdict]:
        """Preflight on one node. Raises NodeError."""

    async def inside(self, link: Link, dep: Deployment, script: str, *args: str) -> str:
        """Shell line that runs `script` (sh, with the engine's interpreter as $1 and then `args`) once, where a rank
        would run and with its devices. Raises NodeError when that cannot be."""


def job_spec(job_id: str, argv: list[str], env: dict[str, str], ttl_s: int, cpus: str | None = None) -> JobSpec:
    """A job whose secret variables travel by a file of mode 0600 and are in no `cmd` file."""
    return JobSpec(
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
    if not is_known(store, job.job_id):
        await store.commit([job, command_row(job, purpose, argv, env)])


def is_known(store: Store, job_id: str) -> bool:
    """Whether the store has a row of this job."""
    return bool(store.query(f"select 1 from jobs where job_id = {literal(job_id)}").rows)


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
        started_wall_ns=job.started_wall_ns or time.time_ns(),
    )
