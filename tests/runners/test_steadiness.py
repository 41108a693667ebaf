"""Which cases are measured again, and how often: by the CV bar of 3 %."""

from __future__ import annotations

from typing import Any

from runners.flows.order_of_work import max_repeats_of
from runners.flows.steadiness import more_repeats
from runners.flows.work import Leg, Work
from runners.spec import Case, parse_inventory
from store.records import Attempt

A, B = Case(name="A", isl=8, osl=8), Case(name="B", isl=8, osl=8, seed=5)


def spread(case: Case, pct: float | None) -> dict[str, Any]:
    return {"case_name": case.label, "spread_pct": pct}


def planned() -> list[Attempt]:
    return Work((Leg(A, A.label), Leg(B, B.label)), None, 3, "interleaved").attempts("r")


def test_a_case_above_the_bar_is_measured_once_more_and_a_calm_one_is_not() -> None:
    (more,) = more_repeats([spread(A, 4.2), spread(B, 2.9)], planned(), 6)
    assert (more.case_name, more.repeat, more.ordinal, more.attempt_id) == ("A-C1", 4, 7, "r.a7")
    assert (more.state, more.outcome, more.life_id) == ("planned", None, None)


def test_it_ends_at_the_limit_and_without_a_known_spread() -> None:
    assert more_repeats([spread(A, 4.2)], planned(), 3) == []
    assert more_repeats([spread(A, None)], planned(), 6) == []


def test_a_further_repeat_has_prompts_of_its_own() -> None:
    more = more_repeats([spread(A, 9.0), spread(B, 9.0)], planned(), 6)
    assert [m.ordinal for m in more] == [7, 8]
    seeds = [a.seed for a in (*planned(), *more)]
    assert len(set(seeds)) == len(seeds)


def test_only_a_plan_with_repeats_has_a_limit() -> None:
    text = '[[nodes]]\nname = "n"\nhost = "local"\n[deployments.d]\nengine = "sim"\nnodes = ["n"]\n'
    inventory = parse_inventory(
        text
        + '[plans.p]\ndeployment = "d"\ncases = ["D1"]\n[plans.q]\ndeployment = "d"\ncases = ["D1"]\nmax_repeats = 4\n'
    )
    assert max_repeats_of(inventory, ["p"], 3) == 6
    assert max_repeats_of(inventory, ["q"], 3) == 4
    assert max_repeats_of(inventory, ["q"], 5) == 5
    assert max_repeats_of(inventory, ["p"], 1) is None
    assert max_repeats_of(inventory, ["D1"], 3) is None
