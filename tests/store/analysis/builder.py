"""Small captures written for one test: torch traces event by event, nsys exports row by row."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "data"
TRACES = DATA / "traces"


def kernel(
    name: str, ts: float, dur: float, *, stream: int = 7, correlation: int = 0, device: int = 0, **args: Any
) -> dict[str, Any]:
    """A kernel event; ts and dur in us."""
    known = {"device": device, "stream": stream, "correlation": correlation, **args}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": device, "tid": stream, "ts": ts, "dur": dur, "args": known}


def copy(ts: float, dur: float, *, stream: int = 7, size: int = 0, gb_s: float = 0.0) -> dict[str, Any]:
    """A copy event of so many bytes, with the bandwidth that the profiler printed beside it."""
    args = {"device": 0, "stream": stream, "bytes": size, "memory bandwidth (GB/s)": gb_s}
    name = "Memcpy DtoD (Device -> Device)"
    return {"ph": "X", "cat": "gpu_memcpy", "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur, "args": args}


def call(name: str, ts: float, dur: float, *, correlation: int = 0, pid: int = 100, tid: int = 100) -> dict[str, Any]:
    """A runtime call on the host."""
    args = {"correlation": correlation}
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def annotation(name: str, ts: float, dur: float, *, pid: int = 100, tid: int = 100) -> dict[str, Any]:
    """A range of the host."""
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": {}}


def write(
    path: Path, events: list[dict[str, Any]], *, rank: int | None = 0, world: int = 1, base: int | None = 0, **head: Any
) -> Path:
    """A trace in the layout of json.dumps."""
    if rank is not None:
        head["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world}
    if base is not None:
        head["baseTimeNanoseconds"] = base
    path.write_text(json.dumps({"schemaVersion": 1, **head, "traceEvents": events}))
    return path


def nsys(path: Path, tables: dict[str, list[dict[str, Any]]]) -> Path:
    """An SQLite export holding these tables; columns are those of the rows."""
    with sqlite3.connect(path) as db:
        for table, rows in tables.items():
            columns = list(dict.fromkeys(key for row in rows for key in row))
            db.execute(f'CREATE TABLE "{table}" ({", ".join(f"{chr(34)}{c}{chr(34)}" for c in columns)})')
            marks = ", ".join("?" * len(columns))
            db.executemany(f'INSERT INTO "{table}" VALUES ({marks})', [[row.get(c) for c in columns] for row in rows])
    return path
