"""Reads Nsight Systems exports of 2021-2026 (SQLite, or a folder of Parquet files) into timelines.

Tables come and go with version and content, so each is asked for before it is read. Times are ns from the session's
start; `TARGET_INFO_SESSION_START_TIME.utcEpochNs` is that start on the wall clock. Ids repeat across processes, so
launches are joined within one. Environment, command lines, host and user names are never read.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

import numpy as np

from store.analysis.nsys_nccl import Operation, collectives_of, fields_of, operation_from, schemas_of
from store.analysis.timeline import KERNEL, MEMCPY, MEMSET, NO_ID, DeviceEvents, HostCalls, Ingest, Int, Range, Timeline

if TYPE_CHECKING:
    import duckdb

_KERNEL: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
_MEMCPY: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
_MEMSET: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
_GRAPH: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_RUNTIME: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
_COPY_KINDS: Final = {
    1: "Host-to-Device",
    2: "Device-to-Host",
    3: "Host-to-Array",
    8: "Device-to-Device",
    9: "Host-to-Host",
    10: "Peer-to-Peer",
    11: "Unified Host-to-Device",
    12: "Unified Device-to-Host",
    13: "Unified Device-to-Device",
}
GRAPH_REPLAY: Final = "[CUDA graph replay, its kernels were not recorded]"
_PUSH_POP, _START_END = 59, 60
_BATCH: Final = 100_000
_MAX_RANGES: Final = 2_000_000
_OPERATOR: Final = re.compile(r"^(?:aten|prim|c10d|torch|triton)::")


class Tables(Protocol):
    """What both forms of an export can do: name columns, and run plain SELECTs."""

    def columns(self, table: str) -> frozenset[str]:
        """Column names; empty where the table is not there."""

    def rows(self, sql: str) -> Iterator[list[tuple[Any, ...]]]:
        """Batches of rows, in file order."""


class SqliteTables:
    """An SQLite export, opened read-only."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)
        self._db.text_factory = lambda raw: raw.decode("utf-8", "replace")
        self._columns: dict[str, frozenset[str]] = {}

    def columns(self, table: str) -> frozenset[str]:
        if table not in self._columns:
            self._columns[table] = frozenset(row[1] for row in self._db.execute(f'PRAGMA table_info("{table}")'))
        return self._columns[table]

    def rows(self, sql: str) -> Iterator[list[tuple[Any, ...]]]:
        cursor = self._db.execute(sql)
        while batch := cursor.fetchmany(_BATCH):
            yield batch

    def close(self) -> None:
        """Release the file."""
        self._db.close()


class ParquetTables:
    """A `nsys export --type parquetdir` folder: one file a table, same names and columns."""

    def __init__(self, folder: Path) -> None:
        import duckdb

        self._db: duckdb.DuckDBPyConnection = duckdb.connect()
        self._tables = {path.stem: path for path in folder.glob("*.parquet")}
        self._columns: dict[str, frozenset[str]] = {}
        for name, path in self._tables.items():
            if re.fullmatch(r"[A-Za-z0-9_]{1,80}", name):
                file = str(path).replace("'", "''")
                self._db.execute(f"CREATE VIEW \"{name}\" AS SELECT * FROM read_parquet('{file}')")

    def columns(self, table: str) -> frozenset[str]:
        if table not in self._columns and table in self._tables:
            found = self._db.execute(f'DESCRIBE "{table}"').fetchall()
            self._columns[table] = frozenset(row[0] for row in found)
        return self._columns.get(table, frozenset())

    def rows(self, sql: str) -> Iterator[list[tuple[Any, ...]]]:
        cursor = self._db.execute(sql)
        while batch := cursor.fetchmany(_BATCH):
            yield batch

    def close(self) -> None:
        """Release the files."""
        self._db.close()


def read_nsys(path: Path) -> Ingest:
    """Read one SQLite export or Parquet folder; what cannot be read costs a sentence."""
    tables: SqliteTables | ParquetTables
    # A damaged page may hold anything where a number or a text should be.
    broken: tuple[type[Exception], ...] = (sqlite3.Error, ValueError, TypeError, OverflowError)
    if path.is_dir():
        import duckdb

        tables, broken = ParquetTables(path), (*broken, duckdb.Error)
    else:
        tables = SqliteTables(path)
    try:
        return _Export(path.name, tables, broken).read()
    except broken as error:
        return Ingest(problems=[f"the export cannot be read: {str(error)[:200]}"])
    finally:
        tables.close()


