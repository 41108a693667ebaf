"""Waiting, transfer, stragglers and clocks across ranks, on timelines whose truth is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.analysis.algebra import Cover, cover
from store.analysis.collectives import RankCollectives, across_ranks, operation_of
from store.analysis.report import analyze
from store.analysis.timeline import column
from tests.store.analysis.builder import annotation, call, kernel, write

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
NOTHING = Cover(column(), column(), column())


def rank_of(
    rank: int, spans: list[tuple[int, int]], compute: Cover = NOTHING, world: int | None = None
) -> RankCollectives:
    """A rank with unnumbered all-reduces at these times."""
    size = len(spans)
    return RankCollectives(
        rank=rank,
        file=f"{rank}.json",
        device=rank,
        world_size=world,
        start=column([a for a, _ in spans]),
        end=column([b for _, b in spans]),
        kind=[("all_reduce", "", None)] * size,
        order_key=[("all_reduce", NCCL)] * size,
        key=[None] * size,
        compute=compute,
    )


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        (NCCL, "all_reduce"),
        ("ncclDevKernel_AllGather_RING_LL", "all_gather"),
        ("ncclDevKernel_ReduceScatter_Sum_f16_RING_LL", "reduce_scatter"),
        ("ncclDevKernel_SendRecv", "send_recv"),
        ("void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*)", "dispatch"),
        ("void deep_ep::internode_ll::combine<3, 10, 7168, 9>(void*)", "combine"),
        ("void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(int)", "all_reduce"),
        ("multimem_all_reduce_kernel", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("hcom_reduceScatter__33", "reduce_scatter"),
        ("ncclDevKernel_Generic_1", "other"),
    ],
)
def test_what_a_communication_kernel_does(name: str, operation: str) -> None:
    assert operation_of(name) == operation


def test_waiting_is_what_passes_until_the_last_rank_arrives() -> None:
    found = across_ranks([rank_of(0, [(0, 100)]), rank_of(1, [(30, 100)]), rank_of(2, [(70, 100)])])
    assert found.wait_ns == [70, 40, 0]
    assert found.operations[0]["wait_ns"] == 110
    assert found.operations[0]["transfer_ns"] == 90


def test_waiting_under_compute_is_not_exposed_waiting() -> None:
    busy = cover(column([10]), column([40]))
    found = across_ranks([rank_of(0, [(0, 100)], busy), rank_of(1, [(50, 100)])])
    assert found.wait_total_ns == [50, 0]
    assert found.wait_ns == [20, 0]


def test_a_wait_ends_with_the_ranks_own_kernel() -> None:
    """Without a shared clock an arrival may seem later than the end; waiting is never longer than the kernel."""
    found = across_ranks([rank_of(0, [(0, 10)]), rank_of(1, [(50, 60)])])
    assert found.wait_ns == [10, 0]


def test_one_rank_cannot_know_what_it_waits_for(tmp_path: Path) -> None:
    report = analyze([write(tmp_path / "r0.json", [kernel(NCCL, 0, 10)], world=2)])
    assert report["ranks"][0]["communication_wait_ns"] is None
    assert report["stragglers"] == []


def test_the_rank_that_is_always_last_is_called_fixed() -> None:
    late = [(1_000 * i + 50, 1_000 * i + 100) for i in range(10)]
    early = [(1_000 * i, 1_000 * i + 100) for i in range(10)]
    found = across_ranks([rank_of(0, early), rank_of(1, late)])
    (row,) = found.stragglers
    assert (row["rank"], row["last"], row["share"], row["fixed"], row["median_late_ns"]) == (1, 10, 1.0, True, 50)


def test_ranks_that_take_turns_are_not() -> None:
    spans = [[(1_000 * i + (40 if i % 2 == r else 0), 1_000 * i + 100) for i in range(12)] for r in range(2)]
    found = across_ranks([rank_of(r, spans[r]) for r in range(2)])
    assert [row["fixed"] for row in found.stragglers] == [False, False]
    assert {row["last"] for row in found.stragglers} == {6}


@pytest.mark.parametrize(("times", "of", "habit"), [(5, 8, False), (22, 33, True), (8, 10, True), (33, 60, False)])
def test_a_share_that_chance_gives_is_no_habit(times: int, of: int, habit: bool) -> None:
    spans = [[(1_000 * i + (40 if (i < times) == (r == 1) else 0), 1_000 * i + 100) for i in range(of)] for r in (0, 1)]
    found = across_ranks([rank_of(r, spans[r]) for r in range(2)])
    assert {row["rank"]: row["fixed"] for row in found.stragglers} == {0: False, 1: habit}
    assert {row["rank"]: row["last"] for row in found.stragglers} == {0: of - times, 1: times}


def test_a_clock_that_is_off_shows_at_the_ends() -> None:
    base = 1_700_000_000_000_000_000
    good = [(base + 10_000_000 * i, base + 10_000_000 * i + 100_000) for i in range(12)]
    off = [(a + 3_000_000, b + 3_000_000) for a, b in good]
    found = across_ranks([rank_of(0, good), rank_of(1, good), rank_of(2, off)])
    assert found.clock_offset_ns == [0, 0, 3_000_000]
    assert any("rank 2: its collectives end +3000 us" in problem for problem in found.problems)


def test_ends_that_agree_raise_no_doubt() -> None:
    spans = [[(10_000 * i + 37 * r, 10_000 * i + 5_000 + 3 * r) for i in range(12)] for r in range(4)]
    assert not across_ranks([rank_of(r, s) for r, s in enumerate(spans)]).problems


def test_captures_of_different_length_are_said(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / f"r{r}.json", [kernel(NCCL, 100 * i, 10 + r) for i in range(5 + r)], rank=r, world=2)
        for r in range(2)
    ]
    assert any("different numbers of collectives" in problem for problem in analyze(paths)["problems"])


def recorded(ts: float, dur: float, seq: int, group: str = "tp") -> dict[str, Any]:
    """A collective with what the framework writes beside it."""
    args = {
        "Collective name": "allreduce",
        "Process Group Name": group,
        "Process Group Ranks": "[0, 1]",
        "Seq": seq,
        "In msg nelems": 1024,
        "dtype": "BFloat16",
        "Group size": 2,
    }
    event = kernel(NCCL, ts, dur)
    return event | {"args": event["args"] | args}


def test_recorded_sequence_numbers_match_even_if_a_rank_misses_the_first(tmp_path: Path) -> None:
    first = write(
        tmp_path / "r0.json", [recorded(0, 10, 1), recorded(100, 20, 2), recorded(200, 30, 3)], rank=0, world=2
    )
    second = write(tmp_path / "r1.json", [recorded(110, 10, 2), recorded(225, 5, 3)], rank=1, world=2)
    report = analyze([first, second])
    assert [rank["communication_wait_ns"] for rank in report["ranks"]] == [35_000, 0]
    assert report["ranks"][0]["collectives"][0]["bytes"] == 2048
    assert report["collectives"][0]["collectives"] == 2


def test_bases_of_the_ranks_are_added_back(tmp_path: Path) -> None:
    """Relative times of two processes mean nothing to each other before their bases are added."""
    first = write(tmp_path / "r0.json", [kernel(NCCL, 100, 50)], rank=0, world=2, base=1_000_000_000)
    second = write(tmp_path / "r1.json", [kernel(NCCL, 20, 30)], rank=1, world=2, base=1_000_100_000)
    report = analyze([first, second])
    assert [rank["communication_wait_ns"] for rank in report["ranks"]] == [20_000, 0]


def test_several_ranks_without_any_communication_are_a_warning(tmp_path: Path) -> None:
    report = analyze([write(tmp_path / "r0.json", [kernel("a_gemm", 0, 10)], world=8)])
    assert any("no communication kernel was recognised" in problem for problem in report["problems"])


def test_the_position_in_a_step_tells_which_collective_is_slow(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    for i in range(3):
        rows += [annotation("step[DECODE bs=1]", 100 * i, 20)]
        for n, length in enumerate((2, 9, 3)):
            rows += [call("cudaLaunchKernel", 100 * i + n, 0.5, correlation=10 * i + n)]
            rows += [kernel(NCCL, 100 * i + 30 + 10 * n, length, correlation=10 * i + n)]
    (rank,) = analyze([write(tmp_path / "r0.json", rows, world=2)])["ranks"]
    assert rank["collective_positions"][0] == {
        "kind": "decode",
        "operation": "all_reduce",
        "position": 1,
        "count": 3,
        "mean_ns": 9_000,
        "exposed_ns": 27_000,
    }


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=3, max_size=3), min_size=1, max_size=4
    )
)
@settings(max_examples=60, deadline=None)
def test_exposed_waiting_is_what_counting_instants_gives(arrivals: list[list[tuple[int, int]]]) -> None:
    ranks = [
        rank_of(r, [(200 * i + a[r][0], 200 * i + a[r][0] + a[r][1]) for i, a in enumerate(arrivals)]) for r in range(3)
    ]
    found = across_ranks(ranks)
    for r, mine in enumerate(ranks):
        last = np.array([max(int(other.start[i]) for other in ranks) for i in range(len(arrivals))])
        counted = sum(
            1 for i in range(len(arrivals)) for t in range(int(mine.start[i]), int(mine.end[i])) if t < last[i]
        )
        assert found.wait_ns[r] == counted
