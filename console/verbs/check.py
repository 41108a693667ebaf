"""`check`: preflight on all nodes, and the RDMA gate of a living deployment."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.verbs import DONE, INFRASTRUCTURE, NEGATIVE, Place, out, out_json, run_async, say

if TYPE_CHECKING:
    from runners.flows.check import Living
    from runners.spec import Inventory

SIGNS = {"pass": "✓", "warn": "▲", "fail": "✗", "unknown": "?", "not_applicable": "–"}
KEYS = ("node", "name", "status", "detail", "fix")


def run_check(place: Place, deployment: str | None, *, as_json: bool, full: bool = False) -> int:
    """Exit code 0 when nothing failed, 1 when something did, 3 when no node could be reached."""
    return run_async(_check(place.inventory(), deployment, as_json=as_json, full=full))


async def _check(inventory: Inventory, deployment: str | None, *, as_json: bool, full: bool) -> int:
    checks = await _verdicts(inventory, deployment, full=full)
    ok = not any(c["status"] == "fail" for c in checks)
    if as_json:
        out_json({"ok": ok, "checks": checks})
    else:
        _print(checks)
    reached = any(c["name"] == "ssh" and c["status"] == "pass" for c in checks)
    return DONE if ok else NEGATIVE if reached else INFRASTRUCTURE


def _print(checks: list[dict[str, Any]]) -> None:
    """Node by node, then what concerns all; what was not asked for is only counted."""
    shown = [c for c in checks if c["status"] != "not_applicable"]
    where: str | None = ""
    for c in shown:
        if c["node"] != where:
            where = c["node"]
            out(where or "all nodes")
        out(f"  {SIGNS[c['status']]} {c['name']:12} {c['status']:8} {c['detail'] or ''}")
        if c["fix"] and c["status"] != "pass":
            out(f"{'':26}next: {c['fix']}")
    counts = {s: sum(c["status"] == s for c in checks) for s in ("fail", "warn", "unknown", "pass", "not_applicable")}
    said = ", ".join(f"{n} {s.replace('_', ' ')}" for s, n in counts.items() if n)
    out(f"{len(checks)} checks: {said}")


async def _verdicts(inventory: Inventory, deployment: str | None, *, full: bool) -> list[dict[str, Any]]:
    """Asked with links of our own and a throw-away store: a check must work beside a living owner."""
    from runners.cluster import Cluster
    from runners.flows.check import inspect
    from runners.flows.services import Services
    from runners.ingest import Ingest
    from store.database import Store

    dep = inventory.deployment(deployment) if deployment or len(inventory.deployments) == 1 else None
    rdma, living = await _known(inventory)
    with (
        tempfile.TemporaryDirectory(prefix="twinrail-check-") as folder,
        Store.open(Path(folder) / "check.duckdb") as store,
    ):
        cluster = Cluster(inventory, store)
        try:
            services = Services(store, cluster, Ingest(store))
            found = await inspect(services, dep, full=full, living=living, said=say if full else lambda _: None)
        finally:
            await cluster.close()
    return [{k: getattr(g, k) for k in KEYS} for g in found.gates] + [{k: rdma[k] for k in KEYS}]


async def _known(inventory: Inventory) -> tuple[dict[str, Any], Living]:
    """What the store says: the gate's verdict on the living deployment (unknown when nothing is up, which does not
    count against `ok`), and the jobs that are meant to be on the nodes."""
    from runners.session import reading
    from store.errors import StoreError

    unknown = {
        "node": None,
        "name": "rdma",
        "status": "unknown",
        "detail": "no deployment is up: the transport shows only in a living server's logs",
        "fix": "twinrail up DEPLOYMENT, or start a run; the gate is judged after its first generation",
    }
    try:
        async with reading(inventory) as session:
            rows = await session.rows("living_gate")
            jobs = await session.rows("check_living_jobs")
    except StoreError:
        return unknown, {}
    return (rows[0] if rows else unknown), {str(j["job_id"]): (str(j["node"]), int(j["pid"] or 0)) for j in jobs}
