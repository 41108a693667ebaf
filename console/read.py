"""`twinrail read`: captured output offline, as rows, events and the RDMA gate's verdict.

JSON goes out row by row, so that a file of any size needs the memory of one row.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import orjson

from runners.formats import kinds
from runners.formats.base import Texts
from runners.formats.events import MEANINGS
from runners.gates import rdma
from runners.importing.reading import FileReading, UnknownKindError, combined_verdict, open_file

SHOWN_ROWS = 20
BATCH = 1000  # rows in memory at a time
EXIT_DONE, EXIT_NEGATIVE, EXIT_USAGE = 0, 1, 2


def read(files: Sequence[Path | str], *, kind: str | None, json_out: bool, list_kinds: bool) -> int:
    """Read files (`-`: standard input) and write the result to stdout.

    Exit codes: 0 read, 1 unknown content or a gate that refuses, 2 bad usage (unknown kind, unreadable file).
    """
    if list_kinds:
        _list_kinds(json_out)
        return EXIT_DONE
    if not files:
        sys.stderr.write("read: name at least one file, or ask for --kinds\n")
        return EXIT_USAGE
    readings: list[FileReading] = []
    for name in files:
        try:
            readings.append(open_file(Path(name), kind))
        except UnknownKindError:
            known = ", ".join(kinds.BY_NAME)
            sys.stderr.write(f"read: no kind {kind!r}; the kinds are {known}\n")
            return EXIT_USAGE
        except OSError as error:
            sys.stderr.write(f"read: {name}: {error.strerror or error}\n")
            return EXIT_USAGE
    (_write_json if json_out else _write_text)(readings)
    return EXIT_NEGATIVE if any(_negative(item) for item in readings) else EXIT_DONE


def _negative(item: FileReading) -> bool:
    return item.kind is None or (item.verdict is not None and not item.verdict.allows)


def _dumps(value: Any) -> str:
    """JSON text of anything a parser made; what JSON has no number for (beyond 64 bit) goes as text."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, orjson.JSONEncodeError):
        return orjson.dumps(_plain(value)).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    return str(value).encode("utf-8", "replace").decode()


def _write_json(readings: Iterable[FileReading]) -> None:
    out = sys.stdout
    out.write('{"schema":1,"files":[')
    done = []
    for at, item in enumerate(readings):
        name = item.kind.name if item.kind else None
        out.write(f'{"," if at else ""}{_dumps({"file": str(item.path), "kind": name})[:-1]},"rows":[')
        _write_rows(item, out)
        rest = {
            "events": [event.as_dict() for event in item.events],
            "skipped": item.skipped,
            "cut_lines": item.cut_lines,
            "verdict": item.verdict.as_dict() if item.verdict else None,
            "stop": item.stop,
        }
        out.write("]," + _dumps(rest)[1:])
        done.append(item)
    whole = combined_verdict(done)
    out.write('],"verdict":' + _dumps(whole.as_dict() if whole else None) + "}\n")


def _write_rows(item: FileReading, out: TextIO) -> None:
    """The rows with commas between them, those of a batch together."""
    batch: list[dict[str, Any]] = []
    comma = ""
    for row in chain(item.rows(), (Texts(0, ""),)):
        if isinstance(row, dict):
            batch.append(row)
            if len(batch) < BATCH:
                continue
        if batch:
            out.write(comma + _dumps(batch)[1:-1])
            batch, comma = [], ","
        if isinstance(row, Texts) and row.count:
            out.write(comma + row.text)
            comma = ","


def _write_text(readings: Iterable[FileReading]) -> None:
    done = []
    for item in readings:
        rows: list[dict[str, Any]] = []
        for row in item.rows():
            if len(rows) < SHOWN_ROWS:
                rows += orjson.loads(f"[{row.text}]") if isinstance(row, Texts) else [row]
        _show(item, rows[:SHOWN_ROWS])
        done.append(item)
    whole = combined_verdict(done)
    if whole is not None:
        sys.stdout.write("\nall files together\n")
        _show_verdict(whole)


def _safe(value: Any, limit: int = 60) -> str:
    """One cell for a terminal: no control characters, bounded."""
    text = value if isinstance(value, str) else "" if value is None else _dumps(value)
    text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return text if len(text) <= limit else text[: limit - 1] + "\N{HORIZONTAL ELLIPSIS}"


