"""NCCL, RCCL and NVSHMEM debug lines: devices, networks, channels, GPUDirect, communicator init, transport errors.

Line: `[ts] host:pid:tid [gpu] file.cc:123 NCCL WARN text` or `host:pid:tid [gpu] NCCL INFO text`; NCCL 2.30 puts
`[Rank n] ` before the text of Init lines. What lost its header is still read when it stands at the line's start.
"""

from __future__ import annotations

import re
from typing import Final

from runners.formats import text as cells
from runners.formats.base import SKIP, Item, Row, Value
from runners.formats.log_events import event_of
from runners.formats.nccl_errors import error_of
from runners.formats.prefix import Prefix, peel
from runners.formats.text import clean

_HEADER = re.compile(
    r"(?:\[(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?)\] ?)?([\w.-]{1,255}):(\d{1,10}):(\d{1,10}) \[(-?\d{1,4})\] "
    r"(?:[\d.]+ )?(?:([\w./-]+\.\w+):(\d+) )?(?:NCCL|RCCL|NVSHMEM) (INFO|WARN|TRACE|ERROR|ABORT) "
)
_SHORT = re.compile(r"(?:([\w./-]+\.\w+):(\d+) )?(?:NCCL|RCCL|NVSHMEM) (INFO|WARN|TRACE|ERROR|ABORT) ")
_BARE: Final = (
    "Channel ", "Ring ", "NET/IB", "NET/Socket", "NCCL version ", "GPU Direct RDMA ", "Using network ", "NVSHMEM",
    "WARN: ", "init failed for ", "ncclCommInitRank",
)  # fmt: skip
_RANK = re.compile(r"\[Rank (\d+)\] ")

_CHANNEL = re.compile(
    r"(?:Channel|Ring) (\d+)(?:/(\d+))? : (\d+)\[(\w+)\] -> (\d+)\[(\w+)\] (?:\[(send|receive)\] )?via (\S.*)\Z"
)
_CHANNEL_BEGUN = re.compile(r"(?:Channel|Ring) \d+(?:/\d+)?(?: :)?(?: \d+\[|\s*\Z)")  # not the list of a ring's ranks
_NET = re.compile(r"NET/(.+?)/(\d+)(?:\((\d+)\))?((?:/[\w()]+)*)(?: comm 0x\w+ nRanks \d+)?\Z")  # RCCL: comm
_HCA = re.compile(r"\[(\d+)\] ?([\w.+-]+):(\d+)/(RoCE|IB)\b")
_MERGED = re.compile(r"\[(\d+)\]=\{([^}]*)\}")  # 2.20 to 2.22: one device made of several ports
_OOB = re.compile(r"; OOB ([^\s:]*):")
_SOCKET = re.compile(r"\[(\d+)\]([\w.-]+):(\S+?)<\d+>")
_INIT = re.compile(
    r"comm (0x\w+) rank (\d+) n[rR]anks (\d+)(?: cudaDev (-?\d+))?(?: nvmlDev (-?\d+))?(?: busId (\w+))?"
    r".*? - (Init START|Init COMPLETE|Destroy COMPLETE|Abort COMPLETE)"
)
_COMM_ID = re.compile(r"commId (0x\w+)")
_COMM = re.compile(r"comm (0x\w+) rank (\d+) nRanks (\d+) nNodes (\d+) localRanks (\d+) localRank (\d+)")
_COLL = re.compile(r"(\d+) coll channels, .*?(\d+) p2p channels(?:, (\d+) p2p channels per peer)?")
_GDR = re.compile(
    r"GPU Direct RDMA (?:\(([^)]*)\) )?([Ee]nabled|[Dd]isabled) for (GPU|HCA) (\S+)(?: / HCA (\d+))?(?: '([\w.+-]+))?"
)
_VIRTUAL = re.compile(r"Made virtual device \[(\d+)\] name=(\S+)(?: speed=(\d+))?(?: ndevs=(\d+))?")
_DEVICES = re.compile(r"Rank (\d+): (\d+) Net devices")
_ENV = re.compile(r"(NCCL_\w+|NVSHMEM_\w+|RCCL_\w+) set (?:by environment )?to (.*?)\.?\Z")
_NVSHMEM = re.compile(
    r"Successfully initialized the transport: (\w+)|Selected remote transport: (\w+)|(?:Selected|Using) device (\S+)"
)


