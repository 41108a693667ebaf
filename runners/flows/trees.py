"""Results trees out of the store and into it: `export` and `import`, carried out by the owner."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import orjson

from store.database import Store
from store.errors import ResultsError
from store.export.rows import RUN_ID, read_rows, write_rows
from store.export.sums import NAME, verify, write_sums
from store.export.tree import write_tree
from store.queries import literal
from store.records import Run


def export_run(store: Store, run_id: str, results: Path, to: str | None = None) -> dict[str, Any]:
    """Write the tree of a run anew, with all its rows and its checksums; `to`: a copy in that folder as well.

    Raises:
        ResultsError: no such run, it is still on, or a folder cannot be written.
        StoreError: the store cannot be read.
    """
    run = _run(store, run_id)
    if run.state != "done":
        raise ResultsError(f"run {run_id} is {run.state}; export it when it has ended")
    tree = Path(run.results_dir) if run.results_dir else results / run_id
    write_tree(store, run_id, tree)
    tables = write_rows(store, run_id, tree)
    write_sums(tree)
    target = tree
    if to is not None:
        target = Path(to).expanduser() / run_id
        try:
            if target.exists():
                raise ResultsError(f"{target} exists already; name another folder")
            shutil.copytree(tree, target, symlinks=True)
        except OSError as e:
            raise ResultsError(f"cannot write {target}: {e}. Make room or name another folder.") from e
    return {"ok": True, "run_id": run_id, "path": str(target), "tables": tables}


def import_tree(store: Store, path: str, results: Path, *, force: bool = False) -> dict[str, Any]:
    """Take a results tree of another machine: checksums first, then its files beside ours, then its rows.

    Raises:
        ResultsError: not an export, changed since (`force` takes it all the same), or it cannot be read or written.
        StoreError: the store cannot be written.
    """
    tree = Path(path).expanduser()
    if not tree.is_dir():
        raise ResultsError(f"{tree} is no folder")
    found = verify(tree)
    if not found.ok and not force:
        said = [*(f"{n} is changed" for n in found.changed), *(f"{n} is missing" for n in found.missing)]
        raise ResultsError(f"{tree} is not as it was exported: {'; '.join(said[:5])}. --force takes it all the same.")
    name = _name(tree)
    target = results / name
    if target.resolve() != tree.resolve():
        new = results / f".{name}.new-{os.getpid()}"
        try:
            results.mkdir(parents=True, exist_ok=True)
            shutil.copytree(tree, new, symlinks=True)
            run_id, counts = read_rows(store, new, target)
            if target.exists():
                shutil.rmtree(target)
            new.rename(target)
        except OSError as e:
            raise ResultsError(f"cannot write {target}: {e}") from e
        finally:
            shutil.rmtree(new, ignore_errors=True)
    else:
        run_id, counts = read_rows(store, tree, target)
    store.write([_run(store, run_id)], urgent=True).result()  # watchers hear of it
    return {"ok": True, "run_id": run_id, "path": str(target), "rows": counts, "forced": not found.ok}


def _name(tree: Path) -> str:
    """The run's id as the tree's manifest says it: the folder may have been renamed on its way."""
    try:
        run_id = str(orjson.loads((tree / "run_manifest.json").read_bytes())["run"]["run_id"])
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise ResultsError(f"{tree}/run_manifest.json says no run id; {NAME} alone makes no export") from e
    if not RUN_ID.match(run_id):
        raise ResultsError(f"{tree}/run_manifest.json: {run_id[:40]!r} is no run id")
    return run_id


def _run(store: Store, run_id: str) -> Run:
    rows = store.query(f"from runs where run_id = {literal(run_id)}").dicts()
    if not rows:
        raise ResultsError(f"no run is called {run_id!r}; `twinrail runs` lists them")
    return Run(**rows[0])
