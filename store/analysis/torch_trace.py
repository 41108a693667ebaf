"""Reads torch profiler (Kineto) traces of every vintage into timelines: CUDA, ROCm, plug-in back ends, Ascend views.

What the format means, by version, is written down in the field notes of this project; the parts that matter here:
`ts` and `dur` are microseconds whatever `displayTimeUnit` says; before 2024-05 they are absolute, afterwards relative
to `baseTimeNanoseconds`; categories were capitalised until 2022; a graph replay gives all its kernels one correlation.
"""

from __future__ import annotations

import gc
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from store.analysis.bytestream import Packed
from store.analysis.events import UNREADABLE, Batch, Event, EventStream
from store.analysis.timeline import (
    KERNEL,
    MEMCPY,
    MEMSET,
    CollectiveArgs,
    DeviceEvents,
    HostCalls,
    Ingest,
    Int,
    Range,
    Timeline,
    column,
)
from store.analysis.torch_meta import facts_of, file_rank, label_ranks, meta_of
from store.analysis.values import as_count, as_number, ids

_CALL, _RANGE = 10, 11
_CODES: Final = {
    "kernel": KERNEL,
    "mtia_ccp_events": KERNEL,
    "hpu_op": KERNEL,
    "gpu_memcpy": MEMCPY,
    "memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "memset": MEMSET,
    "user_annotation": _RANGE,
    "runtime": _CALL,
    **{
        f"{who}_{what}": _CALL
        for who in ("cuda", "xpu", "mtia", "privateuse1", "glow")
        for what in ("runtime", "driver")
    },
}
_ASCEND_TASKS: Final = re.compile(
    r"AI_?C(?:ORE|PU)|AI_?VECTOR|MIX_AI|AIV|AIC|HCCL|COMMUNICATION|SDMA|MEMCPY|FFTS|DSA", re.I
)
_MERGED: Final = re.compile(r"^\[([^\]]{1,40})\]")
_NS_EPOCH: Final = 1e17
"""No microsecond count of our era is above this; nanosecond counts are."""
_MAX_NS: Final = 9.2e18
_MAX_NAME: Final = 16_384
"""No kernel's name is longer; rules and screens are not made for one that is."""


