"""`run --dry-run`: the exact commands and how long it will take; nothing is contacted and nothing is changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from console.verbs import DONE, out, out_json, say

if TYPE_CHECKING:
    from console.verbs.run import RunRequest
    from runners.spec import Inventory


def show_plan(inventory: Inventory, request: RunRequest, *, as_json: bool) -> int:
    """Print every command that the run would execute, labelled planned. Raises ConfigError for unknown names."""
    document = asyncio.run(plan_document(inventory, request))
    if as_json:
        out_json(document)
        return DONE
    out(f"deployment {document['deployment']}: planned, not executed")
    for c in document["commands"]:
        env = " ".join(f"{k}={v}" for k, v in c["env"].items())
        out(f"# {c['purpose']} on {c['node']}" + (f"   env: {env}" if env else ""))
        out(c["text"])
    for a in document["attempts"]:
        expected = "" if a["expect_s"] is None else f", about {a['expect_s']:.0f} s by earlier ones"
        out(f"attempt {a['ordinal']}: {a['case']} repeat {a['repeat']}, at most {a['budget_s']:.0f} s{expected}")
    out(_duration(document))
    for p in document["problems"]:
        out(("problem: " if p["bad"] else "note: ") + p["text"])
    return DONE


async def plan_document(inventory: Inventory, request: RunRequest) -> dict[str, Any]:
    """The plan as JSON (runners/flows/dry_run.py), with what the store knows, where there is one."""
    from runners import session
    from store.errors import StoreError

    if inventory.store_path.exists():
        try:
            async with session.reading(inventory) as store:
                return await store.plan("start_run", **request.params())
        except StoreError as e:
            say(f"planned without what was measured before: {e}")
    return session.planned_without_store(inventory, "start_run", **request.params())


def _duration(document: dict[str, Any]) -> str:
    known, attempts = document["known_attempts"], len(document["attempts"])
    starts, start = document["server_starts"], document["start_s"]
    each = f"up to {_minutes(document['ready_timeout_s'])}" if start is None else f"about {_minutes(start)}"
    said = f"duration: {'about' if known else 'at most'} {_minutes(document['estimate_s'])}: {attempts} attempts"
    said += f" ({known} known by earlier ones)" if known else " by their budgets"
    said += f", {starts} server start{'s'[: starts != 1]} of {each}" if starts else ", no server start"
    if (document["max_repeats"] or 0) > document["repeats"]:
        longest = _minutes(document["longest_s"])
        said += (
            f"; cases that do not agree are repeated up to {document['max_repeats']} times: attempts at most {longest}"
        )
    return said


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
