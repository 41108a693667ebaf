"""A plan on the embedded lab whose repeats never agree: measured again up to its limit, every repeat kept."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from runners.flows import steadiness
from runners.lab.control import start, stop
from runners.session import foreground
from runners.spec import load_inventory

PLAN = """
[cases.short]
isl = 32
osl = 8
budget = "60s"
requests = 20
[plans.twice]
deployment = "sim"
cases = ["short"]
repeats = 2
max_repeats = 3
"""


@pytest.mark.xdist_group("search")
@pytest.mark.timeout(240)
async def test_repeats_that_never_agree_end_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steadiness, "BAR", 0.0)  # no two repeats agree to the last token
    path = tmp_path / "plan.toml"
    path.write_text(start(tmp_path) + PLAN)
    try:
        async with foreground(load_inventory(path)) as session:
            run_id = str((await session.order("start_run", what=["twice"]))["run_id"])
            deadline = time.monotonic() + 180
            while (await session.rows("run_progress", run_id))[0]["state"] != "done":
                assert time.monotonic() < deadline
                await asyncio.sleep(0.2)
            document = await session.document(run_id)
            attempts = await session.rows("run_attempts", run_id)
    finally:
        stop(tmp_path)
    (case,) = document["cases"]
    assert [(a["attempt"], a["outcome"]) for a in case["attempts"]] == [(1, "OK"), (2, "OK"), (3, "OK")]
    rates = [a["output_tps"] for a in case["attempts"]]
    assert case["mean_tps"] == pytest.approx(sum(rates) / 3)
    assert len({a["seed"] for a in attempts}) == 3
    assert document["outcome"] == "OK"
