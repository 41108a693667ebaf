"""Small RDMA listings: `rdma link`, `ibv_devinfo [-v]`, `ibdev2netdev`, `show_gids`.

`transport: InfiniBand` is printed for RoCE too: the link layer decides. The usable GID index is the row with RoCE v2
and an IPv4 address: 3 on hosts, 5 or 7 in macvlan pods.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from runners.formats import text
from runners.formats.base import SKIP, Item, Kind, Row, columns

_LINK = re.compile(
    r"(?:\d+/\d+: |link )([\w.-]+)/(\d+)(?:: )?\s*(?:subnet_prefix \S+ lid \d+ sm_lid \d+ lmc \d+ )?"
    r"state (\S+) physical_state (\S+)(?: netdev (\S+))?(?: netdev_index \d+)?\s*\Z"
)


def _each(
    lines: Iterable[str], pattern: re.Pattern[str], row: Callable[[re.Match[str]], Row], headings: tuple[str, ...] = ()
) -> Iterator[Item]:
    """A row for each line of the pattern; blank lines and headings are passed over."""
    for line in text.cleaned(lines):
        bare = line.strip()
        if bare and not bare.startswith(headings):
            match = pattern.match(bare)
            yield SKIP if match is None else row(match)


def parse_link(lines: Iterable[str]) -> Iterator[Item]:
    """`rdma link`: one row per port; the netdev is absent inside containers."""

    def row(found: re.Match[str]) -> Row:
        hca, port, state, phys_state, netdev = found.groups()
        return {"hca": hca, "port": int(port[:9]), "state": state, "phys_state": phys_state, "netdev": netdev}

    return _each(lines, _LINK, row)


_PAIR = re.compile(r"\s*([\w(][\w.() -]*?)(?:\[ *(\d+)\])?:\s+(\S.*)\Z")
_MTU = re.compile(r"(\d+) \(\d+\)")
# -v lists capabilities as bare words below a caption; a key of the port without its value is a damaged line.
_WORDS = re.compile(r"\s+(?!(?:state|phys_state|max_mtu|active_mtu|link_layer|port|GID)\b)[A-Za-z][\w .,/()-]*:?\Z")


def parse_devinfo(lines: Iterable[str]) -> Iterator[Item]:
    """`ibv_devinfo`: one row per port, with its device's facts; `gids` with -v."""
    device: Row = {}
    port: Row | None = None
    for line in text.cleaned(lines):
        if not line.strip():
            continue
        if line.strip().startswith("hca_id:"):
            if port is not None:
                yield _port(device, port)
            device, port = {"hca": line.split(":", 1)[1].strip()}, None
            continue
        match = _PAIR.match(line[:1024])
        if match is None:
            if not _WORDS.match(line[:1024]):
                yield SKIP
            continue
        key, value = match[1].strip(), match[3].strip()
        if key == "port" and text.integer(value) is not None:
            if port is not None:
                yield _port(device, port)
            port = {"port": text.integer(value), "gids": []}
        elif key == "GID" and match[2] is not None:
            port = port if port is not None else {"port": None, "gids": []}
            gid, _, version = value.partition(", ")
            port["gids"].append(_gid(int(match[2][:9]), gid, version))
        elif port is not None:
            port[key] = value
        elif key in ("phys_state", "state"):  # a cut paste without its head
            port = {"port": None, "gids": [], key: value}
        else:
            device[key] = value
    if port is not None:
        yield _port(device, port)
    elif device.get("hca"):
        yield _port(device, {"port": None, "gids": []})


def _gid(index: int, gid: str, version: str) -> Row:
    short = version.replace("RoCE ", "").strip() or None
    return {"index": index, "gid": gid, "version": short, "ipv4": _ipv4(gid)}


def _ipv4(gid: str) -> str | None:
    """The IPv4 address of a mapped GID, in dotted or in group form."""
    match = re.search(r"::ffff:(\d+\.\d+\.\d+\.\d+)\Z", gid)
    if match:
        return match[1]
    match = re.search(r"(?:0000:){5}ffff:([0-9a-f]{2})([0-9a-f]{2}):([0-9a-f]{2})([0-9a-f]{2})\Z", gid)
    return ".".join(str(int(part, 16)) for part in match.groups()) if match else None


def _word(value: object) -> str | None:
    """`PORT_ACTIVE (4)` -> ACTIVE."""
    return str(value).split(" ")[0].removeprefix("PORT_") if value is not None else None


