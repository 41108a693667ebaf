"""Idle time by cause: what the host was doing while the device had nothing to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from store.analysis.report import analyze
from tests.store.analysis.builder import TRACES, call, kernel, nsys, write


def causes(tmp_path: Path, rows: list[dict[str, Any]]) -> dict[str, int]:
    """The idle causes of a trace, those that are not zero."""
    (rank,) = analyze([write(tmp_path / "t.json", rows)])["ranks"]
    found: dict[str, int] = rank["host"]["idle_by_cause_ns"]
    assert sum(found.values()) == rank["idle_ns"]
    return {cause: ns for cause, ns in found.items() if ns}


FIRST = [call("cudaLaunchKernel", 0, 2, correlation=1), kernel("a_gemm", 10, 10, correlation=1)]


def test_a_late_host_is_cut_into_waiting_calling_running_and_launching(tmp_path: Path) -> None:
    rows = [
        *FIRST,
        call("cudaStreamSynchronize", 5, 20),
        call("cudaMalloc", 27, 3),
        call("cudaLaunchKernel", 40, 4, correlation=2),
        kernel("b_gemm", 50, 5, correlation=2),
    ]
    assert causes(tmp_path, rows) == {
        "sync": 5_000,
        "call": 3_000,
        "host_code": 12_000,
        "launch_call": 4_000,
        "queued": 6_000,
    }


def test_work_that_was_launched_in_time_waited_on_the_device(tmp_path: Path) -> None:
    rows = [*FIRST, call("cudaLaunchKernel", 3, 2, correlation=2), kernel("b_gemm", 50, 5, correlation=2)]
    assert causes(tmp_path, rows) == {"queued": 30_000}


def test_without_the_launch_in_the_capture_the_cause_is_unknown(tmp_path: Path) -> None:
    assert causes(tmp_path, [*FIRST, kernel("b_gemm", 50, 5, correlation=99)]) == {"unknown": 30_000}


def test_calls_of_other_threads_are_not_blamed(tmp_path: Path) -> None:
    rows = [
        *FIRST,
        call("cudaStreamSynchronize", 5, 40, tid=555),
        call("cudaLaunchKernel", 40, 4, correlation=2),
        kernel("b_gemm", 50, 5, correlation=2),
    ]
    assert causes(tmp_path, rows) == {"host_code": 20_000, "launch_call": 4_000, "queued": 6_000}


def test_the_largest_gap_names_the_call_inside_it(tmp_path: Path) -> None:
    rows = [
        *FIRST,
        call("cudaMalloc", 21, 15),
        call("cudaLaunchKernel", 40, 4, correlation=2),
        kernel("b_gemm", 50, 5, correlation=2),
    ]
    (rank,) = analyze([write(tmp_path / "t.json", rows)])["ranks"]
    gap = rank["host"]["largest_gaps"][0]
    assert gap == {
        "start_ns": 20_000,
        "length_ns": 30_000,
        "cause": "call",
        "call_inside": {"name": "cudaMalloc", "covered_ns": 15_000},
        "next": "b_gemm",
        "launched_by": "cudaLaunchKernel",
    }


def test_a_graph_replay_counts_as_one_launch_with_one_delay(tmp_path: Path) -> None:
    rows = [call("cudaGraphLaunch", 0, 5, correlation=3)]
    rows += [kernel("a_gemm", 20 + 10 * i, 9, correlation=3) for i in range(50)]
    (rank,) = analyze([write(tmp_path / "t.json", rows)])["ranks"]
    assert rank["host"]["launch_delay"] == {"median_ns": 20_000, "p95_ns": 20_000, "launches": 1}
    assert rank["launches"] == 1


def test_host_callbacks_are_no_launches(tmp_path: Path) -> None:
    rows = [*FIRST, call("cudaLaunchHostFunc", 3, 1, correlation=8)]
    assert analyze([write(tmp_path / "t.json", rows)])["ranks"][0]["launches"] == 1


def test_chains_of_small_kernels_are_found(tmp_path: Path) -> None:
    rows = [kernel("a_gemm", 10.0 * i, 8) for i in range(6)] + [kernel("b_gemm", 100, 50), kernel("a_gemm", 151, 2)]
    (rank,) = analyze([write(tmp_path / "t.json", rows)])["ranks"]
    found = rank["chains"]
    assert (found["chains"], found["kernels_in_chains"], found["longest_chain"]) == (1, 6, 6)
    assert found["chain_wall_ns"] == 58_000
    assert (found["under_10us"], found["under_10us_share"]) == (7, 0.875)
    assert sum(row["count"] for row in found["kernel_lengths"]) == 8
    assert sum(row["count"] for row in found["device_gaps"]) == 7


def test_a_real_decode_lives_on_small_kernels_and_needs_five_launches() -> None:
    (rank,) = analyze([TRACES / "vllm-mi300x-decode-rank0.json.gz"])["ranks"]
    assert rank["chains"]["under_10us"] == 280
    assert rank["kinds"]["decode"]["launches_per_step"] == 5.0


def test_ids_of_two_processes_on_two_devices_are_kept_apart(tmp_path: Path) -> None:
    """The same correlation in another process is another launch."""
    pid = [0x1000000 * (1 << 24) + (p << 24) for p in (111, 112)]
    rows = [
        {
            "start": 100,
            "end": 200,
            "deviceId": d,
            "streamId": 7,
            "correlationId": 5,
            "globalPid": pid[d],
            "shortName": 1,
        }
        for d in range(2)
    ]
    calls = [
        {"start": 10 + 50 * d, "end": 20 + 50 * d, "globalTid": pid[d] + 9, "correlationId": 5, "nameId": 2}
        for d in range(2)
    ]
    path = nsys(
        tmp_path / "r.sqlite",
        {
            "CUPTI_ACTIVITY_KIND_KERNEL": rows,
            "CUPTI_ACTIVITY_KIND_RUNTIME": calls,
            "StringIds": [{"id": 1, "value": "a_gemm"}, {"id": 2, "value": "cudaLaunchKernel_v7000"}],
        },
    )
    first, second = analyze([path])["ranks"]
    assert first["host"]["launch_delay"]["median_ns"] == 90
    assert second["host"]["launch_delay"]["median_ns"] == 40
    assert first["launches"] == second["launches"] == 1


def test_replays_recorded_as_a_whole_are_busy_time_and_said(tmp_path: Path) -> None:
    path = nsys(
        tmp_path / "r.sqlite",
        {
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [
                {"start": 100, "end": 300, "deviceId": 0, "streamId": 7, "correlationId": 5, "globalPid": 1 << 24}
            ],
            "CUPTI_ACTIVITY_KIND_MEMSET": [
                {"start": 400, "end": 410, "deviceId": 0, "streamId": 7, "correlationId": 6, "globalPid": 1 << 24}
            ],
        },
    )
    report = analyze([path])
    assert report["ranks"][0]["idle_ns"] == 100
    assert report["unmatched"][0]["total_ns"] == 200
    assert any("--cuda-graph-trace=node" in problem for problem in report["problems"])
