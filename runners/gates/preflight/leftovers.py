"""What somebody, maybe an earlier run of ours, left behind: GPU memory, containers, listeners on our ports.

Everything is named with the command that clears it, and nothing is cleared here.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from runners.gates.preflight.base import Facts, Scope, Verdict, listed, unknown
from runners.gates.preflight.gpus import IDLE_BYTES, gpu_rows, holders

PREFIX = "twinrail-"  # of the names of our containers, see runners.launchers.docker.container_name


@dataclass(frozen=True, slots=True)
class Process:
    """What /proc told of a process. `ancestors`: its parents up to, not including, PID 1."""

    pid: int
    user: str
    session: int | None
    ancestors: tuple[int, ...]
    command: str

    def __str__(self) -> str:
        return f"pid {self.pid} of {self.user or 'an unknown user'} ({self.command[:120] or 'no command told'})"


@dataclass(frozen=True, slots=True)
class Container:
    """A line of `ps -a`. `pid` of its first process, None when it does not run or was not told."""

    id: str
    name: str
    image: str
    status: str
    pid: int | None

    @property
    def job(self) -> str | None:
        """The job of ours that it is, by its name."""
        return self.name.removeprefix(PREFIX) if self.name.startswith(PREFIX) else None

    @property
    def runs(self) -> bool:
        return self.status.lower().startswith(("up", "running", "restarting", "paused"))


def processes(facts: Facts) -> dict[int, Process]:
    found: dict[int, Process] = {}
    for cells in facts.table("process"):
        pid, user, session, chain, command = [*cells, "", "", "", ""][:5]
        if pid.isdigit():
            up = tuple(int(p) for p in chain.split() if p.isdigit())
            found[int(pid)] = Process(int(pid), user, int(session) if session.isdigit() else None, up, command)
    return found


def containers(facts: Facts) -> list[Container]:
    pids: dict[str, int] = {}
    for line in facts.blocks.get("container_pids", []):
        words = line.split()
        if len(words) == 2 and words[1].isdigit() and words[1] != "0":
            pids[words[0]] = int(words[1])
    found = []
    for line in facts.blocks.get("containers", []):
        parts = line.split("|", 3)
        if len(parts) == 4:
            found.append(Container(parts[0], parts[1], parts[2], parts[3], pids.get(parts[0])))
    return found


def owner_of(scope: Scope, process: Process) -> tuple[bool, str | None]:
    """Whether a living job of ours runs this process, and the name of the container that holds it, if one does.

    A job leads a session of its own; a container's processes descend from its first one.
    """
    lineage = {process.pid, *process.ancestors}
    box = next((c for c in containers(scope.facts) if c.pid in lineage), None)
    leaders = {pid for pid in scope.living.values() if pid}
    mine = process.session in leaders or bool(lineage & leaders) or (box is not None and box.job in scope.living)
    return mine, box.name if box else None


def _ending(scope: Scope, process: Process, box: str | None) -> str:
    """The command that ends this process."""
    if box is not None:
        return f"{scope.node.container} rm -f {shlex.quote(box)}"
    sudo = "" if process.user in ("", scope.facts.values.get("host.user", "")) else "sudo "
    return f"{sudo}kill {process.pid}"


def gpu_memory(scope: Scope) -> Iterable[Verdict]:
    """Processes that hold GPU memory and are none of a living server of ours."""
    if scope.node.devices.vendor != "nvidia" or not scope.node.devices.count:
        return [Verdict("gpu_holders", "not_applicable", f"vendor {scope.node.devices.vendor}: holders are not listed")]
    if "gpu_processes" not in scope.facts.blocks:
        return [unknown("gpu_holders", scope.facts, "gpu_processes", "nvidia-smi, then fuser -v /dev/nvidia*")]
    known = processes(scope.facts)
    held: dict[int, int] = {}
    for pid, _, size in holders(scope.facts):
        held[pid] = held.get(pid, 0) + (size or 0)
    said, ours, fixes = [], 0, []
    for pid, size in held.items():
        process = known.get(pid) or Process(pid, "", None, (), "")
        mine, box = owner_of(scope, process)
        if mine:
            ours += 1
            continue
        said.append(f"{process}{f' in container {box}' if box else ''} holds {size / 2**30:.1f} GiB")
        fixes.append(_ending(scope, process, box))
    used = [r for r in gpu_rows(scope.facts, "nvidia") if (r.get("mem_used_bytes") or 0) > IDLE_BYTES]
    if said:
        return [Verdict("gpu_holders", "warn", listed(said, 4), "; ".join(dict.fromkeys(fixes)))]
    if used and not held:
        gpus = listed(r["index"] for r in used)
        detail = f"GPUs {gpus} hold memory, and the driver names no process: it may be in another PID namespace"
        return [Verdict("gpu_holders", "warn", detail, "as root: fuser -v /dev/nvidia*")]
    return [Verdict("gpu_holders", "pass", f"{ours} of our living server" if ours else "nobody holds GPU memory")]


def old_containers(scope: Scope) -> Iterable[Verdict]:
    """Containers of ours whose job nobody knows any more, and running ones of others."""
    if scope.dep is not None and scope.dep.launcher != "docker" and "containers" not in scope.facts.blocks:
        return [Verdict("containers", "not_applicable", "the deployment uses no containers")]
    if "containers" not in scope.facts.blocks:
        return [unknown("containers", scope.facts, "containers", "see `container` above")]
    engine = scope.node.container
    found = containers(scope.facts)
    stale = [c for c in found if c.job is not None and c.job not in scope.living]
    others = [c for c in found if c.job is None and c.runs]
    if stale:
        said = listed((f"{c.name} ({c.status})" for c in stale), 4)
        fix = "; ".join(f"{engine} rm -f {shlex.quote(c.name)}" for c in stale[:8])
        return [Verdict("containers", "warn", f"left by earlier runs of ours: {said}", fix)]
    if others:
        said = listed((f"{c.name} of {c.image} ({c.status})" for c in others), 4)
        fix = "; ".join(f"{engine} stop {shlex.quote(c.name)}" for c in others[:8]) + " (ask whose they are first)"
        return [Verdict("containers", "warn", f"running beside ours: {said}", fix)]
    mine = sum(c.job is not None for c in found)
    return [Verdict("containers", "pass", f"{len(found)} containers, {mine} of our living server, none left over")]


def ports(scope: Scope) -> Iterable[Verdict]:
    """Nobody may listen where our server will: it would answer in its place."""
    wanted = list(asked_ports(scope))
    if not wanted:
        return [Verdict("ports", "not_applicable", "no port of ours on this node")]
    if not scope.facts.complete:
        return [unknown("ports", scope.facts, "port")]
    held = {int(c[0]) for c in scope.facts.table("port") if c and c[0].isdigit()}
    known = processes(scope.facts)
    said, fixes, ours = [], [], 0
    for port in sorted(held & set(wanted)):
        pids = dict.fromkeys(int(c[1]) for c in scope.facts.table("holder") if c[:1] == [str(port)] and c[1].isdigit())
        listeners = [known.get(pid) or Process(pid, "", None, (), "") for pid in pids]
        verdicts = [(p, *owner_of(scope, p)) for p in listeners]
        if any(mine for _, mine, _ in verdicts):
            ours += 1
            continue
        if not verdicts:
            said.append(f"{port} is held by a process that this user may not see")
            fixes.append(f"sudo ss -ltnp 'sport = :{port}' names it; then sudo kill PID")
        for process, _, box in verdicts[:2]:
            said.append(f"{port} is held by {process}{f' in container {box}' if box else ''}")
            fixes.append(_ending(scope, process, box))
    if said:
        fix = "; ".join(dict.fromkeys(fixes)) + "; or choose another port ="
        return [Verdict("ports", "fail", listed(said, 4), fix)]
    free = f"{listed(wanted)} free" if not ours else f"{listed(wanted)}: held by our own living server, or free"
    return [Verdict("ports", "pass", free)]


def asked_ports(scope: Scope) -> Iterator[int]:
    """HTTP and rendezvous of rank 0's node."""
    if scope.dep is not None and scope.ours and scope.first:
        yield scope.dep.port
        if scope.spread:
            yield scope.dep.port + 1
