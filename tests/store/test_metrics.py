"""The metric queries against DESIGN's definitions, computed here by other means: sorted lists and loops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from store.database import Store
from store.queries import call
from store.records import Attempt, Phase, Record, Request
from tests.store.samples import ATTEMPT, MS, RUN, START, load


def percentile(values: list[float], p: float) -> float | None:
    """Linear interpolation between closest ranks."""
    if not values:
        return None
    v = sorted(values)
    at = (len(v) - 1) * p
    low = int(at)
    return v[low] if low + 1 == len(v) else v[low] + (v[low + 1] - v[low]) * (at - low)


def stats(values: list[float]) -> dict[str, float | None]:
    return {
        "n": len(values),
        "mean": sum(values) / len(values) if values else None,
        "p50": percentile(values, 0.50),
        "p95": percentile(values, 0.95),
        "p99": percentile(values, 0.99),
    }


def expected(records: list[Record], window: str) -> dict[str, Any]:
    requests = [r for r in records if isinstance(r, Request)]
    measured = [r for r in requests if r.measured]
    phases = {p.name: p for p in records if isinstance(p, Phase)}
    end = max(r.end_ns or 0 for r in measured)
    start = min(r.sent_ns or 0 for r in measured)
    if window == "steady":
        start = phases["steady"].start_mono_ns or 0
    mine = [r for r in measured if window == "all" or r.phase == "steady"]
    good = [r for r in mine if r.status == "ok"]
    duration = (end - start) / 1e9
    input_tokens = output_tokens = ended = 0
    for r in requests:
        if r.first_ns is not None and start <= r.first_ns <= end:
            input_tokens += r.prompt_tokens or 0
        for at, tokens in zip(r.chunk_ns or [], r.chunk_tokens or [], strict=True):
            if start <= (r.sent_ns or 0) + at <= end:
                output_tokens += tokens
        ended += r.status == "ok" and start <= (r.end_ns or 0) <= end
    out: dict[str, Any] = {
        "window": window, "start_ns": start, "end_ns": end, "duration_s": duration,
        "ok": len(good), "failed": sum(r.status == "failed" for r in mine),
        "timed_out": sum(r.status == "timed_out" for r in mine), "cut": sum(r.status == "cut" for r in mine),
        "input_tokens": input_tokens, "output_tokens": output_tokens, "input_tps": input_tokens / duration,
        "output_tps": output_tokens / duration, "total_tps": (input_tokens + output_tokens) / duration,
        "request_rate": ended / duration,
    }  # fmt: skip
    ttft, tpot, itl, per_token, e2e = [], [], [], [], []
    for r in good:
        chunks, carried = r.chunk_ns or [], r.chunk_tokens or []
        ttft.append(chunks[0] / 1e6)
        e2e.append(chunks[-1] / 1e6)
        if (r.output_tokens or 0) >= 2:
            tpot.append((chunks[-1] - chunks[0]) / 1e6 / ((r.output_tokens or 0) - 1))
        for i in range(1, len(chunks)):
            itl.append((chunks[i] - chunks[i - 1]) / 1e6)
            if carried[i]:
                per_token.append(itl[-1] / carried[i])
    for name, values in (
        ("ttft_ms", ttft), ("tpot_ms", tpot), ("itl_ms", itl), ("e2e_ms", e2e), ("itl_per_token_ms", per_token),
    ):  # fmt: skip
        out.update({f"{name}_{k}": v for k, v in stats(values).items()})
    return out


def ask(tmp_path: Path, records: list[Record], sql: str) -> list[dict[str, Any]]:
    with Store.open(tmp_path / "s.duckdb") as store:
        store.write(records).result()
        return store.query(sql).dicts()


@pytest.mark.parametrize("seed", range(5))
def test_metrics_of_both_windows_equal_a_recomputation(tmp_path: Path, seed: int) -> None:
    records = load(seed)
    found = {row["window"]: row for row in ask(tmp_path, records, call("attempt_metrics", ATTEMPT))}
    for window in ("all", "steady"):
        want = expected(records, window)
        assert want["ok"] > 10
        assert set(found[window]) == set(want)
        for name, value in want.items():
            close = value if isinstance(value, str) else pytest.approx(value, rel=1e-12)
            assert found[window][name] == close, (window, name)


def test_the_metrics_of_a_run_are_those_of_its_attempts(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.duckdb") as store:
        store.write(load(1)).result()
        one = store.query(call("attempt_metrics", ATTEMPT)).dicts()
        run = store.query(call("run_metrics", RUN)).dicts()
    assert [{k: row[k] for k in one[0]} for row in run] == one
    assert {(row["attempt_id"], row["case_name"], row["concurrency"]) for row in run} == {(ATTEMPT, "D1", 8)}


def request(**changes: Any) -> Request:
    values: dict[str, Any] = {
        "run_id": RUN, "attempt_id": ATTEMPT, "request_id": 1, "kind": "load", "phase": "ramp", "measured": True,
        "status": "ok", "sent_ns": START, "first_ns": START + 10 * MS, "last_ns": START + 40 * MS,
        "end_ns": START + 41 * MS, "prompt_tokens": 100, "output_tokens": 4, "tokens_per_chunk": "counted",
        "chunk_ns": [10 * MS, 20 * MS, 30 * MS, 40 * MS], "chunk_tokens": [1, 1, 1, 1],
    }  # fmt: skip
    return Request(**(values | changes))


def metrics(tmp_path: Path, *records: Record) -> dict[str, dict[str, Any]]:
    attempt = Attempt(attempt_id=ATTEMPT, run_id=RUN, ordinal=1, case_name="c")
    return {row["window"]: row for row in ask(tmp_path, [attempt, *records], call("attempt_metrics", ATTEMPT))}


def test_one_request_by_hand(tmp_path: Path) -> None:
    found = metrics(tmp_path, request())["all"]
    assert (found["ttft_ms_p50"], found["tpot_ms_p50"], found["itl_ms_mean"], found["e2e_ms_p99"]) == (10, 10, 10, 40)
    assert found["duration_s"] == 0.041
    assert found["output_tps"] == pytest.approx(4 / 0.041)
    assert found["request_rate"] == pytest.approx(1 / 0.041)


def test_without_a_steady_phase_there_is_no_steady_window(tmp_path: Path) -> None:
    steady = metrics(tmp_path, request())["steady"]
    assert {v for k, v in steady.items() if k != "window" and not k.endswith("_n")} == {None}
    assert {v for k, v in steady.items() if k.endswith("_ms_n")} == {0}


def test_an_attempt_without_requests_has_rows_of_nulls(tmp_path: Path) -> None:
    found = metrics(tmp_path)
    assert set(found) == {"all", "steady"}
    assert found["all"]["output_tps"] is None
    assert found["all"]["ok"] is None


def test_a_first_token_at_the_moment_of_sending_is_a_failure(tmp_path: Path) -> None:
    zero = request(request_id=2, first_ns=START, chunk_ns=[0, MS], chunk_tokens=[1, 1], last_ns=START + MS)
    found = metrics(tmp_path, request(), zero)["all"]
    assert (found["ok"], found["failed"], found["ttft_ms_n"]) == (1, 1, 1)


def test_one_output_token_has_no_tpot(tmp_path: Path) -> None:
    one = request(output_tokens=1, chunk_ns=[10 * MS], chunk_tokens=[1], last_ns=START + 10 * MS)
    found = metrics(tmp_path, one)["all"]
    assert (found["tpot_ms_n"], found["tpot_ms_mean"], found["itl_ms_n"], found["ttft_ms_n"]) == (0, None, 0, 1)


def test_tokens_of_a_request_over_the_edge_count_only_inside(tmp_path: Path) -> None:
    steady = Phase(attempt_id=ATTEMPT, run_id=RUN, name="steady", start_mono_ns=START + 25 * MS)
    filler = request(request_id=2, kind="filler", phase="steady", measured=False, sent_ns=START + 5 * MS,
                     first_ns=START + 15 * MS, last_ns=START + 45 * MS)  # fmt: skip
    found = metrics(tmp_path, steady, request(), filler)["steady"]
    assert found["duration_s"] == 0.016
    assert found["output_tokens"] == 2 + 2  # at 30 and 40 ms; at 25 and 35 ms, not at 15 and 45 ms
    assert found["input_tokens"] is None or found["input_tokens"] == 0


def test_assumed_tokens_are_scaled_to_what_the_server_counted(tmp_path: Path) -> None:
    found = metrics(tmp_path, request(tokens_per_chunk="assumed", output_tokens=12))["all"]
    assert found["output_tokens"] == 12
    assert found["itl_ms_p50"] == 10
    assert found["itl_per_token_ms_p50"] == pytest.approx(10 / 3)


def test_a_client_without_token_times_still_has_its_totals(tmp_path: Path) -> None:
    found = metrics(tmp_path, request(chunk_ns=None, chunk_tokens=None, tokens_per_chunk=None))["all"]
    assert (found["output_tokens"], found["input_tokens"], found["itl_ms_n"], found["ttft_ms_p50"]) == (4, 100, 0, 10)


def test_each_request_has_its_own_figures(tmp_path: Path) -> None:
    failed = request(request_id=2, status="failed", first_ns=None, last_ns=None, chunk_ns=[], chunk_tokens=[],
                     sent_ns=START + MS, phase="steady")  # fmt: skip
    rows = ask(tmp_path, [request(), failed], call("request_metrics", ATTEMPT))
    assert [(r["request_id"], r["ttft_ms"], r["tpot_ms"], r["e2e_ms"], r["in_all"], r["in_steady"]) for r in rows] == [
        (1, 10.0, 10.0, 40.0, True, False),
        (2, None, None, None, True, True),
    ]
