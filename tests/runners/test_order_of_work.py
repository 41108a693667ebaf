"""Plans become attempts in an order that is fixed before anything runs."""

import pytest

from runners.flows.order_of_work import cases_of, search_of
from runners.flows.work import Leg, Work
from runners.spec import ConfigError, parse_inventory
from store.records import Attempt

INVENTORY = parse_inventory(
    """
[[nodes]]
name = "n1"
host = "local"
[deployments.d]
engine = "sim"
nodes = ["n1"]
[cases.A]
isl = 8
osl = 4
[cases.B]
isl = 8
osl = 4
seed = 7
concurrency = [2, 4]
[plans.p]
deployment = "d"
cases = ["A", "B"]
repeats = 2
order = "blocked"
"""
)


def _attempts(names: list[str], repeats: int, order: str, run_id: str = "r") -> list[Attempt]:
    cases, *_ = cases_of(INVENTORY, names)
    return Work(tuple(Leg(c, c.label) for c in cases), None, repeats, order).attempts(run_id)


def _labels(names: list[str], repeats: int, order: str) -> list[str]:
    return [f"{a.case_name}/{a.repeat}" for a in _attempts(names, repeats, order)]


def test_interleaved_runs_every_case_before_a_second_repeat() -> None:
    assert _labels(["A", "B"], 2, "interleaved") == ["A-C1/1", "B-C2/1", "B-C4/1", "A-C1/2", "B-C2/2", "B-C4/2"]


def test_blocked_finishes_a_case_first() -> None:
    assert _labels(["A", "B-C4"], 2, "blocked") == ["A-C1/1", "A-C1/2", "B-C4/1", "B-C4/2"]


def test_a_plan_brings_its_deployment_repeats_and_order() -> None:
    cases, deployment, repeats, order = cases_of(INVENTORY, ["p"])
    assert ([c.label for c in cases], deployment, repeats, order) == (["A-C1", "B-C2", "B-C4"], "d", 2, "blocked")


@pytest.mark.parametrize(
    ("names", "says"), [([], "name a plan"), (["p", "A"], "a plan runs alone"), (["Z"], "no case")]
)
def test_wrong_names_are_refused(names: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        cases_of(INVENTORY, names)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ('client = "vlm_bench"', "Did you mean 'vllm_bench'"),
        ('client = "aiperf"\nprefix_share = 0.5', "case X-C1: aiperf is not driven with prefix_share"),
        ('client = "vllm_bench"\ninject = { isl = 64 }', "cannot inject"),
    ],
)
def test_a_client_that_cannot_do_it_is_refused_and_never_replaced_in_silence(keys: str, says: str) -> None:
    text = f'[[nodes]]\nname = "n"\nhost = "local"\n[cases.X]\nisl = 8\nosl = 4\n{keys}\n'
    with pytest.raises(ConfigError, match=says):
        cases_of(parse_inventory(text), ["X"])
    with pytest.raises(ConfigError, match=says):
        search_of(parse_inventory(text), "X")


def test_no_two_attempts_share_a_seed_and_a_seeded_case_is_repeatable() -> None:
    one = _attempts(["A", "B-C2"], 3, "interleaved", "run1")
    assert len({a.seed for a in one}) == len(one)
    two = _attempts(["A", "B-C2"], 3, "interleaved", "run2")
    seeded = [(a.seed, b.seed) for a, b in zip(one, two, strict=True) if a.case_name.startswith("B")]
    assert all(a == b for a, b in seeded)
    assert all(a.seed != b.seed for a, b in zip(one, two, strict=True) if a.case_name.startswith("A"))
