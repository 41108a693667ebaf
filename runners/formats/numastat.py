"""numastat: memory of processes (-p) or of the system (-m, -n) per NUMA node, in MB (MiB), or plain: pages since boot.

Several PIDs give one row each (-c cuts the names). Narrow terminals wrap nodes into several blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from runners.formats import text
from runners.formats.base import SKIP, Item, Kind, Row, columns

_MIB: Final = 1024**2
_TITLE = re.compile(
    r"Per-node (?:process memory usage|system memory usage|numastat info) \(in MBs\)(?: for PID (\d+) \((.*)\))?"
)
_PLAIN_NODES = re.compile(r"(?:\s*node\d+)+\s*\Z")
_PLAIN_ROW = re.compile(
    r"(numa_hit|numa_miss|numa_foreign|interleave_hit|local_node|other_node)\s+(\d{1,19}(?:\s+\d{1,19})*)\Z"
)
_NODES = re.compile(r"Node (\d+)")
_PID = re.compile(r"\s*(\d+) \((.*?)\)?\s{2,}([\d. ]+)\Z")
_KIND = re.compile(r"(Huge|Heap|Stack|Private|Total|MemTotal|MemFree|MemUsed|[A-Z]\w+(?:\([a-z]+\))?)\s+([\d. ]+)\Z")


def _bytes(words: list[str]) -> list[int | None]:
    values = [text.number(word) for word in words]
    return [None if value is None else round(value * _MIB) for value in values]


def parse(lines: Iterable[str]) -> Iterator[Item]:
    """One row per memory kind (one PID) or per PID: `node_bytes` maps NUMA node to bytes."""
    pid: int | None = None
    name: str | None = None
    nodes: list[str] = []
    total = False
    rows: dict[tuple[int | None, str], Row] = {}
    for line in text.cleaned(lines):
        bare = line.strip()
        if not bare or set(bare) <= set("- "):
            continue
        title = _TITLE.match(bare)
        if title:
            pid, name = (int(title[1][:18]) if title[1] else None), title[2]
            continue
        heads = _NODES.findall(line)
        if heads:
            nodes, total = heads, bare.endswith("Total")
            continue
        if _PLAIN_NODES.match(line):
            nodes, total = re.findall(r"node(\d+)", line), False
            continue
        plain = _PLAIN_ROW.match(bare)
        if plain and len(plain[2].split()) == len(nodes):
            pages = rows.setdefault(
                (None, plain[1]), {"pid": None, "command": None, "kind": plain[1], "node_pages": {}}
            )
            pages["node_pages"].update(zip(nodes, map(int, plain[2].split()), strict=True))
            continue
        match = _PID.match(line)
        found = _KIND.match(bare)
        cells = match[3].split() if match else found[2].split() if found else []
        if not nodes or len(cells) != len(nodes) + total:
            yield SKIP
            continue
        values = _bytes(cells)
        who = int(match[1][:18]) if match else pid
        kind = "Total" if match else found[1] if found else ""
        if not match and found and pid is None and kind == "Total":
            continue  # the sum over all PIDs is no process
        row = rows.setdefault(
            (who, kind),
            {
                "pid": who,
                "command": match[2] if match else name,
                "kind": kind.lower(),
                "node_bytes": {},
                "total_bytes": None,
            },
        )
        row["node_bytes"].update(dict(zip(nodes, values, strict=False)))
        if total:
            row["total_bytes"] = values[-1]
    yield from rows.values()


def sniff(head: str) -> int:
    """The title, or the node header over memory rows."""
    if _TITLE.search(head):
        return 96
    if re.search(r"^[ \t]*node0\b[ \t\w]*\r?\nnuma_hit[ \t]+\d", head, re.MULTILINE):
        return 95
    return 70 if re.search(r"^[ \t]+Node 0[ \t]+(?:Node 1[ \t]+)?.*Total[ \t]*$", head, re.MULTILINE) else 0


KIND: Final = Kind(
    "numastat",
    "numastat (plain, -p, -m, -n)",
    columns(
        "pid int -\ncommand text - may be cut\n"
        "kind text - huge, heap, stack, private, total; of plain numastat numa_hit and so on\n"
        "node_bytes map bytes NUMA node -> bytes\ntotal_bytes int bytes\n"
        "node_pages map - NUMA node -> pages since boot (plain numastat)"
    ),
    sniff,
    parse,
)
