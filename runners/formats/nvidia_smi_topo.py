"""`nvidia-smi topo -m` and `topo -p2p rw`: who reaches whom over what.

Tabs or (pasted) blanks; the header may be underlined by ANSI codes; NIC rows stop before the affinity columns; the
NIC legend maps NICn to a device whose number differs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from runners.formats import text
from runners.formats.base import SKIP, Item, Kind, Row, columns

_DEVICE = re.compile(r"(?:GPU|NIC)\d+\Z|[a-z][\w]*_(?:bond_)?\d+\Z")
_LINK = re.compile(r"(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|PSB|OK|CNS|GNS|TNS|NS|DR|U|N/A)\Z")
_LEGEND = re.compile(r"(NIC\d+): (\S+)\Z")
_CLOSENESS: Final = ("PIX", "PXB", "PHB", "NODE", "SYS")


def _matrix(lines: Iterable[str]) -> Iterator[Item]:
    names: list[str] = []
    rows: list[Row] = []
    legend: dict[str, str] = {}
    for line in text.cleaned(lines):
        words = line.split()
        if not words:
            continue
        found = _LEGEND.match(line.strip())
        if found:
            legend[found[1]] = found[2]
        elif not names and _DEVICE.match(words[0]) and (len(words) == 1 or not _LINK.match(words[1])):
            names = [word for word in words if _DEVICE.match(word)]
        elif names and words[0] in names:
            cells = words[1:]
            if len(cells) < len(names) or not all(_LINK.match(cell) for cell in cells[: len(names)]):
                yield SKIP
                continue
            rows.append(_row(words[0], cells, names))
    for row in rows:
        row["hca"] = legend.get(row["device"]) or (row["device"] if row["class"] == "nic" else None)
        row["best_nics"] = [legend.get(name, name) for name in row["best_nics"]]
        yield row


def _row(device: str, cells: list[str], names: list[str]) -> Row:
    links = dict(zip(names, cells, strict=False))
    nics = {name: links[name] for name in names if not name.startswith("GPU") and name != device}
    ranks = [_CLOSENESS.index(link) for link in nics.values() if link in _CLOSENESS]
    best = _CLOSENESS[min(ranks)] if ranks else None
    rest = [None if cell in text.ABSENT else cell for cell in cells[len(names) :]]
    padded = [*rest, None, None, None][:3]
    return {
        "device": device,
        "class": "gpu" if device.startswith("GPU") else "nic",
        "links": links,
        "cpu_affinity": padded[0],
        "numa_affinity": padded[1],
        "gpu_numa_id": padded[2],
        "best_nic_link": best if device.startswith("GPU") else None,
        "best_nics": [name for name, link in nics.items() if link == best] if device.startswith("GPU") else [],
    }


def parse(lines: Iterable[str]) -> Iterator[Item]:
    """One row per device."""
    return _matrix(lines)


def _sniff_links(head: str, words: str) -> int:
    plain = text.without_ansi(head)
    header = re.search(r"^[ \t]*GPU0(?:[ \t]+\S+)*[ \t]*$", plain, re.MULTILINE)
    row = re.search(rf"^[ \t]*GPU0[ \t]+X[ \t]+(?:(?:{words})\b|\d)", plain, re.MULTILINE)
    alone = re.search(r"^[ \t]*GPU0[ \t]+X[ \t]*$", plain, re.MULTILINE)
    return 95 if header and (row or alone) else 0


def sniff(head: str) -> int:
    """A link matrix of topo -m."""
    return _sniff_links(head, r"NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|PSB")


def sniff_p2p(head: str) -> int:
    """A matrix of topo -p2p."""
    return 97 if _sniff_links(head, "OK|CNS|GNS|TNS|NS|DR|U") and not sniff(head) else 0


_COLUMNS: Final = columns(
    """
    device        text -   GPU0, NIC0, or the device's name in old drivers
    class         text -   gpu or nic
    links         map  -   other device -> X, NVn, PIX, PXB, PHB, NODE, SYS (topo -p2p: OK, GNS, ...)
    cpu_affinity  text -
    numa_affinity text -
    gpu_numa_id   text -
    hca           text -   RDMA device behind a NIC, by the legend
    best_nic_link text -   closest kind of link from this GPU to any NIC
    best_nics     list -   NICs at that distance
    """
)
KIND: Final = Kind("nvidia_smi_topo", "nvidia-smi topo -m", _COLUMNS, sniff, parse)
KIND_P2P: Final = Kind("nvidia_smi_p2p", "nvidia-smi topo -p2p", _COLUMNS, sniff_p2p, parse)
