"""`pause`, `skip`, `retry`, `abort`: what an operator may ask of a run that is on. `resume` ends a pause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from console.verbs import DONE, USAGE, Place, out, out_json, run_async, say, session_of

if TYPE_CHECKING:
    from runners.session import Session
    from runners.spec import Inventory

ORDERS = {"pause": "pause_run", "skip": "skip_attempt", "retry": "retry_attempt", "abort": "stop_run"}


def run_control(place: Place, verb: str, run_id: str | None, attempt: int | None = None, *, as_json: bool) -> int:
    """`attempt`: its number in the run; without one `skip` takes the attempt that is on. Exit code 3 when refused."""
    return run_async(_control(place.inventory(), verb, run_id, attempt, as_json=as_json))


async def _control(inventory: Inventory, verb: str, run_id: str | None, attempt: int | None, *, as_json: bool) -> int:
    async with session_of(inventory, foreground=False) as session:
        run_id = run_id or await _the_one(session, verb)
        if run_id is None:
            return USAGE
        params: dict[str, Any] = {"run_id": run_id}
        if verb in ("skip", "retry"):
            attempt_id = await _attempt(session, run_id, attempt, verb)
            if attempt_id is None:
                return USAGE
            params["attempt_id"] = attempt_id
        answer = await session.order(ORDERS[verb], **params)
    if as_json:
        out_json({"run_id": run_id, **({"attempt_id": params["attempt_id"]} if "attempt_id" in params else {})})
    else:
        out(f"{run_id}: {answer.get('detail') or 'stops; everything is kept'}")
    return DONE


async def _the_one(session: Session, verb: str) -> str | None:
    """The only run that is on."""
    on = [str(r["run_id"]) for r in await session.rows("runs_list") if r["state"] not in ("done", "collecting")]
    if len(on) == 1:
        return on[0]
    say(f"which run? {verb} one of: {', '.join(on)}" if on else f"no run is on: there is nothing to {verb}")
    return None


async def _attempt(session: Session, run_id: str, number: int | None, verb: str) -> str | None:
    rows = [a for a in await session.rows("run_attempts", run_id) if a["state"] != "void"]
    wanted = [a for a in rows if (a["state"] == "running" if number is None else a["ordinal"] == number)]
    if wanted:
        return str(wanted[0]["attempt_id"])
    numbers = ", ".join(f"{a['ordinal']} {a['case_name']} {a['outcome'] or a['state']}" for a in rows)
    say(f"no such attempt; {verb} one of: {numbers}" if rows else f"run {run_id} has no attempts")
    return None
