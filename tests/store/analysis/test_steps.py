"""Steps: what names mean, and that work goes to a step by the call that launched it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from store.analysis.report import analyze
from store.analysis.steps import DECODE, MIXED, PREFILL, STEP, Meaning, meaning_of
from tests.store.analysis.builder import annotation, call, kernel, write


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("execute_context_1(888_788544)_generation_0(0)", Meaning(PREFILL, 888, 1, 0)),
        (
            "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)",
            Meaning(DECODE, 32, 0, 32),
        ),
        ("execute_8192_context_9(sq8155sk8430)_generation_37(sq37sk34489)", Meaning(MIXED, 8192, 9, 37)),
        ("step[EXTEND bs=15 toks=15360]", Meaning(PREFILL, 15360, 15, None)),
        ("step[DECODE bs=32]", Meaning(DECODE, 32, None, 32)),
        ("step[TARGET_VERIFY bs=4]", Meaning(DECODE, 4, None, 4)),
        ("step[MIXED bs=4 toks=2048]", Meaning(MIXED, 2048, None, None)),
        ("ProfilerStep#551", Meaning(STEP)),
        ("iteration 12", Meaning(STEP)),
        ("prefill", Meaning(PREFILL)),
        ("decode bs=8", Meaning(DECODE)),
        ("## forward ##", None),
        ("nccl:all_reduce", None),
        ("decode_attention_layer", None),
        ("aten::decode", None),
    ],
)
def test_what_a_range_says(name: str, meaning: Meaning | None) -> None:
    assert meaning_of(name) == meaning


def launched(
    at: float, start: float, length: float, number: int, name: str = "a_gemm", **args: Any
) -> list[dict[str, Any]]:
    """A launch call and the kernel it launches."""
    return [
        call("cudaLaunchKernel", at, 1, correlation=number),
        kernel(name, start, length, correlation=number, **args),
    ]


def test_work_belongs_to_the_step_that_launched_it_even_if_it_runs_in_the_next(tmp_path: Path) -> None:
    rows = [annotation("step[EXTEND bs=1 toks=64]", 0, 20), annotation("step[DECODE bs=2]", 30, 20)]
    rows += launched(5, 10, 40, 1) + launched(35, 55, 5, 2)
    (rank,) = analyze([write(tmp_path / "t.json", rows)])["ranks"]
    prefill, decode = rank["steps"]
    assert (prefill["kind"], prefill["start_ns"], prefill["wall_ns"]) == ("prefill", 10_000, 40_000)
    assert (decode["kind"], decode["start_ns"], decode["wall_ns"]) == ("decode", 55_000, 5_000)
    assert rank["kinds"]["prefill"]["wall_ns_per_token"] == 625
    assert rank["kinds"]["decode"]["launches_per_token"] == 0.5


def test_a_step_window_clips_in_what_others_ran_meanwhile(tmp_path: Path) -> None:
    rows = [annotation("step[DECODE bs=1]", 0, 20), *launched(5, 100, 10, 1), *launched(6, 120, 10, 2)]
    rows += [kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 95, 30, stream=9, correlation=77)]
    report = analyze([write(tmp_path / "t.json", rows)])
    (step,) = report["ranks"][0]["steps"]
    assert step["wall_ns"] == 30_000
    assert step["overlap_ns"] == 15_000
    assert step["communication_exposed_ns"] == 10_000
    assert step["compute_ns"] == {"GEMM": 5_000}
    assert any("1 of 3 device events belong to no step" in problem for problem in report["problems"])


def test_one_graph_launch_brings_all_its_kernels_into_the_step(tmp_path: Path) -> None:
    rows = [
        annotation("execute_8_context_0(sq0)_generation_8(sq8)", 0, 10),
        call("cudaGraphLaunch", 2, 3, correlation=9),
    ]
    rows += [kernel("a_gemm", 50 + 10 * i, 8, correlation=9) for i in range(6)]
    (rank,) = analyze([write(tmp_path / "t.json", rows)])["ranks"]
    (step,) = rank["steps"]
    assert (step["kernels"], step["graph_kernels"], step["launches"]) == (6, 6, 1)
    assert rank["kinds"]["decode"]["graph_share"] == 1.0


def test_the_last_step_is_kept_and_a_training_step_takes_launches_of_every_thread(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    for i in range(3):
        rows += [annotation(f"ProfilerStep#{i}", 100 * i, 100), *launched(100 * i + 5, 100 * i + 20, 10, 2 * i)]
        rows += [call("cudaLaunchKernel", 100 * i + 40, 1, correlation=2 * i + 1, tid=200)]
        rows += [kernel("b_gemm", 100 * i + 60, 10, correlation=2 * i + 1)]
    (rank,) = analyze([write(tmp_path / "t.json", rows)])["ranks"]
    assert [step["kernels"] for step in rank["steps"]] == [2, 2, 2]


def test_of_nested_step_ranges_the_one_that_tells_more_counts(tmp_path: Path) -> None:
    rows = [annotation("ProfilerStep#1", 0, 100), annotation("step[DECODE bs=4]", 10, 30)]
    rows += [annotation("execute_4_context_0(sq0)_generation_4(sq4)", 8, 40), *launched(20, 60, 5, 1)]
    (rank,) = analyze([write(tmp_path / "t.json", rows)])["ranks"]
    assert [(step["kind"], step["name"][:9]) for step in rank["steps"]] == [("decode", "execute_4")]


@pytest.mark.parametrize(
    ("names", "kind", "told_by"),
    [
        (["a_gemm", "void flash::flash_fwd_splitkv_kernel<x>(y)"], "decode", "kernels"),
        (["void flashinfer::BatchPrefillWithRaggedKVCacheKernel<x>(y)"], "prefill", "kernels"),
        (["void flash::flash_fwd_kernel<x>(y)", "void vllm::paged_attention_v2_kernel<x>(y)"], "mixed", "kernels"),
        (["void flash::flash_fwd_kernel<x>(y)", "void flash::flash_bwd_kernel<x>(y)"], "step", "annotation"),
        (["a_gemm"], "step", "annotation"),
    ],
)
def test_a_step_whose_name_leaves_its_kind_open_is_told_by_its_kernels(
    names: list[str], kind: str, told_by: str, tmp_path: Path
) -> None:
    rows = [annotation("ProfilerStep#1", 0, 50)]
    for number, name in enumerate(names):
        rows += launched(10 + number, 100 + 10 * number, 5, number, name)
    (rank,) = analyze([write(tmp_path / "t.json", rows)])["ranks"]
    assert [(step["kind"], step["told_by"]) for step in rank["steps"]] == [(kind, told_by)]


def test_without_annotations_each_graph_replay_is_a_step(tmp_path: Path) -> None:
    rows = [call("hipGraphLaunch", 10 * i, 2, correlation=i + 1) for i in range(3)]
    rows += [kernel("a_gemm", 100 + 10 * i, 4, correlation=i + 1) for i in range(3)]
    (rank,) = analyze([write(tmp_path / "t.json", rows)])["ranks"]
    assert [step["kind"] for step in rank["steps"]] == ["graph_replay"] * 3
