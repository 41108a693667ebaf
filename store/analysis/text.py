"""The `analyze` document as text for a terminal: plain lines, nothing from a capture reaches it uncleaned."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_NAME_WIDTH: Final = 76


def clean(text: object, width: int | None = None) -> str:
    """Text without control and direction characters, cut to a width."""
    safe = _UNSAFE.sub("�", str(text))
    return safe if width is None or len(safe) <= width else safe[: width - 1] + "…"


def duration(ns: float | None) -> str:
    """Nanoseconds for people: three to four figures and a unit; a dash for not known."""
    if ns is None:
        return "–"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= size:
            return f"{ns / size:,.2f} {unit}"
    return f"{ns:.0f} ns"


def share(part: float, whole: float) -> str:
    """A percentage, or a dash where the whole is nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "–"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1) -> list[str]:
    """Rows as aligned lines; the first `left` columns to the left, the others to the right."""
    cells = [[clean(cell) for cell in row] for row in rows]
    if not cells:
        return []
    widths = [max(len(row[i]) for row in [list(head), *cells]) for i in range(len(head))]
    lines = [list(head), *cells]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in lines
    ]


def render(report: dict[str, Any], top: int = 15) -> str:
    """The whole report as text."""
    lines: list[str] = []
    for rank in report["ranks"]:
        lines += _rank(rank)
    lines += _section("Kernels by device time", _kernels(report["kernels"], top))
    lines += _section("Kernels that no family rule knows", _kernels(report["unmatched"], top))
    lines += _section("Problems", [f"  ! {clean(problem)}" for problem in report["problems"]])
    if not report["ranks"]:
        lines.insert(0, "No file could be analysed.")
    return "\n".join(lines) + "\n"


def parts_rows(parts: dict[str, Any]) -> list[tuple[str, int]]:
    """The parts of a window by name, in reading order; they add up to wall_ns."""
    rows = sorted(parts["compute_ns"].items(), key=lambda item: -item[1])
    return [
        *((f"compute: {family}", ns) for family, ns in rows),
        ("compute and communication", parts["overlap_ns"]),
        ("communication exposed", parts["communication_exposed_ns"]),
        ("copy exposed", parts["copy_exposed_ns"]),
        ("idle", parts["idle_ns"]),
    ]


def rank_title(rank: dict[str, Any]) -> str:
    """How a rank is called in text."""
    name = f"rank {rank['rank']}" if rank["rank"] is not None else "rank not known"
    return f"{name} · {clean(rank['file'], 60)} · device {rank['device']}"


def _rank(rank: dict[str, Any]) -> list[str]:
    wall = rank["wall_ns"]
    rows = [(name, duration(ns), share(ns, wall)) for name, ns in parts_rows(rank) if ns]
    rows.append(("adds up to (wall)", duration(wall), share(wall, wall)))
    head = f"{rank_title(rank)} · {rank['kernels']} kernels from {rank['launches']} launches"
    return ["", head, *table(("wall clock", "time", "share"), rows)]


def _kernels(rows: list[dict[str, Any]], top: int) -> list[str]:
    shown = [
        (clean(r["name"], _NAME_WIDTH), r["family"], r["count"], duration(r["total_ns"]), duration(r["mean_ns"]))
        for r in rows[:top]
    ]
    lines = table(("name", "family", "count", "total", "mean"), shown, left=2)
    if len(rows) > top:
        lines.append(f"  and {len(rows) - top} more")
    return lines


def _section(title: str, lines: list[str]) -> list[str]:
    return ["", title, *lines] if lines else []
