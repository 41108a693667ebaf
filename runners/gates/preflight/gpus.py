"""GPUs: are they there, and does nobody use them?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from runners.formats import hy_smi, nvidia_smi
from runners.formats.base import collect
from runners.gates.preflight.base import Facts, Scope, Verdict, listed

IDLE_BYTES = 1 << 30  # a driver without persistence and a display need some hundred MiB
SOURCES = {"nvidia": "gpus", "hygon": "hy_smi", "amd": "rocm_smi"}


def gpu_rows(facts: Facts, vendor: str) -> list[dict[str, Any]]:
    """One row a GPU as runners.formats reads it: index, name, uuid, pci_bus_id, mem_used_bytes ... as far as told."""
    if vendor == "nvidia":
        return [r for r in nvidia_smi.parse_csv("\n".join(facts.blocks.get("gpus", []))).rows if "uuid" in r]
    if vendor == "hygon":
        return collect(hy_smi.parse(facts.blocks.get("hy_smi", []))).rows
    return []


def present(scope: Scope) -> Iterable[Verdict]:
    """As many GPUs as configured, all alike, and nobody's memory in them."""
    devices = scope.node.devices
    source = SOURCES.get(devices.vendor)
    if source is None or devices.count == 0:
        return [Verdict("gpu", "not_applicable", f"vendor {devices.vendor}, {devices.count} devices configured")]
    if source not in scope.facts.blocks:
        fix = "GPU figures will be missing; check the driver, or set devices = { count = 0 } for this node"
        why = scope.facts.missing.get(source)
        failed = why is not None and "is not installed" not in why
        return [Verdict("gpu", "warn" if failed else "unknown", scope.facts.why(source), fix)]
    rows = gpu_rows(scope.facts, devices.vendor)
    if devices.vendor == "amd":
        return [Verdict("gpu", "unknown", "rocm-smi answers; its devices are not counted", "rocm-smi")]
    return [_judged(rows, devices.count, scope)]


def _judged(rows: list[dict[str, Any]], expected: int, scope: Scope) -> Verdict:
    said = "\n".join(scope.facts.blocks.get("gpus", []))[:300]
    tool = (
        "nvidia-smi -L; dmesg | grep -i -e xid -e 'fallen off'" if scope.node.devices.vendor == "nvidia" else "hy-smi"
    )
    if len(rows) != expected:
        lost = [w for w in said.splitlines() if "lost" in w.lower() or "Unable" in w]
        detail = f"{len(rows)} GPUs answer, {expected} expected" + (f": {lost[0]}" if lost else "")
        return Verdict("gpu", "fail", detail, f"look: {tool}; or correct devices = {{ count = {len(rows)} }}")
    names = sorted({str(r["name"]) for r in rows if r.get("name")})
    mixed = len(names) > 1
    used = [r["mem_used_bytes"] for r in rows if r.get("mem_used_bytes") is not None]
    shares = [r["mem_used_pct"] for r in rows if r.get("mem_used_pct") is not None]
    busy = sum(u > IDLE_BYTES for u in used) + sum(s > 2 for s in shares)
    working = sum((r.get("util_pct") or 0) > 5 for r in rows)
    detail = f"{len(rows)} GPUs ({listed(names, 3) or 'no name given'})"
    if not used and not shares:
        return Verdict("gpu", "unknown", f"{detail}; memory in use is not told", tool)
    detail += f", {busy} with more than 1 GiB in use, {working} working"
    if mixed:
        return Verdict("gpu", "warn", f"{detail}; they are not alike", tool)
    if (busy or working) and scope.living:
        return Verdict("gpu", "pass", f"{detail}; our own server is up")
    if busy or working:
        return Verdict("gpu", "warn", detail, "see leftovers below; nothing of them is ended unasked")
    return Verdict("gpu", "pass", detail)


def holders(facts: Facts) -> Iterator[tuple[int, str, int | None]]:
    """(pid, GPU uuid, bytes) of each process that a GPU's driver names."""
    for row in nvidia_smi.parse_csv("\n".join(facts.blocks.get("gpu_processes", []))).rows:
        if isinstance(row.get("pid"), int):
            yield row["pid"], str(row.get("gpu_uuid") or row.get("uuid") or ""), row.get("mem_used_bytes")
