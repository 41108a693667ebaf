"""Whole reports of random captures against counts of single instants: several devices, steps, causes, waiting, last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.analysis.algebra import cover
from store.analysis.collectives import RankCollectives, across_ranks
from store.analysis.report import analyze
from store.analysis.timeline import column
from tests.store.analysis.builder import annotation, call, kernel, write
from tests.store.analysis.oracle import Event, split

FAMILY_OF = {
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL": "Communication",
    "a_gemm": "GEMM",
    "fused_moe_kernel": "MoE",
    "vectorized_spin": "Other",
}

# Times are ns; those of a trace are us with three decimals, so that gaps below a microsecond are common here.
work = st.lists(
    st.tuples(
        st.integers(0, 300),  # start
        st.sampled_from([0, 0, 1, 7, 20, 60, 200]),  # length
        st.sampled_from([*FAMILY_OF, "copy"]),
        st.integers(0, 2),  # stream
        st.integers(0, 1),  # device
        st.integers(0, 1),  # step that launches it
    ),
    min_size=1,
    max_size=16,
)
Work = list[tuple[int, int, str, int, int, int]]
once = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def capture(path: Path, rows: Work) -> tuple[Path, dict[int, list[Event]], dict[int, list[int]]]:
    """A trace of that work: two steps whose calls launch it, devices of one process. Its events by device as the oracle
    wants them, and the step of each."""
    written: list[dict[str, Any]] = [
        annotation("step[DECODE bs=4]", 0.0, 10.0),
        annotation("step[EXTEND bs=1 toks=9]", 20.0, 10.0),
    ]
    by_device: dict[int, list[Event]] = {}
    steps: dict[int, list[int]] = {}
    for i, (start, length, name, stream, device, step) in enumerate(rows, 1):
        at = {"ts": 100 + start / 1000, "dur": length / 1000}
        written.append(call("cudaLaunchKernel", 20 * step + i / 10, 0.05, correlation=i))
        event = kernel(name, 0, 0, stream=stream, device=device, correlation=i) | at
        if name == "copy":
            event |= {"cat": "gpu_memcpy", "name": "Memcpy DtoD (Device -> Device)"}
        written.append(event)
        kind, family = ("memcpy", "") if name == "copy" else ("kernel", FAMILY_OF[name])
        by_device.setdefault(device, []).append(Event(100_000 + start, 100_000 + start + length, kind, family, stream))
        steps.setdefault(device, []).append(step)
    return write(path, written), by_device, steps


@given(work)
@once
def test_each_device_and_each_step_is_split_as_its_instants_say(
    tmp_path_factory: pytest.TempPathFactory, rows: Work
) -> None:
    path, devices, steps = capture(tmp_path_factory.mktemp("t") / "t.json", rows)
    ranks = {rank["device"]: rank for rank in analyze([path])["ranks"]}
    # A device with nothing but copies is no rank beside one with kernels: its copies stay with the first.
    with_kernels = {d for d, events in devices.items() if any(e.kind == "kernel" for e in events)} or set(devices)
    assert set(ranks) == with_kernels
    if with_kernels != set(devices):
        return
    for device, events in devices.items():
        rank = ranks[device]
        whole = split(events, min(e.start for e in events), max(e.end for e in events))
        assert {part: rank[part] for part in whole} == whole
        for kind, number in (("decode", 0), ("prefill", 1)):
            mine = [event for event, step in zip(events, steps[device], strict=True) if step == number]
            found = [step for step in rank["steps"] if step["kind"] == kind]
            assert len(found) == bool(mine)
            if mine:
                window = split(events, min(e.start for e in mine), max(e.end for e in mine))
                assert {part: found[0][part] for part in window} == window
                assert found[0]["kernels"] == sum(e.kind == "kernel" for e in mine)


# Host calls of one thread in ns: when, how long, whether it synchronises, and the kernels that launches bring about.
launches = st.lists(
    st.tuples(st.integers(0, 200), st.integers(0, 15), st.integers(0, 250), st.integers(1, 30)), min_size=1, max_size=6
)
others = st.lists(
    st.tuples(st.integers(0, 250), st.integers(1, 60), st.sampled_from(["cudaStreamSynchronize", "cudaMalloc"])),
    max_size=5,
)


@given(launches, others)
@once
def test_each_idle_instant_has_the_cause_that_the_host_shows(
    tmp_path_factory: pytest.TempPathFactory,
    launches: list[tuple[int, int, int, int]],
    others: list[tuple[int, int, str]],
) -> None:
    calls = [(at, at + length, "cudaLaunchKernel") for at, length, _, _ in launches]
    spans = [(100 + start, 100 + start + length) for _, _, start, length in launches]
    rows = [kernel("a_gemm", a / 1000, (b - a) / 1000, correlation=i) for i, (a, b) in enumerate(spans, 1)]
    rows += [call(name, a / 1000, (b - a) / 1000, correlation=i) for i, (a, b, name) in enumerate(calls, 1)]
    rows += [call(name, at / 1000, length / 1000, correlation=900 + i) for i, (at, length, name) in enumerate(others)]
    every = [*calls, *((at, at + length, name) for at, length, name in others)]
    (rank,) = analyze([write(tmp_path_factory.mktemp("t") / "t.json", rows)])["ranks"]
    counted = dict.fromkeys(rank["host"]["idle_by_cause_ns"], 0)
    inside: dict[str, int] = {}
    for instant in range(min(a for a, _ in spans), max(b for _, b in spans)):
        if any(a <= instant < b for a, b in spans):
            continue
        ends_it = min((a, i) for i, (a, _) in enumerate(spans) if a > instant)[1]
        begin, end, _ = calls[ends_it]
        covering = [name for a, b, name in every if a <= instant < b]
        for name in covering:
            inside[name] = inside.get(name, 0) + sum(1 for other in covering if other == name) // covering.count(name)
        if instant >= max(begin, end):
            cause = "queued"
        elif instant >= begin:
            cause = "launch_call"
        elif "cudaStreamSynchronize" in covering:
            cause = "sync"
        else:
            cause = "call" if covering else "host_code"
        counted[cause] += 1
    assert rank["host"]["idle_by_cause_ns"] == counted
    assert sum(counted.values()) == rank["idle_ns"]
    assert {row["name"]: row["covered_ns"] for row in rank["host"]["gap_calls"]} == inside


# One collective: who takes part, and when each of three ranks begins and how long it stays in it.
meeting = st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 25)), min_size=3, max_size=3)
spans = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 20)), max_size=3)


@given(st.lists(meeting, min_size=1, max_size=5), st.lists(spans, min_size=3, max_size=3))
@settings(max_examples=150, deadline=None)
def test_waiting_and_who_is_last_are_what_counting_gives(
    meetings: list[list[tuple[bool, int, int]]], computing: list[list[tuple[int, int]]]
) -> None:
    """Collectives that overlap, lack a rank, start together or last no time at all, beside compute."""
    ranks = []
    for r in range(3):
        mine = sorted((20 * n + m[r][1], n, m[r][2]) for n, m in enumerate(meetings) if m[r][0])
        compute = computing[r]
        ranks.append(
            RankCollectives(
                rank=r,
                file=f"r{r}",
                device=0,
                world_size=3,
                start=column([at for at, _, _ in mine]),
                end=column([at + length for at, _, length in mine]),
                kind=[("all_reduce", "tp", None)] * len(mine),
                order_key=[("all_reduce", "tp")] * len(mine),
                key=[("all_reduce", "tp", str(n)) for _, n, _ in mine],
                compute=cover(column([a for a, _ in compute]), column([a + n for a, n in compute])),
            )
        )
    found = across_ranks(ranks)
    together = {n: {r: 20 * n + m[r][1] for r in range(3) if m[r][0]} for n, m in enumerate(meetings)}
    together = {n: starts for n, starts in together.items() if len(starts) > 1}
    if not together:
        assert found.wait_ns == [None] * 3
        return
    for r in range(3):
        waits = [
            (starts[r], min(starts[r] + meetings[n][r][2], max(starts.values())))
            for n, starts in together.items()
            if r in starts
        ]
        instants = {t for a, b in waits for t in range(a, b)}
        alone = {t for t in instants if not any(a <= t < a + length for a, length in computing[r])}
        assert (found.wait_total_ns[r], found.wait_ns[r]) == (len(instants), len(alone))
    late: dict[int, list[int]] = {}
    for starts in together.values():
        *_, second, last = sorted(starts.values())
        if last > second:
            late.setdefault(max(starts, key=lambda r: starts[r]), []).append(last - second)
    decided = [starts for starts in together.values() if sorted(starts.values())[-1] > sorted(starts.values())[-2]]
    rows = {row["rank"]: row for row in found.stragglers}
    assert set(rows) == set(late)
    for r, lateness in late.items():
        assert rows[r]["last"] == len(lateness)
        assert rows[r]["collectives"] == sum(r in starts for starts in decided)
        assert rows[r]["total_late_ns"] == sum(lateness)
        assert rows[r]["median_late_ns"] == int(np.median(lateness))
