"""What the ladder decides: where it climbs, what stops it, which answers it gives, each pinned by a small example."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from runners.flows.ladder import (
    WALLS,
    Point,
    Repeat,
    Rules,
    next_step,
    point_of,
    rungs,
    settled,
    tolerance,
    verdict,
)
from runners.flows.outcome import PRECEDENCE
from store.records import SERVED

CALM = 0.002
RULES = Rules(maximum=128)


def ok(concurrency: int, tps: float, waiting: float | None = 0.0, cv: float = CALM, **more: object) -> Point:
    known: Mapping[str, object] = {"outcome": "OK", "counted": 3, "within_slo": True, **more}
    return Point(concurrency=concurrency, tps=tps, waiting=waiting, cv=cv, **known)  # type: ignore[arg-type]  # a test's shorthand


def slow(concurrency: int, tps: float) -> Point:
    return ok(concurrency, tps, outcome="TTFT_SLO_EXCEEDED", within_slo=False)


def failed(concurrency: int, outcome: str = "OOM") -> Point:
    return Point(concurrency=concurrency, outcome=outcome, within_slo=False)


def walk(points: Iterable[Point], rules: Rules = RULES) -> list[int]:
    """The concurrencies that follow when every further point is an OK with the TPS of the last one."""
    done = list(points)
    tried = []
    while step := next_step(done, rules):
        tried.append(step.concurrency)
        done.append(ok(step.concurrency, 1000.0))
        assert len(done) < 200
    return tried


# -- the climb


def test_the_ladder_starts_with_one_and_goes_on_in_steps_to_the_maximum_itself() -> None:
    assert rungs(Rules(step=16, maximum=70)) == [1, 16, 32, 48, 64, 70]
    assert rungs(Rules(step=1, maximum=3)) == [1, 2, 3]
    assert rungs(Rules(step=16, maximum=1)) == [1]


def test_it_climbs_rung_by_rung_while_tps_grows() -> None:
    points: list[Point] = []
    for concurrency in (1, 16, 32, 48, 64):
        step = next_step(points, RULES)
        assert step is not None
        assert (step.concurrency, step.why) == (concurrency, "climb")
        points.append(ok(concurrency, 100.0 * concurrency))
    assert verdict(points, RULES).stopped is None


def test_an_slo_breach_does_not_end_the_climb_unless_asked() -> None:
    points = [ok(1, 10), ok(16, 150), slow(32, 280)]
    assert verdict(points, RULES).stopped is None
    step = next_step(points, RULES)
    assert step is not None
    assert step.concurrency == 48
    assert verdict(points, Rules(maximum=128, stop_at_slo=True)).stopped == "TTFT_SLO_EXCEEDED"


@pytest.mark.parametrize("outcome", ["OOM", "ENGINE_CRASH", "CLIENT_ERROR"])
def test_a_failed_point_stops_the_climb_and_is_halved_towards(outcome: str) -> None:
    points = [ok(1, 10), ok(16, 150), ok(32, 280), failed(48, outcome)]
    found = verdict(points, RULES)
    assert found.stopped == outcome
    assert found.max_successful is not None
    assert (found.max_successful.concurrency, found.max_successful.bounded_by) == (32, outcome)
    step = next_step(points, RULES)
    assert step is not None
    assert (step.concurrency, step.why) == (40, "success")


@pytest.mark.parametrize("outcome", sorted(WALLS))
def test_a_wall_says_nothing_about_a_concurrency_and_ends_the_search(outcome: str) -> None:
    points = [ok(1, 10), ok(16, 150), failed(32, outcome)]
    assert next_step(points, RULES) is None
    found = verdict(points, RULES)
    assert found.stopped == outcome
    assert found.max_successful is not None
    assert (found.max_successful.concurrency, found.max_successful.above) == (16, None)


def test_a_fall_beyond_the_spread_is_a_regression_and_one_within_it_is_not() -> None:
    climb = [ok(1, 10), ok(16, 150), ok(32, 300)]
    assert verdict([*climb, ok(48, 280)], RULES).stopped == "TPS_REGRESSION"
    assert verdict([*climb, ok(48, 299)], RULES).stopped is None
    noisy = [ok(p.concurrency, p.tps or 0, cv=0.06) for p in climb]
    assert verdict([*noisy, ok(48, 280, cv=0.06)], RULES).stopped is None


def test_two_steps_without_gain_and_with_requests_waiting_are_saturation() -> None:
    climb = [ok(1, 10), ok(16, 150), ok(32, 300)]
    assert verdict([*climb, ok(48, 300.1, 9)], RULES).stopped is None  # one step proves nothing
    found = verdict([*climb, ok(48, 300.1, 9), ok(64, 299.9, 25)], RULES)
    assert found.stopped == "TPS_SATURATED"
    assert "25 requests were waiting" in found.detail


@pytest.mark.parametrize("waiting", [None, 0.0])
def test_without_waiting_requests_or_without_knowing_it_is_not_saturation(waiting: float | None) -> None:
    climb = [ok(1, 10), ok(16, 150), ok(32, 300), ok(48, 300.1, 9), ok(64, 299.9, waiting)]
    assert verdict(climb, RULES).stopped is None


def test_gain_that_comes_back_after_a_flat_step_is_not_saturation() -> None:
    climb = [ok(1, 10), ok(16, 150), ok(32, 300), ok(48, 300.1, 9), ok(64, 330, 9)]
    assert verdict(climb, RULES).stopped is None


def test_the_maximum_says_whether_it_was_asked_or_the_servers_own() -> None:
    asked = verdict([ok(1, 10), ok(16, 150)], Rules(maximum=16))
    assert (asked.stopped, asked.detail) == ("MAX_CONCURRENCY_REACHED", "the asked limit, concurrency 16")
    own = verdict([ok(1, 10), ok(16, 150), ok(32, 200, 8, cap=24)], RULES)
    assert own.stopped == "MAX_CONCURRENCY_REACHED"
    assert "the server's own cap, it runs 24" in own.detail


def test_what_else_holds_is_kept_in_the_detail_by_precedence() -> None:
    found = verdict([ok(1, 10), ok(16, 300), ok(32, 200, 8, cap=24)], Rules(maximum=32))
    assert found.stopped == "TPS_REGRESSION"
    assert "MAX_CONCURRENCY_REACHED: the asked limit of 32" not in found.detail.split("; ")[0]
    assert "own cap" in found.detail
    assert "asked limit" in found.detail


def test_refinement_cannot_change_what_stopped_the_climb() -> None:
    climb = [ok(1, 10), ok(16, 150), ok(32, 300), failed(48)]
    later = [*climb, ok(40, 100), ok(36, 500), ok(38, 20)]
    assert verdict(later, RULES).stopped == verdict(climb, RULES).stopped == "OOM"


# -- the answers


def test_the_three_answers_are_kept_apart() -> None:
    points = [ok(1, 10), ok(16, 300), slow(32, 400), slow(48, 399), failed(64)]
    found = verdict(points, RULES)
    assert found.max_successful is not None
    assert found.max_tps is not None
    assert found.max_within_slo is not None
    answers = (found.max_successful, found.max_tps, found.max_within_slo)
    assert [a.concurrency for a in answers] == [48, 32, 16]
    assert [a.bounded_by for a in answers] == ["OOM", "TPS_PEAK", "TTFT_SLO_EXCEEDED"]


def test_most_tokens_means_the_smallest_load_within_the_spread_of_the_peak() -> None:
    points = [ok(1, 10), ok(16, 398, cv=0.01), ok(32, 400, cv=0.01), ok(48, 400.5, cv=0.01), failed(64)]
    found = verdict(points, RULES).max_tps
    assert found is not None
    assert found.concurrency == 16


def test_the_tolerance_is_the_spread_but_keeps_the_three_percent_bar() -> None:
    assert tolerance([ok(1, 1, cv=0.004)]) == pytest.approx(0.004)
    wide = tolerance([ok(1, 1, cv=0.02)])
    assert wide == pytest.approx(0.03 - 2 * 0.02 / 3**0.5)
    assert tolerance([ok(1, 1, cv=0.05)]) == 0.0


def test_without_an_slo_there_is_no_answer_within_it() -> None:
    points = [ok(1, 10, within_slo=None), ok(16, 100, within_slo=None), failed(32)]
    rules = Rules(maximum=64, has_slo=False)
    assert verdict(points, rules).max_within_slo is None
    assert all(s.why != "slo" for s in [next_step(points, rules)] if s)


def test_when_nothing_succeeds_there_are_no_answers() -> None:
    points = [failed(1, "ENGINE_CRASH")]
    found = verdict(points, RULES)
    assert (found.stopped, found.max_successful, found.max_tps, found.max_within_slo) == (
        "ENGINE_CRASH",
        None,
        None,
        None,
    )
    assert next_step(points, RULES) is None


@pytest.mark.parametrize("refine", [1, 4, 8])
def test_every_bracket_closes_to_the_asked_width(refine: int) -> None:
    rules = Rules(maximum=128, refine=refine)
    points: list[Point] = []
    while step := next_step(points, rules):
        c = step.concurrency
        points.append(failed(c) if c >= 59 else slow(c, 40.0 * c) if c >= 23 else ok(c, 40.0 * c))
    found = verdict(points, rules)
    assert found.max_successful is not None
    assert found.max_within_slo is not None
    assert 59 - refine <= found.max_successful.concurrency < 59
    assert 23 - refine <= found.max_within_slo.concurrency < 23


# -- from repeats to a point


def test_most_repeats_must_succeed_for_a_point_to_count() -> None:
    good, bad = Repeat("OK", tps=100.0), Repeat("OOM", "rank 0: out of memory")
    assert point_of(8, [good, good, bad], 3, has_slo=True).outcome == "OK"
    assert "1 of 3 repeats: rank 0" in point_of(8, [good, good, bad], 3, has_slo=True).detail
    assert point_of(8, [bad, bad], 3, has_slo=True).outcome == "OOM"
    assert point_of(8, [good, bad], 2, has_slo=True).outcome == "OOM"  # a half is not most


def test_most_repeats_must_be_within_the_slo() -> None:
    good, breach = Repeat("OK", tps=100.0), Repeat("TPOT_SLO_EXCEEDED", "TPOT p95 61 ms > 50 ms", tps=100.0)
    assert point_of(8, [good, breach, good], 3, has_slo=True).within_slo
    over = point_of(8, [breach, good, breach], 3, has_slo=True)
    assert (over.outcome, over.within_slo, over.succeeded) == ("TPOT_SLO_EXCEEDED", False, True)


def test_a_points_tps_is_the_mean_of_the_repeats_that_succeeded_never_the_best() -> None:
    point = point_of(8, [Repeat("OK", tps=90.0), Repeat("OK", tps=110.0), Repeat("OOM")], 3, has_slo=True)
    assert (point.tps, point.counted) == (100.0, 2)
    assert point.cv == pytest.approx(200**0.5 / 100)


def test_a_server_that_could_not_be_started_is_no_verdict_on_the_concurrency() -> None:
    point = point_of(8, [Repeat("OK", tps=90.0), Repeat("OOM", "while loading weights", began=False)], 3, has_slo=True)
    assert point.outcome == "START_FAILED"
    assert "OOM: while loading weights" in point.detail


def test_a_point_is_settled_when_its_repeats_are_done_or_most_can_no_longer_succeed() -> None:
    assert not settled([], True, 3)
    assert not settled(["OK", "OOM"], True, 3)
    assert settled(["OOM", "ENGINE_CRASH"], True, 3)
    assert settled(["OK", "OK", "TTFT_SLO_EXCEEDED"], True, 3)
    assert settled(["CANCELLED"], True, 3)
    assert settled(["OOM"], False, 3)
    assert not settled(["NODE_LOST"], True, 3)  # the node may be back for the next one


@given(
    st.lists(
        st.tuples(st.sampled_from(PRECEDENCE), st.one_of(st.none(), st.floats(1, 1e4)), st.booleans()),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 6),
    st.booleans(),
)
def test_a_point_never_contradicts_itself(
    repeats: list[tuple[str, float | None, bool]], asked: int, has_slo: bool
) -> None:
    until = next(
        (n for n in range(1, len(repeats) + 1) if settled([o for o, *_ in repeats[:n]], repeats[n - 1][2], asked)), None
    )
    assume(until is not None)
    done = [Repeat(o, "why", tps, began) for o, tps, began in repeats[:until]]
    point = point_of(8, done, asked, has_slo=has_slo)
    assert point.succeeded == (point.outcome in SERVED)
    if point.within_slo:
        assert point.outcome == "OK"
    if point.succeeded:
        assert 2 * point.counted > asked
        assert point.tps is not None
    if not has_slo:
        assert point.within_slo is None


# -- going on after a cut


def test_the_next_step_depends_on_the_points_alone() -> None:
    points: list[Point] = []
    while step := next_step(points, RULES):
        assert next_step(list(points), RULES) == step
        points.append(
            failed(step.concurrency) if step.concurrency > 50 else ok(step.concurrency, 9.0 * step.concurrency)
        )
    assert len({p.concurrency for p in points}) == len(points)


def test_a_search_by_rate_climbs_over_whole_multiples_and_says_rates() -> None:
    rules = Rules(step=4, refine=1, maximum=12, unit=0.25)
    assert rungs(rules) == [4, 8, 12]
    done = [ok(4, 100), ok(8, 200), ok(12, 290)]
    found = verdict(done, rules)
    assert (found.stopped, found.detail) == ("MAX_CONCURRENCY_REACHED", "the asked limit, 3 requests/s")


def test_the_kv_ladder_stops_at_the_first_preemption_and_closes_in_on_it() -> None:
    rules = Rules(step=16, refine=4, maximum=64, stop_at_preemption=True, has_slo=False)
    done = [replace(ok(c, 100.0 * c), preempted=p) for c, p in ((1, 0), (16, 0), (32, 3))]
    assert verdict(done, rules).stopped == "MAX_CONCURRENCY_REACHED"
    assert "first pre-emptions" in verdict(done, rules).detail
    tried = []
    while (step := next_step(done, rules)) is not None:
        tried.append((step.concurrency, step.why))
        done.append(
            replace(ok(step.concurrency, 100.0 * step.concurrency), preempted=2 if step.concurrency > 21 else 0)
        )
    assert tried[:2] == [(24, "preemption"), (20, "preemption")]
    calm = verdict(done, rules).max_unpreempted
    assert calm is not None
    assert (calm.concurrency, calm.above) == (20, 24)


def test_preemptions_end_no_climb_that_was_not_asked_to_watch_them() -> None:
    done = [replace(ok(c, 100.0 * c), preempted=5) for c in (1, 16)]
    assert verdict(done, Rules(maximum=64)).stopped is None
    assert verdict(done, Rules(maximum=64)).max_unpreempted is None
