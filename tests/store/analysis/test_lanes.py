"""Cells of a timeline add up to what ran in them, and every number leads to its events."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.analysis.families import FAMILIES
from store.analysis.ingest import ingest
from store.analysis.lanes import events_of, lanes
from store.analysis.rank import RankView, view
from store.analysis.timeline import HostCalls, Timeline, column
from tests.store.analysis.builder import TRACES, call, kernel, write
from tests.store.analysis.oracle import Event, split
from tests.store.analysis.test_algebra import algebra_of, timelines


def seen_of(timeline: list[Event]) -> RankView:
    """A rank view over random events (families as given, no launches)."""
    algebra = algebra_of(timeline)
    none = column()
    rank = Timeline("t", "torch", algebra.events, HostCalls(none, none, none, none, none), [], [])
    return RankView(rank, algebra, [], none, np.full(len(timeline), -1))


@given(timelines, st.integers(-5, 50), st.integers(1, 60), st.integers(1, 12))
@settings(max_examples=80, deadline=None)
def test_each_cell_of_the_device_shows_who_owned_most_of_it(
    timeline: list[Event], start: int, length: int, width: int
) -> None:
    device = lanes(seen_of(timeline), start, start + length, width)[0]
    edges = [start + i * length // width for i in range(width + 1)]
    for cell, (begin, end) in enumerate(pairwise(edges)):
        parts = split(timeline, begin, end)
        owned = dict(parts["compute_ns"]) if isinstance(parts["compute_ns"], dict) else {}
        owned["Communication"] = int(str(parts["communication_exposed_ns"]))
        owned["Memory/Copy"] = owned.get("Memory/Copy", 0) + int(str(parts["copy_exposed_ns"]))
        # An overlapped instant belongs to the compute kernel that owns it.
        busy = (end - begin) - int(str(parts["idle_ns"]))
        if end > begin:
            assert device.share[cell] == pytest.approx(busy / (end - begin))
        if parts["overlap_ns"] == 0 and busy:
            assert owned[FAMILIES[int(device.family[cell])]] == max(owned.values())
        if not busy:
            assert device.family[cell] == -1


@given(timelines, st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_streams_show_what_ran_on_them(timeline: list[Event], width: int) -> None:
    rows = lanes(seen_of(timeline), 0, 90, width)[1:]
    streams = sorted({e.stream for e in timeline if e.end > e.start})
    assert [row.name for row in rows] == [f"stream {stream}" for stream in streams]
    for row in rows:
        mine = [e for e in timeline if f"stream {e.stream}" == row.name]
        for cell in range(width):
            begin, end = cell * 90 // width, (cell + 1) * 90 // width
            ran = sum(max(0, min(e.end, end) - max(e.start, begin)) for e in mine)
            assert row.share[cell] == pytest.approx(min(ran / (end - begin), 1))


def test_a_window_without_length_is_refused() -> None:
    seen = seen_of([Event(0, 5, "kernel", "GEMM", 0)])
    with pytest.raises(ValueError, match="length"):
        lanes(seen, 5, 5, 10)
    with pytest.raises(ValueError, match="width"):
        lanes(seen, 0, 5, 0)


def test_a_number_leads_to_its_events(tmp_path: Path) -> None:
    rows = [call("cudaLaunchKernel", 0, 1, correlation=1), kernel("a_gemm", 10, 5, correlation=1)]
    rows += [kernel("a_gemm", 30, 5, correlation=2), kernel("x_rmsnorm", 20, 5, correlation=3)]
    (timeline,) = ingest(write(tmp_path / "t.json", rows)).timelines
    seen = view(timeline)
    found = events_of(seen, family="GEMM")
    assert [(row["start_ns"], row["launched_by"]) for row in found] == [(10_000, "cudaLaunchKernel"), (30_000, None)]
    assert sum(row["length_ns"] for row in found) == seen.algebra.cumulative()["GEMM"]
    assert [row["name"] for row in events_of(seen, start=16_000, end=30_000)] == ["x_rmsnorm"]
    assert len(events_of(seen, name="a_gemm", limit=1)) == 1
    assert events_of(seen, family="nothing") == []


def test_a_real_trace_is_cut_into_any_number_of_cells() -> None:
    (timeline,) = ingest(TRACES / "h800-deepseek-train.json.gz").timelines
    seen = view(timeline)
    start, end = seen.algebra.span()
    for width in (1, 7, 120):
        device, *streams = lanes(seen, start, end, width)
        idle = sum((1 - share) * (end - start) / width for share in device.share)
        assert idle == pytest.approx(seen.algebra.parts().idle_ns, rel=1e-3)
        assert len(streams) == len(np.unique(timeline.events.stream))
