"""What changed from the first capture to the second: parts, families, kernels, gaps; the biggest change first."""

from __future__ import annotations

from typing import Any, Final

from screens.data import Row
from screens.profile_chains import CAUSES
from screens.profile_rows import letter
from screens.widgets.table import Column
from screens.widgets.text import NONE, Span, clean
from screens.widgets.timeline_lanes import length

_PARTS: Final = {
    "wall_ns": "wall clock",
    "overlap_ns": "compute and communication",
    "communication_exposed_ns": "communication exposed",
    "copy_exposed_ns": "copies alone",
    "idle_ns": "idle",
}


def diff_rows(diff: dict[str, Any] | None) -> list[Row]:
    """Rows of `store.analysis.compare.diff`: kind, name, a, b, change (ns, mean per rank), ratio."""
    if diff is None:
        return []
    rows: list[Row] = [
        *({"kind": "part", "name": _PARTS[part], "family": None} | cell for part, cell in diff["parts"].items()),
        *({"kind": "family", "name": name, "family": name} | cell for name, cell in diff["families"].items()),
        *(
            {"kind": "gap", "name": CAUSES.get(cause, cause), "family": None} | cell
            for cause, cell in diff["gaps"].items()
            if cell["a"] or cell["b"]
        ),
        *(
            {"kind": "kernel", "name": row["name"], "family": row["family"], "only": row["only_in"]} | row["total_ns"]
            for row in diff["kernels"]
        ),
    ]
    return [row | {"id": i} for i, row in enumerate(rows)]


def _change(row: Row) -> Span:
    sign = "+" if row["change"] > 0 else "-" if row["change"] < 0 else " "
    return sign + length(abs(row["change"])), "strong"


def _ratio(row: Row) -> Span:
    only = row.get("only")
    if only:
        return ("only first" if only == "a" else "only second"), "warn"
    return (NONE if row["ratio"] is None else f"x {row['ratio']:.3f}"), ""


DIFF: Final = (
    Column("", 1, lambda r: letter(r["family"]) if r["family"] else (" ", "")),
    Column("what", 6, lambda r: (r["kind"], "dim"), keep=5),
    Column("first", 10, lambda r: (length(r["a"]), ""), ">", keep=7),
    Column("second", 10, lambda r: (length(r["b"]), ""), ">", keep=7),
    Column("change", 11, _change, ">"),
    Column("ratio", 11, _ratio, ">", keep=6),
    Column("name", 0, lambda r: (clean(r["name"], 300), "")),
)
