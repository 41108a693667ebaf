"""A real search on the embedded lab: SSH, jobs, a simulated engine that runs out of memory at 48 requests."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runners import owner_process
from runners.lab.control import start, stop
from runners.session import Session, attached, foreground
from runners.spec import load_inventory
from store.errors import StoreError

pytestmark = [pytest.mark.xdist_group("search"), pytest.mark.timeout(300)]
CASE = """
[cases.short]
isl = 64
osl = 48
slo = "interactive"
budget = "60s"
requests = 20
warmup = 1
"""


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    text = start(tmp_path, "oom-at-48")
    path = tmp_path / "search.toml"
    path.write_text(text + CASE)
    yield path
    stop(tmp_path)


async def _searched(session: Session, limit_s: float, **asked: Any) -> dict[str, Any]:
    run_id = str((await session.order("start_search", what="short", **asked))["run_id"])
    return await _ended(session, run_id, limit_s)


async def _ended(session: Session, run_id: str, limit_s: float) -> dict[str, Any]:
    deadline = time.monotonic() + limit_s
    while (await session.rows("run_progress", run_id))[0]["state"] != "done":
        assert time.monotonic() < deadline, "the search did not end"
        await asyncio.sleep(0.2)
    return await session.document(run_id)


async def test_a_server_that_dies_at_48_is_typed_and_bounded_and_started_again(config: Path) -> None:
    async with foreground(load_inventory(config)) as session:
        found = await _searched(session, 240, step=48, max_concurrency=64, repeats=1, refine=16)
        points = {p["concurrency"]: p for p in found["points"]}
        attempts = await session.rows("run_summary_attempts", found["run_id"])
        left = await session.sql("select count(*) from jobs where state = 'running'")
    assert [p["concurrency"] for p in found["points"]][:2] == [1, 48]
    assert (found["outcome"], found["stopped"]) == ("OK", "OOM")
    assert {c: p["outcome"] for c, p in points.items() if c >= 48} == {48: "OOM"}
    assert "out of memory" in points[48]["detail"].lower()
    assert all(p["outcome"] == "OK" and p["output_tps"] > 0 for c, p in points.items() if c < 48)
    answers = found["answers"]
    assert 32 <= answers["max_successful"]["concurrency"] < 48
    assert (answers["max_successful"]["bounded_by"], answers["max_successful"]["above"]) == ("OOM", 48)
    assert answers["max_within_slo"]["concurrency"] == answers["max_successful"]["concurrency"]
    assert answers["max_tps"]["output_tps"] == points[answers["max_tps"]["concurrency"]]["output_tps"]
    ok = [p for p in found["points"] if p["outcome"] == "OK"]
    assert all(0 < p["goodput_rps"] <= p["served_rps"] and 0.9 < p["slo_share"] <= 1 for p in ok)
    assert points[48]["served_rps"] is None
    # A wounded server serves nothing more, and no prompt comes twice.
    by_life: dict[str, list[str]] = {}
    for a in attempts:
        by_life.setdefault(a["life_id"], []).append(a["outcome"])
    assert all("OOM" not in outcomes[:-1] for outcomes in by_life.values())
    assert len(by_life) >= 2
    assert left.rows == [(0,)]
    results = config.parent / "results" / found["run_id"]
    assert (results / "points.csv").read_text().count("\n") == 1 + len(points)


async def test_a_search_by_rate_goes_on_further_and_measures_a_rate_again(tmp_path: Path) -> None:
    path = tmp_path / "rate.toml"
    path.write_text(start(tmp_path) + CASE)
    try:
        async with foreground(load_inventory(path)) as session:
            rates = {"max_rate": 20.0, "step_rate": 10.0, "refine_rate": 10.0}
            found = await _searched(session, 120, **rates, repeats=1, keep=True)
            assert [(p["concurrency"], p["request_rate"]) for p in found["points"]] == [(None, 10), (None, 20)]
            assert found["stopped"] == "MAX_CONCURRENCY_REACHED"
            assert found["stopped_detail"] == "the asked limit, 20 requests/s"
            best = found["answers"]["max_successful"]
            assert (best["request_rate"], best["output_tps"]) == (20, found["points"][1]["output_tps"])
            asked = {"run_id": found["run_id"], "max_rate": 30.0, "again": 10.0}
            with pytest.raises(StoreError, match="has not tried 15"):
                await session.order("continue_search", **{**asked, "again": 15.0})
            await session.order("continue_search", **asked)
            further = await _ended(session, found["run_id"], 120)
    finally:
        stop(tmp_path)
    assert [(p["request_rate"], p["repeats"], len(p["attempts"])) for p in further["points"]] == [
        (10, 2, 2),
        (20, 1, 1),
        (30, 1, 1),
    ]
    assert further["outcome"] == "OK"
    assert further["answers"]["max_successful"]["request_rate"] == 30
    rows = (path.parent / "results" / found["run_id"] / "points.csv").read_text().splitlines()
    assert len(rows) == 4


async def test_a_killed_owner_costs_no_point_and_no_attempt(tmp_path: Path) -> None:
    path = tmp_path / "search.toml"
    path.write_text(start(tmp_path) + CASE)
    inventory = load_inventory(path)
    try:
        async with attached(inventory, start=True) as session:
            asked = {"what": "short", "step": 8, "max_concurrency": 16, "repeats": 2, "refine": 16}
            run_id = str((await session.order("start_search", **asked))["run_id"])
            await _until(session, run_id, lambda r: r["done"] >= 1 and r["phase"] in ("ramp", "steady"))
            owner = owner_process.find(inventory.store_path)
            assert owner is not None
            os.kill(owner.pid, signal.SIGKILL)
            before = time.time_ns()
            await asyncio.sleep(0.5)
            await session.start_owner()
            await _until(session, run_id, lambda r: r["state"] == "done")
            found = await session.document(run_id)
            attempts = await session.rows("run_summary_attempts", run_id)
            owner = owner_process.find(inventory.store_path)
            assert owner is not None
            os.kill(owner.pid, signal.SIGTERM)
    finally:
        stop(tmp_path)
    assert (found["outcome"], found["stopped"]) == ("OK", "MAX_CONCURRENCY_REACHED")
    assert [(p["concurrency"], p["repeats"]) for p in found["points"]] == [(1, 2), (8, 2), (16, 2)]
    done = [a for a in attempts if a["state"] == "done"]
    assert [(a["concurrency"], a["repeat"]) for a in done] == [(c, r) for c in (1, 8, 16) for r in (1, 2)]
    assert {a["outcome"] for a in done} == {"OK"}
    assert {a["state"] for a in attempts} <= {"done", "void"}
    assert {a["ended_wall_ns"] < before for a in done} == {True, False}  # some were done before the kill, some after
    assert len({a["life_id"] for a in done}) == 1  # the server lived on without us
    cached = [p["prefix_hit_share"] for p in found["points"]]
    assert all(share == 0 for share in cached)


async def _until(session: Session, run_id: str, reached: Callable[[dict[str, Any]], bool]) -> None:
    deadline = time.monotonic() + 120
    while not reached((await session.rows("run_progress", run_id))[0]):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)
