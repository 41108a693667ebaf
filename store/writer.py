"""The writing thread: one transaction a tick, one failing batch alone."""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from store.errors import StoreError
from store.files import free_bytes, wal_of
from store.schema import columns

if TYPE_CHECKING:
    import duckdb

    from store.records import Record

log = logging.getLogger(__name__)

_SURROGATE = re.compile("[\ud800-\udfff]")

TICK_S = 0.1
FULL_TICK = 20_000
"""Records that end a tick early, so that a flood does not pile up in memory for longer than needed."""
CHECKPOINT_WAL_BYTES = 16 << 20
RESERVE_BYTES = 32 << 20
"""Free disk below which nothing more is written, beside the room that a checkpoint of the log needs."""


@dataclass(slots=True)
class _Batch:
    records: Sequence[Record]
    future: Future[None] = field(default_factory=Future)


class Writer:
    """Owns the thread that writes. `reopen` is called after DuckDB has given the instance up."""

    def __init__(self, path: Path, cursor: Callable[[], duckdb.DuckDBPyConnection], reopen: Callable[[], None]) -> None:
        self.changes: Counter[str] = Counter()
        self._path = path
        self._cursor = cursor
        self._reopen = reopen
        self._wake = threading.Condition()
        self._queue: list[_Batch] = []
        self._records = 0
        self._urgent = False
        self._closing = False
        self._checkpoint_at = CHECKPOINT_WAL_BYTES
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def put(self, records: Sequence[Record], *, urgent: bool) -> Future[None]:
        """Queue one batch. Raises StoreError once the writer is closed."""
        batch = _Batch(list(records))
        batch.future.set_running_or_notify_cancel()  # what is queued will be written: it cannot be cancelled
        with self._wake:
            if self._closing:
                raise StoreError("the store is closed")
            self._queue.append(batch)
            self._records += len(batch.records)
            self._urgent = self._urgent or urgent
            self._wake.notify()
        return batch.future

    def close(self) -> None:
        """Write what is queued and end the thread. Idempotent."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _ripe(self) -> bool:
        return self._urgent or self._closing or self._records >= FULL_TICK

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._queue or self._closing)
                self._wake.wait_for(self._ripe, timeout=TICK_S)
                batches, self._queue = self._queue, []
                self._records, self._urgent = 0, False
                if not batches and self._closing:
                    return
            self._write_tick(batches)
            self._checkpoint_if_due()

    def _write_tick(self, batches: list[_Batch]) -> None:
        try:
            self._transact(batches)
        except Exception as e:  # noqa: BLE001  # whatever a batch holds must not end the thread: its caller is told
            self._recover_from(e)
            if len(batches) == 1:
                batches[0].future.set_exception(e if isinstance(e, StoreError) else StoreError(f"not stored: {e}"))
                return
            # One of them is bad, or the disk is: each on its own tells which.
            for batch in batches:
                self._write_tick([batch])
            return
        for batch in batches:
            batch.future.set_result(None)

    def _recover_from(self, error: Exception) -> None:
        import duckdb

        if isinstance(error, (duckdb.FatalException, duckdb.InternalException)):
            log.error("DuckDB gave the store up, opening it again: %s", error)
            self._reopen()

    def _transact(self, batches: list[_Batch]) -> None:
        grouped = _by_table(r for b in batches for r in b.records)
        if not grouped:
            return
        # DuckDB survives a full disk badly, so it is kept from meeting one: the next checkpoint needs room as well.
        if free_bytes(self._path) < RESERVE_BYTES + self._wal_bytes():
            raise StoreError(f"not stored: the disk that holds {self._path} is nearly full; make room there")
        cursor = self._cursor()
        try:
            cursor.execute("BEGIN")
            try:
                for kind, rows in grouped.items():
                    insert(cursor, kind, rows)
                cursor.execute("COMMIT")
            except Exception:
                _roll_back(cursor)
                raise
        finally:
            cursor.close()
        self.changes.update(kind.table for kind in grouped)

    def _wal_bytes(self) -> int:
        try:
            return wal_of(self._path).stat().st_size
        except FileNotFoundError:
            return 0

    def _checkpoint_if_due(self) -> None:
        import duckdb

        size = self._wal_bytes()
        if size < self._checkpoint_at or free_bytes(self._path) < RESERVE_BYTES + size:
            return
        cursor = self._cursor()
        try:
            cursor.execute("CHECKPOINT")
        except duckdb.Error as e:  # nothing is lost, the log holds everything
            log.warning("checkpoint put off: %s", e)
            self._checkpoint_at = size + CHECKPOINT_WAL_BYTES
            self._recover_from(e)
        else:
            self._checkpoint_at = CHECKPOINT_WAL_BYTES
        finally:
            cursor.close()


def _roll_back(cursor: duckdb.DuckDBPyConnection) -> None:
    import duckdb

    try:
        cursor.execute("ROLLBACK")
    except duckdb.Error as e:  # a failed COMMIT has already rolled back; the first error is the one to tell
        log.debug("rollback: %s", e)


def _by_table(records: Iterable[Record]) -> dict[type[Record], list[Record]]:
    """Records by class in order; of state records only the last for each key."""
    grouped: dict[type[Record], list[Record]] = {}
    for r in records:
        grouped.setdefault(type(r), []).append(r)
    for kind, rows in grouped.items():
        if kind.key:
            last = {tuple(getattr(r, k) for k in kind.key): r for r in rows}
            grouped[kind] = list(last.values())
    return grouped


def _shape(names: Iterable[str], kind: type[Record]) -> str:
    types = columns(kind)
    return orjson.dumps([{n: types[n] for n in names}]).decode()


def insert(cursor: duckdb.DuckDBPyConnection, kind: type[Record], rows: Sequence[Record]) -> None:
    """Insert rows of one class inside the caller's transaction, replacing rows of the same key.

    The rows travel as one JSON text: the quickest way on wide tables full of text, and the only quick one for lists
    (tests/benchmarks/ingest.py). Integers are exact over all 64 bits. Raises duckdb.Error, StoreError.
    """
    if kind.key:
        keys = to_json([{k: getattr(r, k) for k in kind.key} for r in rows])
        named = ", ".join(f'"{k}"' for k in kind.key)
        cursor.execute(
            f"DELETE FROM {kind.table} WHERE ({named}) IN "
            f"(SELECT ({named}) FROM (SELECT r.* FROM (SELECT unnest(from_json_strict(?::JSON, ?)) AS r)))",
            [keys, _shape(kind.key, kind)],
        )
    cursor.execute(
        f"INSERT INTO {kind.table} BY NAME SELECT r.* FROM (SELECT unnest(from_json_strict(?::JSON, ?)) AS r)",
        [to_json(rows), _shape(columns(kind), kind)],
    )


def to_json(rows: Sequence[Any]) -> str:
    """JSON array of records or dicts. Lone surrogates, which UTF-8 cannot hold, become U+FFFD. Raises StoreError."""
    try:
        return orjson.dumps(rows).decode()
    except TypeError:
        pass
    try:
        return orjson.dumps([_scrub(r) for r in rows]).decode()
    except TypeError as e:
        raise StoreError(f"not storable: {e}") from e


def _scrub(row: Any) -> dict[str, Any]:
    values = row if isinstance(row, dict) else {n: getattr(row, n) for n in columns(type(row))}
    return {n: _printable(v) for n, v in values.items()}


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_printable(v) for v in value]
    return value