@dataclass
class _Rows:
    """Columns of one process group of a file while they grow."""

    device: list[tuple[Any, ...]] = field(default_factory=list)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    ranges: list[tuple[Any, ...]] = field(default_factory=list)
    device_parts: list[Int] = field(default_factory=list)
    call_parts: list[Int] = field(default_factory=list)
    found_ranges: list[Range] = field(default_factory=list)
    collectives: dict[int, CollectiveArgs] = field(default_factory=dict)
    rows: int = 0


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.names: dict[str, int] = {}
        self.threads: dict[tuple[Any, Any], int] = {}
        self.groups: dict[str | None, _Rows] = {}
        self.dropped = 0
        self.in_ns = False
        self.speeds: list[float] = []

    def read(self) -> Ingest:
        packed = Packed(self.path)
        stream = EventStream(packed)
        for batch in stream:
            if batch.events:
                self._collect(batch.events)
                self._flush(*self._times(batch))
        found = Ingest()
        if packed.problem:
            found.problems.append(packed.problem)
        if not stream.found:
            found.problems.append("this is no torch trace: it holds no traceEvents array")
            return found
        if not stream.closed and not packed.problem:
            found.problems.append(
                "the file ends before its event array does (killed writer?); the complete events are analysed"
            )
        if stream.bad:
            found.problems.append(f"{stream.bad} events could not be read and are left out")
        if self.dropped:
            found.problems.append(f"{self.dropped} events without a usable time or length are left out")
        self._build(stream, found)
        return found

    def _collect(self, events: list[Event]) -> None:
        names = self.names
        group, label = self._group(None), None
        for i, event in enumerate(events):
            cat = event.get("cat")
            code = _CODES.get(cat) if cat.__class__ is str else None
            args = event.get("args")
            if args.__class__ is not dict:
                args = {}
            if code is None:
                code = self._other_code(cat, args)
                if code is None:
                    continue
            if event.get("ph") != "X":
                continue
            pid = event.get("pid")
            if pid.__class__ is str and (merged := _MERGED.match(pid)):
                if merged.group(1) != label:
                    label = merged.group(1)
                    group = self._group(label)
            elif label is not None:
                label, group = None, self._group(None)
            name = event.get("name")
            if name.__class__ is not str or len(name) > _MAX_NAME:
                name = str(name)[:_MAX_NAME]
            if code == _CALL:
                thread = self._thread(pid, event.get("tid"))
                name_id = names.setdefault(name, len(names))
                group.calls.append((i, name_id, args.get("correlation"), thread))
            elif code < _CALL:
                if code == KERNEL and name.startswith("MEMORY_COPY_"):
                    code = MEMCPY
                stream = args.get("stream")
                device = args.get("device")
                row = (
                    i,
                    names.setdefault(name, len(names)),
                    code,
                    event.get("tid") if stream is None else stream,
                    args.get("correlation"),
                    args.get("bytes", 0),
                    "graph node id" in args or args.get("kind") == "Dispatch Task",
                    pid if device is None else device,
                )
                if "Collective name" in args:
                    group.collectives[group.rows + len(group.device)] = _collective(args)
                if code == MEMCPY and len(self.speeds) < 400:
                    self._speed(args, event.get("dur"))
                group.device.append(row)
            else:
                group.ranges.append((i, name, self._thread(pid, event.get("tid"))))

    def _other_code(self, cat: object, args: dict[str, Any]) -> int | None:
        if isinstance(cat, str):
            return _CODES.get(cat.lower())
        task = args.get("Task Type")
        if isinstance(task, str) and _ASCEND_TASKS.search(task):
            return MEMCPY if re.search("SDMA|MEMCPY", task, re.I) else KERNEL
        return None

    def _thread(self, pid: Any, tid: Any) -> int:
        try:
            return self.threads.setdefault((pid, tid), len(self.threads))
        except TypeError:  # a list or an object where a number belongs
            return self.threads.setdefault((str(pid), str(tid)), len(self.threads))

    def _group(self, label: str | None) -> _Rows:
        return self.groups.setdefault(label, _Rows())

    def _speed(self, args: dict[str, Any], us: Any) -> None:
        """Collect bytes / length over the bandwidth that the profiler printed: 1 when the length is in microseconds."""
        size, speed = args.get("bytes"), args.get("memory bandwidth (GB/s)")
        if all(isinstance(value, int | float) and value > 0 for value in (size, speed, us)):
            self.speeds.append(float(size or 0) / float(us or 1) / 1000 / float(speed or 1))

    def _flush(self, start: Int, end: Int, good: NDArray[np.bool_]) -> None:
        """Turn the rows of a batch, which hold the position of their event in it first, into columns."""
        for group in self.groups.values():
            if group.device:
                at, name, kind, *numbers, graph, device = zip(*group.device, strict=True)
                rows = column(at)
                parts = [column(name), column(kind), *map(ids, numbers), column(graph), ids(device), good[rows]]
                group.device_parts.append(np.stack([start[rows], end[rows], *parts]))
                group.rows += len(rows)
                group.device.clear()
                self.dropped += int((~good[rows]).sum())
            if group.calls:
                at, name, correlation, thread = zip(*group.calls, strict=True)
                rows = column(at)
                part = np.stack([start[rows], end[rows], column(name), ids(correlation), column(thread)])
                group.call_parts.append(part[:, good[rows]])
                group.calls.clear()
                self.dropped += int((~good[rows]).sum())
            for i, text, thread in group.ranges:
                if good[i]:
                    group.found_ranges.append(Range(text, int(start[i]), int(end[i]), thread))
            group.ranges.clear()

    def _times(self, batch: Batch) -> tuple[Int, Int, NDArray[np.bool_]]:
        """Start and end of each event in ns, and which of them are usable."""
        if batch.starts is not None and batch.lengths is not None:
            start, length = batch.starts, batch.lengths
            good = (start != UNREADABLE) & (length != UNREADABLE)
            self.in_ns |= batch.in_ns
        else:
            start, good, scale = self._ns([event.get("ts") for event in batch.events])
            length, has_length, _ = self._ns([event.get("dur") for event in batch.events], scale)
            good &= has_length
        return start, start + np.maximum(length, 0), good

    def _ns(self, values: list[Any], scale: int | None = None) -> tuple[Int, NDArray[np.bool_], int]:
        """Nanoseconds, which are usable, and how many of them a written unit is: 1000, or 1 where the file is off."""
        if not set(map(type, values)) <= {int, float}:
            values = list(map(as_number, values))
        written = np.array(values, dtype=np.float64)
        good = np.isfinite(written)
        if scale is None:
            scale = 1 if good.any() and np.median(np.abs(written[good])) > _NS_EPOCH else 1000
        good &= np.abs(written) <= _MAX_NS / scale
        if scale == 1:
            self.in_ns = True
            return column([int(v) if ok else 0 for v, ok in zip(values, good, strict=True)]), good, scale
        written[~good] = 0
        whole = np.floor(written)
        return whole.astype(np.int64) * 1000 + np.rint((written - whole) * 1000).astype(np.int64), good, scale

    def _build(self, stream: EventStream, found: Ingest) -> None:
        head = meta_of(stream)
        names = list(self.names)
        threads = [f"{pid}/{tid}" for pid, tid in self.threads]
        info = head.get("distributedInfo")
        info = info if isinstance(info, dict) else {}
        rank, world = as_count(info.get("rank")), as_count(info.get("world_size"))
        base = as_count(head.get("baseTimeNanoseconds"))
        merged = [label for label in self.groups if label is not None]
        if merged:
            found.problems.append(
                f"a merged trace of {len(merged)} ranks: ids are matched per rank label, and only the first rank's "
                "base time survived the merge, so clocks between ranks cannot be trusted"
            )
        of_label = label_ranks(merged)
        for label, group in self.groups.items():
            if not group.device_parts:
                continue
            ranks = (
                of_label.get(label) if label is not None else rank if rank is not None else file_rank(self.path.name)
            )
            for timeline in _timelines(self.path.name, group, names, threads):
                timeline.label = label
                timeline.rank = ranks if ranks is not None else timeline.rank
                timeline.world_size = world
                timeline.base_ns = base if base is not None else 0
                timeline.facts = facts_of(head, timeline.device)
                found.timelines.append(timeline)
        if not found.timelines:
            found.problems.append(self._nothing())
        self._check_unit(found)

    def _nothing(self) -> str:
        if any(group.call_parts or group.found_ranges for group in self.groups.values()):
            return "CPU-only: host calls, but no device activity (was the profiler started with GPU activities?)"
        if self.dropped:
            return "no device event with a usable time is left"
        return "no device activity was recorded: the capture is CPU-only or empty"

    def _check_unit(self, found: Ingest) -> None:
        ratio = float(np.median(self.speeds)) if len(self.speeds) >= 3 else 1.0
        if self.in_ns:
            found.problems.append("times are nanoseconds where the format says microseconds; read as nanoseconds")
        elif 0.5e-3 < ratio < 2e-3:
            found.problems.append(
                "the recorded copy bandwidths show that times are nanoseconds, not microseconds; read as nanoseconds"
            )
            for timeline in found.timelines:
                _to_thousandths(timeline)
        elif not 0.5 < ratio < 2:
            found.problems.append(
                f"copy lengths disagree with the recorded bandwidths by a factor of {ratio:.3g}: "
                "the unit of time is doubtful"
            )


