"""hy-smi (Hygon DCU): the summary table. AvgPwr is not believable on some cards (8 W at 74 % load)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from runners.formats import text
from runners.formats.base import SKIP, Item, Kind, Row, columns

_COLUMNS: Final = {
    "DCU": "index",
    "HCU": "index",
    "Temp": "temp_c",
    "AvgPwr": "power_w",
    "Perf": "perf_level",
    "PwrCap": "power_limit_w",
    "VRAM%": "mem_used_pct",
    "DCU%": "util_pct",
    "HCU%": "util_pct",
    "Mode": "mode",
    "Fan": "fan_pct",
    "SCLK": "sm_clock_mhz",
    "MCLK": "mem_clock_mhz",
}
_TEXTS: Final = frozenset({"perf_level", "mode"})
_CELL = re.compile(r"(-?\d+(?:\.\d+)?)(?:°?C|W|%|M[Hh]z)?\Z")


def parse(lines: Iterable[str]) -> Iterator[Item]:
    """One row per DCU and table."""
    names: list[str] = []
    for line in text.cleaned(lines):
        words = line.split()
        if not words or set(line.strip()) <= {"="} or "===" in line:
            continue
        if words[0] in ("DCU", "HCU") and len(words) > 1 and not words[1][0].isdigit():
            names = words
            continue
        row = _row(words, names)
        if row is None:
            yield SKIP
        else:
            yield row


def _row(words: list[str], names: list[str]) -> Row | None:
    if not names or not words[0].isdecimal() or len(words) < len(names) - 1 or len(words) > len(names):
        return None
    row: Row = {}
    for name, cell in zip(names, [*words, "N/A"], strict=False):
        column = _COLUMNS.get(name, name.lower())
        if column in _TEXTS or cell in text.ABSENT:
            row[column] = None if cell in text.ABSENT else cell
            continue
        match = _CELL.match(cell)
        if match is None:
            return None
        row[column] = text.number(match[1])
    return row


def sniff(head: str) -> int:
    """The header of hy-smi's table."""
    return 96 if re.search(r"^[DH]CU\s+Temp\s+AvgPwr", head, re.MULTILINE) else 0


KIND: Final = Kind(
    "hy_smi",
    "hy-smi (Hygon DCU)",
    columns(
        "index int -\ntemp_c float C\npower_w float W as reported, may be wrong\nperf_level text -\n"
        "power_limit_w float W\nmem_used_pct float %\nutil_pct float %\nmode text -"
    ),
    sniff,
    parse,
)