@dataclass
class _Export:
    file: str
    tables: Tables
    broken: tuple[type[Exception], ...]
    names: dict[str, int] = field(default_factory=dict)
    threads: dict[int, int] = field(default_factory=dict)
    found: Ingest = field(default_factory=Ingest)

    def read(self) -> Ingest:
        device = self._device()
        self._diagnostics()
        if not device.shape[1]:
            said = "host calls" if self.tables.columns(_RUNTIME) else "no CUDA activity at all"
            self.found.problems.append(f"no kernel, copy or fill was recorded: the export holds {said}")
            return self.found
        calls, ranges, operations = self._calls(), self._ranges(), self._operations()
        keys = sorted(set(zip(device[9].tolist(), device[8].tolist(), strict=True)), key=lambda key: (key[1], key[0]))
        devices = [key[1] for key in keys]
        distinct = len(set(devices)) == len(devices)
        base, gpus = self._base(), self._gpus()
        threads = [f"{tid >> 24 & 0xFFFFFF}/{tid & 0xFFFFFF}" for tid in self.threads]
        thread_pid = np.array([tid & ~0xFFFFFF for tid in self.threads], dtype=np.int64)
        many = len(keys) > 1
        for number, (pid, which) in enumerate(keys):
            mine = (device[9] == pid) & (device[8] == which)
            events = DeviceEvents.of(device[:8, mine])
            own = self._own_calls(calls, thread_pid, pid, events, alone=sum(key[0] == pid for key in keys) == 1)
            self.found.timelines.append(
                Timeline(
                    file=self.file,
                    source="nsys",
                    events=events,
                    calls=own,
                    names=[],
                    threads=threads,
                    rank=(which if distinct else number) if many else None,
                    device=which,
                    base_ns=base,
                    world_size=len(keys) if many else None,
                    ranges=[r for r in ranges if pid == NO_ID or thread_pid[r.thread] == pid],
                    os_calls=self._os_calls(pid),
                    facts={"device_name": gpus.get(which)},
                )
            )
        for timeline in self.found.timelines:
            timeline.names = list(self.names)
            timeline.collectives = collectives_of(operations, timeline.names, timeline.events, timeline.calls)
        return self.found

    def _device(self) -> Int:
        """start, end, name, kind, stream, correlation, bytes, in a graph, device, process: one column an event."""
        parts = []
        for table, kind, name in (
            (_KERNEL, KERNEL, None),
            (_MEMCPY, MEMCPY, self._copy_name),
            (_MEMSET, MEMSET, lambda _: self._name("[CUDA memset]")),
            (_GRAPH, KERNEL, lambda _: self._name(GRAPH_REPLAY)),
        ):
            part = self._table(table, kind, name)
            if table == _GRAPH and part.shape[1]:
                self.found.problems.append(
                    f"{part.shape[1]} graph replays were recorded as a whole (--cuda-graph-trace=graph): the kernels "
                    "in them cannot be told apart; capture with --cuda-graph-trace=node"
                )
            parts.append(part)
        return np.concatenate(parts, axis=1)

    def _table(self, table: str, kind: int, name: Callable[[int], int] | None) -> Int:
        has = self.tables.columns(table)
        if not {"start", "end"} <= has:
            return np.empty((10, 0), dtype=np.int64)
        label = next((c for c in ("demangledName", "shortName", "copyKind") if c in has), "0")
        wanted = [
            "start",
            '"end"',
            label if label == "0" else f'COALESCE("{label}", 0)',
            *(f'COALESCE("{c}", {NO_ID})' if c in has else str(NO_ID) for c in ("streamId", "correlationId")),
            'COALESCE("bytes", 0)' if "bytes" in has else "0",
            *(f'COALESCE("{c}", {NO_ID})' if c in has else str(NO_ID) for c in ("deviceId", "globalPid")),
            '"graphNodeId" IS NOT NULL AND "graphNodeId" <> 0' if "graphNodeId" in has else "0",
        ]
        batches = self._numbers(f'SELECT {", ".join(wanted)} FROM "{table}" WHERE "end" IS NOT NULL', table)
        if not batches:
            return np.empty((10, 0), dtype=np.int64)
        rows = np.concatenate(batches).T
        names = self._strings(np.unique(rows[2])) if name is None else {i: name(i) for i in np.unique(rows[2]).tolist()}
        ids, place = np.unique(rows[2], return_inverse=True)
        label_ids = np.array([names[i] for i in ids.tolist()], dtype=np.int64)[place]
        end = np.maximum(rows[1], rows[0])
        graph = np.ones_like(rows[0]) if table == _GRAPH else rows[8]
        kinds = np.full_like(rows[0], kind)
        return np.stack([rows[0], end, label_ids, kinds, rows[3], rows[4], rows[5], graph, rows[6], rows[7]])

    def _numbers(self, sql: str, table: str) -> list[Int]:
        """Batches of a table of numbers; where the file breaks off, what came before."""
        batches: list[Int] = []
        try:
            batches.extend(np.array(batch, dtype=np.int64) for batch in self.tables.rows(sql))
        except self.broken as error:
            self.found.problems.append(f"{table} breaks off ({str(error)[:120]}); what came before is analysed")
        return batches

    def _name(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))

    def _copy_name(self, kind: int) -> int:
        return self._name(f"[CUDA memcpy {_COPY_KINDS.get(kind, f'kind {kind}')}]")

    def _strings(self, ids: Int) -> dict[int, int]:
        """Name indices of StringIds rows."""
        texts: dict[int, str] = {}
        wanted = ids.tolist()
        if self.tables.columns("StringIds"):
            for at in range(0, len(wanted), 500):
                some = ", ".join(map(str, wanted[at : at + 500]))
                for batch in self.tables.rows(f"SELECT id, value FROM StringIds WHERE id IN ({some})"):
                    texts.update(batch)
        return {i: self._name(str(texts.get(i, f"<string {i}>"))) for i in wanted}

    def _calls(self) -> HostCalls:
        has = self.tables.columns(_RUNTIME)
        empty = HostCalls(*(np.empty(0, dtype=np.int64) for _ in range(5)))
        if not {"start", "end", "globalTid", "nameId"} <= has:
            return empty
        batches = self._numbers(
            f'SELECT start, COALESCE("end", start), nameId, COALESCE(correlationId, {NO_ID}), COALESCE(globalTid, 0) '
            f'FROM "{_RUNTIME}"',
            _RUNTIME,
        )
        if not batches:
            return empty
        rows = np.concatenate(batches).T
        ids, place = np.unique(rows[2], return_inverse=True)
        names = self._strings(ids)
        tids, at = np.unique(rows[4], return_inverse=True)
        threads = np.array([self._thread(tid) for tid in tids.tolist()], dtype=np.int64)
        name = np.array([names[i] for i in ids.tolist()], dtype=np.int64)[place]
        return HostCalls(rows[0], rows[1], name, rows[3], threads[at])

    def _thread(self, tid: int) -> int:
        return self.threads.setdefault(tid, len(self.threads))

    @staticmethod
    def _own_calls(calls: HostCalls, thread_pid: Int, pid: int, events: DeviceEvents, *, alone: bool) -> HostCalls:
        """The calls of a process; of one that drives several devices, those with work on this device."""
        if not len(calls):
            return calls
        mine = (thread_pid[calls.thread] == (pid & ~0xFFFFFF)) | (pid == NO_ID)
        if not alone:
            mine &= np.isin(calls.correlation, events.correlation)
        return calls.take(mine)

    def _ranges(self) -> list[Range]:
        """NVTX ranges that may say what a step is; the ranges of single operators are left out."""
        has = self.tables.columns("NVTX_EVENTS")
        if not {"start", "end", "eventType", "globalTid", "text"} <= has:
            return []
        by_id = "textId" in has and bool(self.tables.columns("StringIds"))
        text = "COALESCE(n.text, s.value)" if by_id else "n.text"
        join = "LEFT JOIN StringIds s ON s.id = n.textId" if by_id else ""
        sql = (
            f'SELECT n.start, n."end", {text}, n.globalTid FROM NVTX_EVENTS n {join} '
            f'WHERE n."end" IS NOT NULL AND n.eventType IN ({_PUSH_POP}, {_START_END}) AND n.globalTid IS NOT NULL'
        )
        found: list[Range] = []
        try:
            for batch in self.tables.rows(sql):
                found += [
                    Range(name, start, end, self._thread(tid))
                    for start, end, name, tid in batch
                    if isinstance(name, str)
                    and isinstance(start, int)
                    and isinstance(end, int)
                    and isinstance(tid, int)
                    and not _OPERATOR.match(name)
                ]
                if len(found) > _MAX_RANGES:
                    self.found.problems.append(f"more than {_MAX_RANGES} NVTX ranges; the later ones are left out")
                    break
        except self.broken as error:
            self.found.problems.append(f"NVTX_EVENTS breaks off ({str(error)[:120]})")
        return found

    def _operations(self) -> list[Operation]:
        """What NCCL was asked for, where the capture holds the payloads of its ranges."""
        schemas_has = self.tables.columns("NVTX_PAYLOAD_SCHEMA_ENTRIES")
        has = self.tables.columns("NVTX_EVENTS")
        if not {"schemaId", "name", "type", "offset"} <= schemas_has or not {"binaryData", "globalTid", "text"} <= has:
            return []
        by_id = "textId" in has and bool(self.tables.columns("StringIds"))
        text = "COALESCE(n.text, s.value)" if by_id else "n.text"
        join = "LEFT JOIN StringIds s ON s.id = n.textId" if by_id else ""
        found: list[Operation] = []
        unread = 0
        try:
            entries = self.tables.rows('SELECT schemaId, name, "type", "offset" FROM NVTX_PAYLOAD_SCHEMA_ENTRIES')
            schemas = schemas_of(row for batch in entries for row in batch)
            sql = (
                f"SELECT n.start, {text}, n.globalTid, n.binaryData FROM NVTX_EVENTS n {join} "
                f"WHERE n.binaryData IS NOT NULL AND {text} LIKE 'nccl%' LIMIT {_MAX_RANGES}"
            )
            for batch in self.tables.rows(sql):
                for start, name, tid, blob in batch:
                    fields = fields_of(blob, schemas)
                    if fields is None or not isinstance(start, int) or not isinstance(tid, int):
                        unread += 1
                    else:
                        found.append(operation_from(start, self._thread(tid), str(name), fields))
        except self.broken as error:
            self.found.problems.append(f"the payloads of NCCL's ranges break off ({str(error)[:120]})")
        if unread:
            self.found.problems.append(f"{unread} payloads of NCCL's ranges are of a form not known here; no sizes")
        return found

    def _os_calls(self, pid: int) -> dict[str, tuple[int, int]]:
        """OS runtime calls of a process by name: count and summed ns."""
        if not {"start", "end", "nameId", "globalTid"} <= self.tables.columns("OSRT_API"):
            return {}
        mine = "" if pid == NO_ID else f"WHERE o.globalTid / 16777216 = {pid >> 24}"
        if isinstance(self.tables, ParquetTables):
            mine = mine.replace("/", "//")
        sql = (
            "SELECT COALESCE(s.value, '?'), COUNT(*), SUM(o.\"end\" - o.start) FROM OSRT_API o "
            f"LEFT JOIN StringIds s ON s.id = o.nameId {mine} GROUP BY 1 ORDER BY 3 DESC LIMIT 50"
        )
        return {str(name): (int(count), int(ns or 0)) for batch in self.tables.rows(sql) for name, count, ns in batch}

    def _diagnostics(self) -> None:
        if not {"severity", "text"} <= self.tables.columns("DIAGNOSTIC_EVENT"):
            return
        said: set[str] = set()
        for batch in self.tables.rows("SELECT text FROM DIAGNOSTIC_EVENT WHERE severity >= 2 LIMIT 200"):
            # Paths and names of a machine stay in the capture; what matters is the sentence.
            said.update(re.sub(r"(?:/[\w.@-]+){2,}|\"[^\"]*\"|'[^']*'", "…", str(row[0]))[:200] for row in batch)
        self.found.problems += [f"the profiler said: {text}" for text in sorted(said)[:8]]

    def _base(self) -> int | None:
        if "utcEpochNs" not in self.tables.columns("TARGET_INFO_SESSION_START_TIME"):
            return None
        rows = [r for batch in self.tables.rows("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME") for r in batch]
        return int(rows[0][0]) if rows and rows[0][0] is not None else None

    def _gpus(self) -> dict[int, str]:
        for table, key in (("TARGET_INFO_GPU", "id"), ("TARGET_INFO_CUDA_GPU", "deviceId")):
            if {key, "name"} <= self.tables.columns(table):
                return {
                    int(i): str(n) for batch in self.tables.rows(f'SELECT "{key}", name FROM {table}') for i, n in batch
                }
        return {}
