"""A sweep on the embedded lab: a step that changes the server restarts it, a step that changes the case does not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runners.lab.control import start, stop
from runners.session import Session, foreground
from runners.spec import load_inventory

pytestmark = [pytest.mark.xdist_group("search"), pytest.mark.timeout(300)]
MORE = """
[cases.short]
isl = 64
osl = 16
concurrency = 4
requests = 8
warmup = 1
budget = "40s"
[cases.long]
isl = 1000000
osl = 1
fallback_isl = 512
requests = 4
warmup = 0
budget = "40s"
[sweeps.cap]
cases = ["short"]
vary = "flags.--max-running"
values = [2, 32]
repeats = 1
[sweeps.share]
cases = ["short"]
vary = "case.prefix_share"
values = [0, 0.5]
repeats = 1
[plans.reduced]
cases = ["long"]
repeats = 1
"""


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "sweep.toml"
    path.write_text(start(tmp_path) + MORE)
    yield path
    stop(tmp_path)


async def _carried_out(session: Session, what: str) -> str:
    run_id = str((await session.order("start_run", what=[what], keep=True))["run_id"])
    deadline = time.monotonic() + 200
    while (await session.rows("run_progress", run_id))[0]["state"] != "done":
        assert time.monotonic() < deadline, f"{what} did not end"
        await asyncio.sleep(0.2)
    return run_id


async def test_steps_of_a_sweep_are_measured_on_the_servers_that_they_ask_for(config: Path) -> None:
    async with foreground(load_inventory(config)) as session:
        cap = await _carried_out(session, "cap")
        share = await _carried_out(session, "share")
        reduced = await _carried_out(session, "reduced")
        document = await session.document(cap)
        attempts = {r: await session.rows("run_summary_attempts", r) for r in (cap, share, reduced)}
        shares = (
            await session.sql(
                "select case_name, sum(cached_tokens) / sum(prompt_tokens) from requests r "
                f"join attempts a using (attempt_id) where a.run_id = '{share}' and measured group by all order by all"
            )
        ).rows
        notes = await session.rows("run_notes", reduced)
        server_commands = (
            await session.sql(f"select text from commands where run_id = '{cap}' and purpose = 'server'")
        ).rows
    assert document["outcome"] == "OK"
    assert [c["case"] for c in document["cases"]] == ["short-C4@--max-running=2", "short-C4@--max-running=32"]
    slow, fast = (c["attempts"][0] for c in document["cases"])
    assert slow["output_tps"] < 0.8 * fast["output_tps"]  # half of the requests had to wait
    assert len({a["life_id"] for a in attempts[cap]}) == 2
    assert [sum("--max-running 2" in str(t) for (t,) in server_commands) > 0] == [True]
    # Another case needs no other server, and the prefix that was asked for is what the server reports.
    assert len({a["life_id"] for a in attempts[share]}) == 1
    by_case = {str(name): hit for name, hit in shares}
    assert by_case["short-C4@prefix_share=0"] == 0
    assert 0.2 < by_case["short-C4@prefix_share=0.5"] <= 0.55
    (only,) = attempts[reduced]
    assert (only["outcome"], only["isl"]) == ("OK", 512)
    assert "isl_reduced" in only["flags"]
    assert "do not fit the server's context" in notes[0]["text"]
