"""`export` and the part of `import` that takes a results tree: whole runs out of the store and into it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from console.verbs import DONE, NEGATIVE, Place, out, out_json, run_async, say, session_of

if TYPE_CHECKING:
    from runners.spec import Inventory

SHOWN = 20


def run_export(place: Place, run_id: str, to: Path | None, *, as_json: bool) -> int:
    """Write a run's tree, complete. Exit code 0, or 3 when it cannot be read or written."""
    return run_async(_export(place.inventory(), run_id, {"to": str(to.absolute())} if to else {}, as_json=as_json))


async def _export(inventory: Inventory, run_id: str, where: dict[str, str], *, as_json: bool) -> int:
    async with session_of(inventory, foreground=False) as session:
        answer = await session.carried_out("export", run_id=run_id, **where)
    if as_json:
        out_json({k: answer[k] for k in ("run_id", "path", "tables")})
    else:
        out(answer["path"])
        say(f"{len(answer['tables'])} tables in rows/; `twinrail export --verify {answer['path']}` checks it anywhere")
    return DONE


def verify_tree(place: Place, what: str, *, as_json: bool) -> int:
    """Compare a tree (a folder, or the id of a run of ours) with its checksums. Exit code 0 as written, 1 not."""
    from store.export.sums import verify

    folder = Path(what)
    if not folder.is_dir():
        folder = place.inventory().results_path / what
    found = verify(folder)
    if as_json:
        files = {"same": len(found.same), "changed": found.changed, "missing": found.missing, "added": found.added}
        out_json({"ok": found.ok, "path": str(folder), **files})
        return DONE if found.ok else NEGATIVE
    for word, names in (("changed", found.changed), ("missing", found.missing), ("added", found.added)):
        for name in names[:SHOWN]:
            out(f"{word}: {name}")
        if len(names) > SHOWN:
            out(f"{word}: {len(names) - SHOWN} more")
    out(f"{len(found.same)} files are as they were written" + ("" if found.ok else "; the tree as a whole is not"))
    return DONE if found.ok else NEGATIVE


def import_run(place: Place, tree: Path, *, force: bool, as_json: bool) -> int:
    """Take a results tree of another machine into the store. Exit code 0, or 3 when it is none or has changed."""
    return run_async(_import(place.inventory(), str(tree.absolute()), force=force, as_json=as_json))


async def _import(inventory: Inventory, tree: str, *, force: bool, as_json: bool) -> int:
    async with session_of(inventory, foreground=False) as session:
        answer = await session.carried_out("import_tree", path=tree, force=force)
    if as_json:
        out_json({k: answer[k] for k in ("run_id", "path", "rows", "forced")})
    else:
        out(f"{answer['run_id']}: {sum(answer['rows'].values())} rows; `twinrail show {answer['run_id']}`")
        if answer["forced"]:
            say("the tree is not as it was exported; taken all the same, as --force says")
    return DONE
