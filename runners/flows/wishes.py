"""What operators ask of a run that is on: pause, go on, skip an attempt, measure one again.

The accepted orders in the store are the journal: a new owner reads them and finds every wish as it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import random

from runners import orders
from store.database import Store
from store.queries import call, literal
from store.records import Attempt, Run

SEARCHES = frozenset({"search", "watch"})  # these have no list of attempts that one more could join


class Wishes:
    """The wishes for one run."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store = store
        paused = {r["run_id"]: r["paused_by"] for r in store.query(call("runs_paused")).dicts()}
        self.paused_by: str | None = paused.get(run_id)
        skips = store.query(call("run_skips", run_id)).dicts()
        self._skips = {_root(r["attempt_id"]): str(r["who"]) for r in skips}
        self._resumed = asyncio.Event()

    async def take(self, run: Run, order: orders.PauseRun | orders.SkipAttempt | orders.RetryAttempt) -> str:
        """Take a wish in; what is said to whoever asked. Asking twice is asking once. Raises OrderError."""
        match order:
            case orders.PauseRun():
                self.paused_by = self.paused_by or order.who
                self._resumed.clear()
                return "paused: no new attempt begins until the run is resumed; the one that is on goes on"
            case orders.SkipAttempt():
                if run.kind in SEARCHES:
                    raise orders.OrderError(f"a {run.kind} needs what it measures: pause it or stop it")
                attempt = _attempt(self._store, run, order.attempt_id)
                if attempt.state == "done":
                    raise orders.OrderError(f"{_said(attempt)} has ended already: {attempt.outcome}")
                self._skips.setdefault(_root(order.attempt_id), order.who)
                return f"{_said(attempt)} is skipped; the run goes on"
            case orders.RetryAttempt():
                return await _retry(self._store, run, order.attempt_id)

    def resume(self) -> None:
        self.paused_by = None
        self._resumed.set()

    def skipped(self, attempt_id: str) -> str | None:
        """Why this attempt is not to be measured; None when it is."""
        who = self._skips.get(_root(attempt_id))
        return None if who is None else f"skipped by {who}"

    async def go_on(self, cancel: asyncio.Event) -> None:
        """Wait until the pause is over or the run is stopped."""
        waits = [asyncio.create_task(e.wait()) for e in (self._resumed, cancel)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await wait


def _root(attempt_id: str) -> str:
    """The id without the marks of repeats after a crash of ours: it is the same attempt to whoever skips it."""
    return attempt_id.rstrip("v")


async def _retry(store: Store, run: Run, attempt_id: str) -> str:
    """Plan the new attempt at the end of the run."""
    if run.kind in SEARCHES:
        raise orders.OrderError(f"a {run.kind} has no list of attempts: `twinrail search --continue RUN --again LOAD`")
    old = _attempt(store, run, attempt_id)
    if old.state != "done":
        raise orders.OrderError(f"{_said(old)} is {old.state}: only a done attempt is measured again")
    rows = store.query(f"from attempts where run_id = {literal(run.run_id)}").dicts()
    known = [Attempt(**row) for row in rows]
    new_id = f"{old.attempt_id}r"
    if any(_root(a.attempt_id) == new_id for a in known):
        return f"{_said(old)} is measured again already"
    mine = [a.repeat for a in known if a.case_name == old.case_name and a.state != "void"]
    again = Attempt(
        attempt_id=new_id,
        run_id=run.run_id,
        ordinal=max(a.ordinal for a in known) + 1,
        case_name=old.case_name,
        isl=old.isl,
        osl=old.osl,
        concurrency=old.concurrency,
        request_rate=old.request_rate,
        repeat=max(mine) + 1,
        client=old.client,
        seed=random.Random(new_id).getrandbits(31),  # other prompts: the old ones may be in the prefix cache
        case_spec=old.case_spec,
        variant=old.variant,
    )
    await store.commit([again])
    return f"{_said(old)} is measured again as repeat {again.repeat}, after the rest"


def _attempt(store: Store, run: Run, attempt_id: str) -> Attempt:
    mine = f"where run_id = {literal(run.run_id)}"
    rows = store.query(f"from attempts {mine} and attempt_id = {literal(attempt_id)} and state <> 'void'").dicts()
    if not rows:
        raise orders.OrderError(f"run {run.run_id} has no attempt {attempt_id}; its run screen (g r) lists them")
    return Attempt(**rows[0])


def _said(attempt: Attempt) -> str:
    return f"{attempt.case_name} repeat {attempt.repeat}"
