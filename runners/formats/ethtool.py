"""`ethtool -S <netdev>`: one row of counters. Keys may hold colons, dots and blanks, so lines split at the last `: `.

No `*_prioN_pause*` key at all means that PFC is not configured: an own state, not zero pauses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from runners.formats import text
from runners.formats.base import SKIP, Item, Kind, Row, columns

_PRIO = re.compile(r"(rx|tx)_prio(\d)_(\w+)\Z")
_NAMED: Final = {
    "rx_bytes_phy": "rx_bytes",
    "tx_bytes_phy": "tx_bytes",
    "rx_vport_rdma_unicast_bytes": "rdma_rx_bytes",
    "tx_vport_rdma_unicast_bytes": "rdma_tx_bytes",
    "rx_discards_phy": "rx_discards",
    "tx_discards_phy": "tx_discards",
    "rx_out_of_buffer": "rx_out_of_buffer",
    "rx_crc_errors_phy": "rx_crc_errors",
    "rx_symbol_err_phy": "rx_symbol_errors",
    "link_down_events_phy": "link_down_events",
    "rx_pause_ctrl_phy": "rx_pause_frames",
    "tx_pause_ctrl_phy": "tx_pause_frames",
    "tx_pause_storm_warning_events": "pause_storm_warnings",
    "tx_pause_storm_error_events": "pause_storm_errors",
}


def parse(lines: Iterable[str]) -> Iterator[Item]:
    """One row for the listing."""
    counters: dict[str, int] = {}
    netdev: str | None = None
    for line in text.cleaned(lines):
        bare = line.strip()
        if not bare or bare == "NIC statistics:":
            continue
        if bare.startswith("#"):
            found = re.search(r"ethtool -S (\S+)", bare)
            netdev = found[1] if found else netdev
            continue
        key, colon, value = bare.rpartition(": ")
        count = text.integer(value)
        if not colon or count is None:
            yield SKIP
            continue
        counters[key.strip()] = count
    if counters:
        yield _row(netdev, counters)


def _row(netdev: str | None, counters: dict[str, int]) -> Row:
    prio: dict[str, dict[str, int]] = {}
    for key, value in counters.items():
        match = _PRIO.match(key)
        if match:
            prio.setdefault(match[2], {})[f"{match[1]}_{match[3]}"] = value
    row: Row = {"netdev": netdev}
    row.update({column: counters.get(key) for key, column in _NAMED.items()})
    for side in ("rx", "tx"):  # older drivers and other vendors have no _phy names
        row[f"{side}_bytes"] = (
            row[f"{side}_bytes"] if row[f"{side}_bytes"] is not None else counters.get(f"{side}_bytes")
        )
    pauses = any("_pause" in name for values in prio.values() for name in values)
    complete = "rx_global_pause" in counters or "rx_packets" in counters
    row["pfc"] = "configured" if pauses else "not configured" if complete and not prio_has_pause(counters) else None
    row["priorities"] = prio
    row["busiest_priority"] = _busiest(prio)
    row["counters"] = counters
    return row


def prio_has_pause(counters: dict[str, int]) -> bool:
    """Is there any per-priority pause counter?"""
    return any("_prio" in key and "_pause" in key for key in counters)


def _busiest(prio: dict[str, dict[str, int]]) -> int | None:
    """The priority with the most bytes; RoCE in another one than PFC's is a class-mapping fault."""
    moved: dict[str, Any] = {
        name: values.get("rx_bytes", 0) + values.get("tx_bytes", 0) for name, values in prio.items()
    }
    best = max(moved, key=lambda name: moved[name], default=None)
    return int(best) if best is not None and moved[best] else None


def sniff(head: str) -> int:
    """The title, or nothing but `key: count` lines with a driver's names in them."""
    if "NIC statistics:" in head:
        return 96
    lines = [line.strip() for line in head.splitlines()[:40] if line.strip()]
    counted = sum(bool(re.match(r"[\w.\[\]: ]+: \d+$", line)) for line in lines)
    names = re.search(r"^[ \t]*(?:rx|tx)_(?:prio\d_\w+|bytes|packets|\w+_phy): \d+", head, re.MULTILINE)
    return 88 if names and lines and counted >= len(lines) * 0.8 else 0


KIND: Final = Kind(
    "ethtool",
    "ethtool -S",
    columns(
        "netdev text - null unless the text names it\n"
        + "\n".join(f"{name} int {'bytes' if name.endswith('bytes') else '-'}" for name in _NAMED.values())
        + "\npfc text - configured, not configured, null when the listing is partial\n"
        "priorities map - priority -> counter -> value\nbusiest_priority int -\ncounters map - as written"
    ),
    sniff,
    parse,
)
