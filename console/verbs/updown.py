"""`up`, `down` and `restart`: a deployment without a benchmark."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

from console.verbs import DONE, NEGATIVE, Place, out, out_json, run_async, say, say_error, session_of
from console.verbs.stages import Progress
from runners.spec import ConfigError

if TYPE_CHECKING:
    from runners.session import Session
    from runners.spec import Deployment, Inventory

POLL_S = 1.0


def run_up(place: Place, deployment: str, *, as_json: bool) -> int:
    """Exit code 0 when ready, 1 when it did not come up."""
    return run_async(_change(place.inventory(), deployment, "up", as_json=as_json))


def run_down(place: Place, deployment: str, *, as_json: bool) -> int:
    """Exit code 0 when stopped."""
    return run_async(_change(place.inventory(), deployment, "down", as_json=as_json))


def run_restart(place: Place, deployment: str, *, as_json: bool) -> int:
    """Exit code 0 when a new server life is ready, 1 when it did not come up."""
    return run_async(_change(place.inventory(), deployment, "restart", as_json=as_json))


async def _change(inventory: Inventory, deployment: str, kind: str, *, as_json: bool) -> int:
    from store.errors import OwnerGone, StoreError

    dep = inventory.deployment(deployment)
    if dep.engine == "external" and kind != "up":
        raise ConfigError(f"{deployment} is somebody else's server (engine = external): stop it where it runs")
    asked = time.time_ns()
    async with session_of(inventory, foreground=False) as session:
        try:
            await session.order(kind, deployment=deployment)
        except OwnerGone:
            raise
        except StoreError as e:  # a run uses it
            say_error(e)
            return NEGATIVE
        life = await _wait(session, dep, kind, asked)
        if life and kind == "down" and (life["ended_wall_ns"] or asked) < asked:
            life = None  # it was gone before
        jobs = await session.rows("jobs_list") if life else []
    wanted = "gone" if kind == "down" else "ready"
    done = (life is None and kind == "down") or (life is not None and life["state"] == wanted)
    if as_json:
        out_json({"deployment": deployment, "life": life})
    elif life is None:
        out(f"{deployment}: no server of ours is up")
    else:
        where = f" at {life['url']}" if life["state"] == "ready" else ""
        why = f" {life['outcome']}:" if life["state"] == "gone" and life["outcome"] not in (None, "OK") else ""
        out(f"{deployment}: {life['state']}{where}{why} {life['detail'] or ''}".rstrip())
    if kind != "down":
        for line in _next_steps(dep, life, jobs, ready=done):
            say(f"next: {line}")
    return DONE if done else NEGATIVE


def _next_steps(dep: Deployment, life: dict[str, Any] | None, jobs: list[dict[str, Any]], *, ready: bool) -> list[str]:
    """What an operator does after `up`."""
    if ready:
        return [f"`twinrail watch {dep.name}`, `twinrail run CASE -d {dep.name} --keep`, `twinrail down {dep.name}`"]
    mine = [j for j in jobs if life and j["life_id"] == life["life_id"] and j["kind"] == "server"]
    logs = [f"the log of rank {j['rank']}: {j['node']}:{j['folder']}/stdout (and stderr)" for j in mine]
    return [f"`twinrail check --deployment {dep.name}` says what the nodes lack", *logs]


async def _wait(session: Session, dep: Deployment, kind: str, asked: int) -> dict[str, Any] | None:
    """Until the newest life of the deployment is ready (up, restart) or gone (down). The first Ctrl-C calls a start
    off, the second leaves it on."""
    from console.verbs.run import interrupts

    limit = dep.stop_timeout + 60 if kind == "down" else dep.ready_timeout + dep.stop_timeout + 120
    deadline = time.monotonic() + limit
    said, progress = "", Progress()
    with interrupts("The owner carries on; `twinrail jobs` shows what runs on the nodes") as presses:
        called_off = False
        while True:
            if presses.is_set() and not called_off:
                called_off = True
                say("calling it off: what was started is stopped (again: leave now, and the owner carries on)")
                if kind != "down":
                    await session.order("down", deployment=dep.name)
            rows = await session.rows("deployment_life", dep.name)
            life = rows[0] if rows else None
            if life is not None and kind == "restart" and (life["started_wall_ns"] or 0) < asked:
                state = "stopping the old server" if life["state"] != "gone" else "starting"
                life = None
            else:
                state = life["state"] if life else "gone" if kind == "down" else "starting"
            if state != said:
                said = state
                say(f"{dep.name}: {state}")
            if life is not None and kind != "down":
                for line in progress.lines(life, await session.rows("startup_stages", life["life_id"])):
                    say(f"  {line}")
            if _over(kind, life, asked) or time.monotonic() > deadline:
                return life
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await (asyncio.sleep(POLL_S) if called_off else presses.wait())


def _over(kind: str, life: dict[str, Any] | None, asked: int) -> bool:
    if kind == "down":
        return life is None or life["state"] == "gone"
    if life is None:
        return False
    fresh = (life["ended_wall_ns"] or time.time_ns()) >= asked
    return fresh and life["state"] in ("ready", "gone")
