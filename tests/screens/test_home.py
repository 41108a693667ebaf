"""What home says to do next, from how far the plans are and what runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from screens.home_now import now_lines
from screens.home_rows import HomeView, progress_of
from tests.screens.scene import config


def past(case: str, concurrency: int, outcome: str) -> dict[str, Any]:
    return {"deployment": "tp16", "case_name": case, "concurrency": concurrency, "last_outcome": outcome}


HISTORY = [past("P1-C1", 1, "OK"), past("D2-C16", 16, "TPOT_SLO_EXCEEDED"), past("D1-C1", 1, "OOM")]


def view(**more: Any) -> HomeView:
    plans = progress_of(config(), HISTORY)
    return replace(HomeView(nodes=(), deployments=(), cases=(), runs=(), history=(), now_ns=0, plans=plans), **more)


def run(**more: Any) -> dict[str, Any]:
    row = {"run_id": "r1", "kind": "run", "plan": "baseline", "deployment": "tp16", "paused_by": None}
    counts = {"attempts": 9, "attempts_done": 1, "created_wall_ns": 0}
    return {**row, **counts, "state": "done", "outcome": "OK", **more}


def said(snap: HomeView, *, owner: bool = True) -> str:
    return "\n".join(entry.text for entry in now_lines(snap, True, owner))


def test_a_plan_is_as_far_as_its_cases_were_carried_through_on_its_deployment() -> None:
    (mine,) = progress_of(config(), HISTORY)  # the first round names no deployment, and there are two
    assert (mine.plan, mine.measured, mine.cases) == ("baseline", 2, 5), "a breach was measured, an OOM was not"
    assert mine.next_case == "D1-C1"
    nowhere = [{**h, "deployment": "tp8pp2"} for h in HISTORY]
    assert progress_of(config(), nowhere)[0].measured == 0


@pytest.mark.parametrize(
    ("runs", "told"),
    [
        ((), "`twinrail check`, then choose"),
        ((run(),), "enter on plan baseline"),
        ((run(outcome="OOM"),), "look at r1: g r"),
        ((run(state="running", outcome=None),), "2 shows it live; C pauses"),
        ((run(state="running", outcome=None, paused_by="ann"),), "a run is paused: C, then p"),
    ],
)
def test_the_next_step_follows_from_what_runs_and_what_was_last(runs: tuple[dict[str, Any], ...], told: str) -> None:
    assert f"next: {told}" in said(view(runs=runs))


def test_without_an_owner_the_next_step_is_a_new_one() -> None:
    assert "next: press O: a new owner" in said(view(runs=(run(),)), owner=False)


def test_a_run_that_waits_for_its_turn_says_so() -> None:
    assert "waits for its turn" in said(view(runs=(run(state="planned", outcome=None),)))
