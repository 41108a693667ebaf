"""CSV exports of clients that are read as they are: one map per line, headers joined."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from typing import Final

from runners.formats import text
from runners.formats.base import SKIP, Item, Kind, columns


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def parse_guidellm(lines: Iterable[str]) -> Iterator[Item]:
    """GuideLLM's report.csv: a header of three lines, joined with `/`; one row per benchmark."""
    header: list[str] = []
    seen = 0
    for line in text.cleaned(lines):
        cells = _cells(line)
        if not line:
            continue
        seen += 1
        if seen == 1:
            header = cells
        elif seen <= 3:
            header = [f"{a}/{b}" if b else a for a, b in zip(header, cells, strict=False)]
        elif len(cells) == len(header):
            yield {"values": {name: text.cell(cell) for name, cell in zip(header, cells, strict=True)}}
        else:
            yield SKIP


def parse_tables(lines: Iterable[str]) -> Iterator[Item]:
    """AIPerf's server_metrics_export.csv and sweep CSV: several tables, each with its own header."""
    header: list[str] | None = None
    for line in text.cleaned(lines):
        if line.startswith("#"):
            continue
        cells = _cells(line)
        if not line.strip(" ,"):
            header = None
        elif header is None and len(cells) == 1:
            continue  # the title of a table, or its "None"
        elif header is None or cells[:1] == header[:1]:
            header = cells
        elif len(cells) == len(header):
            yield {"values": {name: text.cell(cell) for name, cell in zip(header, cells, strict=True)}}
        else:
            yield SKIP


def _sniff_guidellm(head: str) -> int:
    return 95 if head.startswith("Run Info,") else 0


def _sniff_tables(head: str) -> int:
    first = next((line for line in head.splitlines() if line and not line.startswith("#")), "")
    server = first.startswith("Endpoint,Type,Metric")
    return 95 if server or ("throughput_mean," in first and "_std" in first) else 0


_COLUMNS: Final = columns("values map - header -> cell")
KIND_GUIDELLM: Final = Kind(
    "guidellm_csv", "GuideLLM report.csv", _COLUMNS, _sniff_guidellm, parse_guidellm, long_lines=True
)
KIND_AIPERF: Final = Kind(
    "aiperf_tables_csv",
    "AIPerf server_metrics_export.csv and sweep CSV",
    _COLUMNS,
    _sniff_tables,
    parse_tables,
    long_lines=True,
)
