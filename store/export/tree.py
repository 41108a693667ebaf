"""results/<RUN_ID>/: what a colleague finds next month. Every figure comes from the same queries as the screens."""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from store.errors import ResultsError
from store.export.document import RATES, run_document
from store.export.reader import STATS, Reader
from store.export.reproduce import reproduce_script
from store.export.search import points_text
from store.queries import call
from store.text import plain

SUMMARY_COLUMNS = (
    *("run_id", "case", "isl", "osl", "concurrency", "request_rate", "attempt", "life", "outcome", "window"),
    *("ok", "failed", "timed_out", "cut", "input_tokens", "output_tokens", "duration_s", *RATES),
    *(f"{m}_{s}" for m in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms") for s in STATS),
    *("flags", "simulated"),
)


def write_tree(reader: Reader, run_id: str, target: Path) -> None:
    """Write or rewrite the tables and texts of the tree. Files fetched from nodes are left alone.

    Raises:
        StoreError: no such run.
        ResultsError: the folder cannot be written.
    """
    document = run_document(reader, run_id)
    try:
        for folder in ("server", "hardware", "profiles"):
            (target / folder).mkdir(parents=True, exist_ok=True)
        manifest = manifest_document(reader, run_id)
        _write(target / "run_manifest.json", orjson.dumps(manifest, option=orjson.OPT_INDENT_2))
        _write(target / "run_manifest.txt", manifest_text(manifest).encode())
        _write_summary(target / "summary.csv", document)
        if "points" in document:
            _write(target / "points.csv", points_text(document).encode())
            _write(target / "search.json", orjson.dumps({"schema": 1, **document}, option=orjson.OPT_INDENT_2))
        if "hosts" in document:
            _write(target / "watch.json", orjson.dumps({"schema": 1, **document}, option=orjson.OPT_INDENT_2))
        _write_requests(reader, run_id, target / "requests.jsonl")
        commands = reader.query(call("run_commands", run_id)).dicts()
        for purpose in sorted({c["purpose"] for c in commands} | {"server", "bench"}):
            text = commands_text([c for c in commands if c["purpose"] == purpose])
            _write(target / f"{_file_word(purpose)}_cmd.txt", text.encode())
        _write(target / "reproduce.sh", reproduce_script(manifest, commands).encode())
        (target / "reproduce.sh").chmod(0o755)
        _write(target / "notes.md", _notes(reader, run_id).encode())
    except OSError as e:
        raise ResultsError(f"cannot write {target}: {e}. Make room or set results = in [project].") from e


def _file_word(purpose: str) -> str:
    """A purpose as part of a file's name: an imported run may say anything."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", purpose)[:60]


def _write(path: Path, data: bytes) -> None:
    new = path.with_name(path.name + ".new")
    new.write_bytes(data)
    new.replace(path)


def manifest_document(reader: Reader, run_id: str) -> dict[str, Any]:
    """The environment as JSON: the run, its lives, variables, clocks, gates."""
    run = reader.query(call("run_row", run_id)).dicts()[0]
    return {
        "schema": 1,
        "run": run,
        "simulated": run["simulated"],
        "lives": reader.query(call("run_lives", run_id)).dicts(),
        "variables": reader.query(call("run_manifest", run_id)).dicts(),
        "clock_offsets": reader.query(call("run_clocks", run_id)).dicts(),
        "gates": reader.query(call("run_gates", run_id)).dicts(),
    }


def manifest_text(manifest: dict[str, Any]) -> str:
    """The manifest for people: one `name = value` a line, node in brackets."""
    run = manifest["run"]
    lines = ["SIMULATED: every figure of this run comes from a simulator"] if manifest["simulated"] else []
    lines += [f"run.{k} = {v}" for k, v in run.items() if v is not None and k != "spec"]
    for v in manifest["variables"]:
        where = f" [{v['node']}]" if v["node"] else ""
        value = str(v["value"] or "").replace("\n", "\n    ")  # a table of nvidia-smi keeps its lines, indented
        lines.append(f"{v['name']}{where} = {value} ({v['source']})")
    for c in manifest["clock_offsets"]:
        lines.append(
            f"clock.offset_ms [{c['node']}] = {c['offset_ns'] / 1e6:.3f} ± {c['error_ns'] / 1e6:.3f} (measured)"
        )
    for g in manifest["gates"]:
        where = f" [{g['node']}]" if g["node"] else ""
        lines.append(f"gate.{g['name']}{where} = {g['status']}: {g['detail'] or ''}")
    return "\n".join(lines) + "\n"


def _write_summary(path: Path, document: dict[str, Any]) -> None:
    rows = [
        _summary_row(document, case, attempt, name)
        for case in document["cases"]
        for attempt in case["attempts"]
        for name in ("steady", "all")
    ]
    new = path.with_name(path.name + ".new")
    with new.open("w", newline="", encoding="utf-8") as f:
        writer = csv.DictWriter(f, SUMMARY_COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    new.replace(path)


def _summary_row(document: dict[str, Any], case: dict[str, Any], attempt: dict[str, Any], name: str) -> dict[str, Any]:
    """One window of one attempt; an empty cell is a figure that is not known."""
    window = attempt if name == "steady" else attempt["all"]
    row = {
        "run_id": document["run_id"],
        **{k: case[k] for k in ("case", "isl", "osl", "concurrency", "request_rate")},
        **{k: attempt[k] for k in ("attempt", "life", "outcome")},
        "window": name,
        **window["requests"],
        "input_tokens": window["tokens"]["input"],
        "output_tokens": window["tokens"]["output"],
        "duration_s": window["duration_s"],
        **{k: window[k] for k in RATES},
        **{f"{m}_{s}": window[m][s] for m in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms") for s in STATS},
        "flags": " ".join(attempt["flags"]),
        "simulated": document["simulated"],
    }
    return {k: "" if v is None else v for k, v in row.items()}


def _write_requests(reader: Reader, run_id: str, path: Path) -> None:
    new = path.with_name(path.name + ".new")
    with new.open("wb") as f:
        f.writelines(orjson.dumps(r) + b"\n" for r in _each_request(reader, run_id))
    new.replace(path)


def _each_request(reader: Reader, run_id: str) -> Iterable[dict[str, Any]]:
    """Attempt by attempt, so that memory holds one attempt's requests."""
    for attempt in reader.query(call("run_attempts", run_id)).dicts():
        yield from reader.query(call("attempt_requests", attempt["attempt_id"])).dicts()


def commands_text(commands: Iterable[dict[str, Any]]) -> str:
    """Commands exactly as executed, secrets masked, each with its label, place, time and exit code."""
    parts = []
    for c in commands:
        end = f"exit {c['exit_code']}" if c["exit_code"] is not None else "no exit code known"
        said = f"executed on {c['node']} at {_when(c['started_wall_ns'])} in {c['cwd']}, job {c['job_id']}, {end}"
        if c["label"] != "executed":
            said = f"{c['label']}: not executed"
        env = "".join(f"# {plain(f'{k}={v}')}\n" for k, v in (orjson.loads(c["env"]) if c["env"] else {}).items())
        parts.append(f"# {said}\n{env}{c['text']}\n")
    return "\n".join(parts) if parts else "# no command of this kind was executed in this run\n"


def _when(wall_ns: int | None) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall_ns / 1e9)) if wall_ns else "an unknown time"


def _notes(reader: Reader, run_id: str) -> str:
    notes = reader.query(call("run_notes", run_id)).dicts()
    lines = [f"- {_when(n['wall_ns'])} {n['who']}: {n['text']}" for n in notes]
    return "\n".join([f"# Notes on {run_id}", "", *lines]) + "\n"
