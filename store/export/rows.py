"""All rows of one run as Parquet files, a table each, and back: what makes an export complete.

`rows/<table>.parquet` in the results tree. Any tool reads them; `import` puts them into another store, where every
query and screen gives the same figures. Rows come sorted, so the same rows give the same bytes.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from store.errors import ResultsError
from store.queries import literal
from store.records import Record, all_records
from store.schema import columns

if TYPE_CHECKING:
    import duckdb

    from store.database import Store

FOLDER = "rows"
RUN_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")
ELSEWHERE = frozenset({"node_states"})  # of nodes, not of a run


def tables() -> dict[str, type[Record]]:
    """Table -> record of everything that belongs to a run."""
    return {r.table: r for r in all_records() if r.table not in ELSEWHERE}


def _belongs(record: type[Record], run_id: str) -> str:
    """The WHERE of a run's rows. A server that was up before the run belongs to it too, with what it said of itself."""
    run, names = literal(run_id), {f.name for f in fields(record)}
    served = f"(SELECT life_id FROM attempts WHERE run_id = {run} AND life_id IS NOT NULL)"
    if record.table in ("lives", "variables"):
        return f"run_id = {run} OR life_id IN {served}"
    if "run_id" in names:
        return f"run_id = {run}"
    return f"job_id IN (SELECT job_id FROM jobs WHERE run_id = {run})"


def write_rows(store: Store, run_id: str, target: Path) -> list[str]:
    """Write `rows/` of a run's tree; tables without rows have no file. The names of the tables written.

    Raises:
        ResultsError: the folder cannot be written.
        StoreError: the store cannot be read.
    """
    folder = target / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for table, record in tables().items():
            path, where = folder / f"{table}.parquet", _belongs(record, run_id)
            if not store.query(f"SELECT 1 FROM {table} WHERE {where} LIMIT 1").rows:
                path.unlink(missing_ok=True)
                continue
            chosen = "* REPLACE (NULL::VARCHAR AS results_dir)" if table == "runs" else "*"  # a path of this machine
            new = store.exchange / f"{run_id}.{table}.parquet"
            store.query(
                f"COPY (SELECT {chosen} FROM {table} WHERE {where} ORDER BY ALL) TO {literal(str(new))} "
                "(FORMAT parquet, COMPRESSION zstd)"
            )
            shutil.move(new, path)
            written.append(table)
    except OSError as e:
        raise ResultsError(f"cannot write {folder}: {e}. Make room or set results = in [project].") from e
    return written


def read_rows(store: Store, folder: Path, results: Path) -> tuple[str, dict[str, int]]:
    """Put the rows of a tree into the store, in one transaction: (run id, table -> rows). `results`: the new tree.

    A run of that id that is there already is replaced; a server life of another run is only added.

    Raises:
        ResultsError: no rows there, not rows of one run, columns of another version, or the run is on here.
        StoreError: the store cannot be written.
    """
    import duckdb

    place = Path(tempfile.mkdtemp(dir=store.exchange))
    cursor = store.connection.cursor()
    try:
        found = _brought(folder, place)
        run_id = _run_id(cursor, found["runs"])
        _not_on(cursor, run_id)
        cursor.execute("BEGIN")
        counts = {table: _take(cursor, table, path, run_id) for table, path in found.items()}
        cursor.execute(
            f"UPDATE runs SET results_dir = {literal(str(results))}, state = 'done' WHERE run_id = {literal(run_id)}"
        )
        cursor.execute("COMMIT")
    except duckdb.Error as e:
        said = str(e).replace(f"{place}/", "").splitlines()[0]
        raise ResultsError(f"{folder}: the rows do not fit this store: {said}") from e
    except OSError as e:
        raise ResultsError(f"cannot copy {folder / FOLDER}: {e}") from e
    finally:
        cursor.close()
        shutil.rmtree(place, ignore_errors=True)
    return run_id, counts


def _brought(folder: Path, place: Path) -> dict[str, Path]:
    """Table -> a copy of its file where DuckDB may read it."""
    found = {}
    for table in tables():
        source = folder / FOLDER / f"{table}.parquet"
        if source.is_file() and not source.is_symlink():
            found[table] = place / source.name
            shutil.copyfile(source, found[table])
    if "runs" not in found:
        raise ResultsError(f"{folder} has no {FOLDER}/runs.parquet: it is no complete export of a run")
    return found


def _run_id(cursor: duckdb.DuckDBPyConnection, path: Path) -> str:
    rows = cursor.execute(f"SELECT DISTINCT run_id::VARCHAR FROM read_parquet({literal(str(path))})").fetchall()
    if len(rows) != 1 or not RUN_ID.match(str(rows[0][0])):
        raise ResultsError(f"{path} does not hold exactly one run")
    return str(rows[0][0])


def _not_on(cursor: duckdb.DuckDBPyConnection, run_id: str) -> None:
    state = cursor.execute(f"SELECT state FROM runs WHERE run_id = {literal(run_id)}").fetchone()
    if state is not None and state[0] != "done":
        raise ResultsError(f"run {run_id} is on in this store; import it when it has ended")


def _take(cursor: duckdb.DuckDBPyConnection, table: str, path: Path, run_id: str) -> int:
    """Replace the run's rows of one table by those of a file. The number of rows taken."""
    record = tables()[table]
    source = f"read_parquet({literal(str(path))})"
    theirs = [str(row[0]) for row in cursor.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()]
    known = columns(record)
    if strange := [c for c in theirs if c not in known]:
        raise ResultsError(f"{path.name} has columns that this version does not know: {', '.join(strange[:5])}")
    chosen = ", ".join(f'CAST("{c}" AS {known[c]}) AS "{c}"' for c in theirs)
    run = literal(run_id)
    if "run_id" not in known:
        cursor.execute(f"DELETE FROM {table} WHERE job_id IN (SELECT job_id FROM {source})")
        cursor.execute(f"INSERT INTO {table} BY NAME SELECT {chosen} FROM {source}")
    else:
        cursor.execute(f"DELETE FROM {table} WHERE run_id = {run}")
        cursor.execute(f"INSERT INTO {table} BY NAME SELECT {chosen} FROM {source} WHERE run_id = {run}")
        if table in ("lives", "variables"):
            quoted = ", ".join(f'"{c}"' for c in theirs)
            cursor.execute(
                f"INSERT INTO {table} BY NAME (SELECT {chosen} FROM {source} WHERE run_id IS DISTINCT FROM {run} "
                f"EXCEPT SELECT {quoted} FROM {table})"
            )
    taken = cursor.execute(f"SELECT count(*) FROM {source}").fetchone()
    return int(taken[0]) if taken else 0
