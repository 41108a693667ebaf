"""nccl-tests and rccl-tests: rows of 13 columns, rank list, summary.

The average bus bandwidth is over all sizes: useless, kept only as the file's own figure. `#wrong` may be N/A.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from runners.formats import jsontext, nccl_log, text
from runners.formats.base import SKIP, Event, Item, Kind, Row, Value, columns

_RANK = re.compile(
    r"#\s+Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+(\d+) on\s+(\S+) device\s+(\d+) \[([0-9a-fA-Fx:.]+)\](?:\s+(.+))?"
)
_OP = re.compile(r"# Collective test (starting|concluded): (\S+)")
_VERSION = re.compile(r"# (?:nccl|rccl)-tests version (\S+)")
_SETTINGS = re.compile(r"# nThread (\d+) nGpus (\d+) minBytes (\d+) maxBytes (\d+)")
_OUT = re.compile(r"# Out of bounds values : (\d+) (OK|FAILED)")
_AVERAGE = re.compile(r"# Avg bus bandwidth\s+: (\S+)")
_REDUCED = re.compile(r"# Reducing maxBytes to (\d+)")
_TYPES: Final = frozenset(
    {"float", "half", "double", "int8", "uint8", "int32", "uint32", "int64", "uint64", "bfloat16", "fp8_e4m3",
     "fp8_e5m2", "f8e4m3", "f8e5m2", "char", "int"}
)  # fmt: skip


def _wrong(cell: str) -> int | None:
    value = text.number(cell)
    return None if value is None else int(value)


def _row(words: list[str]) -> Row | None:
    if len(words) != 13:
        return None
    numbers = [text.number(words[at]) for at in (0, 1, 4, 5, 6, 7, 9, 10, 11)]
    if None in numbers or any(words[at] not in text.ABSENT and _wrong(words[at]) is None for at in (8, 12)):
        return None
    size, count, root, time_o, alg_o, bus_o, time_i, alg_i, bus_i = numbers
    if not all(isinstance(value, int) for value in (size, count, root)):
        return None
    return {
        "size_bytes": size,
        "count": count,
        "type": words[2],
        "redop": None if words[3] == "none" else words[3],
        "root": root,
        "out_time_us": time_o,
        "out_algbw_gbytes_per_s": alg_o,
        "out_busbw_gbytes_per_s": bus_o,
        "out_wrong": _wrong(words[8]),
        "in_time_us": time_i,
        "in_algbw_gbytes_per_s": alg_i,
        "in_busbw_gbytes_per_s": bus_i,
        "in_wrong": _wrong(words[12]),
    }


def parse(lines: Iterable[str]) -> Iterator[Item]:
    """Rows (one per size, type and op), an event per verdict of the tool, and events for what spoils a run."""
    hosts: dict[str, None] = {}
    ranks = rows = wrong = 0
    headed = concluded = False
    op: str | None = None
    slow: list[float] = []
    for line in text.cleaned(lines):
        bare = line.strip()
        if not bare:
            continue
        if bare[0] != "#":
            if "NCCL " in bare:  # the run's own transport lines, for the gate
                item = nccl_log.parse_line(line)
                if item is not None:
                    yield item
                continue
            row = _row(bare.split()) if bare[0].isdigit() else None
            if row is None:
                if bare[0].isdigit() and len(bare.split()) > 5:
                    yield SKIP
                continue
            rows += 1
            wrong += (row["out_wrong"] or 0) + (row["in_wrong"] or 0)
            slow.append(float(row["out_time_us"]))
            yield {"op": op, **row, "ranks": ranks or None, "hosts": len(hosts) or None}
        elif match := _RANK.match(bare):
            ranks += 1
            hosts[match[4]] = None
        elif match := _OP.match(bare):
            op, concluded = match[2], match[1] == "concluded"
        elif match := _OUT.match(bare):
            failed = match[2] == "FAILED" or match[1] != "0"
            yield Event(
                "invalid_result" if failed else "valid_result", detail={"wrong": int(match[1][:15]), "line": bare}
            )
        elif match := _AVERAGE.match(bare):
            detail: dict[str, Value] = {"gbytes_per_s": text.number(match[1]), "note": "average over all sizes"}
            yield Event("average_bus_bandwidth", detail=detail)
        elif match := _REDUCED.match(bare):
            yield Event("max_bytes_reduced", detail={"bytes": int(match[1][:18]), "line": bare})
        headed = headed or "algbw" in bare or bool(_SETTINGS.match(bare))
    yield from _judged(ranks, hosts, rows, wrong, headed or concluded, slow)


def _judged(
    ranks: int, hosts: dict[str, None], rows: int, wrong: int, headed: bool, slow: list[float]
) -> Iterator[Event]:
    if ranks:
        yield Event("rank_list", detail={"ranks": ranks, "hosts": list(hosts)[:64], "multi_node": len(hosts) > 1})
    if headed and not rows:
        yield Event("no_rows", detail={"reason": "the header was printed but no result row: the run failed"})
    if wrong:
        yield Event("invalid_result", detail={"wrong": wrong, "reason": "rows with wrong elements"})
    if len(slow) > 3 and min(slow) > 50_000 and max(slow) < 1.5 * min(slow):
        yield Event("flat_times", detail={"reason": "about the same time for every size: time-outs on the wire?"})


def parse_json(lines: Iterable[str]) -> Iterator[Item]:
    """The JSON report of newer versions (-J): result objects wherever they stand in the document."""
    loaded = jsontext.document(lines)
    if loaded is None:
        yield SKIP
        return
    yield from _walk(loaded, 0)


def _walk(value: Any, depth: int) -> Iterator[Item]:
    if depth > 12:
        return
    if isinstance(value, dict):
        if "size" in value and any(key in value for key in ("out_of_place", "in_place")):
            yield _json_row(value)
            return
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _walk(item, depth + 1)


def _json_row(value: dict[str, Any]) -> Row:
    row: Row = {"op": None, "size_bytes": value.get("size"), "count": value.get("count"), "type": value.get("type"),
                "redop": value.get("redop") or value.get("op"), "root": value.get("root")}  # fmt: skip
    for side, short in (("out_of_place", "out"), ("in_place", "in")):
        part = value.get(side)
        part = part if isinstance(part, dict) else {}
        for key, name in (("time", "time_us"), ("alg_bw", "algbw_gbytes_per_s"), ("bus_bw", "busbw_gbytes_per_s"),
                          ("nwrong", "wrong")):  # fmt: skip
            found = part.get(key)
            row[f"{short}_{name}"] = found if isinstance(found, int | float) and not isinstance(found, bool) else None
    return row


def sniff(head: str) -> int:
    """The column header, the tail, or rows of 13 fields."""
    if re.search(r"#\s+size\s+count\s+type\s+redop\s+root", head) or "-tests version" in head:
        return 97
    if re.search(r"^# (?:Out of bounds values|Avg bus bandwidth|nThread \d+ nGpus)", head, re.MULTILINE):
        return 95
    lines = [line.split() for line in head.splitlines()[:20] if line.strip() and not line.startswith("#")]
    return 90 if lines and any(_row(words) and words[2] in _TYPES for words in lines) else 0


def sniff_json(head: str) -> int:
    """The keys of the JSON report."""
    return 90 if '"out_of_place"' in head and '"bus_bw"' in head else 0


_COLUMNS: Final = columns(
    "op text - from the 2.2x header\nsize_bytes int bytes\ncount int -\ntype text -\nredop text -\nroot int -\n"
    "out_time_us float us out of place\nout_algbw_gbytes_per_s float GB/s\nout_busbw_gbytes_per_s float GB/s\n"
    "out_wrong int - null: not checked\nin_time_us float us in place\nin_algbw_gbytes_per_s float GB/s\n"
    "in_busbw_gbytes_per_s float GB/s\nin_wrong int -\nranks int -\nhosts int -"
)
_EVENTS: Final = (
    "valid_result",
    "invalid_result",
    "average_bus_bandwidth",
    "max_bytes_reduced",
    "rank_list",
    "no_rows",
    "flat_times",
)
KIND: Final = Kind("nccl_tests", "nccl-tests or rccl-tests output", _COLUMNS, sniff, parse, _EVENTS)
KIND_JSON: Final = Kind("nccl_tests_json", "nccl-tests -J report", _COLUMNS, sniff_json, parse_json, long_lines=True)
