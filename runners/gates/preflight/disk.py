"""Room on the disks that a run writes to and reads from."""

from __future__ import annotations

from collections.abc import Iterable

from runners.gates.preflight.base import Scope, Verdict, unknown

WARN_BYTES = 5 << 30
FAIL_BYTES = 256 << 20
SHM_WARN_BYTES = 8 << 30


def free_bytes(scope: Scope, mount: str) -> int | None:
    """Free bytes of a mount point in the survey's table."""
    for cells in scope.facts.table("disk"):
        if len(cells) >= 3 and cells[0] == mount and cells[2].isdigit():
            return int(cells[2]) * 1024
    return None


def room(scope: Scope) -> Iterable[Verdict]:
    """Our folder, where logs and probes are written; /dev/shm, by which ranks of a node talk."""
    free = free_bytes(scope, scope.facts.values.get("disk.root", "?"))
    if free is None:
        return [unknown("disk", scope.facts, "disk.root", "df -h on the node")]
    status = "fail" if free < FAIL_BYTES else "warn" if free < WARN_BYTES else "pass"
    fix = "" if status == "pass" else "make room in [[nodes]] root =; `twinrail jobs --reap` removes finished jobs"
    detail = f"{free / 2**30:.1f} GiB free for job files"
    shm = free_bytes(scope, "/dev/shm")
    if shm is not None:
        detail += f", {shm / 2**30:.1f} GiB of /dev/shm"
        shared = scope.dep is None or scope.dep.launcher == "process" or not scope.dep.shm_size
        if shm < SHM_WARN_BYTES and shared and scope.ours and scope.node.devices.count and status == "pass":
            status, fix = "warn", "mount -o remount,size=64g /dev/shm, or set shm_size = in the deployment"
    return [Verdict("disk", status, detail, fix)]
