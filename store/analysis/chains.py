"""Chains of small kernels: how short the kernels are, how short the gaps, and how long the device lives on crumbs."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from store.analysis.hostside import gaps_of
from store.analysis.rank import RankView
from store.analysis.timeline import KERNEL, Int, column

SMALL_NS: Final = 10_000
NEAR_NS: Final = 5_000
_DURATIONS: Final = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 1_000_000)
_GAPS: Final = (500, 1_000, 2_000, 5_000, 10_000, 50_000, 200_000, 1_000_000)
_CHAIN: Final = 5


def chains(seen: RankView) -> dict[str, Any]:
    """Histograms of kernel lengths and device gaps, and the chains: five or more kernels under 10 us in a row with less
    than 5 us of nothing between them."""
    events = seen.timeline.events
    kernels = np.flatnonzero(events.kind == KERNEL)
    length = events.end[kernels] - events.start[kernels]
    begin, stop = gaps_of(seen.algebra.busy)
    small = length < SMALL_NS
    return {
        "kernel_lengths": _histogram(length, _DURATIONS),
        "device_gaps": _histogram(stop - begin, _GAPS),
        "under_10us": int(small.sum()),
        "under_10us_share": round(float(small.mean()), 6) if len(small) else None,
        "under_10us_time_share": round(float(length[small].sum() / length.sum()), 6) if length.sum() else None,
        **_runs(events.start[kernels], events.end[kernels]),
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


def _runs(start: Int, end: Int) -> dict[str, int]:
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    if not len(start):
        return {"chains": 0, "kernels_in_chains": 0, "longest_chain": 0, "chain_wall_ns": 0}
    small = end - start < SMALL_NS
    reach = np.maximum.accumulate(end)
    joined = np.concatenate(([False], small[1:] & small[:-1] & (start[1:] - reach[:-1] < NEAR_NS)))
    run = np.cumsum(~joined)
    sizes = np.bincount(run[small], minlength=int(run[-1]) + 1)
    long = np.flatnonzero(sizes >= _CHAIN)
    first = np.searchsorted(run, long, side="left")
    last = np.searchsorted(run, long, side="right") - 1
    return {
        "chains": len(long),
        "kernels_in_chains": int(sizes[long].sum()),
        "longest_chain": int(sizes.max()),
        "chain_wall_ns": int((end[last] - start[first]).sum()),
    }