def read_torch(path: Path) -> Ingest:
    """Read one torch trace (plain or gzip). Never raises for what the file holds; OSError if it cannot be opened."""
    # Millions of small parsed objects, none in a cycle: looking for cycles among them costs an eighth of the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _Reader(path).read()
    finally:
        if collecting:
            gc.enable()


def _timelines(file: str, group: _Rows, names: list[str], threads: list[str]) -> list[Timeline]:
    rows = np.concatenate(group.device_parts, axis=1)
    group.device_parts.clear()  # two copies of a big capture at once are one too many
    calls = HostCalls(*(np.concatenate(group.call_parts, axis=1) if group.call_parts else np.empty((5, 0), np.int64)))
    device, good = rows[8], rows[9].astype(bool)
    kernels = good & (rows[3] == KERNEL)
    devices = np.unique(device[kernels] if kernels.any() else device[good])
    made = []
    for n, which in enumerate(devices.tolist()):
        # Copies that name a device without kernels belong to this process all the same: they stay with its first.
        mine = good & ((device == which) if n else ((device == which) | ~np.isin(device, devices)))
        index = np.flatnonzero(mine)
        events = DeviceEvents.of(rows if len(index) == rows.shape[1] else rows[:8, index])
        own = calls
        if len(devices) > 1:
            others = np.setdiff1d(rows[5][good & ~mine], rows[5][mine])
            own = calls.take(
                ~np.isin(calls.correlation, others) if n == 0 else np.isin(calls.correlation, events.correlation)
            )
        place = {int(row): i for i, row in enumerate(index)} if group.collectives else {}
        made.append(
            Timeline(
                file=file,
                source="torch",
                events=events,
                calls=own,
                names=names,
                threads=threads,
                rank=which if len(devices) > 1 else None,
                device=which,
                ranges=group.found_ranges,
                collectives={place[row]: args for row, args in group.collectives.items() if row in place},
            )
        )
    return made


def _to_thousandths(timeline: Timeline) -> None:
    for table in (timeline.events, timeline.calls):
        for name in ("start", "end"):
            values = getattr(table, name)
            values //= 1000
    timeline.ranges = [Range(r.name, r.start // 1000, r.end // 1000, r.thread) for r in timeline.ranges]


def _text(value: object) -> str | None:
    return str(value)[:200] if value is not None else None


def _collective(args: dict[str, Any]) -> CollectiveArgs:
    return CollectiveArgs(
        operation=_text(args.get("Collective name")),
        group=_text(args.get("Process Group Name")),
        ranks=_text(args.get("Process Group Ranks")),
        group_size=as_count(args.get("Group size")),
        sequence=as_count(args.get("Seq")),
        elements_in=as_count(args.get("In msg nelems")),
        elements_out=as_count(args.get("Out msg nelems")),
        dtype=_text(args.get("dtype")),
    )
