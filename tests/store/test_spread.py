"""Repeats that do not agree are called unstable, with what was measured beside them as the likely why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from store.database import Store
from store.export.document import run_document
from store.queries import call
from store.records import Attempt, EngineSample, GpuSample, Phase, Record, Request, Run

MS = 1_000_000
S = 1_000 * MS
WALL = 10**18


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "s.duckdb") as opened:
        yield opened


def repeat(number: int, gap_ms: int, outcome: str = "OK", osl: int = 8, flags: list[str] | None = None) -> list[Record]:
    """Ten requests, one each `gap_ms`: 16 tokens in and 8 out each."""
    start = number * 1000 * S
    name = f"a{number}"
    rows: list[Record] = [
        Attempt(
            attempt_id=name,
            run_id="r",
            ordinal=number,
            case_name="D",
            osl=osl,
            concurrency=1,
            repeat=number,
            life_id="L1",
            node="n1",
            state="done",
            outcome=outcome,
            started_wall_ns=WALL + start,
            ended_wall_ns=WALL + start + 20 * S,
            flags=flags,
        ),
        Phase(attempt_id=name, run_id="r", name="steady", node="n1", start_mono_ns=start, start_wall_ns=WALL + start),
    ]
    for i in range(10):
        sent = start + i * gap_ms * MS
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
                first_ns=sent + gap_ms * MS // 2,
                last_ns=sent + gap_ms * MS,
                end_ns=sent + gap_ms * MS,
                prompt_tokens=16,
                output_tokens=8,
                tokens_per_chunk="counted",
                chunk_ns=[gap_ms * MS // 2, gap_ms * MS],
                chunk_tokens=[1, 7],
            )
        )
    return rows


def spread(store: Store, *rows: Record) -> dict[str, Any]:
    store.write([Run(run_id="r", kind="run", state="done", outcome="OK"), *rows], urgent=True).result()
    (row,) = store.query(call("run_spread", "r")).dicts()
    (case,) = run_document(store, "r")["cases"]
    assert (case["mean_tps"], case["spread_pct"]) == (row["mean_tps"], row["spread_pct"])
    return {**row, **{k: case[k] for k in ("unstable", "unstable_why")}}


def test_repeats_that_agree_are_stable(store: Store) -> None:
    found = spread(store, *repeat(1, 100), *repeat(2, 101), *repeat(3, 99))
    rates = [80 / 1.0, 80 / 1.01, 80 / 0.99]
    mean = sum(rates) / 3
    assert found["mean_tps"] == pytest.approx(mean)
    assert found["spread_pct"] == pytest.approx(100 * (sum((x - mean) ** 2 for x in rates) / 2) ** 0.5 / mean)
    assert (found["repeats"], found["unstable"], found["unstable_why"]) == (3, False, [])


def test_the_mean_and_the_spread_are_over_all_repeats_never_the_best(store: Store) -> None:
    found = spread(store, *repeat(1, 100), *repeat(2, 100), *repeat(3, 125))
    assert found["mean_tps"] == pytest.approx((80 + 80 + 64) / 3)
    assert found["unstable"]
    assert found["unstable_why"] == []  # nothing measured explains it, and nothing is invented


def test_a_prefill_case_goes_by_its_input_tokens(store: Store) -> None:
    found = spread(store, *repeat(1, 100, osl=1), *repeat(2, 100, osl=1))
    assert found["mean_tps"] == pytest.approx(160.0)


def test_a_repeat_that_failed_counts_for_nothing_and_one_alone_has_no_spread(store: Store) -> None:
    found = spread(store, *repeat(1, 100), *repeat(2, 300, "ENGINE_CRASH"))
    assert (found["repeats"], found["spread_pct"], found["unstable"]) == (1, None, None)


def test_what_was_measured_beside_an_unstable_case_is_named(store: Store) -> None:
    at = [WALL + n * 1000 * S for n in (1, 2)]
    engine = [
        EngineSample(
            run_id="r",
            node="n1",
            wall_ns=t + k * S,
            source="metrics",
            life_id="L1",
            preemptions_total=7.0 * k,
            requests_total=100.0 + (40 if t == at[1] else 10) * k,
        )
        for t in at
        for k in (0, 1)
    ]
    gpu = [
        GpuSample(run_id="r", node="n1", wall_ns=t + S, gpu=0, util_pct=95.0, sm_mhz=mhz, throttle=why)
        for t, mhz, why in ((at[0], 1980.0, ""), (at[1], 1500.0, "sw_thermal_slowdown"))
    ]
    found = spread(store, *repeat(1, 100), *repeat(2, 130, flags=["client_saturated"]), *engine, *gpu)
    why = "; ".join(found["unstable_why"])
    assert "sw_thermal_slowdown" in why
    assert "GPU clocks differed" in why
    assert "14 preemptions" in why
    assert "answered others too in 1 repeats" in why
    assert "load client was the bottleneck in 1 repeats" in why