def _channel(message: str) -> Row | None:
    match = _CHANNEL.match(message)
    if match is None:
        return None
    return _channel_row(match[1], match[3], match[4], match[5], match[6], match[7], match[8])


def _channel_row(number: str, a: str, a_device: str, b: str, b_device: str, direction: str | None, via: str) -> Row:
    return {
        "record": "channel",
        "channel": int(number[:9]),
        "from_rank": int(a[:9]),
        "to_rank": int(b[:9]),
        "from_device": a_device,
        "to_device": b_device,
        "direction": direction,
        **_VIA[via][1],
        "via": via,
    }


def _transport(via: str) -> tuple[str, Row]:
    """The columns of what stands behind `via` (as a pair, for the memo)."""
    net = _NET.match(via)
    if net is None:
        return via, {"transport": via.split("/")[0], "network": None, "net_index": None, "proxy_rank": None,
                     "gdrdma": None}  # fmt: skip
    return via, {
        "transport": "NET",
        "network": net[1],
        "net_index": int(net[2][:9]),
        "proxy_rank": int(net[3][:9]) if net[3] else None,
        "gdrdma": any(flag.startswith("GDRDMA") for flag in net[4].split("/")),
    }


_VIA: Final = cells.Memo(_transport, 4096)
_FAST = re.compile(
    r"([\w.-]{1,255}):(\d{1,10}):(\d{1,10}) \[(\d{1,4})\] NCCL INFO "
    r"Channel (\d+)(?:/\d+)? : (\d+)\[(\w+)\] -> (\d+)\[(\w+)\] (?:\[(send|receive)\] )?via ([\w/(). +-]*[\w)])\Z",
    re.ASCII,
)


def fast_row(line: str) -> Row | None:
    """The row of a whole channel line of today's form; None for every other line, which `parse_line` then reads."""
    match = _FAST.match(line)
    if match is None:
        return None
    node, pid, tid, gpu, *channel = match.groups()
    row = _channel_row(*channel)
    row.update(node=node, pid=int(pid), tid=int(tid), gpu=int(gpu), time=None, received=None, repeated=1)
    return row


def _init(message: str) -> Row | None:
    match = _INIT.search(message)
    if match is None:
        return None
    comm_id = _COMM_ID.search(message)
    return {
        "record": "init",
        "phase": match[7].split()[1] if match[7].startswith("Init") else match[7].split()[0].upper(),
        "comm": match[1],
        "comm_id": comm_id[1] if comm_id else None,
        "rank": int(match[2][:9]),
        "nranks": int(match[3][:9]),
        "cuda_device": int(match[4][:9]) if match[4] else None,
        "nvml_device": int(match[5][:9]) if match[5] else None,
        "bus_id": match[6],
    }


def _devices(message: str) -> Row | None:
    """The lines that name devices and networks."""
    if message.startswith("NET/IB : Using "):
        oob = _OOB.search(message)
        found = [
            {"index": int(index[:9]), "hca": name, "port": int(port[:9]), "link": link}
            for index, name, port, link in _HCA.findall(message)
        ]
        merged = {index[:9]: [name for _, name, _, _ in _HCA.findall(body)] for index, body in _MERGED.findall(message)}
        return {"record": "hcas", "hcas": found, "merged": merged, "oob": oob[1] or None if oob else None,
                "relaxed": "[RO]" in message}  # fmt: skip
    if message.startswith("NET/Socket : Using "):
        return {"record": "sockets", "netdevs": [name for _, name, _ in _SOCKET.findall(message)]}
    if message.startswith("Using network "):
        return {"record": "network", "network": message[14:].strip()}
    if match := _GDR.search(message):
        hca = match[6] or (match[4] if match[3] == "HCA" else match[5])
        gpu = match[4] if match[3] == "GPU" else None
        return {"record": "gdr", "enabled": match[2].lower() == "enabled", "method": match[1], "hca": hca, "gpu": gpu}
    if message.startswith("DMA-BUF is available on GPU device"):
        return {"record": "dmabuf", "enabled": True}
    if match := _VIRTUAL.search(message):
        return {"record": "virtual_device", "net_index": int(match[1][:9]), "hca": match[2],
                "parts": int(match[4][:9]) if match[4] else None}  # fmt: skip
    return None


