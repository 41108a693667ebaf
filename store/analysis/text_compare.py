"""Profiles side by side, as text: families x scenarios, and what changed from one to the other."""

from __future__ import annotations

from typing import Any, Final

from store.analysis.families import FAMILIES
from store.analysis.text import clean, duration, fitted, kernel_name, section, share, table


def scenarios_text(document: dict[str, Any]) -> str:
    """Families down, scenarios across: share of the wall clock, and of summed device time beside it."""
    columns = document["scenarios"]
    names = [clean(column["scenario"], 24) for column in columns]
    rows: list[tuple[str, ...]] = []
    for family in FAMILIES:
        cells = [column["families"].get(family) for column in columns]
        if any(cells):
            rows.append((family, *(_cell(cell) for cell in cells)))
    rows += [
        ("overlap", *(share(column["overlap_share"], 1) for column in columns)),
        ("idle", *(share(column["idle_share"], 1) for column in columns)),
        ("wall per token", *(duration(column["wall_ns_per_token"]) for column in columns)),
    ]
    lines = ["wall-clock share (share of summed device time, device time per token)", *table(("family", *names), rows)]
    lines += section("Problems", [f"  ! {clean(problem)}" for problem in document["problems"]])
    return "\n".join(lines) + "\n"


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
