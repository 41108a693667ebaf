"""Whose server answers on a port: only a listener that belongs to our own job or container is ours.

A health check, even a real generation, cannot tell: a stale server of yesterday answers both.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from runners.launchers.docker import container_name
from runners.nodes import jobs
from runners.nodes.link import Link
from runners.nodes.wire import printable
from runners.spec import Deployment


@dataclass(frozen=True, slots=True)
class Process:
    """A process that holds the listening socket, as far as this user may look."""

    pid: int
    session: int
    ancestors: tuple[int, ...]
    user: str
    command: str

    def __str__(self) -> str:
        return f"pid {self.pid} of {self.user or 'another user'} ({self.command[:120] or 'command not told'})"


@dataclass(slots=True)
class Listener:
    """The answer of holder.sh. `inside`: a process in the asked container holds the socket; None when nobody looked."""

    listens: bool = False
    processes: list[Process] = field(default_factory=list)
    container_pid: int | None = None
    inside: bool | None = None

    def strangers(self, leader: int | None) -> str | None:
        """Who holds the port, when it is not the job with this leader; None when it is, or when nobody listens.

        A process of ours is always visible to us, so a socket without a visible holder is somebody else's; a
        container's may be out of sight for a plain user, and then the look from within decides.
        """
        if not self.listens or self.inside:
            return None
        roots = {p for p in (leader, self.container_pid) if p}
        if any(p.session in roots or roots & {p.pid, *p.ancestors} for p in self.processes):
            return None
        if self.processes:
            return ", ".join(str(p) for p in self.processes[:3])
        if self.container_pid is not None and self.inside is None:
            return None  # the image has no shell to look from: nothing speaks against it
        return "a process that this user may not see"


def parse_listener(text: str) -> Listener:
    """The answer of holder.sh; lines that are none of it are left out."""
    found = Listener()
    for line in text.splitlines()[:200]:
        words = line.split(" ", 5)
        if words[0] == "listens":
            found.listens = True
        elif words[0] == "looked":
            found.inside = bool(found.inside)
        elif words[0] == "inside":
            found.inside = True
        elif words[0] == "container" and len(words) > 1 and words[1].isdigit() and words[1] != "0":
            found.container_pid = int(words[1])
        elif words[0] == "pid" and len(words) == 6 and words[1].isdigit() and words[2].isdigit():
            up = tuple(int(p) for p in words[3].split(",") if p.isdigit())
            command = printable(words[5].encode(), 200)
            found.processes.append(Process(int(words[1]), int(words[2]), up, printable(words[4].encode()), command))
    return found


@cache
def _script() -> str:
    return Path(__file__).with_name("holder.sh").read_text(encoding="utf-8")


async def listener(link: Link, dep: Deployment, job_id: str | None) -> Listener:
    """Who listens on the deployment's port on this node. `job_id`: of rank 0, when there is one. Raises NodeError."""
    boxed = [link.node.container, container_name(job_id)] if job_id and dep.launcher == "docker" else []
    argv = ["sh", "-c", _script(), "holder", str(dep.port), *boxed]
    done = await link.run(shlex.join(argv), timeout=40.0)
    return parse_listener(done.stdout.decode("utf-8", "replace"))


async def stranger(link: Link, dep: Deployment, job_id: str) -> str | None:
    """Who holds the deployment's port in place of this job of ours; None when it is ours. Raises NodeError."""
    leader = (await jobs.status(link, [job_id]))[job_id].pid
    return (await listener(link, dep, job_id)).strangers(leader)
