"""The process launcher: the command itself is the job."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from runners.engines.base import RankCommand
from runners.launchers.base import Launch, Verdict, job_spec
from runners.nodes.link import Link
from runners.spec import Deployment, Node


class Process:
    """See runners.launchers.base.Launcher."""

    name = "process"

    def view(self, dep: Deployment, nodes: Sequence[Node]) -> tuple[Deployment, list[Node]]:
        return dep, list(nodes)

    def mark(self, dep: Deployment) -> str:
        return ""

    def planned(self, dep: Deployment, command: RankCommand, root: str) -> list[str]:
        return command.argv

    def planned_client(self, dep: Deployment, node: Node, root: str, argv: list[str]) -> list[str]:
        return [dep.python or node.python, *argv]

    async def server(
        self, link: Link, root: str, job_id: str, ttl_s: int, dep: Deployment, command: RankCommand
    ) -> Launch:
        job = job_spec(job_id, command.argv, command.env, ttl_s, dep.cpus)
        return Launch(shown=command.argv, env=command.env, job=job)

    async def client(
        self, link: Link, root: str, job_id: str, ttl_s: int, dep: Deployment, argv: list[str], env: dict[str, str]
    ) -> Launch:
        argv = self.planned_client(dep, link.node, root, argv)
        return Launch(shown=argv, env=env, job=job_spec(job_id, argv, env, ttl_s, dep.client_cpus))

    async def probe(
        self, link: Link, root: str, job_id: str, ttl_s: int, dep: Deployment, argv: list[str], env: dict[str, str]
    ) -> Launch:
        return Launch(shown=argv, env=env, job=job_spec(job_id, argv, env, ttl_s))

    def ask(self, dep: Deployment, node: Node, root: str, argv: list[str], *, as_client: bool) -> str:
        return shlex.join([dep.python or node.python, *argv])

    async def check(self, link: Link, dep: Deployment) -> list[Verdict]:
        return []

    async def inside(self, link: Link, dep: Deployment, script: str, *args: str) -> str:
        return shlex.join(["sh", "-c", script, "inside", dep.python or link.node.python, *args])
