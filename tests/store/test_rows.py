"""A run leaves with all its rows and comes back the same, byte by byte; what is no export is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runners.flows.trees import export_run, import_tree
from store.database import Store
from store.errors import ResultsError
from store.export.rows import tables
from store.export.sums import NAME, verify, write_sums
from store.records import Command, Life, Record, Run, Variable
from tests.store.analysis.ab import rig
from tests.store.samples import one_of_each


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "here" / "s.duckdb") as opened:
        opened.write([*_run_rows(), *rig.run("other", [5.0])], urgent=True).result()
        yield opened


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "there" / "s.duckdb") as opened:
        yield opened


def _run_rows() -> list[Record]:
    """One row of every table that belongs to a run, and a run with requests on a server that was up before."""
    sample = [_of_run(r) for r in one_of_each() if r.table in tables() and not isinstance(r, Run)]
    earlier = Life(life_id="up-1.L1", run_id="up-1", deployment="d", state="ready", started_wall_ns=1)
    said = Variable(run_id="up-1", life_id="up-1.L1", name="server.version", value="0.5", wall_ns=1)
    return [*rig.run("r1", [100.0, 101.0], life_id="up-1.L1"), *sample, earlier, said]


def _of_run(record: Record) -> Record:
    if isinstance(record, Command):
        record = replace(record, purpose="../../server", env='{"A": "x\\u001b[31m"}')
    return replace(record, run_id="r1") if "run_id" in record.__dataclass_fields__ else record  # type: ignore[call-arg]  # has it


def _bytes(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def _rows(store: Store, table: str) -> list[tuple[object, ...]]:
    where = "WHERE run_id <> 'other' OR run_id IS NULL" if "run_id" in tables()[table].__dataclass_fields__ else ""
    chosen = "* EXCLUDE (results_dir)" if table == "runs" else "*"
    return store.query(f"SELECT {chosen} FROM {table} {where} ORDER BY ALL").rows


def test_a_round_trip_gives_the_same_rows_and_the_same_bytes(store: Store, there: Store, tmp_path: Path) -> None:
    first = export_run(store, "r1", tmp_path / "results", str(tmp_path / "mail"))
    taken = import_tree(there, first["path"], tmp_path / "results2")
    assert taken["run_id"] == "r1"
    assert "other" not in {r[0] for r in there.query("select run_id from runs").rows}
    assert [t for t in tables() if _rows(store, t) and not _rows(there, t)] == []
    second = export_run(there, "r1", tmp_path / "results2", str(tmp_path / "again"))
    ours, theirs = _bytes(Path(first["path"])), _bytes(Path(second["path"]))
    assert ours.keys() == theirs.keys()
    assert "_server_cmd.txt" in ours  # a hostile purpose stays within the tree
    told = {"run_manifest.json", "run_manifest.txt", NAME}  # they name the place of the tree
    assert [n for n in ours if n not in told and ours[n] != theirs[n]] == []


def test_importing_twice_doubles_nothing(store: Store, there: Store, tmp_path: Path) -> None:
    exported = export_run(store, "r1", tmp_path / "results", str(tmp_path / "mail"))["path"]
    import_tree(there, exported, tmp_path / "results2")
    once = {t: _rows(there, t) for t in tables()}
    import_tree(there, exported, tmp_path / "results2")
    assert {t: _rows(there, t) for t in tables()} == once


def test_one_changed_byte_is_found_and_refused_unless_forced(store: Store, there: Store, tmp_path: Path) -> None:
    tree = Path(export_run(store, "r1", tmp_path / "results")["path"])
    assert verify(tree).ok
    (tree / "notes.md").write_text("the operator goes on writing")
    assert verify(tree).ok
    with (tree / "summary.csv").open("a") as f:
        f.write("x")
    (tree / "requests.jsonl").unlink()
    found = verify(tree)
    assert (found.ok, found.changed, found.missing) == (False, ["summary.csv"], ["requests.jsonl"])
    with pytest.raises(ResultsError, match=r"summary\.csv is changed"):
        import_tree(there, str(tree), tmp_path / "results2")
    assert import_tree(there, str(tree), tmp_path / "results2", force=True)["forced"]


def test_what_is_no_export_is_told(store: Store, there: Store, tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no run is called 'zz'"):
        export_run(store, "zz", tmp_path)
    with pytest.raises(ResultsError, match="no folder"):
        import_tree(there, str(tmp_path / "nowhere"), tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ResultsError, match="Is this the folder of a run"):
        import_tree(there, str(empty), tmp_path / "results2")
    write_sums(empty)
    with pytest.raises(ResultsError, match="says no run id"):
        import_tree(there, str(empty), tmp_path / "results2")


@pytest.mark.parametrize("line", ["no sum", f"{'0' * 64}  ../../etc/passwd", f"{'0' * 64}  /etc/passwd"])
def test_sums_that_point_out_of_the_tree_are_no_sums(tmp_path: Path, line: str) -> None:
    (tmp_path / NAME).write_text(line + "\n")
    with pytest.raises(ResultsError, match="line 1 is no checksum"):
        verify(tmp_path)


def test_garbage_rows_change_nothing(store: Store, there: Store, tmp_path: Path) -> None:
    tree = Path(export_run(store, "r1", tmp_path / "results", str(tmp_path / "mail"))["path"])
    (tree / "rows" / "requests.parquet").write_bytes(b"PAR1 garbage")
    with pytest.raises(ResultsError, match="do not fit"):
        import_tree(there, str(tree), tmp_path / "results2", force=True)
    assert there.query("select count(*) from runs").rows == [(0,)]
    assert not list((tmp_path / "results2").iterdir())


def test_a_run_that_is_on_is_neither_exported_nor_replaced(store: Store, there: Store, tmp_path: Path) -> None:
    tree = export_run(store, "r1", tmp_path / "results", str(tmp_path / "mail"))["path"]
    there.write([Run(run_id="r1", kind="run", state="running", created_wall_ns=1)], urgent=True).result()
    with pytest.raises(ResultsError, match="is on in this store"):
        import_tree(there, tree, tmp_path / "results2")
    with pytest.raises(ResultsError, match="is running"):
        export_run(there, "r1", tmp_path / "results2")
