"""A dry run: the attempts that the owner would make, the time they may take, and what is in the way."""

from __future__ import annotations

from typing import Any

import pytest

from runners import orders
from runners.flows.asked import search_asked, work_asked
from runners.flows.dry_run import Known, planned
from runners.session import planned_without_store
from runners.spec import ConfigError, Inventory, parse_inventory

CONFIG = """
[[nodes]]
name = "node5"
host = "192.0.2.5"
[deployments.a]
engine = "sim"
nodes = ["node5"]
ready_timeout = "10m"
[slo.chat]
ttft_ms = { p95 = 2000 }
[cases.D]
isl = 1024
osl = 64
concurrency = [4, 8]
requests = 40
budget = "100s"
slo = "chat"
[cases.own]
isl = 1024
osl = 64
budget = "50s"
lives = "per_repeat"
[plans.two]
deployment = "a"
cases = ["D"]
repeats = 2
cool_down = "5s"
[sweeps.slots]
deployment = "a"
cases = ["D"]
vary = "flags.--max-running-requests"
values = [4, 8]
repeats = 2
"""


@pytest.fixture(scope="module")
def config() -> Inventory:
    return parse_inventory(CONFIG)


def run(**asked: Any) -> orders.StartRun:
    return orders.StartRun(kind="start_run", **asked)


def past(case: str, concurrency: int, median_s: float) -> dict[str, Any]:
    return {
        "deployment": "a",
        "case_name": case,
        "concurrency": concurrency,
        "request_rate": None,
        "median_s": median_s,
    }


@pytest.mark.parametrize(
    "asked",
    [{"what": ["two"]}, {"what": ["slots"]}, {"what": ["D"], "vary": {"isl": 2048, "concurrency": [3]}, "repeats": 3}],
)
def test_its_attempts_are_those_that_the_owner_makes(config: Inventory, asked: dict[str, Any]) -> None:
    order = orders.StartRun.model_validate({"kind": "start_run", **asked})
    made = work_asked(config, order).attempts("run")
    shown = planned(config, order)["attempts"]
    assert [(a["ordinal"], a["case"], a["repeat"]) for a in shown] == [(a.ordinal, a.case_name, a.repeat) for a in made]


def test_time_is_by_earlier_attempts_where_there_are_some_and_by_budgets_elsewhere(config: Inventory) -> None:
    lives = [{"deployment": "a", "state": "gone", "start_s": 30.0}]
    plan = planned(config, run(what=["two"]), Known(history=[past("D-C4", 4, 20.0)], lives=lives))
    assert plan["known_attempts"] == 2
    assert plan["estimate_s"] == pytest.approx(2 * 20 + 2 * 100 + 3 * 5 + 30)
    assert plan["longest_s"] == pytest.approx(4 * 100 * 2 + 3 * 5), "four repeats at most where two do not agree"
    unknown = planned(config, run(what=["two"]))
    assert unknown["estimate_s"] == pytest.approx(4 * 100 + 3 * 5 + 600)


@pytest.mark.parametrize(
    ("what", "up", "starts"),
    [("two", False, 1), ("two", True, 0), ("slots", False, 2), ("own", False, 2), ("own", True, 1)],
)
def test_server_starts_are_counted(config: Inventory, what: str, up: bool, starts: int) -> None:
    lives = [{"deployment": "a", "state": "ready" if up else "gone", "start_s": None}]
    assert planned(config, run(what=[what], repeats=2), Known(lives=lives))["server_starts"] == starts


def test_what_is_varied_is_a_case_of_another_name_and_what_is_equal_is_not(config: Inventory) -> None:
    def names(**vary: Any) -> list[str]:
        order = orders.StartRun.model_validate({"kind": "start_run", "what": ["D"], "vary": vary})
        return [leg.name for leg in work_asked(config, order).legs]

    assert names(isl=2048) == ["D@isl=2048-C4", "D@isl=2048-C8"]
    assert names(isl=1024) == ["D-C4", "D-C8"]
    assert names(concurrency=[2, 4, 2]) == ["D-C2", "D-C4"]
    assert names(slo="none", budget="30s") == ["D@budget=30,slo=none-C4", "D@budget=30,slo=none-C8"]
    sweep = orders.StartRun.model_validate({"kind": "start_run", "what": ["slots"], "vary": {"osl": 8}})
    assert work_asked(config, sweep).legs[0].name == "D@osl=8-C4@--max-running-requests=4"


def test_a_search_may_be_varied_but_chooses_its_load_itself(config: Inventory) -> None:
    order = orders.StartSearch.model_validate({"kind": "start_search", "what": "D", "vary": {"osl": 8}})
    case, _ = search_asked(config, order)
    assert (case.name, case.osl) == ("D@osl=8", 8)
    with pytest.raises(ConfigError, match="chooses the concurrency itself"):
        planned_without_store(config, "start_search", what="D", vary={"concurrency": [4]})


def test_a_search_shows_its_climb_and_at_most_its_repeats(config: Inventory) -> None:
    plan = planned_without_store(config, "start_search", what="D", max_concurrency=40, repeats=2)
    assert plan["points"] == [1, 16, 32, 40]
    assert len(plan["attempts"]) == 8


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"what": ["E"]}, "no case is called 'E'"),
        ({"what": ["D"], "deployment": "b"}, "no deployment is called"),
        ({"what": ["D"], "vary": {"slo": "fast"}}, "no SLO is called 'fast'"),
        ({"what": ["D"], "vary": {"isl": 0}}, "vary.isl"),
        ({"what": ["D"], "vary": {"seed": 1}}, "vary.seed"),
        ({"what": ["D"], "vary": {"concurrency": list(range(1, 100))}}, "vary.concurrency"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(config: Inventory, asked: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        planned_without_store(config, "start_run", **asked)


def test_what_is_in_the_way_is_told_the_worst_first(config: Inventory) -> None:
    known = Known(
        nodes=[{"node": "node5", "state": "hostkey"}],
        gates=[
            {"node": "node5", "name": "disk", "status": "warn", "detail": "9 GiB free", "fix": None},
            {"node": "node5", "name": "image", "status": "fail", "detail": "no image x:1", "fix": "docker pull x:1"},
            {"node": "node9", "name": "disk", "status": "fail", "detail": "of another node", "fix": None},
        ],
        runs=[{"run_id": "r1", "state": "running", "kind": "run"}],
    )
    told = planned(config, run(what=["D"]), known)["problems"]
    assert [p["bad"] for p in told] == [True, True, False, False]
    text = "\n".join(p["text"] for p in told)
    assert "twinrail trust node5" in text
    assert "image: no image x:1. Next: docker pull x:1" in text
    assert "run r1 is on" in text
    assert "node9" not in text
