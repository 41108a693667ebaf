"""Detached jobs: they run on a node in a session and a folder of their own, whatever happens to us.

The node's side is runners/nodes/job.sh, which travels with every request, so that nothing has to be installed there.
A job is known by its id: starting the same id again finds the first one, also after a lost connection or in a race.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal, TypeGuard, get_args

from runners.nodes.link import Completed, Link, NodeError
from runners.nodes.wire import printable, remote_failure

JobState = Literal["starting", "running", "exited", "gone", "unknown"]
SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
OWN_FILES = {"cmd", "job", "pid", "start", "boot_id", "started", "expires", "keeper", "files", "secrets"}
OWN_FILES |= {"stdout.rolled", "stderr.rolled"}
OWN_FILES |= {"rc", "rc.tmp", "ended", "ended.tmp", "killed", "why", "probe", "undo", "undo.log"}
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
KILL_S = 10  # s that the node itself allows for SIGKILL to work


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What to run on a node.

    Attributes:
        job_id: names the job and its folder on this node; letters, digits, dot, underscore, dash.
        argv: program and arguments, not a shell line.
        env: on top of the node's own `env`. Shown in the job's `cmd` file.
        secrets: environment too, but passed by a file of mode 0600 that the job's shell deletes; never in `cmd`.
        cwd: absolute, or relative to the home folder; default: the job's folder.
        ttl_s: the node ends the job this long after its start, unless extended.
        cpus: CPU list for taskset, e.g. "0-31".
        files: names of further streams that the job writes in its folder ($TWINRAIL_JOB_DIR).
    """

    job_id: str
    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    ttl_s: int = 3600
    cpus: str | None = None
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """What the node knows of a job. None: not known (yet).

    Attributes:
        state: running; exited (has an exit code); gone (no process and no exit code: killed from outside, or the node
            went down); unknown (no such folder).
        exit_code: of the program; 128 + n after signal n; 137 also when stop() had to use SIGKILL.
        start_ticks, boot_id: tell a reused pid and a reboot.
        why: "stopped" by us or "expired" (its time-to-live), when one of these ended it.
        sizes: bytes of each stream by name.
    """

    job_id: str
    state: JobState
    exit_code: int | None = None
    pid: int | None = None
    start_ticks: int | None = None
    boot_id: str | None = None
    started_wall_ns: int | None = None
    ended_wall_ns: int | None = None
    expires_s: int | None = None
    why: str | None = None
    folder: str | None = None
    sizes: dict[str, int] = field(default_factory=dict)


async def start(link: Link, spec: JobSpec) -> JobStatus:
    """Start the job, or find it if its id was started before. Raises NodeError."""
    names = [name for name in spec.files if name not in ("stdout", "stderr")]
    for name in names:
        _checked(name)
        if name in OWN_FILES:
            raise ValueError(f"a stream of a job cannot be called {name!r}")
    args = (_checked(spec.job_id), f"{spec.ttl_s:d}", " ".join(names), _cmd(link, spec), _exports(spec.secrets))
    done = await _call(link, "job_start", args, make=True)
    return _parse(link, done)[spec.job_id]


async def status(link: Link, job_ids: Iterable[str]) -> dict[str, JobStatus]:
    """All asked jobs in one round trip; a job that the node does not know has the state `unknown`."""
    ids = [_checked(i) for i in job_ids]
    found = _parse(link, await _call(link, "job_status", ids)) if ids else {}
    return {i: found.get(i) or JobStatus(job_id=i, state="unknown") for i in ids}


async def list_jobs(link: Link) -> dict[str, JobStatus]:
    """Every job that has a folder on the node."""
    return _parse(link, await _call(link, "job_list", ()))


async def stop(link: Link, job_id: str, grace_s: float = 10.0) -> JobStatus:
    """SIGTERM to all of the job's session, after `grace_s` SIGKILL. Returns once every process is gone.

    Raises:
        NodeError: `stuck` when a process survives SIGKILL, or a container its removal; or the link's errors. It may be
            called again then.
    """
    grace = max(0, round(grace_s))
    done = await _call(link, "job_stop", (_checked(job_id), str(grace)), timeout=grace + KILL_S + 20.0)
    return _parse(link, done).get(job_id) or JobStatus(job_id=job_id, state="unknown")


async def extend(link: Link, job_ids: Iterable[str], ttl_s: int) -> dict[str, JobStatus]:
    """Let the jobs live for `ttl_s` more seconds from now."""
    ids = [_checked(i) for i in job_ids]
    return _parse(link, await _call(link, "job_extend", (f"{ttl_s:d}", *ids))) if ids else {}