def _mtu(value: object) -> int | None:
    match = _MTU.match(str(value))
    return int(match[1][:9]) if match else None


def _port(device: Row, port: Row) -> Row:
    active, most = _mtu(port.get("active_mtu")), _mtu(port.get("max_mtu"))
    usable = [gid["index"] for gid in port["gids"] if gid["version"] == "v2" and gid["ipv4"]]
    return {
        "hca": device.get("hca"),
        "port": port["port"],
        "state": _word(port.get("state")),
        "phys_state": _word(port.get("phys_state")),
        "link_layer": port.get("link_layer"),
        "active_mtu": active,
        "max_mtu": most,
        "mtu_below_max": None if active is None or most is None else active < most,
        "fw_ver": device.get("fw_ver"),
        "transport": device.get("transport"),
        "node_guid": device.get("node_guid"),
        "gids": port["gids"],
        "usable_gid_index": usable[0] if usable else None,
    }


_IBDEV = re.compile(r"(?:\S{1,16} \([^)]{0,80}\) )?([\w.-]{1,64}) port (\d{1,4}) ==> (\S{1,64}) \((\w{1,16})\)\Z")


def parse_ibdev2netdev(lines: Iterable[str]) -> Iterator[Item]:
    """`ibdev2netdev`: one row per port."""

    def row(found: re.Match[str]) -> Row:
        return {"hca": found[1], "port": int(found[2][:9]), "netdev": found[3], "up": found[4] == "Up"}

    return _each(lines, _IBDEV, row)


_GID_ROW = re.compile(
    r"([\w.-]+)\s+(\d+)\s+(\d+)\s+([0-9a-fA-F:]{15,39}|::\S+)\s+(?:(\d+\.\d+\.\d+\.\d+)\s+)?"
    r"(v\d|RoCE ?v\d)(?:\s+(\S+))?\Z"
)


def parse_gids(lines: Iterable[str]) -> Iterator[Item]:
    """`show_gids`: one row per GID; `usable`: RoCE v2 with an IPv4 address."""

    def row(found: re.Match[str]) -> Row:
        version = found[6].replace("RoCE", "").strip()
        return {
            "hca": found[1],
            "port": int(found[2][:9]),
            "index": int(found[3][:9]),
            "gid": found[4],
            "ipv4": found[5],
            "version": version,
            "netdev": found[7],
            "usable": version == "v2" and found[5] is not None,
        }

    return _each(lines, _GID_ROW, row, ("DEV", "---", "n_gids_found"))


def _found(pattern: str, head: str) -> bool:
    return re.search(pattern, head, re.MULTILINE) is not None


KIND_LINK: Final = Kind(
    "rdma_link",
    "rdma link",
    columns("hca text -\nport int -\nstate text -\nphys_state text -\nnetdev text - null inside containers"),
    lambda head: 95 if _found(r"^[ \t]*(?:link |\d+/\d+: )\S+/\d+:? .*physical_state ", head) else 0,
    parse_link,
)
KIND_DEVINFO: Final = Kind(
    "ibv_devinfo",
    "ibv_devinfo (-v)",
    columns(
        "hca text -\nport int -\nstate text -\nphys_state text -\nlink_layer text - Ethernet = RoCE\n"
        "active_mtu int bytes\nmax_mtu int bytes\nmtu_below_max bool -\nfw_ver text -\ntransport text -\n"
        "node_guid text -\ngids list - {index, gid, version, ipv4}\nusable_gid_index int - first v2 with IPv4"
    ),
    lambda head: 95 if _found(r"^hca_id:|^[ \t]*GID\[ *\d+\]:", head) else 0,
    parse_devinfo,
)
KIND_IBDEV: Final = Kind(
    "ibdev2netdev",
    "ibdev2netdev",
    columns("hca text -\nport int -\nnetdev text -\nup bool -"),
    lambda head: (
        95 if _found(r"^[ \t]*(?:\S{1,16} \([^)\n]{0,80}\) )?\S{1,64} port \d{1,4} ==> \S{1,64} \(", head) else 0
    ),
    parse_ibdev2netdev,
)
KIND_GIDS: Final = Kind(
    "show_gids",
    "show_gids",
    columns(
        "hca text -\nport int -\nindex int -\ngid text -\nipv4 text -\nversion text -\nnetdev text -\n"
        "usable bool - RoCE v2 with IPv4"
    ),
    lambda head: 95 if _found(r"^DEV\s+PORT\s+INDEX\s+GID", head) else 0,
    parse_gids,
)
