"""Profiles side by side, as text: families x scenarios, and what changed from one to the other."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from store.analysis.families import FAMILIES
from store.analysis.text import clean, duration, fitted, kernel_name, section, share, table


def scenarios_text(document: dict[str, Any], width: int = 100) -> str:
    """Families down, scenarios across, in so many columns (80 or more): share of the wall clock, share of summed device
    time, device time per token. The three share a cell where that fits, else each is a table, cut into groups of
    scenarios where even that is too wide."""
    width = max(80, width)
    columns = document["scenarios"]
    wide = [clean(column["scenario"], 24) for column in columns]
    whole = table(("family", *wide), _rows(columns, _cell))
    if all(len(line) <= width for line in whole):
        lines = ["wall-clock share (share of summed device time, device time per token)", *whole]
    else:
        heads, lines = _short_heads([column["scenario"] for column in columns])
        room = max(1, (width - _FAMILY_COLUMNS) // (max(map(len, heads)) + 2))
        for title, cell in _SHORT:
            for first in range(0, len(columns), room):
                group = slice(first, first + room)
                rows = _rows(columns[group], cell, summary=cell is _wall)
                if any(set(row[1:]) != {"–"} for row in rows):
                    lines += section(title, table(("family", *heads[group]), rows))
    lines += section("Problems", [f"  ! {clean(problem)}" for problem in document["problems"]])
    return "\n".join(fitted(lines, width)) + "\n"


Cell = Callable[[dict[str, Any] | None], str]
_FAMILY_COLUMNS: Final = 17
_HEAD: Final = 12
_ENDINGS: Final = re.compile(r"(?:\.(?:gz|json|trace|pt|sqlite|db|parquetdir))+$")


def _rows(columns: list[dict[str, Any]], cell: Cell, *, summary: bool = True) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for family in FAMILIES:
        cells = [column["families"].get(family) for column in columns]
        if any(cells):
            rows.append((family, *(cell(found) for found in cells)))
    if summary:
        rows += [
            ("overlap", *(share(column["overlap_share"], 1) for column in columns)),
            ("idle", *(share(column["idle_share"], 1) for column in columns)),
            ("wall per token", *(duration(column["wall_ns_per_token"]) for column in columns)),
        ]
    return rows


def _short_heads(names: list[str]) -> tuple[list[str], list[str]]:
    """Heads of narrow columns, and the lines that say what they stand for where they had to be cut."""
    plain = [_ENDINGS.sub("", clean(name)) or clean(name) for name in names]
    if all(len(name) <= _HEAD for name in plain) and len(set(plain)) == len(plain):
        return plain, []
    heads = [f"{n} {clean(name, _HEAD - 2 - n // 10)}" for n, name in enumerate(plain, 1)]
    return heads, [f"  {n} = {clean(name, 74)}" for n, name in enumerate(names, 1)]


def _wall(cell: dict[str, Any] | None) -> str:
    return "–" if cell is None else share(cell["wall_share"], 1)


def _device(cell: dict[str, Any] | None) -> str:
    return "–" if cell is None else share(cell["device_share"], 1)


def _per_token(cell: dict[str, Any] | None) -> str:
    return "–" if cell is None else duration(cell["ns_per_token"])


_SHORT: Final[tuple[tuple[str, Cell], ...]] = (
    ("Share of the wall clock (an instant counts once)", _wall),
    ("Share of summed device time (streams that overlap count twice)", _device),
    ("Device time per token", _per_token),
)


def _cell(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "–"
    token = f", {duration(cell['ns_per_token'])}" if cell["ns_per_token"] is not None else ""
    return f"{share(cell['wall_share'], 1)} ({share(cell['device_share'], 1)}{token})"


def diff_text(document: dict[str, Any], width: int = 100) -> str:
    """What changed from A to B, in the mean per rank, in so many columns (80 or more)."""
    found = document["diff"]
    lines = [f"A = {clean(document['a'], 60)}   B = {clean(document['b'], 60)}   (mean per rank)"]
    blocks = (
        ("Wall clock", {key.removesuffix("_ns").replace("_", " "): row for key, row in found["parts"].items()}),
        ("Summed device time by family", found["families"]),
        ("Idle time by cause", {key.replace("_", " "): row for key, row in found["gaps"].items()}),
    )
    for title, block in blocks:
        rows = [(name, *_change(row)) for name, row in block.items() if row["a"] or row["b"]]
        lines += section(title, table(("", "A", "B", "B - A", "B / A"), rows))
    means = width >= _WIDE
    names = max(24, min(width - (74 if means else 48), 160))
    kernels = [
        (
            kernel_name(row["name"], names),
            row["family"],
            f"{row['count']['a']} → {row['count']['b']}",
            *([f"{duration(row['mean_ns']['a'])} → {duration(row['mean_ns']['b'])}"] if means else []),
            _signed(row["total_ns"]["change"]),
        )
        for row in found["kernels"][:25]
    ]
    head = ("name", "family", "count", *(["mean"] if means else []), "B - A")
    lines += section("Kernels that changed most", table(head, kernels, left=2))
    lines += section("Problems", [f"  ! {clean(problem)}" for problem in document["problems"]])
    return "\n".join(fitted(lines, max(80, width))) + "\n"


_WIDE: Final = 100
"""Columns from which on a diff has room for mean durations beside the totals."""


def _change(row: dict[str, Any]) -> tuple[str, str, str, str]:
    ratio = f"{row['ratio']:.2f}" if row["ratio"] is not None else "–"
    return duration(row["a"]), duration(row["b"]), _signed(row["change"]), ratio


def _signed(ns: int) -> str:
    return ("+" if ns > 0 else "-" if ns < 0 else "") + duration(abs(ns))
