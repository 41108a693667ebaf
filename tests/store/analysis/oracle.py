"""The split of a device's wall clock by visiting every nanosecond: slow, obvious, from the definition alone."""

from __future__ import annotations

from dataclasses import dataclass

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
