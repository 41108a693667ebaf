"""Columnar files beside a raw trace, so that it is read once: Parquet for the tables, JSON for what is small.

`TRACE.columns/` holds, per rank and device, `N.events.parquet` and `N.calls.parquet`, their names and families in
`N.names.parquet` (joined on `name = id` in any SQL client), and one `meta.json`. They are used again while size and
time of the trace are the same. Only what a timeline keeps is in them: no environment, command line, host or path.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from store.analysis.families import family_of
from store.analysis.timeline import CollectiveArgs, DeviceEvents, HostCalls, Ingest, Int, Range, Timeline

if TYPE_CHECKING:
    import duckdb

VERSION: Final = 1
WORTH_IT: Final = 16 << 20
"""Bytes from which on writing columns beside a trace pays."""

_SMALL: Final = (
    "file",
    "source",
    "names",
    "threads",
    "rank",
    "device",
    "label",
    "base_ns",
    "world_size",
    "os_calls",
    "facts",
)


def folder_of(trace: Path) -> Path:
    """Where the columns of a trace lie."""
    return trace.with_name(trace.name + ".columns")


def load(trace: Path) -> Ingest | None:
    """The timelines of a trace from its columns; None where there are none, or they are not of this very file."""
    folder = folder_of(trace)
    try:
        meta = orjson.loads((folder / "meta.json").read_bytes())
        if meta["version"] != VERSION or meta["of"] != _identity(trace):
            return None
        timelines = _read_all(folder, meta["timelines"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Ingest(timelines, list(meta["problems"]))


def save(trace: Path, found: Ingest) -> bool:
    """Write the columns of a trace; False where the folder cannot be written, which costs nothing but the next read."""
    if not found.timelines:
        return False
    import duckdb

    work: Path | None = None
    try:
        work = Path(tempfile.mkdtemp(prefix=".columns-", dir=trace.parent))
        with duckdb.connect() as db:
            for number, timeline in enumerate(found.timelines):
                _write(db, work, number, timeline)
        meta = {
            "version": VERSION,
            "of": _identity(trace),
            "problems": found.problems,
            "timelines": [_small(timeline) for timeline in found.timelines],
        }
        (work / "meta.json").write_bytes(orjson.dumps(meta))
        old = folder_of(trace)
        if (old / "meta.json").is_file():
            shutil.rmtree(old)
        work.rename(old)
        old.chmod(0o755)
    except (OSError, duckdb.Error):
        if work is not None:
            shutil.rmtree(work, ignore_errors=True)
        return False
    return True


def _identity(trace: Path) -> list[int]:
    found = os.stat(trace)
    return [found.st_size, found.st_mtime_ns]


def _small(timeline: Timeline) -> dict[str, Any]:
    return {
        **{key: getattr(timeline, key) for key in _SMALL},
        "problems": timeline.problems,
        "ranges": [[r.name, r.start, r.end, r.thread] for r in timeline.ranges],
        "collectives": [[row, asdict(args)] for row, args in timeline.collectives.items()],
    }


def _write(db: duckdb.DuckDBPyConnection, folder: Path, number: int, timeline: Timeline) -> None:
    names = {
        "id": np.arange(len(timeline.names)),
        "text": np.array(timeline.names, dtype=object),
        "family": np.array([family_of(name) for name in timeline.names], dtype=object),
    }
    tables: dict[str, dict[str, Any]] = {"names": names}
    for what, table in (("events", timeline.events), ("calls", timeline.calls)):
        tables[what] = {"row": np.arange(len(table))} | {f.name: getattr(table, f.name) for f in fields(table)}
    for what, rows in tables.items():
        db.register("rows", rows)
        file = str(folder / f"{number}.{what}.parquet").replace("'", "''")
        db.execute(f"COPY (SELECT * FROM rows) TO '{file}' (FORMAT parquet)")


def _read_all(folder: Path, small: list[dict[str, Any]]) -> list[Timeline]:
    import duckdb

    try:
        with duckdb.connect() as db:
            return [_read(db, folder, number, one) for number, one in enumerate(small)]
    except duckdb.Error as error:
        raise ValueError(str(error)) from error


def _read(db: duckdb.DuckDBPyConnection, folder: Path, number: int, small: dict[str, Any]) -> Timeline:
    def columns(what: str, table: type[DeviceEvents] | type[HostCalls]) -> dict[str, Any]:
        wanted = ", ".join(f'"{field.name}"' for field in fields(table))
        file = str(folder / f"{number}.{what}.parquet").replace("'", "''")
        return db.execute(f"SELECT {wanted} FROM read_parquet('{file}') ORDER BY row").fetchnumpy()

    known = {key: small[key] for key in _SMALL}
    known["os_calls"] = {name: (int(count), int(total)) for name, (count, total) in small["os_calls"].items()}
    events, calls = DeviceEvents(**columns("events", DeviceEvents)), HostCalls(**columns("calls", HostCalls))
    if not (_inside(events.name, len(known["names"])) and _inside(calls.name, len(known["names"]))):
        raise ValueError("names are missing")
    if not _inside(calls.thread, len(known["threads"])):
        raise ValueError("threads are missing")
    return Timeline(
        events=events,
        calls=calls,
        ranges=[Range(*row) for row in small["ranges"]],
        collectives={row: CollectiveArgs(**args) for row, args in small["collectives"]},
        problems=small["problems"],
        **known,
    )


def _inside(index: Int, size: int) -> bool:
    return not len(index) or bool(index.min() >= 0 and index.max() < size)
