"""Exact figures of real captures: CUDA, ROCm, graph replay, old and new formats.

Where a public tool gives another number, the reason stands beside the figure.
"""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from store.analysis.families import family_of
from store.analysis.report import analyze
from tests.store.analysis.builder import TRACES
from tests.store.analysis.oracle import Event, sweep


def only_rank(name: str) -> dict[str, Any]:
    """The single rank of a real trace; its parts must add up."""
    report = analyze([TRACES / name])
    rank: dict[str, Any]
    (rank,) = report["ranks"]
    assert adds_up(rank)
    assert all(adds_up(step) for step in rank["steps"])
    return rank


def adds_up(parts: dict[str, Any]) -> bool:
    """Whether a split covers its wall clock exactly once."""
    rest = ("overlap_ns", "communication_exposed_ns", "copy_exposed_ns", "idle_ns")
    return bool(sum(parts["compute_ns"].values()) + sum(parts[part] for part in rest) == parts["wall_ns"])


def test_vllm_on_eight_gpus_custom_all_reduce_is_communication() -> None:
    """Tools that look for an `nccl` prefix report 22 us here; 73 multimem_all_reduce kernels take the rest."""
    rank = only_rank("vllm-b200-tp8-rank0.json.gz")
    assert rank["rank"] == 0
    assert rank["world_size"] == 8
    assert rank["communication_busy_ns"] == 2_141_501
    assert rank["communication_exposed_ns"] == 2_141_501
    assert rank["idle_ns"] == 72_890_696
    assert (rank["kernels"], rank["copies"], rank["launches"]) == (768, 161, 768)
    (step,) = rank["steps"]
    assert (step["kind"], step["tokens"], step["prefill_requests"]) == ("prefill", 888, 1)


def test_deepseek_training_expert_dispatch_is_communication_and_hidden() -> None:
    """Whole microseconds, DeepEP kernels: 0 us by prefix, 113.44 ms in truth, 96.3 % of it under compute."""
    rank = only_rank("h800-deepseek-train.json.gz")
    assert rank["communication_busy_ns"] == 113_440_000
    assert rank["overlap_ns"] == 109_250_000
    assert rank["communication_exposed_ns"] == 4_190_000
    assert rank["idle_ns"] == 497_000


def test_graph_replay_on_rocm_keeps_sub_microsecond_gaps() -> None:
    """Times floored to microseconds make 458 us of these 25.5 us of idleness."""
    rank = only_rank("vllm-mi300x-decode-rank0.json.gz")
    assert rank["wall_ns"] == 10_743_181
    assert rank["idle_ns"] == 25_473
    assert (rank["kernels"], rank["launches"]) == (425, 5)
    (step,) = rank["steps"]
    assert (step["kind"], step["tokens"], step["decode_requests"]) == ("decode", 32, 32)
    assert (step["kernels"], step["graph_kernels"]) == (425, 421)


def test_sglang_decode_is_one_step_though_two_annotations_mark_it() -> None:
    rank = only_rank("sglang-mi300x-TP-0-DECODE.trace.json.gz")
    assert rank["device"] == 9
    (step,) = rank["steps"]
    assert (step["kind"], step["tokens"], step["graph_kernels"]) == ("decode", 32, 544)
    assert rank["wall_ns"] == 473_749_943


def test_capitalised_categories_of_2021_are_read() -> None:
    rank = only_rank("v100-2021-worker0.json.gz")
    assert rank["rank"] == 0
    assert rank["compute_ns"]["GEMM"] > 0
    assert rank["kernels"] > 500


def test_a_trace_that_does_not_say_its_rank_has_none() -> None:
    rank = only_rank("mi250-toy.json.gz")
    assert rank["rank"] is None
    assert (rank["wall_ns"], rank["idle_ns"], rank["kernels"]) == (8_911_887, 8_762_845, 14)


def test_two_of_128_ranks_wait_for_each_other() -> None:
    report = analyze([TRACES / "a100-rank-1.json.gz", TRACES / "a100-rank-0.json.gz"])
    first, second = report["ranks"]
    assert [first["rank"], second["rank"]] == [0, 1]
    assert (first["idle_ns"], second["idle_ns"]) == (675_191_000, 651_136_000)
    assert (first["communication_busy_ns"], first["overlap_ns"]) == (396_199_000, 59_216_000)
    assert [step["name"] for step in first["steps"]] == ["ProfilerStep#551", "ProfilerStep#552"]
    for rank in (first, second):
        assert 0 < rank["communication_wait_ns"] <= rank["communication_exposed_ns"]
    assert sum(row["last"] for row in report["stragglers"]) == 10
    assert any("2 of 128 ranks" in problem for problem in report["problems"])


@pytest.mark.parametrize(
    "name",
    [
        "h800-deepseek-train.json.gz",
        "a100-rank-0.json.gz",
        "vllm-b200-tp8-rank0.json.gz",
        "vllm-mi300x-decode-rank0.json.gz",
        "sglang-mi300x-TP-0-DECODE.trace.json.gz",
        "mi250-toy.json.gz",
    ],
)
def test_every_part_of_a_real_trace_is_what_a_plain_reading_of_the_json_gives(name: str) -> None:
    rank = only_rank(name)
    document = json.loads(gzip.decompress((TRACES / name).read_bytes()), parse_float=Decimal)
    kinds = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
    events = [
        Event(
            int(e["ts"] * 1000),
            int((e["ts"] + e["dur"]) * 1000),
            kinds[e["cat"]],
            family_of(e["name"]),
            e["args"]["stream"],
        )
        for e in document["traceEvents"]
        if e.get("cat") in kinds
    ]
    plain = sweep(events)
    assert {key: rank[key] for key in plain} == plain


@pytest.fixture
def two_gpus(tmp_path: Path) -> Path:
    """An nsys export of two processes with a GPU each."""
    path = tmp_path / "report.sqlite"
    path.write_bytes(gzip.decompress((TRACES / "nsys-2026-h100-2gpu-nccl.sqlite.gz").read_bytes()))
    return path


def test_an_nsys_export_gives_a_rank_per_process_and_device(two_gpus: Path) -> None:
    report = analyze([two_gpus])
    first, second = report["ranks"]
    assert [(r["rank"], r["device"]) for r in (first, second)] == [(0, 0), (1, 1)]
    assert (first["kernels"], first["copies"]) == (1993, 643)
    assert (first["wall_ns"], first["communication_exposed_ns"], first["idle_ns"]) == (
        299_848_812,
        17_172_652,
        26_031_025,
    )
    assert (second["wall_ns"], second["communication_exposed_ns"]) == (298_661_551, 8_229_100)
    assert adds_up(first)
    assert adds_up(second)
    # Each waits only while the other has not arrived, so what the two wait is what they arrive late.
    assert first["communication_wait_ns"] == 10_898_336
    assert second["communication_wait_ns"] == 2_477_480
    assert {row["rank"]: row["last"] for row in report["stragglers"]} == {0: 11, 1: 22}


def test_an_old_nsys_export_with_os_runtime_calls(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    path.write_bytes(gzip.decompress((TRACES / "nsys-2022-t4.sqlite.gz").read_bytes()))
    (rank,) = analyze([path])["ranks"]
    assert (rank["wall_ns"], rank["copy_exposed_ns"], rank["idle_ns"]) == (2_257_082, 2_046_334, 114_494)
    assert rank["facts"]["device_name"] == "Tesla T4"
    assert rank["host"]["os_calls"][0]["count"] > 0
