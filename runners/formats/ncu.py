"""`ncu --csv`: one row per kernel launch and metric (long form), or per launch (--page raw).

Lines before the header (`==PROF== ...`) are the tool's talk. Thousands separators are in some locales' values.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from typing import Final

from runners.formats import text
from runners.formats.base import SKIP, Event, Item, Kind, Row, Value, columns

_NAMES: Final = {
    "ID": "launch",
    "Process ID": "pid",
    "Process Name": "process",
    "Host Name": "host",
    "Kernel Name": "kernel",
    "Context": "context",
    "Stream": "stream",
    "Block Size": "block",
    "Grid Size": "grid",
    "Device": "device",
    "CC": "compute_capability",
    "Section Name": "section",
    "Metric Name": "metric",
    "Metric Unit": "unit",
    "Metric Value": "value",
    "Rule Name": "rule",
    "Rule Type": "rule_type",
    "Rule Description": "rule_text",
}
_WHOLE: Final = frozenset({"launch", "pid", "context", "stream", "device"})


def _cell(value: str) -> Value:
    value = value.strip()
    if re.fullmatch(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?", value):
        value = value.replace(",", "")
    return text.cell(value) if value.lower() not in ("nan", "inf", "(!) nan", "n/a") else None


def parse(lines: Iterable[str]) -> Iterator[Item]:
    """Rows; in the raw page every metric is an entry of `metrics`, with its unit in `units`."""
    header: list[str] = []
    units: list[str] = []
    for line in text.cleaned(lines):
        if not line:
            continue
        if line.startswith("=="):
            if "==ERROR==" in line or "==WARNING==" in line:
                name = "ncu_error" if "ERROR" in line else "ncu_warning"
                yield Event(name, detail={"line": text.shown(line)})
            continue
        if not line.startswith('"'):
            if header:
                yield SKIP
            continue
        cells = next(csv.reader([line]), [])
        if "ID" in cells[:1]:
            header, units = cells, []
        elif not header or len(cells) != len(header):
            yield SKIP
        elif not cells[0].strip():
            units = cells  # the raw page gives units in a line of their own
        else:
            yield _row(header, units, cells)


def _row(header: list[str], units: list[str], cells: list[str]) -> Row:
    row: Row = {}
    metrics: dict[str, Value] = {}
    for name, cell in zip(header, cells, strict=True):
        column = _NAMES.get(name)
        if column in _WHOLE:
            row[column] = text.integer(cell)
        elif column == "value":
            row[column] = _cell(cell)
        elif column is not None:
            row[column] = cell.strip() or None
        else:
            metrics[name] = _cell(cell)
    if metrics:
        row["metrics"] = metrics
        row["units"] = {name: unit for name, unit in zip(header, units, strict=False) if unit and name in metrics}
    return row


def sniff(head: str) -> int:
    """The header of ncu's CSV."""
    return 97 if re.search(r'^"ID","Process ID","Process Name"', head, re.MULTILINE) else 0


KIND: Final = Kind(
    "ncu_csv",
    "ncu --csv",
    columns(
        "launch int -\npid int -\nprocess text -\nhost text -\nkernel text -\ncontext int -\nstream int -\n"
        "block text -\ngrid text -\ndevice int -\ncompute_capability text -\nsection text -\nmetric text -\n"
        "unit text -\nvalue float -\nrule text -\nrule_type text -\nrule_text text -\n"
        "metrics map - raw page\nunits map - raw page"
    ),
    sniff,
    parse,
    ("ncu_error", "ncu_warning"),
)