async def reap(link: Link, job_id: str) -> bool:
    """Remove the job's folder. False when it still runs (nothing is removed then)."""
    done = await _call(link, "job_reap", (_checked(job_id),))
    left = _parse(link, done).get(job_id)
    return left is None or left.state == "unknown"


@cache
def script() -> str:
    """The node's side, see job.sh."""
    return Path(__file__).with_name("job.sh").read_text(encoding="utf-8")


def is_state(word: str) -> TypeGuard[JobState]:
    return word in get_args(JobState)


def number(word: str) -> int | None:
    """A whole number as the node wrote it; None for `-` and for anything else."""
    return int(word) if word.isascii() and word.isdigit() and len(word) < 20 else None


def known(word: str) -> str | None:
    return None if word == "-" else printable(word.encode(), 64)


def _checked(name: str) -> str:
    if not SAFE_NAME.fullmatch(name):
        raise ValueError(f"not a name for a job or a stream: {name!r}")
    return name


def _exports(env: dict[str, str]) -> str:
    for name in env:
        if not ENV_NAME.fullmatch(name):
            raise ValueError(f"not a name for an environment variable: {name!r}")
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items())


def _cmd(link: Link, spec: JobSpec) -> str:
    """The shell file that becomes the job: readable, and the exact command."""
    argv = ["taskset", "-c", spec.cpus, *spec.argv] if spec.cpus else spec.argv
    lines = [_exports({**link.node.env, **spec.env})]
    if spec.cwd is not None:
        home = "" if spec.cwd.startswith("/") else '"$HOME"/'
        lines.append(f"cd -- {home}{shlex.quote(spec.cwd)} || exit 126\n")
    return "".join([*lines, f"exec {shlex.join(argv)}\n"])


async def _call(
    link: Link,
    function: str,
    args: Iterable[str],
    *,
    make: bool = False,
    timeout: float = 30.0,
) -> Completed:
    enter = f"enter {shlex.quote(link.node.root)} {'make' if make else ''}"
    # In braces: a script that is cut short by a lost link is a syntax error and does nothing.
    text = (
        f'{{\njob={shlex.quote(script())}\neval "$job"\nexport LC_ALL=C\n{enter}\n{function} {shlex.join(args)}\n}}\n'
    )
    if function == "job_start":
        text = text.replace("export LC_ALL=C\n", "", 1)  # the job inherits this shell's environment
    done = await link.run("exec sh", stdin=text.encode(), timeout=timeout)
    if done.exit_code == 75:
        raise NodeError(
            "stuck", f"{link.node.name}: {printable(done.stderr)}. Look at it with ps; a GPU may need a reset."
        )
    if done.exit_code == 76:
        raise NodeError("stuck", f"{link.node.name}: {printable(done.stderr)}. Stopping it again tries again.")
    if done.exit_code != 0:
        raise remote_failure(link.node, function.replace("_", " "), done)
    return done


def _parse(link: Link, done: Completed) -> dict[str, JobStatus]:
    """Status lines to records. Lines that cannot be ours are left out; an answer without its end is refused."""
    lines = done.stdout.decode("utf-8", "replace").split("\n")
    if done.stdout and "end" not in lines:
        raise NodeError("protocol", f"{link.node.name}: a cut answer about jobs: {printable(done.stdout)}")
    sizes: dict[str, dict[str, int]] = {}
    for words in (line.split(" ") for line in lines):
        if words[0] == "size" and len(words) == 3 and (size := number(words[2])) is not None:
            job_id, _, name = words[1].partition("/")
            sizes.setdefault(job_id, {})[name] = size
    found: dict[str, JobStatus] = {}
    for words in (line.split(" ", 11) for line in lines):
        if words[0] == "job" and len(words) == 12:
            _, job_id, state, rc, pid, ticks, boot, started, ended, expires, why, folder = words
            if not SAFE_NAME.fullmatch(job_id) or not is_state(state):
                continue
            found[job_id] = JobStatus(
                job_id=job_id,
                state=state,
                exit_code=number(rc),
                pid=number(pid),
                start_ticks=number(ticks),
                boot_id=known(boot),
                started_wall_ns=number(started),
                ended_wall_ns=number(ended),
                expires_s=number(expires),
                why=known(why),
                folder=None if state == "unknown" else folder,
                sizes=sizes.get(job_id, {}),
            )
    return found
