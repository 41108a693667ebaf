"""`runs`, `show` and `sql`: read the store, live or past; nothing is started."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from console.verbs import DONE, USAGE, Place, number, out, out_json, print_table, run_async, say_error
from store.export.hardware import hardware_lines

if TYPE_CHECKING:
    from runners.session import Session
    from runners.spec import Inventory
    from store.database import Table

MOST_IN_FULL = 6  # attempts of a run whose use of the hardware is printed too; --json has it of all


MOST_VALUE = 160  # characters of a variable in a table; --json and the results tree have all of it


def _ago(wall_ns: int | None) -> str:
    if not wall_ns:
        return "–"
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(wall_ns / 1e9))


def list_runs(place: Place, *, as_json: bool) -> int:
    """All runs, newest first."""
    return run_async(_list_runs(place.inventory(), as_json=as_json))


async def _list_runs(inventory: Inventory, *, as_json: bool) -> int:
    from runners.session import reading

    async with reading(inventory) as session:
        rows = await session.rows("runs_list")
    if as_json:
        out_json({"runs": rows})
        return DONE
    if not rows:
        out("no runs yet; `twinrail run CASE` makes one")
        return DONE
    print_table(
        ["run", "started", "deployment", "what", "state", "outcome"],
        [
            [
                r["run_id"],
                _ago(r["created_wall_ns"]),
                r["deployment"] or "",
                r["plan"] or r["kind"],
                r["state"],
                r["outcome"] or "",
            ]
            for r in rows
        ],
    )
    return DONE


def show_run(place: Place, run_id: str, *, as_json: bool, manifest: bool, commands: bool) -> int:
    """One run: figures, or its manifest, or its commands."""
    return run_async(_show_run(place.inventory(), run_id, as_json=as_json, manifest=manifest, commands=commands))


async def _show_run(inventory: Inventory, run_id: str, *, as_json: bool, manifest: bool, commands: bool) -> int:
    from runners.session import reading

    async with reading(inventory) as session:
        document = await session.document(run_id)
        if manifest:
            document = {"run_id": run_id, "variables": await session.rows("run_manifest", run_id)}
        elif commands:
            document = {"run_id": run_id, "commands": await session.rows("run_commands", run_id)}
        starts = [] if as_json or manifest or commands else await _starts(session, run_id)
    if as_json:
        out_json(document)
    elif manifest:
        print_table(
            ["name", "value", "node", "source"],
            [
                [v["name"], (v["value"] or "–")[:MOST_VALUE], v["node"] or "", v["source"]]
                for v in document["variables"]
            ],
        )
    elif commands:
        for c in document["commands"]:
            code = "" if c["exit_code"] is None else f", exit {c['exit_code']}"
            out(f"# {c['label']} on {c['node']} in {c['cwd']} ({c['purpose']}{code})")
            out(c["text"])
    else:
        print_document(document)
        for line in starts:
            out(line)
    return DONE


async def _starts(session: Session, run_id: str) -> list[str]:
    """How each server of the run came up."""
    from console.verbs.stages import start_line

    lives = {r["life_id"]: r for r in await session.rows("startup_lives")}
    mine = [lives[r["life_id"]] for r in await session.rows("run_lives", run_id) if r["life_id"] in lives]
    return [start_line(r, await session.rows("startup_stages", r["life_id"])) for r in mine if not r["external"]]


def print_document(document: dict[str, Any]) -> None:
    """A run's document for people: one line an attempt, both windows."""
    mark = "  SIMULATED" if document["simulated"] else ""
    out(f"run {document['run_id']}: {document['outcome'] or document['state']}{mark}")
    if document.get("detail"):
        out(f"  {document['detail']}")
    for key in ("changes", "why", "expects"):
        if document.get(key):
            out(f"  {key}: {document[key]}")
    if document.get("vary"):
        out("  vary: " + ", ".join(f"{k}={v}" for k, v in document["vary"].items()))
    if "points" in document:
        from console.verbs.search import print_search

        print_search(document)
        return
    if "hosts" in document:
        from console.verbs.watch import print_watch

        print_watch(document)
        return
    rows = []
    for case in document["cases"]:
        for a in case["attempts"]:
            rows += [_figures(case, a, name, w) for name, w in (("steady", a), ("all", a["all"]))]
    columns = ["case", "rep", "outcome", "window", "n", "out tok/s", "in tok/s", "TTFT p50", "p95", "p99"]
    columns += ["TPOT p50", "p95", "p99", "E2E p50 s"]
    print_table(columns, rows)
    for case in document["cases"]:
        if case["unstable"]:
            why = "; ".join(case["unstable_why"]) or "nothing measured explains it"
            out(f"{case['case']}: unstable, repeats spread by {case['spread_pct']:.1f} %: {why}")
        for a in case["attempts"]:
            if a["detail"]:
                out(f"{case['case']} repeat {a['attempt']}: {a['detail']}")
            if a["flags"]:
                out(f"{case['case']} repeat {a['attempt']}: flags {', '.join(a['flags'])}")
            for line in hardware_lines(a["hardware"]) if a.get("hardware") and len(rows) <= 2 * MOST_IN_FULL else ():
                out(f"{case['case']} repeat {a['attempt']}: {line}")
    out("TTFT and TPOT in ms; percentiles of fewer than 100 requests are marked ~")


def _figures(case: dict[str, Any], attempt: dict[str, Any], name: str, window: dict[str, Any]) -> list[str]:
    def stat(metric: str, which: str, scale: float = 1.0) -> str:
        value = window[metric][which]
        text = number(None if value is None else value * scale)
        return f"~{text}" if which == "p99" and value is not None and window[metric]["n"] < 100 else text

    shown = [case["case"], str(attempt["attempt"]), attempt["outcome"] or "–", name]
    shown += [number(window["requests"]["ok"], "d"), number(window["output_tps"]), number(window["input_tps"])]
    shown += [stat("ttft_ms", s) for s in ("p50", "p95", "p99")]
    shown += [stat("tpot_ms", s) for s in ("p50", "p95", "p99")]
    return [*shown, stat("e2e_ms", "p50", 0.001)]


def run_sql(place: Place, query: str, *, as_json: bool) -> int:
    """One SELECT, executed in the owner when one lives."""
    return run_async(_run_sql(place.inventory(), query, as_json=as_json))


async def _run_sql(inventory: Inventory, query: str, *, as_json: bool) -> int:
    from runners.session import reading
    from store.errors import OwnerGone, StoreError
    from store.guard import Guard

    async with reading(inventory) as session:
        try:
            if not session.owner.alive:  # the store is open for writing then; an owner checks what it is asked
                Guard().check(query)
            answer = await session.sql(query)
        except OwnerGone:
            raise
        except StoreError as e:
            say_error(e)
            return USAGE
    if as_json:
        out_json(table_document(answer))
    else:
        print_table(list(answer.columns), [[_cell(v) for v in row] for row in answer.rows])
    return DONE


def table_document(answer: Table) -> dict[str, Any]:
    """A table in the shape of `sql --json`."""
    columns = [{"name": n, "type": t} for n, t in zip(answer.columns, answer.types, strict=True)]
    return {"columns": columns, "rows": [[_plain(v) for v in row] for row in answer.rows]}


def _plain(value: Any) -> Any:
    """A value as JSON has it; what JSON does not know becomes text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value if not isinstance(value, int) or -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    return str(value)


def _cell(value: Any) -> str:
    return "NULL" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
