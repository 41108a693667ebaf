"""Opening the file: lock, file system, damaged log, schema version, backup, migration."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from store.errors import StoreBusy, StoreError
from store.schema import migrations

if TYPE_CHECKING:
    import duckdb

log = logging.getLogger(__name__)

# fmt: off
NETWORK_FILE_SYSTEMS = frozenset((
    "9p", "afs", "beegfs", "beegfs_nodev", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs",
    "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "orangefs", "pvfs2", "smb3", "smbfs", "wekafs",
))
# fmt: on
"""Where file locks and mmap are not to be relied on by a database (type names as in /proc/mounts)."""


_WAL_ENTRY_HEADER = 16  # size and checksum, 8 bytes each; DuckDB names the position behind them


class SingleWriterLock:
    """An exclusive flock on `<store>.lock`, which holds the owner's pid. The kernel drops it when the process dies."""

    def __init__(self, store: Path) -> None:
        self.path = store.with_name(store.name + ".lock")
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as e:
            raise StoreError(f"cannot make the lock {self.path}: {e.strerror}") from e
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            held_by = os.read(self._fd, 32).strip()
            os.close(self._fd)
            who = f"process {held_by.decode()}" if held_by.isdigit() else "another process"
            raise StoreBusy(f"{store} is in use by {who}; attach to it, or end that process first") from e
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Give the lock back. The file stays: removing it would let two processes lock two different files."""
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1


def file_system_type(path: Path, mounts: str | None = None) -> str | None:
    """Type of the file system that holds `path`, by the longest mount point in /proc/mounts; None if not known."""
    if mounts is None:
        try:
            mounts = Path("/proc/mounts").read_text("utf-8", "surrogateescape")
        except OSError:
            return None
    real = path.resolve()
    best: tuple[int, str] | None = None
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[1])
        # A later mount on the same point hides the earlier one, hence >=.
        if real.is_relative_to(point) and (best is None or len(point) >= best[0]):
            best = (len(point), fields[2])
    return best[1] if best else None


def check_file_system(path: Path, *, allow_network: bool) -> None:
    """Refuse (StoreError) or, with `allow_network`, warn of a store on a network file system."""
    kind = file_system_type(path.parent)
    if kind in NETWORK_FILE_SYSTEMS:
        text = f"{path} lies on a network file system ({kind}), where a database can be damaged"
        if not allow_network:
            raise StoreError(f"{text}; choose a folder on a local disk")
        log.warning("%s", text)


def connect(path: Path, *, threads: int | None = None) -> tuple[duckdb.DuckDBPyConnection, Path | None]:
    """Open the file; a write-ahead log that cannot be replayed is put aside (renamed, never deleted).

    What the log holds before its first broken entry is replayed from a copy. Returns the connection and where the
    broken log went, if one did. Raises StoreError.
    """
    import duckdb

    # A commit must not checkpoint: when the disk fills up meanwhile, DuckDB reports a durable commit as failed and
    # gives the whole instance up. The writer checkpoints between ticks, when there is room.
    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "wal_autocheckpoint": "1TB",
    }
    if threads is not None:
        config["threads"] = threads

    def attempt() -> duckdb.DuckDBPyConnection:
        return duckdb.connect(str(path), config=config)

    wal = wal_of(path)
    aside = wal.with_name(f"{wal.name}.broken-{time.time_ns()}")
    if wal.exists() and not _looks_like_wal(wal):
        wal.rename(aside)
        log.warning("%s is no write-ahead log; it was put aside as %s", wal.name, aside)
        return attempt(), aside
    try:
        return attempt(), None
    except duckdb.Error as first:
        if not wal.exists() or "WAL" not in str(first):
            raise StoreError(f"cannot open {path}: {first}") from first
        broken_at = re.search(r"entry at byte position (\d+)", str(first))
        wal.rename(aside)
        log.warning("%s could not be replayed (%s); it was put aside as %s", wal.name, first, aside)
        if broken_at:
            try:
                wal.write_bytes(aside.read_bytes()[: int(broken_at[1]) - _WAL_ENTRY_HEADER])
                return attempt(), aside
            except duckdb.Error as e:
                log.warning("nor could what precedes the broken entry: %s", e)
                wal.rename(wal.with_name(f"{wal.name}.part-{time.time_ns()}"))
        try:
            return attempt(), aside
        except duckdb.Error as second:
            aside.rename(wal)  # the log was not the cause
            raise StoreError(f"cannot open {path}: {second}") from second


def wal_of(path: Path) -> Path:
    """The write-ahead log of a store."""
    return path.with_name(path.name + ".wal")


def _looks_like_wal(wal: Path) -> bool:
    # DuckDB passes over a log of zeros or rubbish in silence; a log begins with its version entry (field 100, type 98).
    with wal.open("rb") as f:
        head = f.read(3)
    return len(head) < 3 or head == b"\x64\x00\x62"


def free_bytes(path: Path) -> int:
    """Bytes that may still be written where the store lies."""
    s = os.statvfs(path.parent)
    return s.f_bavail * s.f_frsize


def schema_version(connection: duckdb.DuckDBPyConnection, path: Path) -> int:
    """Version of an open store; 0 if it is empty. Raises StoreError if it is some other DuckDB file."""
    tables = {r[0] for r in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    if "schema_version" in tables:
        row = connection.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchone()
        return int(row[0]) if row else 0
    if tables:
        raise StoreError(f"{path} is a DuckDB file with other tables in it, not a twinrail store")
    return 0


def migrate(
    path: Path,
    connection: duckdb.DuckDBPyConnection,
    *,
    threads: int | None = None,
    folder: Path | None = None,
) -> duckdb.DuckDBPyConnection:
    """Bring the store to the newest schema, after a copy of an older one to `<store>.v<N>-<ns>.bak`.

    Returns the connection to go on with: the file is closed while it is copied. Raises StoreError.
    """
    import duckdb

    steps = migrations(folder)
    have, newest = schema_version(connection, path), max(steps)
    if have > newest:
        connection.close()
        raise StoreError(
            f"{path} has schema version {have}, this program knows up to {newest}: it was written by a newer "
            "twinrail; use that one"
        )
    if have == newest:
        return connection
    if have:
        connection.execute("CHECKPOINT")
        connection.close()
        backup = path.with_name(f"{path.name}.v{have}-{time.time_ns()}.bak")
        shutil.copy2(path, backup)
        log.info("copied the version %d store to %s", have, backup)
        connection, _ = connect(path, threads=threads)
    for version in range(have + 1, newest + 1):
        try:
            connection.execute("BEGIN")
            connection.execute(steps[version].read_text())
            connection.execute("INSERT INTO schema_version VALUES (?, ?)", [version, time.time_ns()])
            connection.execute("COMMIT")
        except duckdb.Error as e:
            connection.close()
            raise StoreError(f"migration {steps[version].name} of {path} failed: {e}") from e
    connection.execute("CHECKPOINT")
    return connection
