"""The independent recomputation gives figures that can be checked by hand, and moves when a raw line does."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runners.recompute import Line, arrivals, percentile, read, windows

SAMPLE = Path(__file__).parents[1] / "data" / "loadgen" / "closed_c2.jsonl"


def done(sent: int, chunks: list[int], tokens: list[int] | None = None, **changes: Any) -> Line:
    """A request in ms: sent, and the chunks after that."""
    counts = tokens or [1] * len(chunks)
    base: Line = {
        "t": "done", "kind": "load", "phase": "steady", "measured": True, "status": "ok", "sent_ns": sent * 10**6,
        "first_ns": (sent + chunks[0]) * 10**6, "last_ns": (sent + chunks[-1]) * 10**6,
        "end_ns": (sent + chunks[-1]) * 10**6, "chunk_ns": [chunk * 10**6 for chunk in chunks], "chunk_tokens": counts,
        "tokens_per_chunk": "counted", "usage": {"prompt": 100, "completion": sum(counts)},
    }  # fmt: skip
    return {**base, **changes}


def steady(at: int) -> Line:
    return {"t": "phase", "name": "steady", "mono_ns": at * 10**6}


def test_figures_by_hand() -> None:
    lines = [
        done(0, [10, 20], phase="warmup", kind="warmup", measured=False),
        done(100, [50, 60, 70], phase="ramp"),
        steady(180),
        done(180, [20, 30, 40]),
        done(190, [40, 50, 60], [1, 2, 3]),
        done(230, [15, 20, 25], kind="filler", measured=False),  # its last two chunks come after the end
    ]
    both = windows(lines)
    whole, late = both["all"], both["steady"]
    assert whole is not None
    assert late is not None
    assert whole["duration_s"] == pytest.approx(0.15)
    assert whole["requests"] == {"ok": 3, "failed": 0, "timed_out": 0, "cut": 0}
    assert whole["ttft_ms"]["p50"] == pytest.approx(40)
    assert whole["tokens"] == {"input": 400, "output": 3 + 3 + 6 + 2}
    assert late["duration_s"] == pytest.approx(0.07)
    assert late["ttft_ms"] == {"n": 2, "mean": 30, "p50": 30, "p95": pytest.approx(39), "p99": pytest.approx(39.8)}
    assert late["tpot_ms"]["p50"] == pytest.approx((20 / 2 + 20 / 5) / 2)
    assert late["itl_ms"]["n"] == 4
    assert late["e2e_ms"]["mean"] == pytest.approx(50)
    assert late["output_tps"] == pytest.approx((3 + 6 + 2) / 0.07)
    assert late["input_tps"] == pytest.approx(300 / 0.07)


def test_only_requests_that_ended_well_give_times_but_all_give_tokens() -> None:
    lines = [
        done(0, [10, 20]),
        done(0, [10], status="failed", usage=None),
        done(5, [5], status="cut", usage=None),
    ]
    whole = windows(lines)["all"]
    assert whole is not None
    assert whole["requests"] == {"ok": 1, "failed": 1, "timed_out": 0, "cut": 1}
    assert whole["ttft_ms"]["n"] == 1
    assert whole["tokens"]["output"] == 4


def test_one_token_has_no_time_per_output_token() -> None:
    whole = windows([done(0, [10]), done(0, [12])])["all"]
    assert whole is not None
    assert whole["tpot_ms"] == {"n": 0, "mean": None, "p50": None, "p95": None, "p99": None}


def test_chunks_of_unknown_size_share_what_was_counted() -> None:
    line = done(0, [10, 20, 30, 40], tokens_per_chunk="assumed", usage={"prompt": 1, "completion": 10})
    assert [tokens for _, tokens in arrivals(line)] == [2.5] * 4


def test_there_is_no_steady_window_when_nothing_was_steady_before_the_end() -> None:
    assert windows([done(0, [10])])["steady"] is None
    assert windows([done(0, [10]), steady(11)])["steady"] is None


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.sampled_from([0.0, 0.5, 0.95, 0.99, 1.0]))
@settings(max_examples=60)
def test_percentiles_are_linear_interpolation(values: list[float], share: float) -> None:
    assert percentile(values, share) == pytest.approx(float(np.percentile(values, share * 100)))


def test_changing_one_raw_line_changes_the_figures() -> None:
    lines = read(SAMPLE.read_bytes())
    before = windows(lines)
    changed = copy.deepcopy(lines)
    victim = next(line for line in changed if line["t"] == "done" and line["measured"] and line["phase"] == "steady")
    victim["first_ns"] += 5_000_000
    after = windows(changed)
    for name in ("all", "steady"):
        was, now = before[name], after[name]
        assert was is not None
        assert now is not None
        assert was["ttft_ms"]["mean"] != now["ttft_ms"]["mean"]
        assert was["tpot_ms"]["mean"] != now["tpot_ms"]["mean"]
        assert was["tokens"] == now["tokens"]


def test_the_sample_obeys_littles_law() -> None:
    """Mean requests in flight = rate x mean time in the system, in the window where both slots are busy."""
    lines = read(SAMPLE.read_bytes())
    late = windows(lines)["steady"]
    assert late is not None
    assert late["request_rate"] * late["e2e_ms"]["mean"] / 1e3 == pytest.approx(2, rel=0.15)
