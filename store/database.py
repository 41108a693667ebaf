"""The store: one DuckDB file with one writer, any number of reading cursors.

The process that opens it holds a lock beside the file for as long as it lives. Records are written by one thread, one
transaction a tick; every query gets a cursor of its own, so `query` may be called from any thread.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store import queries
from store.errors import QueryCancelled, QueryError, StoreError
from store.files import SingleWriterLock, check_file_system, connect, migrate
from store.writer import Writer

if TYPE_CHECKING:
    import duckdb

    from store.records import Record

__all__ = ["Query", "QueryCancelled", "Store", "StoreError", "Table"]

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A query's answer. `types` are DuckDB type names, `rows` plain Python values."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def dicts(self) -> list[dict[str, Any]]:
        """The rows as column -> value."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def run_on(cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[object] = ()) -> Table:
    """Execute one statement on a cursor and take the whole answer. Raises duckdb.Error."""
    cursor.execute(sql, list(parameters))
    described = cursor.description or []
    return Table(tuple(d[0] for d in described), tuple(str(d[1]) for d in described), cursor.fetchall())


class Query:
    """A handle by which another thread cancels a query: make one, pass it to `query`, call `cancel`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stop: Callable[[], object] | None = None
        self.cancelled = False

    def cancel(self) -> None:
        """Stop the query if it runs, refuse it if it has not begun. From any thread, any number of times."""
        with self._lock:
            self.cancelled = True
            if self._stop is not None:
                self._stop()

    @contextmanager
    def cancelling(self, stop: Callable[[], object]) -> Iterator[None]:
        """While inside, `cancel` calls `stop`. Raises QueryCancelled if it was called before."""
        with self._lock:
            if self.cancelled:
                raise QueryCancelled("the query was cancelled before it began")
            self._stop = stop
        try:
            yield
        finally:
            with self._lock:
                self._stop = None


class Store:
    """An open store. Make it with `Store.open`; `close` commits what is queued."""

    def __init__(
        self, path: Path, lock: SingleWriterLock, connection: duckdb.DuckDBPyConnection, threads: int | None
    ) -> None:
        self.path = path
        self.quarantined: Path | None = None
        """The broken write-ahead log that was put aside when this store was opened, if any."""
        self.connection = connection
        """The root connection. Take cursors of it; never run statements on it from two threads."""
        self._lock = lock
        self._threads = threads
        self._writer = Writer(path, lambda: self.connection.cursor(), self._reopen)
        self._closed = False

    @classmethod
    def open(cls, path: str | Path, *, allow_network: bool = False, threads: int | None = None) -> Store:
        """Open or create the store at `path` and migrate it to this version.

        Raises StoreError: another process (or this one) has it open, its schema is newer than this program, it is not
        a twinrail store, it is damaged, or it lies on a network file system (`allow_network` makes that a warning).
        """
        path = Path(path).absolute()
        path.parent.mkdir(parents=True, exist_ok=True)
        check_file_system(path, allow_network=allow_network)
        lock = SingleWriterLock(path)
        try:
            connection, quarantined = connect(path, threads=threads)
            connection = migrate(path, connection, threads=threads)
            queries.install(connection)
            connection.execute("CHECKPOINT")
        except BaseException:
            lock.release()
            raise
        store = cls(path, lock, connection, threads)
        store.quarantined = quarantined
        store._register()
        return store

    def _register(self) -> None:
        self.connection.create_function("store_changes", self._changes_json, [], "VARCHAR", side_effects=True)

    def _reopen(self) -> None:
        """Leave an instance that DuckDB has invalidated for a new one. It lives on while anybody still uses it: a
        served store can only be opened again by a new owner."""
        try:
            self.connection.close()
            self.connection, _ = connect(self.path, threads=self._threads)
            self._register()
        except Exception:
            log.exception("%s cannot be opened again; its owner must be started anew", self.path)

    def write(self, records: Sequence[Record], *, urgent: bool = False) -> Future[None]:
        """Queue records: all of them in one transaction, in order, at the next tick (at once if `urgent`).

        Thread-safe. The future resolves after the commit is on disk, or fails with StoreError; then none of these
        records is stored, and other calls' records are not affected. NaN and infinities become NULL.
        """
        return self._writer.put(records, urgent=urgent)

    async def commit(self, records: Sequence[Record]) -> None:
        """Write records and wait until they are on disk. Raises StoreError. Cancelling does not unwrite them."""
        await asyncio.shield(asyncio.wrap_future(self.write(records, urgent=True)))

    def query(self, sql: str, *, handle: Query | None = None, timeout_s: float | None = None) -> Table:
        """Run one statement and take its whole answer; from any thread. Raises StoreError, QueryCancelled."""
        import duckdb

        if self._closed:
            raise StoreError(f"{self.path} is closed")
        handle = handle or Query()
        timer = threading.Timer(timeout_s, handle.cancel) if timeout_s is not None else None
        cursor = self.connection.cursor()
        try:
            with handle.cancelling(cursor.interrupt):
                if timer:
                    timer.daemon = True
                    timer.start()
                return run_on(cursor, sql)
        except duckdb.InterruptException as e:
            raise QueryCancelled("the query was cancelled, or ran too long") from e
        except duckdb.Error as e:
            if "'pytz'" in str(e):
                raise StoreError(
                    "a TIMESTAMP WITH TIME ZONE cannot be read here: cast it, as in now()::TIMESTAMP"
                ) from e
            if isinstance(e, duckdb.ProgrammingError):
                raise QueryError(str(e)) from e
            raise StoreError(str(e)) from e
        finally:
            if timer:
                timer.cancel()
            cursor.close()

    @property
    def exchange(self) -> Path:
        """Folder beside the store (0700) through which files go into DuckDB and out; nothing in it is kept."""
        folder = self.path.with_name(self.path.name + ".exchange")
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def changes(self) -> dict[str, int]:
        """Table -> number of commits that touched it since this store was opened. SQL: `select store_changes()`."""
        return dict(self._writer.changes)

    def _changes_json(self) -> str:
        import orjson

        return orjson.dumps(self.changes()).decode()

    def close(self) -> None:
        """Commit what is queued, write the checkpoint, release the lock. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._writer.close()
        try:
            self.connection.close()
        finally:
            self._lock.release()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
