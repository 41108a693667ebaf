"""`ab`: a verdict only where the figures carry one, and the reason where they do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from store.analysis.ab.chosen import compare_chosen
from store.database import Store
from store.errors import StoreError
from store.records import Record, Request
from tests.store.analysis.ab import rig

CALM = [(100.0, 90.0), (101.0, 91.0), (99.0, 90.0), (100.0, 89.0), (102.0, 91.0), (100.0, 90.0)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "s.duckdb") as opened:
        yield opened


def compared(store: Store, rows: Sequence[Record], a: str, b: str | None = None, **asked: Any) -> dict[str, Any]:
    store.write(rows, urgent=True).result()
    return compare_chosen(store, [a], [b] if b else [], asked)


def test_a_gain_in_every_block_is_an_improvement_with_its_interval(store: Store) -> None:
    found = compared(store, rig.blocks("r", CALM), "r")
    assert (found["verdict"], found["primary"], found["replicate"]) == ("improve", "output_tps", "block")
    lead = found["metrics"][0]
    assert lead["primary"]
    assert lead["a"] == pytest.approx(sum(11 / (a / 1000) for a, _ in CALM) / 6, rel=1e-6)  # 11 tokens a request
    assert lead["low_pct"] < 11.0 < lead["high_pct"]
    assert found["changed"] == [{"name": "flags.--x", "a": "a", "b": "b", "kind": "intended"}]


def test_a_metric_that_falls_with_speed_is_better_when_lower(store: Store) -> None:
    found = compared(store, rig.blocks("r", CALM), "r", primary="ttft_ms_mean")
    assert (found["verdict"], found["metrics"][0]["name"]) == ("improve", "ttft_ms_mean")


def test_three_blocks_are_not_enough_unless_the_noise_is_declared(store: Store) -> None:
    rows = rig.blocks("r", CALM[:3])
    assert compared(store, rows, "r")["verdict"] == "not_enough_data"
    assert compare_chosen(store, ["r"], [], {"noise": 0.02})["verdict"] == "improve"


def test_a_tail_is_judged_only_where_there_are_requests_beyond_it(store: Store) -> None:
    found = compared(store, rig.blocks("r", CALM), "r")
    named = {m["name"] for m in found["metrics"]}
    assert "ttft_ms_p95" in named  # 40 requests
    assert "ttft_ms_p99" not in named


def test_a_worse_tail_at_equal_throughput_is_found_when_it_is_asked_for(store: Store) -> None:
    rows = rig.blocks("r", [(100.0, 100.0)] * 6, n=100, slow_last=9.0)
    found = compared(store, rows, "r", primary="e2e_ms_p99")
    assert found["verdict"] == "regress"


def test_an_undeclared_difference_withholds_the_verdict_and_is_named(store: Store) -> None:
    rows = [*rig.run("a", [100.0] * 6), *rig.run("b", [90.0] * 6, {"host.kernel": "6.8", "deployment.flags": "--x 1"})]
    found = compared(store, rows, "a", "b", declared=["flags.--x"])
    assert found["verdict"] == "confounded"
    assert "host.kernel" in found["reasons"][0]
    assert [(c["name"], c["kind"]) for c in found["changed"]] == [
        ("host.kernel", "undeclared"),
        ("flags.--x", "intended"),
    ]


def test_runs_apart_are_judged_by_server_lives(store: Store) -> None:
    def flagged(value: str) -> dict[str, str]:
        return {"deployment.flags": f"--x {value}"}

    rows = [*rig.run("a", [a for a, _ in CALM], flagged("1")), *rig.run("b", [b for _, b in CALM], flagged("2"))]
    found = compared(store, rows, "a", "b", declared=["flags.--x"])
    assert (found["verdict"], found["replicate"], found["metrics"][0]["n"]) == ("improve", "server life", 6)


def test_many_attempts_on_one_life_are_one_measurement_of_a_changed_server(store: Store) -> None:
    rows = [
        *rig.run("a", [a for a, _ in CALM], {"deployment.flags": "--x 1"}, life_id="A"),
        *rig.run("b", [b for _, b in CALM], {"deployment.flags": "--x 2"}, life_id="B"),
    ]
    found = compared(store, rows, "a", "b", declared=["flags.--x"])
    assert (found["verdict"], found["metrics"][0]["n"]) == ("not_enough_data", 1)


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        ({}, {"kind": "profile"}, "profiled"),
        ({}, {"flags": ["gate_override"]}, "overridden"),
        ({}, {"flags": ["tainted"]}, "tainted"),
        ({}, {"simulated": True}, "simulated"),
        ({}, {"case_name": "E-C1"}, "no case in common"),
        ({}, {"client": "vllm_bench"}, "same cases with the same client"),
    ],
)
def test_what_must_not_be_compared_is_refused_with_the_reason(
    store: Store, a: dict[str, Any], b: dict[str, Any], says: str
) -> None:
    found = compared(store, [*rig.run("a", [100.0] * 6, **a), *rig.run("b", [100.0] * 6, **b)], "a", "b")
    assert found["verdict"] == "refused"
    assert says in found["sentence"]


def test_other_counted_tokens_are_not_the_same_work(store: Store) -> None:
    rows = [*rig.run("a", [100.0] * 6), *rig.run("b", [100.0] * 6)]
    rows = [replace(r, output_tokens=9) if isinstance(r, Request) and r.run_id == "b" else r for r in rows]
    found = compared(store, rows, "a", "b")
    assert (found["verdict"], "counted output tokens differ" in found["sentence"]) == ("refused", True)


def test_repeats_that_do_not_agree_are_refused_apart_but_not_in_blocks(store: Store) -> None:
    noisy = [(a * (1.1 if n % 2 else 0.9), b * (1.1 if n % 2 else 0.9)) for n, (a, b) in enumerate(CALM)]
    rows = [*rig.run("a", [a for a, _ in noisy]), *rig.run("b", [b for _, b in noisy]), *rig.blocks("r", noisy)]
    found = compared(store, rows, "a", "b")
    assert (found["verdict"], "spread by" in found["sentence"]) == ("refused", True)
    assert compare_chosen(store, ["r"], [], {})["verdict"] == "improve"


def test_another_model_is_refused_and_another_quantisation_asks_for_a_check_of_its_answers(store: Store) -> None:
    def of(model: str) -> dict[str, str]:
        return {"deployment.model": model}

    rows = [
        *rig.run("a", [100.0] * 6, of("/m/DeepSeek-V3.2")),
        *rig.run("b", [90.0] * 6, of("/m/DeepSeek-V3.2-W8A8")),
        *rig.run("c", [90.0] * 6, of("/m/Qwen3-235B")),
    ]
    found = compared(store, rows, "a", "b", declared=["model"])
    assert (found["verdict"], "answers agree" in found["sentence"]) == ("refused", True)
    other = compare_chosen(store, ["a"], ["c"], {"declared": ["model"]})
    assert (other["verdict"], "different models" in other["sentence"]) == ("refused", True)


def test_a_variant_that_crashes_is_a_result_with_evidence_and_no_missing_row(store: Store) -> None:
    rows = rig.blocks("r", CALM, outcome="ENGINE_CRASH", detail="rank 3: hang: no token for 120 s")
    found = compared(store, rows, "r")
    assert found["verdict"] == "regress"
    assert "6 x ENGINE_CRASH" in found["sentence"]
    assert "hang" in found["sentence"]
    assert len(found["sides"]["b"]["failures"]) == 6
    assert found["metrics"] == []


def test_what_is_not_there_is_told(store: Store) -> None:
    rows = rig.run("a", [100.0])
    with pytest.raises(StoreError, match="no run is called 'z'"):
        compared(store, rows, "a", "z")
    with pytest.raises(StoreError, match="name two runs"):
        compare_chosen(store, ["a"], [], {})
    with pytest.raises(StoreError, match="no metric is called 'tps'"):
        compare_chosen(store, ["a"], ["a"], {"primary": "tps"})


def test_the_same_run_twice_shows_no_change_and_no_difference(store: Store) -> None:
    found = compared(store, rig.run("a", [100.0, 100.1, 99.9, 100.0, 100.05, 99.95]), "a", "a")
    assert (found["verdict"], found["changed"]) == ("no_change", [])
