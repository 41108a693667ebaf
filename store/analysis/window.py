"""A window of a capture: its split, and the same window as a Chrome trace that Perfetto opens.

The trace is written from what a timeline keeps, so nothing else of the capture (environment, paths, stacks) leaves.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from store.analysis.rank import RankView, parts_json
from store.analysis.timeline import KERNEL, NO_ID

_KINDS = {0: "kernel", 1: "gpu_memcpy", 2: "gpu_memset"}


def window_json(seen: RankView, start: int, end: int) -> dict[str, Any]:
    """The split of a window of a rank (ns since the rank's first device event), clipped to the rank's own span."""
    first, last = seen.algebra.span()
    begin, stop = min(max(first + start, first), last), min(max(first + end, first), last)
    parts = parts_json(seen.algebra.parts(begin, max(begin, stop)))
    return {**parts, "start_ns": begin - first, "end_ns": max(begin, stop) - first}


def write_perfetto(out: Path, views: Sequence[RankView], start: int | None = None, end: int | None = None) -> int:
    """Write a window (ns since each rank's first device event; all by default) as Chrome JSON, gzip if so named.

    One process a rank with a thread a stream, one for its host threads; launches tied to their work by flows. Returns
    the number of events. OSError if the file cannot be written.
    """
    count = 0
    # Small numbers in the file: a double keeps their nanoseconds, and the base puts them back on the wall clock.
    zero = min((seen.algebra.span()[0] + _base(seen) for seen in views), default=0)
    head = b'{"displayTimeUnit":"ns","baseTimeNanoseconds":%d,"traceEvents":[\n' % zero
    with gzip.open(out, "wb") if out.suffix == ".gz" else out.open("wb") as file:
        file.write(head)
        for number, seen in enumerate(views):
            for event in _events(number, seen, zero, start, end):
                file.write((b",\n" if count else b"") + orjson.dumps(event))
                count += 1
        file.write(b"\n]}\n")
    return count


def _base(seen: RankView) -> int:
    return seen.timeline.base_ns or 0


def _events(number: int, seen: RankView, zero: int, start: int | None, end: int | None) -> Iterator[dict[str, Any]]:
    timeline = seen.timeline
    events, calls, names = timeline.events, timeline.calls, timeline.names
    first, last = seen.algebra.span()
    begin = first if start is None else first + start
    stop = last if end is None else first + end
    base = _base(seen) - zero
    device, host = 2 * number, 2 * number + 1
    title = f"rank {timeline.rank}" if timeline.rank is not None else timeline.file
    yield _named(device, f"{title}: device {timeline.device}")
    yield _named(host, f"{title}: host")
    rows = np.flatnonzero((events.start < stop) & (events.end > begin))
    for row in rows.tolist():
        yield {
            "ph": "X",
            "cat": _KINDS[int(events.kind[row])],
            "name": names[events.name[row]],
            "pid": device,
            "tid": int(events.stream[row]),
            **_when(int(events.start[row]), int(events.end[row]), base),
            "args": {
                "family": seen.matches[events.name[row]].family,
                "stream": int(events.stream[row]),
                "correlation": int(events.correlation[row]),
                **({} if events.kind[row] == KERNEL else {"bytes": int(events.size[row])}),
            },
        }
    launches = seen.launch_of[rows]
    shown = np.union1d(
        np.unique(launches[launches != NO_ID]), np.flatnonzero((calls.start < stop) & (calls.end > begin))
    )
    for call in shown.tolist():
        yield {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": names[calls.name[call]],
            "pid": host,
            "tid": int(calls.thread[call]),
            **_when(int(calls.start[call]), int(calls.end[call]), base),
            "args": {"correlation": int(calls.correlation[call])},
        }
    for row, call in zip(rows.tolist(), launches.tolist(), strict=True):
        if call != NO_ID:
            flow = {"id": row, "cat": "ac2g", "name": "ac2g"}
            at_call, at_row = _us(int(calls.start[call]), base), _us(int(events.start[row]), base)
            yield {"ph": "s", **flow, "pid": host, "tid": int(calls.thread[call]), "ts": at_call}
            yield {"ph": "f", "bp": "e", **flow, "pid": device, "tid": int(events.stream[row]), "ts": at_row}
    for where in timeline.ranges:
        if where.start < stop and where.end > begin:
            span = _when(where.start, where.end, base)
            yield {"ph": "X", "cat": "user_annotation", "name": where.name, "pid": host, "tid": where.thread, **span}


def _named(pid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}


def _when(start: int, end: int, base: int) -> dict[str, float]:
    return {"ts": _us(start, base), "dur": (end - start) / 1000}


def _us(ns: int, base: int) -> float:
    """Microseconds since the file's base."""
    return (ns + base) / 1000