def _facts(message: str) -> Row | None:
    """Topology, environment, versions."""
    if match := _COMM.search(message):
        return {"record": "comm", "comm": match[1], "rank": int(match[2][:9]), "nranks": int(match[3][:9]),
                "nodes": int(match[4][:9]), "local_ranks": int(match[5][:9])}  # fmt: skip
    if match := _DEVICES.match(message):
        return {"record": "net_devices", "rank": int(match[1][:9]), "net_devices": int(match[2][:9])}
    if match := _ENV.match(message):
        return {"record": "env", "name": match[1], "value": match[2]}
    if match := _COLL.match(message):
        return {"record": "channels", "coll_channels": int(match[1][:9]), "p2p_channels": int(match[2][:9])}
    if "globalNicFused " in message:
        return {"record": "fused", "fused": "globalNicFused 1" in message}
    if match := re.match(r"NCCL version (\S+)", message):
        return {"record": "version", "version": match[1]}
    if match := _NVSHMEM.search(message):
        return {"record": "nvshmem", "network": match[1] or match[2], "hca": match[3]}
    return None


def _row(message: str) -> Item | None:
    if message.startswith(("Channel ", "Ring ")):
        row = _channel(message)
        return row if row is not None or not _CHANNEL_BEGUN.match(message) else SKIP
    if "ranks " in message or "nRanks" in message:
        found = _init(message)
        if found is not None:
            return found
        if " - Init " in message:
            return SKIP
    return _devices(message) or _facts(message)


def parse_message(
    message: str, level: str, where: str | None, context: Row, prefix: Prefix | None, time: str | None
) -> Item | None:
    """One message without its header. `context` (node, pid, tid, gpu) goes into rows and events."""
    rank = _RANK.match(message)
    if rank:
        message = message[rank.end() :]
    item = _row(message)
    if isinstance(item, dict):
        item.update(context)
        item["time"] = time
        item["received"] = prefix.received if prefix else None
        item["repeated"] = prefix.repeated if prefix else 1
        return item
    if item is not None:
        return item
    if (where and "ras/" in where) or message.startswith("RAS "):  # the diagnostic listener: harmless
        return None
    event = error_of(message, level, where)
    if event is None:
        event = event_of(message, prefix, time)
    if event is None:
        return None
    extra: dict[str, Value] = {key: value for key, value in context.items() if key != "node" and value is not None}
    event.detail.update(extra)
    event.node = context.get("node") or (prefix.node if prefix else None)
    event.rank = int(rank[1][:9]) if rank else event.rank
    event.time = event.time or time or (prefix.received if prefix else None)
    if prefix and prefix.repeated > 1:
        event.detail["repeated"] = prefix.repeated
    return event


def parse_line(line: str) -> Item | None:
    """One raw line -> a row, a transport event, SKIP for a damaged line, None for anything else."""
    prefix, rest = peel(clean(line)[: cells.MATCHED])
    match = _HEADER.match(rest)
    if match is not None:
        context: Row = {"node": match[2], "pid": int(match[3]), "tid": int(match[4]), "gpu": int(match[5])}
        where = f"{match[6]}:{match[7]}" if match[6] else None
        return parse_message(rest[match.end() :], match[8], where, context, prefix, match[1])
    context = {"node": prefix.node if prefix else None, "pid": prefix.pid if prefix else None, "tid": None, "gpu": None}
    short = _SHORT.search(rest)
    if short is not None:
        where = f"{short[1]}:{short[2]}" if short[1] else None
        return parse_message(rest[short.end() :], short[3], where, context, prefix, None)
    if rest.startswith(_BARE) or "/nvshmem" in rest or ("nvshmem" in rest and "transport" in rest):
        return parse_message(rest, "INFO", None, context, prefix, None)
    return None


def sniff(head: str) -> int:
    """NCCL or NVSHMEM lines."""
    count = len(re.findall(r"\b(?:NCCL|RCCL|NVSHMEM) (?:INFO|WARN) ", head))
    if count:
        return 86 if count > 2 else 84
    bare = re.search(r"^(?:Channel \d+/\d+ : \d+\[\w+\] -> |NET/IB : )|nvshmemi_transport_init", head, re.MULTILINE)
    return 75 if bare else 0
