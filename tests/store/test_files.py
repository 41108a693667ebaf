from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from store import files, writer
from store.database import Store, StoreError
from store.records import Note
from store.schema import migrations

FILL = """
import os, sys
from store.database import Store
from store.records import Note
store = Store.open(sys.argv[1])
for n in range(30):
    store.write([Note(wall_ns=n, who="me", text="y" * 100)] * 20).result()
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.duckdb"


def fill_and_die(path: Path) -> Path:
    """30 transactions of 20 notes, left in the write-ahead log by kill -9."""
    subprocess.run([sys.executable, "-c", FILL, str(path)], check=False)
    wal = files.wal_of(path)
    assert wal.stat().st_size > 10_000
    return wal


def notes(store: Store) -> int:
    return int(store.query("SELECT count(*) FROM notes").rows[0][0])


def test_a_second_opening_names_the_process_that_holds_the_store(path: Path) -> None:
    with Store.open(path):
        opening = "import sys; from store.database import Store; Store.open(sys.argv[1])"
        other = subprocess.run([sys.executable, "-c", opening, str(path)], capture_output=True, text=True, check=False)
        assert f"in use by process {os.getpid()}" in other.stderr
        with pytest.raises(StoreError, match=f"process {os.getpid()}"):
            Store.open(path)
    with Store.open(path):
        pass


def test_a_store_of_a_newer_twinrail_is_refused_and_left_alone(path: Path) -> None:
    with Store.open(path) as store:
        store.connection.execute(f"INSERT INTO schema_version VALUES ({max(migrations()) + 1}, 0)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="newer"):
        Store.open(path)
    assert path.read_bytes() == before


def test_some_other_duckdb_file_is_refused(path: Path) -> None:
    with duckdb.connect(str(path)) as other:
        other.execute("CREATE TABLE mine (a INT)")
    with pytest.raises(StoreError, match="not a twinrail store"):
        Store.open(path)


def test_an_older_store_is_copied_before_it_is_migrated(path: Path, tmp_path: Path) -> None:
    with Store.open(path) as store:
        store.write([Note(wall_ns=1, who="me", text="kept")]).result()
    steps = tmp_path / "steps"
    shutil.copytree(Path(files.__file__).parent / "schema", steps)
    number = max(migrations()) + 1
    (steps / f"{number:04}_more.sql").write_text("CREATE TABLE more (a BIGINT); INSERT INTO more VALUES (7);")
    connection, _ = files.connect(path)
    connection = files.migrate(path, connection, folder=steps)
    assert connection.execute("SELECT (SELECT text FROM notes), (FROM more)").fetchall() == [("kept", 7)]
    assert files.schema_version(connection, path) == number
    connection.close()
    (backup,) = tmp_path.glob(f"s.duckdb.v{number - 1}-*.bak")
    with duckdb.connect(str(backup), read_only=True) as old:
        assert old.execute("SELECT text FROM notes").fetchall() == [("kept",)]
        assert files.schema_version(old, backup) == number - 1


def test_a_migration_that_fails_changes_nothing(path: Path, tmp_path: Path) -> None:
    Store.open(path).close()
    steps = tmp_path / "steps"
    shutil.copytree(Path(files.__file__).parent / "schema", steps)
    number = max(migrations()) + 1
    (steps / f"{number:04}_bad.sql").write_text("CREATE TABLE more (a BIGINT); CREATE TABLE more (a BIGINT);")
    connection, _ = files.connect(path)
    with pytest.raises(StoreError, match=r"_bad\.sql"):
        files.migrate(path, connection, folder=steps)
    with Store.open(path) as store:
        assert store.query("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'more'").rows == [(0,)]


def damage_middle(wal: bytes) -> bytes:
    half = len(wal) // 2
    return wal[:half] + bytes([wal[half] ^ 0xFF]) + wal[half + 1 :]


def damage_tail_with_zeros(wal: bytes) -> bytes:
    return wal + bytes(5000)


def damage_all(wal: bytes) -> bytes:
    return bytes(len(wal))


@pytest.mark.parametrize(
    ("damage", "at_least", "at_most"),
    [(damage_middle, 200, 400), (damage_tail_with_zeros, 600, 600), (damage_all, 0, 0)],
)
def test_a_broken_log_is_put_aside_and_what_precedes_the_damage_is_kept(
    path: Path, damage: Callable[[bytes], bytes], at_least: int, at_most: int
) -> None:
    wal = fill_and_die(path)
    broken = damage(wal.read_bytes())
    wal.write_bytes(broken)
    with Store.open(path) as store:
        assert store.quarantined is not None
        assert store.quarantined.read_bytes() == broken
        assert at_least <= notes(store) <= at_most
        store.write([Note(wall_ns=1, who="me", text="on we go")]).result()
    with Store.open(path) as store:
        assert store.quarantined is None
        assert store.query("SELECT count(*) FROM notes WHERE text = 'on we go'").rows == [(1,)]


def test_an_untouched_log_is_replayed_whole(path: Path) -> None:
    fill_and_die(path)
    with Store.open(path) as store:
        assert store.quarantined is None
        assert notes(store) == 600


MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb1 /home/me/local\\040disk xfs rw 0 0
me@host:/data /mnt/data fuse.sshfs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/home/me", "nfs4"),
        ("/homes", "ext4"),
        ("/home/me/local disk/x", "xfs"),
        ("/mnt/data", "fuse.sshfs"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(folder: str, kind: str) -> None:
    assert files.file_system_type(Path(folder), MOUNTS) == kind


def test_a_network_file_system_is_refused_or_warned_of(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(files, "file_system_type", lambda _: "nfs4")
    with pytest.raises(StoreError, match="network file system"):
        Store.open(path)
    with Store.open(path, allow_network=True):
        assert "network file system" in caplog.text


def test_a_nearly_full_disk_refuses_writes_until_there_is_room(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(path) as store:
        store.write([Note(wall_ns=1, who="me", text="before")]).result()
        monkeypatch.setattr(writer, "free_bytes", lambda _: writer.RESERVE_BYTES)
        with pytest.raises(StoreError, match="nearly full"):
            store.write([Note(wall_ns=2, who="me", text="lost")]).result()
        monkeypatch.undo()
        store.write([Note(wall_ns=3, who="me", text="after")]).result()
        assert store.query("SELECT text FROM notes").rows == [("before",), ("after",)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=60m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_fills_up_costs_nothing_that_was_acknowledged(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(15 << 20))
    stored = 0
    with Store.open(small_disk / "s.duckdb") as store:
        refusal: BaseException | None = None
        while refusal is None and stored < 400_000:
            batch = [Note(wall_ns=1, who="me", text=os.urandom(500).hex()) for _ in range(200)]
            refusal = store.write(batch).exception()
            stored += 0 if refusal else len(batch)
        assert isinstance(refusal, StoreError)
        assert "full" in str(refusal)
        ballast.unlink()
        store.write([Note(wall_ns=1, who="me", text="room again")]).result()
        assert notes(store) == stored + 1
    with Store.open(small_disk / "s.duckdb") as store:
        assert notes(store) == stored + 1


LIMITED = """
import os, resource, sys
from store.database import Store, StoreError
from store.records import Note
store = Store.open(sys.argv[1])
def limit(size): resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
limit(20_000_000)
stored = 0
try:
    while True:
        store.write([Note(wall_ns=1, who="me", text=os.urandom(2000).hex()) for _ in range(500)]).result()
        stored += 500
except StoreError as e:
    print(e)
limit(resource.RLIM_INFINITY)
store.write([Note(wall_ns=1, who="me", text="room again")]).result()
assert store.query("SELECT count(*) FROM notes").rows == [(stored + 1,)], stored
store.close()
assert Store.open(sys.argv[1]).query("SELECT count(*) FROM notes").rows == [(stored + 1,)], stored
"""


def test_writes_that_the_kernel_refuses_leave_the_store_usable(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "not stored" in done.stdout
