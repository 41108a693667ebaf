"""What a search takes from configuration, store and server before the ladder decides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from runners.flows.ladder import Rules
from runners.flows.order_of_work import search_of
from runners.flows.search import case_at, declared_cap, options_of, repeat_of, shown_cap
from runners.spec import Case, ConfigError, Inventory, parse_inventory
from store.database import Store
from store.export.document import run_document
from store.export.search import points_text
from store.queries import call
from store.records import Attempt, EngineSample, Phase, Point, Record, Request, Run

CONFIG = """
[[nodes]]
name = "n1"
host = "local"
[deployments.d]
engine = "sim"
nodes = ["n1"]
[slo.fast]
ttft_ms = { p95 = 500 }
[cases.A]
isl = 64
osl = 8
concurrency = [4, 8]
slo = "fast"
[cases.Rate]
isl = 64
osl = 8
request_rate = 2.5
[searches.night]
case = "A"
step = 8
repeats = 5
"""
MS = 1_000_000


@pytest.fixture
def inventory() -> Inventory:
    return parse_inventory(CONFIG)


def test_a_case_is_searched_by_the_defaults_and_a_named_search_by_its_table(inventory: Inventory) -> None:
    case, search = search_of(inventory, "A")
    assert (case.name, search.step, search.refine, search.repeats, search.max_concurrency) == ("A", 16, 4, 3, 256)
    case, search = search_of(inventory, "night")
    assert (case.name, search.step, search.repeats) == ("A", 8, 5)


def test_what_is_asked_on_the_command_line_goes_first(inventory: Inventory) -> None:
    _, search = search_of(inventory, "night", step=None, repeats=1, max_concurrency=32)
    assert (search.step, search.repeats, search.max_concurrency) == (8, 1, 32)


def test_unknown_names_and_cases_by_rate_are_refused_with_the_reason(inventory: Inventory) -> None:
    with pytest.raises(ConfigError, match="no case is called 'B'"):
        search_of(inventory, "B")
    with pytest.raises(ConfigError, match="request_rate"):
        search_of(inventory, "Rate")


def test_each_point_has_enough_requests_for_a_steady_window() -> None:
    case = Case(name="A", isl=64, osl=8, requests=40)
    assert [case_at(case, c, Rules()).requests for c in (1, 8, 32)] == [40, 40, 160]
    assert case_at(Case(name="A", isl=64, osl=8), 32, Rules()).requests is None
    assert case_at(case, 32, Rules()).label == "A-C32"


def test_the_servers_own_cap_is_read_from_its_word_or_its_flags() -> None:
    assert declared_cap([("server.max_running", "256")], []) == 256
    assert declared_cap([], ["--max-num-seqs", "64"]) == 64
    assert declared_cap([("server.max_running_requests", "128")], ["--max-running-requests=48"]) == 48
    assert declared_cap([("server.max_total_num_tokens", "9000")], ["--port", "1"]) is None


def looked(**more: object) -> dict[str, Any]:
    row: dict[str, Any] = {"concurrency": 48, "waiting": 16.0, "running_top": 32.0, "running_top_share": 1.0}
    return {**row, "samples": 10, "kv_top": 0.3, **more}


def test_a_cap_shows_when_the_declared_number_runs_and_the_rest_waits() -> None:
    assert shown_cap(looked(), 32) == 32
    assert shown_cap(looked(), 256) is None  # something else holds them back
    assert shown_cap(looked(waiting=0.0), 32) is None
    assert shown_cap(looked(concurrency=32), 32) is None
    assert shown_cap(looked(running_top=None, waiting=None), 32) is None


def test_a_cap_that_nobody_declared_needs_the_same_number_all_the_time_and_room_in_the_cache() -> None:
    assert shown_cap(looked(), None) == 32
    assert shown_cap(looked(samples=3), None) is None
    assert shown_cap(looked(running_top_share=0.4), None) is None
    assert shown_cap(looked(kv_top=0.97), None) is None
    assert shown_cap(looked(kv_top=None), None) is None


# -- from rows


def attempt_rows(name: str, concurrency: int, outcome: str, at: int, step_ms: int) -> list[Record]:
    """An attempt of ten steady requests, one a `step_ms`, each of 8 tokens; the engine looked at once a second."""
    shift = 10**18
    rows: list[Record] = [
        Attempt(
            attempt_id=name,
            run_id="r",
            ordinal=at,
            case_name=f"A-C{concurrency}",
            concurrency=concurrency,
            life_id="r.L1",
            node="n1",
            job_id=f"{name}.client",
            state="done",
            outcome=outcome,
        )
    ]
    if outcome == "OOM":
        return rows
    start = at * 10**12
    rows.append(
        Phase(
            attempt_id=name,
            run_id="r",
            name="steady",
            node="n1",
            start_mono_ns=start,
            start_wall_ns=start + shift,
        )
    )
    for i in range(10):
        sent = start + i * step_ms * MS
        chunks = [(10 + j) * MS for j in range(8)]
        rows.append(
            Request(
                run_id="r",
                attempt_id=name,
                request_id=i,
                kind="load",
                phase="steady",
                measured=True,
                status="ok",
                sent_ns=sent,
                first_ns=sent + chunks[0],
                last_ns=sent + chunks[-1],
                end_ns=sent + chunks[-1],
                prompt_tokens=64,
                output_tokens=8,
                cached_tokens=0,
                tokens_per_chunk="counted",
                chunk_ns=chunks,
                chunk_tokens=[1] * 8,
            )
        )
    length = 9 * step_ms * MS + 17 * MS
    looks = [(k, waiting, rank) for k, waiting in enumerate([0, 3, 5]) for rank in (0, 1)]  # two DP ranks
    looks.append((9, 99, 0))  # after the attempt
    rows += [
        EngineSample(
            run_id="r",
            node="n1",
            wall_ns=start + shift + k * length // 3,
            source="metrics",
            life_id="r.L1",
            dp_rank=rank,
            running=concurrency / 2,
            waiting=waiting,
            kv_usage=0.2 + 0.1 * rank,
        )
        for k, waiting, rank in looks
    ]
    return rows


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "s.duckdb") as opened:
        yield opened


def write(store: Store, *rows: Record) -> None:
    store.write(list(rows), urgent=True).result()


def test_a_repeat_is_its_steady_window_and_what_the_engine_held_back_in_it(store: Store) -> None:
    write(store, *attempt_rows("a1", 4, "OK", 1, 100), *attempt_rows("a2", 4, "OOM", 2, 100))
    first, second = store.query(call("search_repeats", ["a1", "a2"])).dicts()
    assert first["window"] == "steady"
    assert first["output_tps"] == pytest.approx(80 / 0.917)
    assert first["input_tps"] == pytest.approx(640 / 0.917)
    assert (first["samples"], first["waiting"], first["running_top"], first["kv_top"]) == (
        3,
        6.0,
        4.0,
        pytest.approx(0.3),
    )
    assert [second[k] for k in ("output_tps", "samples", "waiting", "running_top")] == [None] * 4
    repeat = repeat_of(first, "output_tps", None)
    assert (repeat.outcome, repeat.tps, repeat.waiting, repeat.cap) == ("OK", first["output_tps"], 6.0, None)


def test_the_document_of_a_search_holds_points_stop_and_answers(store: Store, inventory: Inventory) -> None:
    case, search = search_of(inventory, "A")
    verdict = {
        "stopped": "OOM",
        "detail": "at concurrency 16: rank 0",
        "max_successful": {"concurrency": 4, "bounded_by": "OOM", "above": 16},
        "max_tps": {"concurrency": 4, "bounded_by": "OOM", "above": 16},
        "max_within_slo": None,
        "spread": 0.01,
        "tolerance": 0.01,
    }
    options = {**options_of(case, search), "verdict": verdict}
    write(
        store,
        Run(run_id="r", kind="search", state="done", outcome="OK", simulated=True, spec=orjson.dumps(options).decode()),
        Point(
            run_id="r",
            ordinal=1,
            concurrency=4,
            outcome="TTFT_SLO_EXCEEDED",
            repeats=2,
            output_tps=80.0,
            within_slo=False,
        ),
        Point(run_id="r", ordinal=2, concurrency=16, outcome="OOM", detail="rank 0", repeats=0, within_slo=False),
        *attempt_rows("a1", 4, "TTFT_SLO_EXCEEDED", 1, 100),
        *attempt_rows("a2", 4, "OK", 2, 50),
        *attempt_rows("a3", 16, "OOM", 3, 50),
    )
    document = run_document(store, "r")
    assert [(p["concurrency"], p["outcome"], p["ttft_ms"]["n"]) for p in document["points"]] == [
        (4, "TTFT_SLO_EXCEEDED", 20),
        (16, "OOM", 0),
    ]
    assert document["points"][0]["ttft_ms"]["p95"] == pytest.approx(10.0)
    assert document["points"][0]["tpot_ms"]["p50"] == pytest.approx(1.0)
    assert document["points"][0]["attempts"] == ["a1", "a2"]
    assert document["points"][1]["input_tps"] is None
    assert document["stopped"] == "OOM"
    assert set(document["answers"]) == {"max_successful", "max_tps", "max_within_slo"}
    assert document["answers"]["max_successful"]["output_tps"] == 80.0
    assert document["answers"]["max_within_slo"] is None
    assert [c["case"] for c in document["cases"]] == ["A-C4", "A-C16"]
    lines = points_text(document).splitlines()
    assert len(lines) == 3
    assert "max_successful max_tps" in lines[1]
    assert "OOM" in lines[2]
