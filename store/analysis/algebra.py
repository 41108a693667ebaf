"""Where a device's wall clock went: every instant in exactly one part, in integer nanoseconds.

The definitions are DESIGN section 4's. At an instant with compute running, the earliest-started compute kernel owns it
(equal starts: lower stream, then file order). Sorted that way, kernel i has `[max(start_i, latest end before), end_i)`,
so one sort and a running maximum give the owners, and everything else is measure of unions; no instant is visited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from store.analysis.families import COMMUNICATION
from store.analysis.timeline import KERNEL, DeviceEvents, Int, column


@dataclass(frozen=True)
class Cover:
    """A union of intervals: disjoint, sorted `[start, end)`, with the length covered before each of them."""

    start: Int
    end: Int
    before: Int

    def upto(self, instant: Int) -> Int:
        """Covered nanoseconds before each instant."""
        if not len(self.start):
            return np.zeros_like(instant)
        i = np.searchsorted(self.start, instant, side="right") - 1
        inside = np.minimum(instant, self.end[np.maximum(i, 0)]) - self.start[np.maximum(i, 0)]
        return np.where(i < 0, 0, self.before[np.maximum(i, 0)] + inside)

    def within(self, start: Int, end: Int) -> Int:
        """Covered nanoseconds inside each `[start, end)`."""
        return self.upto(end) - self.upto(start)

    @property
    def total(self) -> int:
        """Covered nanoseconds in all."""
        return int((self.end - self.start).sum())


def cover(start: Int, end: Int) -> Cover:
    """The union of intervals; those without length cover nothing."""
    real = end > start
    order = np.argsort(start[real], kind="stable")
    start, end = start[real][order], end[real][order]
    if not len(start):
        return Cover(column(), column(), column())
    reach = np.maximum.accumulate(end)
    first = np.concatenate(([True], start[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    start, end = start[first], reach[last]
    length = end - start
    return Cover(start, end, np.concatenate((column([0]), np.cumsum(length)[:-1])))


@dataclass(frozen=True)
class Parts:
    """One window's wall clock, split; the parts sum to wall_ns. All ns, families with no time left out."""

    start_ns: int
    end_ns: int
    compute_ns: Mapping[str, int]
    overlap_ns: int
    communication_exposed_ns: int
    copy_exposed_ns: int
    idle_ns: int

    @property
    def wall_ns(self) -> int:
        """First start to last end."""
        return self.end_ns - self.start_ns


@dataclass
class Algebra:
    """The time algebra of one device. families: the family of each event; communication and compute by that."""

    events: DeviceEvents
    families: Sequence[str]
    family: Int
    communication: Cover = field(init=False)
    compute: Cover = field(init=False)
    busy: Cover = field(init=False)
    owner: Int = field(init=False)
    owned: Cover = field(init=False)

    def __post_init__(self) -> None:
        events = self.events
        kernel = events.kind == KERNEL
        is_communication = kernel & (self.family == self._index(COMMUNICATION))
        compute = np.flatnonzero(kernel & ~is_communication & (events.end > events.start))
        self.communication = cover(events.start[is_communication], events.end[is_communication])
        self.compute = cover(events.start[compute], events.end[compute])
        self.busy = cover(events.start, events.end)
        # File order is the row order, and lexsort is stable.
        compute = compute[np.lexsort((events.stream[compute], events.start[compute]))]
        end = events.end[compute]
        reach = np.maximum.accumulate(end) if len(end) else end
        begin = (
            np.maximum(events.start[compute], np.concatenate((column([np.iinfo(np.int64).min]), reach[:-1])))
            if len(end)
            else end
        )
        owns = begin < end
        self.owner = compute[owns]
        begin, end = begin[owns], end[owns]
        length = end - begin
        before = np.concatenate((column([0]), np.cumsum(length)[:-1])) if len(length) else length
        self.owned = Cover(begin, end, before)

    def _index(self, family: str) -> int:
        return self.families.index(family) if family in self.families else -1

    def span(self) -> tuple[int, int]:
        """First start and last end of all device events."""
        return int(self.events.start.min()), int(self.events.end.max())

    def parts(self, start: int | None = None, end: int | None = None) -> Parts:
        """The split of a window, of the whole capture by default. Events are clipped to the window; an instant's owner
        is the kernel that really started first, so the parts of windows that tile a capture add up to the capture's."""
        if start is None or end is None:
            start, end = self.span()
        lo = int(np.searchsorted(self.owned.end, start, side="right"))
        hi = int(np.searchsorted(self.owned.start, end, side="left"))
        begin, stop = np.maximum(self.owned.start[lo:hi], start), np.minimum(self.owned.end[lo:hi], end)
        overlapped = self.communication.within(begin, stop)
        alone = stop - begin - overlapped
        sums = np.zeros(len(self.families), dtype=np.int64)
        np.add.at(sums, self.family[self.owner[lo:hi]], alone)
        window = column([start]), column([end])
        overlap = int(overlapped.sum())
        exposed = int(self.communication.within(*window)[0]) - overlap
        busy = int(self.busy.within(*window)[0])
        computing = int((stop - begin).sum())
        return Parts(
            start_ns=start,
            end_ns=end,
            compute_ns={name: int(ns) for name, ns in zip(self.families, sums, strict=True) if ns},
            overlap_ns=overlap,
            communication_exposed_ns=exposed,
            copy_exposed_ns=busy - computing - exposed,
            idle_ns=end - start - busy,
        )

    def cumulative(self, rows: Int | None = None) -> dict[str, int]:
        """Summed durations per family of some events (rows) or all, copies included: more than the wall clock where
        streams overlap."""
        events = self.events
        chosen = slice(None) if rows is None else rows
        family, length = self.family[chosen], events.end[chosen] - events.start[chosen]
        sums = np.zeros(len(self.families), dtype=np.int64)
        np.add.at(sums, family, length)
        return {name: int(ns) for name, ns in zip(self.families, sums, strict=True) if ns}
