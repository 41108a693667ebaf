"""The time algebra against an instant-by-instant count on random timelines, part by part."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from store.analysis.algebra import Algebra, cover
from store.analysis.families import FAMILIES
from store.analysis.rank import parts_json
from store.analysis.timeline import KERNEL, MEMCPY, MEMSET, DeviceEvents, column
from tests.store.analysis.oracle import Event, split

KINDS = {"kernel": KERNEL, "memcpy": MEMCPY, "memset": MEMSET}

events = st.builds(
    lambda start, length, kind, family, stream: Event(start, start + length, kind, family, stream),
    st.integers(0, 60),
    st.integers(0, 25),
    st.sampled_from(["kernel", "kernel", "kernel", "memcpy", "memset"]),
    st.sampled_from(["Communication", "GEMM", "MoE", "Memory/Copy", "Other"]),
    st.integers(0, 3),
)
timelines = st.lists(events, min_size=1, max_size=14)


def algebra_of(timeline: list[Event], shift: int = 0) -> Algebra:
    """The algebra of a list of events; copies are of the family Memory/Copy, as their names are."""
    family = [FAMILIES.index(e.family if e.kind == "kernel" else "Memory/Copy") for e in timeline]
    size = len(timeline)
    return Algebra(
        DeviceEvents(
            start=column([e.start + shift for e in timeline]),
            end=column([e.end + shift for e in timeline]),
            name=column(range(size)),
            kind=column([KINDS[e.kind] for e in timeline]),
            stream=column([e.stream for e in timeline]),
            correlation=column([-1] * size),
            size=column([0] * size),
            graph=np.zeros(size, dtype=bool),
        ),
        FAMILIES,
        column(family),
    )


@given(timelines)
@settings(max_examples=150, deadline=None)
def test_each_part_is_what_an_instant_by_instant_count_gives(timeline: list[Event]) -> None:
    start, end = min(e.start for e in timeline), max(e.end for e in timeline)
    assert parts_json(algebra_of(timeline).parts()) == split(timeline, start, end)


@given(timelines, st.integers(-5, 90), st.integers(0, 60))
@settings(max_examples=150, deadline=None)
def test_a_window_is_split_like_the_whole(timeline: list[Event], start: int, length: int) -> None:
    assert parts_json(algebra_of(timeline).parts(start, start + length)) == split(timeline, start, start + length)


@given(timelines, st.lists(st.integers(0, 90), max_size=5))
@settings(max_examples=60, deadline=None)
def test_windows_that_tile_a_capture_add_up_to_it(timeline: list[Event], cuts: list[int]) -> None:
    algebra = algebra_of(timeline)
    start, end = algebra.span()
    edges = sorted({start, end, *(cut for cut in cuts if start < cut < end)})
    tiles = [algebra.parts(a, b) for a, b in pairwise(edges)]
    whole = algebra.parts()
    for part in ("overlap_ns", "communication_exposed_ns", "copy_exposed_ns", "idle_ns", "wall_ns"):
        assert sum(getattr(tile, part) for tile in tiles) == getattr(whole, part)
    for family in FAMILIES:
        assert sum(tile.compute_ns.get(family, 0) for tile in tiles) == whole.compute_ns.get(family, 0)


@given(timelines)
@settings(max_examples=40, deadline=None)
def test_nothing_is_lost_at_epoch_size_times(timeline: list[Event]) -> None:
    """A double holds 1.7e18 ns only in steps of 256; integers must carry through."""
    near, far = algebra_of(timeline).parts(), algebra_of(timeline, 1_712_195_495_505_582_987).parts()
    assert parts_json(near) == parts_json(far)


def test_equal_starts_go_to_the_lower_stream_then_to_the_first_in_the_file() -> None:
    timeline = [
        Event(0, 10, "kernel", "MoE", 7),
        Event(0, 6, "kernel", "GEMM", 3),
        Event(0, 4, "kernel", "Other", 3),
    ]
    assert algebra_of(timeline).parts().compute_ns == {"GEMM": 6, "MoE": 4}


def test_summed_durations_show_what_ran_twice_at_once() -> None:
    timeline = [Event(0, 10, "kernel", "GEMM", 0), Event(0, 10, "kernel", "GEMM", 1)]
    algebra = algebra_of(timeline)
    assert algebra.cumulative() == {"GEMM": 20}
    assert algebra.parts().compute_ns == {"GEMM": 10}


def test_a_cover_measures_inside_any_interval() -> None:
    union = cover(column([10, 12, 30, 40, 5]), column([20, 15, 35, 40, 5]))
    assert union.total == 15
    assert union.within(column([0, 14, 21, 33]), column([100, 31, 29, 34])).tolist() == [15, 7, 0, 1]
