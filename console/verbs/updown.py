"""`up` and `down`: a deployment without a benchmark."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from console.verbs import DONE, NEGATIVE, Place, out, out_json, run_async, say, session_of

if TYPE_CHECKING:
    from runners.session import Session
    from runners.spec import Inventory

POLL_S = 1.0


def run_up(place: Place, deployment: str, *, as_json: bool) -> int:
    """Exit code 0 when ready, 1 when it did not come up."""
    return run_async(_change(place.inventory(), deployment, "up", as_json=as_json))


def run_down(place: Place, deployment: str, *, as_json: bool) -> int:
    """Exit code 0 when stopped."""
    return run_async(_change(place.inventory(), deployment, "down", as_json=as_json))


async def _change(inventory: Inventory, deployment: str, kind: str, *, as_json: bool) -> int:
    dep = inventory.deployment(deployment)
    asked = time.time_ns()
    async with session_of(inventory, foreground=False) as session:
        await session.order(kind, deployment=deployment)
        limit = dep.ready_timeout + 120 if kind == "up" else dep.stop_timeout + 60
        life = await _wait(session, deployment, kind, asked, limit)
    if as_json:
        out_json({"deployment": deployment, "life": life})
    elif life is None:
        out(f"{deployment}: no server of ours is up")
    else:
        where = f" at {life['url']}" if life["state"] == "ready" else ""
        out(f"{deployment}: {life['state']}{where} {life['detail'] or ''}".rstrip())
    wanted = ("ready",) if kind == "up" else ("gone",)
    return DONE if (life is None and kind == "down") or (life and life["state"] in wanted) else NEGATIVE


async def _wait(session: Session, deployment: str, kind: str, asked: int, limit: float) -> dict[str, Any] | None:
    """Until the newest life of the deployment is ready (up) or gone (down)."""
    deadline = time.monotonic() + limit
    said = ""
    while True:
        rows = await session.rows("deployment_life", deployment)
        life = rows[0] if rows else None
        state = life["state"] if life else "starting"
        if state != said:
            said = state
            say(f"{deployment}: {state}")
        if kind == "down" and (life is None or state == "gone"):
            return life
        fresh = life is not None and (life["ended_wall_ns"] or time.time_ns()) >= asked
        if kind == "up" and life and fresh and state in ("ready", "gone"):
            return life
        if time.monotonic() > deadline:
            return life
        await asyncio.sleep(POLL_S)
