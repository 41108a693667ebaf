"""The `analyze` document as one HTML page: self-contained, every text of a capture escaped."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from store.analysis.text import causes_rows, clean, duration, parts_rows, rank_title, share

_COLOURS: Final = {
    "compute: Communication": "#c2410c",
    "compute: GEMM": "#2563eb",
    "compute: MLA/Attention": "#7c3aed",
    "compute: MoE": "#0d9488",
    "compute: NSA/DSA Indexer": "#a21caf",
    "compute: Norm/Activation": "#65a30d",
    "compute: Quantization": "#ca8a04",
    "compute: Sampling": "#db2777",
    "compute: Memory/Copy": "#64748b",
    "compute: Other": "#94a3b8",
    "compute and communication": "#1d4ed8",
    "communication exposed": "#dc2626",
    "copy exposed": "#f59e0b",
    "idle": "#e5e7eb",
}


def page(report: dict[str, Any]) -> str:
    """The report as HTML."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters.update(ns=duration, clean=clean)
    ranks = [
        {"title": rank_title(rank), "data": rank, "bar": _bar(rank), "causes": causes_rows(rank)}
        for rank in report["ranks"]
    ]
    return environment.get_template("page.html.j2").render(report=report, ranks=ranks, share=share)


def _bar(rank: dict[str, Any]) -> list[dict[str, Any]]:
    wall = rank["wall_ns"] or 1
    return [
        {"name": name, "ns": ns, "percent": round(100 * ns / wall, 4), "colour": _COLOURS.get(name, "#94a3b8")}
        for name, ns in parts_rows(rank)
        if ns
    ]
