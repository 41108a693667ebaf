"""Chains of small kernels: how short the kernels are, how short the gaps, and how long the device lives on crumbs."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from store.analysis.hostside import gaps_of
from store.analysis.rank import RankView
from store.analysis.timeline import KERNEL, NO_ID, Int, column

SMALL_NS: Final = 10_000
NEAR_NS: Final = 5_000
_DURATIONS: Final = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 1_000_000)
_GAPS: Final = (500, 1_000, 2_000, 5_000, 10_000, 50_000, 200_000, 1_000_000)
_CHAIN: Final = 5
_SHOWN: Final = 50


def chains(seen: RankView) -> dict[str, Any]:
    """Histograms of kernel lengths and device gaps, and the chains: five or more kernels under 10 us in a row, each
    begun less than 5 us after the end of the one before; `longest_chains` are those with the most kernels."""
    events = seen.timeline.events
    kernels = np.flatnonzero(events.kind == KERNEL)
    length = events.end[kernels] - events.start[kernels]
    begin, stop = gaps_of(seen.algebra.busy)
    return {
        "kernel_lengths": _histogram(length, _DURATIONS),
        "device_gaps": _histogram(stop - begin, _GAPS),
        **small_share(length),
        **_runs(seen, kernels),
    }


def small_share(length: Int) -> dict[str, Any]:
    """How many kernels of these lengths last less than 10 us: count, share of the kernels, share of their time."""
    small = length < SMALL_NS
    total = int(length.sum())
    return {
        "under_10us": int(small.sum()),
        "under_10us_share": round(float(small.mean()), 6) if len(small) else None,
        "under_10us_time_share": round(int(length[small].sum()) / total, 6) if total else None,
    }


def _histogram(values: Int, edges: tuple[int, ...]) -> list[dict[str, int | None]]:
    """Count and summed ns below each edge (and not below the one before); the last row has no edge."""
    place = np.searchsorted(column(edges), values, side="right")
    counts = np.bincount(place, minlength=len(edges) + 1)
    sums = np.zeros(len(edges) + 1, dtype=np.int64)
    np.add.at(sums, place, values)
    return [
        {"below_ns": edge, "count": int(count), "total_ns": int(total)}
        for edge, count, total in zip((*edges, None), counts, sums, strict=True)
    ]


def _runs(seen: RankView, kernels: Int) -> dict[str, Any]:
    events = seen.timeline.events
    kernels = kernels[np.argsort(events.start[kernels], kind="stable")]
    start, end = events.start[kernels], events.end[kernels]
    if not len(start):
        return {"chains": 0, "kernels_in_chains": 0, "longest_chain": 0, "chain_wall_ns": 0, "longest_chains": []}
    small = end - start < SMALL_NS
    joined = np.concatenate(([False], small[1:] & small[:-1] & (start[1:] - end[:-1] < NEAR_NS)))
    run = np.cumsum(~joined)
    sizes = np.bincount(run[small], minlength=int(run[-1]) + 1)
    long = np.flatnonzero(sizes >= _CHAIN)
    first = np.searchsorted(run, long, side="left")
    last = np.searchsorted(run, long, side="right") - 1
    # A chain ends with its last end: of kernels on several streams that need not be the last started.
    until = column([end[a : b + 1].max() for a, b in zip(first, last, strict=True)])
    order = np.lexsort((first, -sizes[long]))[:_SHOWN]
    return {
        "chains": len(long),
        "kernels_in_chains": int(sizes[long].sum()),
        "longest_chain": int(sizes.max()),
        "chain_wall_ns": int((until - start[first]).sum()),
        "longest_chains": [
            _chain(seen, kernels[first[i] : last[i] + 1], int(start[first[i]]), int(until[i])) for i in order.tolist()
        ],
    }


def _chain(seen: RankView, rows: Int, start: int, end: int) -> dict[str, Any]:
    """One chain: where, how many kernels from how many launches, how much of it the device was idle, its ends."""
    timeline = seen.timeline
    launches = seen.launch_of[rows]
    names = timeline.events.name[rows]
    busy = int(seen.algebra.busy.within(column([start]), column([end]))[0])
    return {
        "start_ns": start,
        "wall_ns": end - start,
        "kernels": len(rows),
        "launches": len(np.unique(launches[launches != NO_ID])),
        "idle_ns": end - start - busy,
        "first": timeline.names[names[0]],
        "last": timeline.names[names[-1]],
    }
