"""From the plan screen to a finished run over the embedded lab: started, paused, skipped, retried, all by keys."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from textual.pilot import Pilot

from console.app import TwinrailApp
from runners.lab.control import start, stop
from runners.session import Session, foreground
from runners.spec import load_inventory
from screens.control import RunControl
from screens.dialogs import Pick
from screens.live import LiveScreen
from screens.plan import PlanScreen
from screens.widgets.table import Table
from tests.screens.conftest import goto, until
from tests.screens.test_plan import start as press_start
from tests.screens.test_plan import value_of

PLAN = """
[cases.short]
isl = 32
osl = 8
budget = "60s"
requests = 20
[plans.four]
deployment = "sim"
cases = ["short"]
repeats = 4
max_repeats = 4
"""


async def control(pilot: Pilot[int], key: str) -> None:
    await pilot.press("C")
    await until(pilot, lambda: isinstance(pilot.app.screen, RunControl))
    await pilot.press(key)
    await until(pilot, lambda: not isinstance(pilot.app.screen, RunControl))


async def choose(pilot: Pilot[int], attempt_id: str) -> None:
    await until(pilot, lambda: isinstance(pilot.app.screen, Pick))
    pilot.app.screen.query_one(Table).select(attempt_id)
    await pilot.press("enter")
    await until(pilot, lambda: not isinstance(pilot.app.screen, Pick))


async def shows(pilot: Pilot[int], session: Session, source: str) -> None:
    """Wait until the store has such a row, 90 s at most."""
    deadline = time.monotonic() + 90
    while not (await session.sql(f"select 1 {source}")).rows:
        assert time.monotonic() < deadline, source
        await pilot.pause(0.1)


@pytest.mark.xdist_group("search")
@pytest.mark.timeout(240)
async def test_a_varied_run_started_paused_skipped_and_retried_from_the_console(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(start(tmp_path) + PLAN)
    try:
        async with foreground(load_inventory(path)) as session:
            app = TwinrailApp(session)
            async with app.run_test(size=(80, 24)) as pilot:
                plan = await goto(pilot, "4")
                assert isinstance(plan, PlanScreen)
                plan.draft.choose("plan", ["four"])
                plan.draft.set("requests", "10")
                plan.poke()
                await until(pilot, lambda: value_of(plan, "repeats") == "4" and value_of(plan, "requests") == "10")
                await press_start(pilot, "fewer requests", "", "")
                await until(pilot, lambda: isinstance(app.screen, LiveScreen))
                run_id = app.view.run_id
                assert run_id is not None

                await control(pilot, "p")
                await shows(pilot, session, "from runs where detail like '%paused by%'")
                await control(pilot, "s")
                await choose(pilot, f"{run_id}.a2")
                await shows(pilot, session, "from orders where kind = 'skip_attempt'")
                await control(pilot, "p")  # goes on
                await shows(pilot, session, "from attempts where state = 'done' and ordinal = 1")
                await session.order("pause_run", run_id=run_id)  # before the fourth, however busy the machine is
                await shows(pilot, session, "from runs where detail like '%paused by%'")
                await control(pilot, "r")
                await choose(pilot, f"{run_id}.a1")
                await shows(pilot, session, "from attempts where ordinal = 5")
                await control(pilot, "p")
                await shows(pilot, session, "from runs where state = 'done'")
            document = await session.document(run_id)
    finally:
        stop(tmp_path)
    (case,) = document["cases"]
    assert case["case"] == "short@requests=10-C1", "a case of its own, not the named one"
    ended = [(a["attempt"], a["outcome"], a["detail"]) for a in case["attempts"]]
    assert ended == [
        (1, "OK", None),
        (2, "CANCELLED", f"skipped by {session.who}"),
        (3, "OK", None),
        (4, "OK", None),
        (5, "OK", None),
    ]
    assert (document["changes"], document["vary"]) == ("fewer requests", {"requests": 10})