def _show(item: FileReading, rows: list[dict[str, Any]]) -> None:
    out = sys.stdout
    title = item.kind.title if item.kind else "no known kind; `read --kinds` lists them, `--as KIND` forces one"
    cut = f", {item.cut_lines} lines cut" if item.cut_lines else ""
    out.write(f"\n{_safe(str(item.path), 200)}: {title}\n")
    if item.kind is None:
        return
    out.write(f"{item.row_count} rows, {len(item.events)} events, {item.skipped} lines unreadable{cut}\n")
    _table(rows)
    if item.row_count > len(rows):
        out.write(f"... {item.row_count - len(rows)} more rows (--json gives all)\n")
    for event in item.events[:60]:
        place = " ".join(
            part for part in (event.node, f"rank {event.rank}" if event.rank is not None else None) if part
        )
        count = f" x{event.detail['count']}" if event.detail.get("count") else ""
        line = _safe(event.detail.get("line") or event.detail.get("reason") or "", 140)
        out.write(f"  {_safe(event.time or '-', 30)}  {event.name}{count}  {_safe(place)}  {line}\n")
    if item.stop:
        out.write(f"stop reason proved: {item.stop['reason']} ({_safe(item.stop['line'], 140)})\n")
    if item.verdict:
        _show_verdict(item.verdict)


def _table(rows: list[dict[str, Any]]) -> None:
    """Rows of the same columns as one table, null cells empty; wide rows as `name=value` lines."""
    names = list(dict.fromkeys(name for row in rows for name, value in row.items() if value not in (None, {}, [])))
    if not rows or not names:
        return
    widths = {name: max(len(name), *(len(_safe(row.get(name), 28)) for row in rows)) for name in names}
    if sum(widths.values()) + 2 * len(names) <= 200:
        sys.stdout.write("  ".join(name.ljust(widths[name]) for name in names).rstrip() + "\n")
        for row in rows:
            cells = (_safe(row.get(name), 28).ljust(widths[name]) for name in names)
            sys.stdout.write("  ".join(cells).rstrip() + "\n")
        return
    for row in rows:
        parts = (f"{name}={_safe(value)}" for name, value in row.items() if value not in (None, {}, []))
        sys.stdout.write("  " + "  ".join(parts) + "\n")


def _show_verdict(verdict: rdma.Verdict) -> None:
    out = sys.stdout
    out.write(f"RDMA gate: {verdict.gate}\n")
    for reason in verdict.reasons:
        out.write(f"  - {_safe(reason, 240)}\n")
    for note in verdict.notes:
        out.write(f"  note: {_safe(note, 240)}\n")
    for node, gpus in verdict.matrix.items():
        cells = "  ".join(f"{gpu}:{cell['state'].lower()}(r{cell['rank']})" for gpu, cell in gpus.items())
        out.write(f"  {_safe(node)}  {cells}\n")


def _event_meanings() -> dict[str, str]:
    """Event names with their meanings: those of files, and those that probes tell of themselves in the store."""
    from runners.probes.base import EVENTS  # loads the configuration's models: only for this list

    return {**MEANINGS, **EVENTS}


def _list_kinds(json_out: bool) -> None:
    if json_out:
        listed = [
            {
                "name": kind.name,
                "title": kind.title,
                "columns": [
                    {"name": c.name, "type": c.type, "unit": c.unit or None, "note": c.note or None}
                    for c in kind.columns
                ],
                "events": list(kind.events),
            }
            for kind in kinds.KINDS
        ]
        events = [{"name": name, "meaning": meaning} for name, meaning in _event_meanings().items()]
        sys.stdout.write(_dumps({"schema": 1, "kinds": listed, "events": events}) + "\n")
        return
    out = sys.stdout
    for kind in kinds.KINDS:
        out.write(f"\n{kind.name}: {kind.title}\n")
        cells = [(c.name, f"{c.type} [{c.unit}]" if c.unit else c.type, c.note) for c in kind.columns]
        wide, sort = (max((len(cell[at]) for cell in cells), default=0) for at in (0, 1))
        for cell in cells:
            out.write(f"    {cell[0]:{wide}}  {cell[1]:{sort}}  {cell[2]}".rstrip() + "\n")
        if kind.events:
            out.write(
                textwrap.fill(", ".join(kind.events), 118, initial_indent="    events: ", subsequent_indent=" " * 12)
            )
            out.write("\n")
    out.write("\nevents\n")
    meanings = _event_meanings()
    width = max(map(len, meanings))
    for name, meaning in meanings.items():
        out.write(f"    {name:{width}}  {meaning}\n")
