"""`check`: preflight on all nodes, and the RDMA gate of a living deployment."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.verbs import DONE, INFRASTRUCTURE, NEGATIVE, Place, out, out_json, run_async

if TYPE_CHECKING:
    from runners.spec import Inventory

SIGNS = {"pass": "✓", "warn": "▲", "fail": "✗", "unknown": "?", "not_applicable": "–"}


def run_check(place: Place, deployment: str | None, *, as_json: bool) -> int:
    """Exit code 0 when nothing failed, 1 when something did, 3 when no node could be reached."""
    return run_async(_check(place.inventory(), deployment, as_json=as_json))


async def _check(inventory: Inventory, deployment: str | None, *, as_json: bool) -> int:
    checks = await _verdicts(inventory, deployment)
    ok = not any(c["status"] == "fail" for c in checks)
    if as_json:
        out_json({"ok": ok, "checks": checks})
    else:
        for c in checks:
            out(f"{SIGNS[c['status']]} {c['node'] or '-':10} {c['name']:10} {c['status']:14} {c['detail'] or ''}")
            if c["fix"] and c["status"] != "pass":
                out(f"{'':27}next: {c['fix']}")
    reached = any(c["name"] == "ssh" and c["status"] == "pass" for c in checks)
    return DONE if ok else NEGATIVE if reached else INFRASTRUCTURE


async def _verdicts(inventory: Inventory, deployment: str | None) -> list[dict[str, Any]]:
    """Asked with links of our own and a throw-away store: a check must work beside a living owner."""
    from runners.cluster import Cluster
    from runners.flows.check import preflight
    from runners.flows.services import Services
    from runners.ingest import Ingest
    from store.database import Store

    dep = inventory.deployment(deployment) if deployment or len(inventory.deployments) == 1 else None
    with (
        tempfile.TemporaryDirectory(prefix="twinrail-check-") as folder,
        Store.open(Path(folder) / "check.duckdb") as store,
    ):
        cluster = Cluster(inventory, store)
        try:
            gates = await preflight(Services(store, cluster, Ingest(store)), dep)
        finally:
            await cluster.close()
    rdma = await _rdma(inventory)
    keys = ("node", "name", "status", "detail", "fix")
    return [{k: getattr(g, k) for k in keys} for g in gates] + [{k: rdma[k] for k in keys}]


async def _rdma(inventory: Inventory) -> dict[str, Any]:
    """The stored verdict of the living deployment; unknown when nothing is up, which does not count against `ok`."""
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
    except StoreError:
        return unknown
    return rows[0] if rows else unknown
