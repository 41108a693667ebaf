"""Why the device had nothing to do: each idle nanosecond put down to what the host was doing meanwhile.

A gap ends when the next device event starts. With that event's launch call known, the gap is cut at the call: before it
the host was inside a synchronising call, inside another call, or outside any (Python, scheduler); during it the launch
itself was the cost; after it the work was queued and the device did not start it (latency, a wait on another stream).
The pieces add up to the rank's idle_ns exactly.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from store.analysis.algebra import Cover, cover
from store.analysis.rank import RankView
from store.analysis.timeline import NO_ID, Int

SYNC, CALL, HOST_CODE, LAUNCH, QUEUED, UNKNOWN = "sync", "call", "host_code", "launch_call", "queued", "unknown"
CAUSES: Final = (SYNC, CALL, HOST_CODE, LAUNCH, QUEUED, UNKNOWN)
_SYNC: Final = re.compile(r"synchronize|streamwaitvalue|^(?:cuda|hip|cu)memcpy(?!.*async)|EventQuery", re.I)
_TOP_GAPS: Final = 10
_TOP_CALLS: Final = 25


def gaps_of(busy: Cover) -> tuple[Int, Int]:
    """Start and end of each stretch in which the device ran nothing, between its first and last event."""
    return busy.end[:-1], busy.start[1:]


def host_side(seen: RankView, start: int | None = None, end: int | None = None) -> dict[str, Any]:
    """The causes of idle time of a rank (of a window of it), its largest gaps, and its calls by name."""
    begin, stop = gaps_of(seen.algebra.busy)
    if start is not None and end is not None:
        begin, stop = np.maximum(begin, start), np.minimum(stop, end)
        begin, stop = begin[stop > begin], stop[stop > begin]
    next_row = next_events(seen, stop)
    pieces = _pieces(seen, begin, stop, next_row)
    return {
        "idle_by_cause_ns": {cause: int(ns) for cause, ns in zip(CAUSES, pieces.sum(axis=1), strict=True)},
        "gaps": len(begin),
        "largest_gaps": _largest(seen, begin, stop, next_row, pieces),
        "gap_calls": gap_calls(seen, begin, stop),
        "calls": _calls(seen),
        "os_calls": [
            {"name": name, "count": count, "total_ns": total} for name, (count, total) in seen.timeline.os_calls.items()
        ],
    }


def next_events(seen: RankView, stop: Int) -> Int:
    """The device event that ends each gap: of those that start then, the first by stream and file order."""
    events = seen.timeline.events
    order = np.lexsort((events.stream, events.start))
    order = order[events.end[order] > events.start[order]]
    starts = events.start[order]
    if not len(order):
        return np.full(len(stop), NO_ID, dtype=np.int64)
    at = np.minimum(np.searchsorted(starts, stop, side="left"), len(order) - 1)
    found: Int = np.where(starts[at] == stop, order[at], NO_ID)
    return found


def _pieces(seen: RankView, begin: Int, stop: Int, next_row: Int) -> Int:
    """Nanoseconds of each gap by cause: one row a cause, one column a gap."""
    calls = seen.timeline.calls
    pieces = np.zeros((len(CAUSES), len(begin)), dtype=np.int64)
    launch = np.where(next_row == NO_ID, NO_ID, seen.launch_of[np.maximum(next_row, 0)])
    known = launch != NO_ID
    pieces[5, ~known] = (stop - begin)[~known]
    if not known.any():
        return pieces
    a, b, call = begin[known], stop[known], launch[known]
    called = np.clip(calls.start[call], a, b)
    returned = np.clip(calls.end[call], called, b)
    sync, any_call = np.zeros_like(a), np.zeros_like(a)
    waits = np.array([bool(_SYNC.search(name)) for name in seen.timeline.names], dtype=bool)[calls.name]
    for thread in np.unique(calls.thread[call]).tolist():
        mine = calls.thread[call] == thread
        own = calls.thread == thread
        window = a[mine], called[mine]
        sync[mine] = cover(calls.start[own & waits], calls.end[own & waits]).within(*window)
        any_call[mine] = cover(calls.start[own], calls.end[own]).within(*window)
    pieces[:5, known] = [sync, any_call - sync, called - a - any_call, returned - called, b - returned]
    return pieces


def _largest(seen: RankView, begin: Int, stop: Int, next_row: Int, pieces: Int) -> list[dict[str, Any]]:
    timeline = seen.timeline
    shown = []
    for i in np.argsort(begin - stop, kind="stable")[:_TOP_GAPS].tolist():
        row = int(next_row[i])
        launch = int(seen.launch_of[row]) if row != NO_ID else NO_ID
        thread = int(timeline.calls.thread[launch]) if launch != NO_ID else NO_ID
        shown.append(
            {
                "start_ns": int(begin[i]),
                "length_ns": int(stop[i] - begin[i]),
                "cause": CAUSES[int(pieces[:, i].argmax())],
                "call_inside": _call_inside(seen, int(begin[i]), int(stop[i]), thread),
                "next": timeline.names[timeline.events.name[row]] if row != NO_ID else None,
                "launched_by": timeline.names[timeline.calls.name[launch]] if launch != NO_ID else None,
            }
        )
    return shown


def _call_inside(seen: RankView, begin: int, stop: int, thread: int) -> dict[str, Any] | None:
    """The call of the launching thread (of any, if unknown) that covers most of a gap."""
    calls = seen.timeline.calls
    inside = np.minimum(calls.end, stop) - np.maximum(calls.start, begin)
    if thread != NO_ID:
        inside = np.where(calls.thread == thread, inside, 0)
    if not len(inside) or inside.max() <= 0:
        return None
    best = int(inside.argmax())
    return {"name": seen.timeline.names[calls.name[best]], "covered_ns": int(inside[best])}


def calls_in_gaps(seen: RankView, begin: Int, stop: Int) -> tuple[Int, Int, Int]:
    """What the launching threads called while the device had nothing to do: rows of a call, a gap that it reaches into,
    and for how many ns. A call inside another one stands beside it."""
    calls = seen.timeline.calls
    empty = np.zeros(0, dtype=np.int64)
    if not len(begin) or not len(seen.launch_calls):
        return empty, empty, empty
    mine = np.flatnonzero(np.isin(calls.thread, np.unique(calls.thread[seen.launch_calls])))
    first = np.searchsorted(stop, calls.start[mine], side="right")
    last = np.searchsorted(begin, calls.end[mine], side="left")
    count = np.maximum(last - first, 0)
    row = np.repeat(mine, count)
    gap = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    covered = np.minimum(calls.end[row], stop[gap]) - np.maximum(calls.start[row], begin[gap])
    return row, gap, covered


def gap_calls(seen: RankView, begin: Int, stop: Int) -> list[dict[str, Any]]:
    """Calls of the launching threads by the idle time they cover: in how many gaps, how many ns; nested ones twice."""
    calls, names = seen.timeline.calls, seen.timeline.names
    row, gap, covered = calls_in_gaps(seen, begin, stop)
    sums, gaps = np.zeros(len(names), dtype=np.int64), np.zeros(len(names), dtype=np.int64)
    np.add.at(sums, calls.name[row], covered)
    pairs = np.unique(np.stack([calls.name[row], gap]), axis=1)
    np.add.at(gaps, pairs[0], 1)
    return [
        {"name": names[i], "gaps": int(gaps[i]), "covered_ns": int(sums[i])}
        for i in sorted(np.flatnonzero(sums).tolist(), key=lambda i: -int(sums[i]))[:_TOP_CALLS]
    ]


def _calls(seen: RankView) -> list[dict[str, Any]]:
    calls = seen.timeline.calls
    if not len(calls):
        return []
    length = calls.end - calls.start
    size = len(seen.timeline.names)
    count = np.bincount(calls.name, minlength=size)
    total, longest = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    np.add.at(total, calls.name, length)
    np.maximum.at(longest, calls.name, length)
    return [
        {
            "name": seen.timeline.names[i],
            "count": int(count[i]),
            "total_ns": int(total[i]),
            "mean_ns": round(int(total[i]) / int(count[i])),
            "max_ns": int(longest[i]),
        }
        for i in sorted(np.flatnonzero(count).tolist(), key=lambda i: -int(total[i]))[:_TOP_CALLS]
    ]


def launch_delay(seen: RankView) -> dict[str, int | None]:
    """Time from the start of a launch call to the start of the first event it launched: median and P95, ns.

    One value a launch: the later kernels of a graph replay wait for their graph, not for the host.
    """
    known = np.flatnonzero(seen.launch_of != NO_ID)
    if not len(known):
        return {"median_ns": None, "p95_ns": None, "launches": 0}
    events, calls = seen.timeline.events, seen.timeline.calls
    order = known[np.lexsort((events.start[known], seen.launch_of[known]))]
    launch, first = np.unique(seen.launch_of[order], return_index=True)
    delay = events.start[order[first]] - calls.start[launch]
    low, high = np.percentile(delay, [50, 95])
    return {"median_ns": round(low), "p95_ns": round(high), "launches": len(launch)}
