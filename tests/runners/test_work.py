"""Sweeps, scaled plans and prompts that must be shorter: what a start means before anything is touched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.flows.variants import changed_deployment, deployment_of, label_of, with_flag
from runners.flows.work import context_of, fitted, scaled, work_of
from runners.spec import Case, ConfigError, Deployment, Inject, Inventory, parse_inventory
from store.database import Store
from store.records import Variable

CONFIG = """
[[nodes]]
name = "n1"
host = "local"
[deployments.d]
engine = "sim"
nodes = ["n1"]
flags = ["--chunk", "512", "--no-overlap", "--kv-tokens=4000"]
env = { NCCL_ALGO = "Ring" }
[cases.A]
isl = 64
osl = 8
[cases.B]
isl = 4096
osl = 1
[sweeps.chunk]
cases = ["A", "B"]
vary = "flags.--chunk"
values = [256, 1024]
repeats = 2
[sweeps.share]
cases = ["A"]
vary = "case.prefix_share"
values = [0, 0.5]
order = "interleaved"
cool_down = "5s"
[plans.small]
cases = ["A", "B"]
scale = 0.25
lives = "per_repeat"
budget = "1h"
"""


@pytest.fixture
def inventory() -> Inventory:
    return parse_inventory(CONFIG)


def test_a_sweep_keeps_all_repeats_of_a_step_together_so_that_the_server_starts_once_a_step(
    inventory: Inventory,
) -> None:
    attempts = work_of(inventory, ["chunk"]).attempts("r")
    assert [(a.case_name, a.repeat) for a in attempts] == [
        (f"{case}@--chunk={value}", repeat) for value in (256, 1024) for case in ("A-C1", "B-C1") for repeat in (1, 2)
    ]
    first, last = (deployment_of(inventory, a, inventory.deployment("d")) for a in (attempts[0], attempts[-1]))
    assert first.flags == ["--no-overlap", "--kv-tokens=4000", "--chunk", "256"]
    assert last.flags[-2:] == ["--chunk", "1024"]
    assert len({a.seed for a in attempts}) == len(attempts)


def test_a_sweep_over_the_case_leaves_the_server_alone(inventory: Inventory) -> None:
    work = work_of(inventory, ["share"])
    attempts = work.attempts("r")
    base = inventory.deployment("d")
    assert [a.case_name for a in attempts[:2]] == ["A-C1@prefix_share=0", "A-C1@prefix_share=0.5"]
    assert [Case.model_validate_json(a.case_spec or "").prefix_share for a in attempts[:2]] == [0, 0.5]
    assert all(deployment_of(inventory, a, base) == base for a in attempts)
    assert work.options()["cool_down"] == 5


def test_a_sweep_runs_on_the_deployment_that_is_asked_for(inventory: Inventory) -> None:
    work = work_of(inventory, ["chunk"], deployment="d", repeats=1)
    assert (work.deployment, work.repeats, work.most) == ("d", 1, None)
    with pytest.raises(ConfigError, match="no deployment is called 'x'"):
        work_of(inventory, ["chunk"], deployment="x")


@pytest.mark.parametrize(
    ("vary", "value", "says"),
    [
        ("flags.chunk", 1, "begins with a dash"),
        ("env.HF_TOKEN", "x", "secret"),
        ("imagee", "x", "Did you mean 'image'"),
        ("engine", "vllm", "no field"),
        ("topology.tp", 0, "greater than or equal to 1"),
    ],
)
def test_what_cannot_be_varied_is_refused_before_anything_starts(
    inventory: Inventory, vary: str, value: int | str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        changed_deployment(inventory.deployment("d"), vary, value)


@pytest.mark.parametrize(
    ("value", "flags"),
    [
        (8, ["--no-overlap", "--kv-tokens=4000", "--chunk", "8"]),
        (True, ["--no-overlap", "--kv-tokens=4000", "--chunk"]),
        (False, ["--no-overlap", "--kv-tokens=4000"]),
    ],
)
def test_a_flag_is_set_switched_on_or_left_out(inventory: Inventory, value: bool | int, flags: list[str]) -> None:
    assert with_flag(inventory.deployment("d").flags, "--chunk", value) == flags


def test_a_flag_with_a_negative_or_joined_value_goes_whole() -> None:
    assert with_flag(["--a", "-1", "--b=2", "x"], "--a", False) == ["--b=2", "x"]
    assert with_flag(["--a", "-1", "--b=2", "x"], "--b", 3) == ["--a", "-1", "x", "--b", "3"]


@given(st.lists(st.sampled_from(["--a", "--b", "--c=1", "7", "word"]), max_size=8), st.integers(-5, 99))
def test_a_flag_that_is_set_twice_is_as_if_set_once(flags: list[str], value: int) -> None:
    once = with_flag(flags, "--a", value)
    assert once[-2:] == ["--a", str(value)]
    assert with_flag(once, "--a", value) == once
    assert [f for f in once if f == "--a"] == ["--a"]


def test_a_variable_of_the_environment_is_set_or_taken_out(inventory: Inventory) -> None:
    dep = inventory.deployment("d")
    assert changed_deployment(dep, "env.NCCL_ALGO", "Tree").env == {"NCCL_ALGO": "Tree"}
    assert changed_deployment(dep, "env.NCCL_ALGO", False).env == {}
    assert changed_deployment(dep, "env.X", True).env == {"NCCL_ALGO": "Ring", "X": "1"}
    assert label_of("env.X", True) == "X=on"


def test_a_plan_scales_every_length_but_a_prefill_case_stays_one(inventory: Inventory) -> None:
    work = work_of(inventory, ["small"])
    assert [(leg.case.isl, leg.case.osl, leg.case.lives) for leg in work.legs] == [
        (16, 2, "per_repeat"),
        (1024, 1, "per_repeat"),
    ]
    assert work.options()["budget"] == 3600
    assert [leg.case.isl for leg in work_of(inventory, ["small"], scale=0.5).legs] == [8, 512]


def test_the_first_round_ships_built_in(inventory: Inventory) -> None:
    work = work_of(inventory, ["first-round"], scale=0.01)
    names = [leg.name for leg in work.legs]
    assert names == ["P1-C1", "P2-C1", "P3-C1", "D1-C1", "D2-C16", "D2-C32", "D2-C64", "M1-C32"]
    assert work.repeats == 3
    m1 = work.legs[-1].case
    assert (m1.isl, m1.inject.isl if m1.inject else None) == (10, 1311)


def test_an_injected_length_and_a_fallback_scale_with_their_case() -> None:
    case = Case(name="M", isl=100, osl=10, inject=Inject(isl=1000), fallback_isl=50)
    small = scaled(case, 0.1)
    assert (small.isl, small.osl, small.inject and small.inject.isl, small.fallback_isl) == (10, 2, 100, 5)
    assert scaled(case, 1.0) is case


def test_a_prompt_that_the_context_cannot_hold_falls_back_only_where_the_case_allows_it() -> None:
    p3 = Case(name="P3", isl=131072, osl=1, fallback_isl=65536)
    assert fitted(p3, None) is p3
    assert fitted(p3, 200_000) is p3
    assert fitted(p3, 131072).isl == 65536
    assert fitted(p3, 4096).isl == 4095
    strict = p3.model_copy(update={"fallback_isl": None})
    assert fitted(strict, 4096) is strict


def test_the_context_is_the_least_that_the_server_says_of_itself(tmp_path: Path) -> None:
    said = {"server.context_length": "8192", "server.data.0.max_model_len": "4096", "server.max_running": "9"}
    with Store.open(tmp_path / "s.duckdb") as store:
        rows = [Variable(run_id="r", life_id="L1", name=n, value=v, wall_ns=1) for n, v in said.items()]
        store.write(rows, urgent=True).result()
        assert context_of(store, "L1") == 4096
        assert context_of(store, "L2") is None


def test_a_variant_names_another_deployment_for_one_side_of_a_comparison(inventory: Inventory) -> None:
    attempt = work_of(inventory, ["A"]).attempts("r")[0]
    assert attempt.variant is None
    other = Deployment(name="e", engine="sim", nodes=["n1"])
    changed = inventory.model_copy(update={"deployments": {**inventory.deployments, "e": other}})
    side = replace(attempt, variant=orjson.dumps({"deployment": "e"}).decode())
    assert deployment_of(changed, side, inventory.deployment("d")) == other
