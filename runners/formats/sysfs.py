"""/sys/class/infiniband and /sys/class/net, as `grep "" -r` prints them: `path:value`, one file a line.

Port data counters count units of 4 bytes (Linux Documentation/ABI/stable/sysfs-class-infiniband). A value may read
`N/A (no PMA)`. `hw_counters/lifespan` is the cache age in ms, no counter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from runners.formats import text
from runners.formats.base import SKIP, Item, Kind, Row, Value, columns

_LINE = re.compile(r"(?:\S*/)?(?:sys/)?class/(infiniband|net)/([^/:\s]+)/(\S[^:]*):(.*)\Z")
_RELATIVE = re.compile(r"(\A)(?:\./)?([\w.-]+)/(ports/\d+/[^:]*):(.*)\Z")  # grep run inside the class folder
_PORT = re.compile(r"ports/(\d+)/(?:(counters|hw_counters)/)?([\w./-]+)\Z")
_STATE = re.compile(r"\d+: ?([A-Za-z_]+)")
_RATE = re.compile(r"(\d+(?:\.\d+)?) Gb/sec(?: \((.+)\))?")
_WORDS: Final = 4  # bytes in one unit of port_xmit_data and port_rcv_data


def _port(devices: dict[str, Row], hca: str, port: int) -> Row:
    key = f"{hca}/{port}"
    if key not in devices:
        devices[key] = {
            "class": "infiniband",
            "hca": hca,
            "port": port,
            "netdev": None,
            "state": None,
            "phys_state": None,
            "rate_gbps": None,
            "link_layer": None,
            "xmit_bytes": None,
            "rcv_bytes": None,
            "xmit_packets": None,
            "rcv_packets": None,
            "lifespan_ms": None,
            "counters": {},
            "hw_counters": {},
            "gids": {},
            "missing": {},
            "extra": {},
        }
    return devices[key]


_BYTES: Final = {"port_xmit_data": "xmit_bytes", "port_rcv_data": "rcv_bytes"}
_PACKETS: Final = {"port_xmit_packets": "xmit_packets", "port_rcv_packets": "rcv_packets"}


def _port_file(row: Row, group: str | None, name: str, value: str) -> None:
    """One file below ports/<n>/."""
    if group:
        count = text.integer(value)
        if count is None:
            row["missing"][name] = value or "empty"
        if name == "lifespan":
            row["lifespan_ms"] = count
            return
        row[group][name] = count
        if name in _BYTES:
            row[_BYTES[name]] = None if count is None else count * _WORDS
        elif name in _PACKETS:
            row[_PACKETS[name]] = count
    elif name in ("state", "phys_state"):
        match = _STATE.match(value)
        row[name] = match[1] if match else None
    elif name == "rate":
        match = _RATE.match(value)
        row["rate_gbps"] = float(match[1]) if match else None
    elif name == "link_layer":
        row["link_layer"] = value or None
    elif name.startswith("gids/"):
        row["gids"][name[5:]] = value
    elif name.startswith("gid_attrs/ndevs/"):
        row["netdev"] = row["netdev"] or value or None
        row["extra"][name] = value
    else:
        row["extra"][name] = text.cell(value)


_NET_COLUMNS: Final = {
    "operstate": "operstate",
    "carrier": "carrier",
    "speed": "speed_mbps",
    "mtu": "mtu_bytes",
    "duplex": "duplex",
    "carrier_changes": "carrier_changes_total",
    "carrier_down_count": "carrier_down_total",
}


def _net_file(devices: dict[str, Row], netdev: str, name: str, value: str) -> None:
    if netdev not in devices:
        devices[netdev] = {
            "class": "net",
            "netdev": netdev,
            **dict.fromkeys(_NET_COLUMNS.values()),
            "statistics": {},
            "roce_np_enabled": {},
            "roce_rp_enabled": {},
            "missing": {},
            "extra": {},
        }
    row = devices[netdev]
    cell = text.cell(value)
    if name in _NET_COLUMNS:
        if name == "speed" and isinstance(cell, int) and cell < 0:  # -1: link down
            row["missing"]["speed_mbps"] = value
            cell = None
        row[_NET_COLUMNS[name]] = cell
    elif name.startswith("statistics/"):
        row["statistics"][name[11:]] = cell
    elif match := re.match(r"ecn/roce_(np|rp)/enable/(\d+)\Z", name):
        row[f"roce_{match[1]}_enabled"][match[2]] = cell == 1
    else:
        _append(row["extra"], name, cell)


def _append(extra: dict[str, Value], name: str, value: Value) -> None:
    """A file of several lines comes as several lines of grep: keep them all."""
    if name not in extra:
        extra[name] = value
    elif isinstance(extra[name], list):
        extra[name].append(value)
    else:
        extra[name] = [extra[name], value]


def parse(lines: Iterable[str]) -> Iterator[Item]:
    """One row per HCA port and per netdev, in order of first appearance."""
    ports: dict[str, Row] = {}
    nets: dict[str, Row] = {}
    facts: dict[str, Row] = {}
    netdevs: dict[str, str] = {}
    for line in text.cleaned(lines):
        if not line:
            continue
        match = _LINE.match(line) or _RELATIVE.match(line)
        if match is None:
            yield SKIP
            continue
        kind, device, name, value = match[1] or "infiniband", match[2], match[3], match[4].strip()
        if kind == "net":
            _net_file(nets, device, name, value)
        elif found := _PORT.match(name):
            _port_file(_port(ports, device, int(found[1][:9])), found[2], found[3], value)
        elif name.startswith("device/net/"):
            netdevs[device] = name.split("/")[2]
        else:
            facts.setdefault(device, {})[name] = text.cell(value)
    for row in ports.values():
        row["extra"].update(facts.get(row["hca"], {}))
        row["netdev"] = row["netdev"] or netdevs.get(row["hca"])
        yield row
    yield from nets.values()


def sniff(head: str) -> int:
    """Paths of these two classes at the start of lines."""
    if re.search(r"^(?:\./)?[\w.-]+/ports/\d+/(?:counters|hw_counters)/\w+:", head, re.MULTILINE):
        return 90
    return 95 if re.search(r"^\S*class/(?:infiniband|net)/[^/:\s]+/\S+:", head, re.MULTILINE) else 0


KIND: Final = Kind(
    "sysfs_rails",
    'grep "" over /sys/class/infiniband/*/ports/* and /sys/class/net/*',
    columns(
        """
        class            text  -      infiniband or net
        hca              text  -
        port             int   -
        netdev           text  -
        state            text  -      ACTIVE, DOWN, INIT
        phys_state       text  -      LinkUp, Polling, Disabled
        rate_gbps        float Gb/s
        link_layer       text  -      Ethernet = RoCE
        xmit_bytes       int   bytes  port_xmit_data x 4, cumulative
        rcv_bytes        int   bytes  port_rcv_data x 4, cumulative
        xmit_packets     int   -
        rcv_packets      int   -
        lifespan_ms      int   ms     cache age of hw_counters: faster sampling repeats values
        counters         map   -      as in the file (data in units of 4 bytes)
        hw_counters      map   -
        gids             map   -      index -> GID
        operstate        text  -
        carrier          int   -
        speed_mbps       int   Mb/s
        mtu_bytes        int   bytes
        duplex           text  -
        carrier_changes_total int -
        carrier_down_total    int -
        statistics       map   -
        roce_np_enabled  map   -      priority -> ECN notification point on
        roce_rp_enabled  map   -      priority -> ECN reaction point on
        missing          map   -      name -> why it is null
        extra            map   -
        """
    ),
    sniff,
    parse,
)
