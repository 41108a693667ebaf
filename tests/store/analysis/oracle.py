"""The split of a device's wall clock by visiting every nanosecond: slow, obvious, from the definition alone."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

COMMUNICATION = "Communication"


@dataclass(frozen=True)
class Event:
    """start, end: ns. kind: kernel, memcpy or memset. family: of a kernel."""

    start: int
    end: int
    kind: str
    family: str
    stream: int


def split(events: list[Event], start: int, end: int) -> dict[str, int | dict[str, int]]:
    """Every instant in `[start, end)` put into exactly one part."""
    compute: dict[str, int] = {}
    parts = {"overlap_ns": 0, "communication_exposed_ns": 0, "copy_exposed_ns": 0, "idle_ns": 0}
    for instant in range(start, end):
        running = [(i, e) for i, e in enumerate(events) if e.start <= instant < e.end]
        kernels = [(i, e) for i, e in running if e.kind == "kernel"]
        communicating = any(e.family == COMMUNICATION for _, e in kernels)
        computing = [(e.start, e.stream, i, e.family) for i, e in kernels if e.family != COMMUNICATION]
        if computing and communicating:
            parts["overlap_ns"] += 1
        elif computing:
            family = min(computing)[3]
            compute[family] = compute.get(family, 0) + 1
        elif communicating:
            parts["communication_exposed_ns"] += 1
        elif running:
            parts["copy_exposed_ns"] += 1
        else:
            parts["idle_ns"] += 1
    return {"wall_ns": end - start, "compute_ns": compute, **parts}


def sweep(events: list[Event]) -> dict[str, int | dict[str, int]]:
    """The same split for real captures: each stretch between two neighbouring event edges is judged by itself."""
    edges = sorted({edge for event in events for edge in (event.start, event.end)})
    waiting = sorted(range(len(events)), key=lambda i: events[i].start)
    running: list[int] = []
    compute: dict[str, int] = {}
    parts = {"overlap_ns": 0, "communication_exposed_ns": 0, "copy_exposed_ns": 0, "idle_ns": 0}
    place = 0
    for start, end in pairwise(edges):
        while place < len(waiting) and events[waiting[place]].start <= start:
            running.append(waiting[place])
            place += 1
        running = [i for i in running if events[i].end > start]
        kernels = [i for i in running if events[i].kind == "kernel"]
        computing = [i for i in kernels if events[i].family != COMMUNICATION]
        length = end - start
        if computing and len(computing) < len(kernels):
            parts["overlap_ns"] += length
        elif computing:
            owner = min(computing, key=lambda i: (events[i].start, events[i].stream, i))
            compute[events[owner].family] = compute.get(events[owner].family, 0) + length
        elif kernels:
            parts["communication_exposed_ns"] += length
        elif running:
            parts["copy_exposed_ns"] += length
        else:
            parts["idle_ns"] += length
    return {"wall_ns": edges[-1] - edges[0], "compute_ns": compute, **parts}
