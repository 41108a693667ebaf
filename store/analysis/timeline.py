"""One rank's profile in columns: what every kind of capture is read into and every analysis works on.

Times are integer nanoseconds since the capture's own zero; `base_ns` is what must be added for the wall clock
(0 when the capture's times are absolute already, None when it cannot be known).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]

KERNEL, MEMCPY, MEMSET = 0, 1, 2
"""`DeviceEvents.kind`: what ran on the device."""

NO_ID = -1
"""A correlation, thread or stream that the capture did not give."""


@dataclass(frozen=True)
class DeviceEvents:
    """Kernels, copies and fills of one device, in file order; columns of equal length.

    start, end: ns. name: index into `Timeline.names`. kind: KERNEL, MEMCPY, MEMSET. stream, correlation: as recorded
    or NO_ID. size: bytes moved by a copy, 0 otherwise. graph: True where the capture says that a graph launched it.
    """

    start: Int
    end: Int
    name: Int
    kind: Int
    stream: Int
    correlation: Int
    size: Int
    graph: NDArray[np.bool_]

    @classmethod
    def of(cls, rows: Int) -> DeviceEvents:
        """From eight stacked rows, one a column in the order above."""
        start, end, name, kind, stream, correlation, size, graph = rows[:8]
        return cls(start, end, name, kind, stream, correlation, size, graph.astype(bool))

    def __len__(self) -> int:
        return len(self.start)

    def take(self, index: NDArray[Any]) -> DeviceEvents:
        """The rows that an index or a mask selects, in that order."""
        return DeviceEvents(*(getattr(self, column)[index] for column in self.__dataclass_fields__))


@dataclass(frozen=True)
class HostCalls:
    """Runtime and driver calls, in file order. thread: index into `Timeline.threads`."""

    start: Int
    end: Int
    name: Int
    correlation: Int
    thread: Int

    def __len__(self) -> int:
        return len(self.start)

    def take(self, index: NDArray[Any]) -> HostCalls:
        """The rows that an index or a mask selects, in that order."""
        return HostCalls(*(getattr(self, column)[index] for column in self.__dataclass_fields__))


@dataclass(frozen=True)
class Range:
    """A named range of a host thread: an annotation, an NVTX range. Times in ns."""

    name: str
    start: int
    end: int
    thread: int


@dataclass(frozen=True)
class CollectiveArgs:
    """What the framework wrote beside a communication kernel. None: not recorded."""

    operation: str | None = None
    group: str | None = None
    ranks: str | None = None
    group_size: int | None = None
    sequence: int | None = None
    elements_in: int | None = None
    elements_out: int | None = None
    dtype: str | None = None


@dataclass
class Timeline:
    """Everything that is kept of one rank's device in one capture."""

    file: str
    source: str
    events: DeviceEvents
    calls: HostCalls
    names: list[str]
    threads: list[str]
    rank: int | None = None
    device: int | None = None
    label: str | None = None
    base_ns: int | None = None
    world_size: int | None = None
    ranges: list[Range] = field(default_factory=list)
    collectives: dict[int, CollectiveArgs] = field(default_factory=dict)
    os_calls: dict[str, tuple[int, int]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@dataclass
class Ingest:
    """What one file gave: a timeline per rank and device, and what was wrong with it in plain sentences."""

    timelines: list[Timeline] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def column(values: Any = ()) -> Int:
    """An int64 column."""
    return np.asarray(values, dtype=np.int64)
