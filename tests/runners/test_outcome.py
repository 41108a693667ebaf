"""How an attempt's outcome is decided: precedence, nothing forgotten, SLO on the figures that exist."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from runners.flows.outcome import PRECEDENCE, Reason, decide, judge_slo, success_share
from runners.spec import Bound, Slo


def test_without_a_reason_it_is_ok() -> None:
    assert decide([]) == ("OK", "")


@given(st.lists(st.sampled_from(PRECEDENCE), min_size=1, max_size=6))
def test_the_strongest_reason_leads_and_all_are_kept(names: list[str]) -> None:
    outcome, detail = decide([Reason(n, f"because {n}") for n in names])
    assert outcome == min(names, key=PRECEDENCE.index)
    assert all(f"because {n}" in detail for n in names)


def test_order_of_reasons_changes_nothing_but_the_order_of_words() -> None:
    reasons = [Reason("NODE_LOST", "a"), Reason("OOM", "b"), Reason("TTFT_SLO_EXCEEDED", "c")]
    assert {decide(p)[0] for p in itertools.permutations(reasons)} == {"OOM"}


def test_causes_stay_before_their_echoes() -> None:
    _, detail = decide([Reason("ENGINE_CRASH", "watchdog"), Reason("ENGINE_CRASH", "exited with code 1")])
    assert detail == "watchdog; exited with code 1"


WINDOW = {
    "requests": {"ok": 99, "failed": 1, "timed_out": 0, "cut": 5},
    "ttft_ms": {"n": 99, "mean": 100.0, "p50": 90.0, "p95": 300.0, "p99": 500.0},
    "tpot_ms": {"n": 0, "mean": None, "p50": None, "p95": None, "p99": None},
}


def test_slo_breaches_are_typed_by_metric() -> None:
    slo = Slo(ttft_ms=Bound(p95=200), e2e_ms=Bound(mean=1))
    assert [r.outcome for r in judge_slo(slo, WINDOW)] == ["TTFT_SLO_EXCEEDED"]
    assert "P95" not in judge_slo(slo, WINDOW)[0].detail  # the statistic is named as in the configuration
    assert "p95 300.0 ms > 200 ms" in judge_slo(slo, WINDOW)[0].detail


def test_a_figure_that_is_not_known_breaks_nothing() -> None:
    assert judge_slo(Slo(tpot_ms=Bound(p95=1)), WINDOW) == []


def test_what_the_budget_cut_is_neither_success_nor_failure() -> None:
    assert success_share(WINDOW) == 0.99
    assert success_share({"requests": {"ok": 0, "failed": 0, "timed_out": 0, "cut": 7}}) is None
