"""A rank's timeline cut into cells for a screen of any width, and the events behind any number.

Nothing is sampled: each cell knows how long each family ran in it, so that a cell of a thousand short kernels shows
what they add up to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from store.analysis.families import COMMUNICATION, MEMORY
from store.analysis.hostside import calls_in_gaps, gaps_of, next_events
from store.analysis.rank import RankView
from store.analysis.timeline import KERNEL, NO_ID, Int


@dataclass(frozen=True)
class Lane:
    """One row of cells. name: a stream, or the device as a whole. family: index into `algebra.families` of what ran
    longest in each cell, -1 where nothing did. share: how much of the cell something ran, 0 to 1."""

    name: str
    family: Int
    share: np.ndarray[Any, np.dtype[np.float64]]


def lanes(seen: RankView, start: int, end: int, width: int) -> list[Lane]:
    """The device and each of its streams in `[start, end)` (ns of the capture), as `width` cells each.

    The device's lane shows the family that owns each instant, as the split does: compute, else communication, else
    copies. ValueError for an empty window or no cells.
    """
    if end <= start or width < 1:
        raise ValueError("a window needs a length and a width")
    edges = start + (np.arange(width + 1, dtype=np.int64) * (end - start)) // width
    events, algebra = seen.timeline.events, seen.algebra
    size = len(algebra.families)
    made = [_device(seen, edges)]
    inside = np.flatnonzero((events.start < end) & (events.end > start) & (events.end > events.start))
    for stream in np.unique(events.stream[inside]).tolist():
        rows = inside[events.stream[inside] == stream]
        sums = _spread(events.start[rows], events.end[rows], algebra.family[rows], edges, size)
        made.append(_lane(f"stream {stream}", sums, edges))
    return made


def _device(seen: RankView, edges: Int) -> Lane:
    algebra = seen.algebra
    size = len(algebra.families)
    owned = algebra.owned
    sums = _spread(owned.start, owned.end, algebra.family[algebra.owner], edges, size)
    begin, stop = edges[:-1], edges[1:]
    computing = algebra.compute.within(begin, stop)
    overlap = _spread_within(seen, edges)
    exposed = algebra.communication.within(begin, stop) - overlap
    sums[algebra.families.index(COMMUNICATION)] += exposed
    sums[algebra.families.index(MEMORY)] += algebra.busy.within(begin, stop) - computing - exposed
    return _lane("device", sums, edges)


def _spread_within(seen: RankView, edges: Int) -> Int:
    """Nanoseconds of each cell in which communication ran beside compute."""
    compute = seen.algebra.compute
    before = seen.algebra.communication
    lengths = before.within(compute.start, compute.end)
    total = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
    at = np.searchsorted(compute.start, edges, side="right") - 1
    known = np.maximum(at, 0)
    if not len(compute.start):
        return np.zeros(len(edges) - 1, dtype=np.int64)
    partly = before.within(compute.start[known], np.minimum(edges, compute.end[known]))
    upto: Int = np.where(at < 0, 0, total[known] + partly)
    return np.diff(upto)


def _spread(begin: Int, stop: Int, family: Int, edges: Int, size: int) -> Int:
    """Nanoseconds of each family in each cell: one row a family, one column a cell."""
    sums = np.zeros((size, len(edges) - 1), dtype=np.int64)
    begin, stop = np.maximum(begin, edges[0]), np.minimum(stop, edges[-1])
    real = stop > begin
    begin, stop, family = begin[real], stop[real], family[real]
    first = np.searchsorted(edges, begin, side="right") - 1
    last = np.searchsorted(edges, stop, side="left") - 1
    count = last - first + 1
    event = np.repeat(np.arange(len(begin)), count)
    cell = np.arange(len(event)) - np.repeat(np.cumsum(count) - count, count) + first[event]
    length = np.minimum(stop[event], edges[cell + 1]) - np.maximum(begin[event], edges[cell])
    np.add.at(sums, (family[event], cell), length)
    return sums


def _lane(name: str, sums: Int, edges: Int) -> Lane:
    busy = sums.sum(axis=0)
    family = np.where(busy > 0, sums.argmax(axis=0), -1)
    return Lane(name, family, np.minimum(busy / np.maximum(np.diff(edges), 1), 1.0))


Between = tuple[int, int | None]
"""A length in ns: not below the first, below the second (None: no end)."""


def events_of(
    seen: RankView,
    *,
    family: str | None = None,
    name: str | None = None,
    start: int | None = None,
    end: int | None = None,
    length: Between | None = None,
    after_gap: Between | None = None,
    gap_call: str | None = None,
    limit: int = 1000,
) -> list[dict[str, Any]]:
    """The events behind a number, in time order; of any of these, or of several together: a family, a name, a window,
    kernels of a length, events that end a device gap of a length, or one that a call of the host reaches into."""
    events, algebra, timeline = seen.timeline.events, seen.algebra, seen.timeline
    mask = np.ones(len(events), dtype=bool)
    if family is not None:
        mask &= algebra.family == (algebra.families.index(family) if family in algebra.families else -2)
    if name is not None:
        mask &= events.name == (timeline.names.index(name) if name in timeline.names else -2)
    if start is not None:
        mask &= events.end > start
    if end is not None:
        mask &= events.start < end
    if length is not None:
        mask &= (events.kind == KERNEL) & _between(events.end - events.start, length)
    if after_gap is not None or gap_call is not None:
        mask &= _ends_gap(seen, after_gap or (0, None), gap_call)
    rows = np.flatnonzero(mask)
    rows = rows[np.argsort(events.start[rows], kind="stable")][:limit]
    return [
        {
            "row": row,
            "name": timeline.names[events.name[row]],
            "family": seen.matches[events.name[row]].family,
            "copy": bool(events.kind[row] != KERNEL),
            "stream": int(events.stream[row]),
            "start_ns": int(events.start[row]),
            "length_ns": int(events.end[row] - events.start[row]),
            "correlation": int(events.correlation[row]),
            "launched_by": _call(seen, int(seen.launch_of[row])),
        }
        for row in rows.tolist()
    ]


def _between(values: Int, bounds: Between) -> np.ndarray[Any, np.dtype[np.bool_]]:
    least, below = bounds
    found: np.ndarray[Any, np.dtype[np.bool_]] = (values >= least) & (values < (below if below is not None else 2**62))
    return found


def _ends_gap(seen: RankView, bounds: Between, call: str | None) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which events end a gap of such a length in which the host was in such a call."""
    begin, stop = gaps_of(seen.algebra.busy)
    wanted = _between(stop - begin, bounds)
    if call is not None:
        rows, gaps, _ = calls_in_gaps(seen, begin, stop)
        names = np.array([name == call for name in seen.timeline.names], dtype=bool)
        inside = np.zeros(len(begin), dtype=bool)
        inside[gaps[names[seen.timeline.calls.name[rows]]]] = True
        wanted &= inside
    mask = np.zeros(len(seen.timeline.events), dtype=bool)
    ends = next_events(seen, stop[wanted])
    mask[ends[ends != NO_ID]] = True
    return mask


def _call(seen: RankView, call: int) -> str | None:
    return None if call == NO_ID else seen.timeline.names[seen.timeline.calls.name[call]]
