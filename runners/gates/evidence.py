"""What a set of NCCL and NVSHMEM rows says: communicators, channels, devices per node, reduced to one server life."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

UNNAMED = "?"  # node of lines whose header was lost


@dataclass(slots=True)
class Member:
    """One rank of a communicator."""

    rank: int
    node: str
    pid: int | None
    gpu: int | None
    started: bool = False
    complete: bool = False


@dataclass(slots=True)
class Communicator:
    """All that is known of one communicator. `folded` counts ranks hidden by Ray's de-duplication."""

    key: str
    nranks: int
    members: dict[int, Member] = field(default_factory=dict)
    folded: int = 0

    @property
    def complete(self) -> set[int]:
        """Ranks that printed Init COMPLETE."""
        return {rank for rank, member in self.members.items() if member.complete}

    @property
    def nodes(self) -> list[str]:
        """Nodes on which members were seen, in order of appearance."""
        return list(dict.fromkeys(member.node for member in self.members.values()))


class Channel(NamedTuple):
    """One network channel line: `own` is the rank that printed it, `peer` the other one."""

    node: str
    pid: int | None
    number: int
    own: int
    peer: int
    direction: str | None
    network: str
    net_index: int
    gdrdma: bool
    via: str

    @property
    def text(self) -> str:
        """The line in short."""
        a, b = (self.peer, self.own) if self.direction == "receive" else (self.own, self.peer)
        return f"channel {self.number}: {a} -> {b} [{self.direction}] via {self.via}"


@dataclass(slots=True)
class NodeFacts:
    """What the lines of one node say."""

    hcas: dict[int, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    networks: dict[str, None] = field(default_factory=dict)
    fused: dict[int, str] = field(default_factory=dict)
    gdr_off: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    nvshmem: dict[str, None] = field(default_factory=dict)
    nvshmem_gpus: set[int | None] = field(default_factory=set)

    def rails_of(self, index: int) -> set[str]:
        """HCAs behind a network index: one, or all that were fused into a virtual device."""
        name = self.fused.get(index)
        if name is not None:
            parts = set(name.split("+"))
            return parts if len(parts) > 1 else set(self.hcas.values()) or parts
        if index in self.hcas:
            return {self.hcas[index]}
        return set(self.hcas.values())


@dataclass(slots=True)
class Evidence:
    """Rows of all nodes, sorted out."""

    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    communicators: dict[str, Communicator] = field(default_factory=dict)
    channels: dict[Channel, None] = field(default_factory=dict)
    nodes_told: int | None = None  # "nNodes" of a comm line
    local_ranks_told: int | None = None

    def node(self, name: str) -> NodeFacts:
        """The facts of a node, created on first use."""
        return self.nodes.setdefault(name, NodeFacts())


class Collector:
    """Takes rows one by one (a log may be larger than memory: equal channel lines are kept once)."""

    def __init__(self) -> None:
        self.found = Evidence()
        self.rows = 0  # how many rows were of use
        self._last: Communicator | None = None

    def add(self, row: Mapping[str, Any]) -> None:
        """Sort one row in; rows of other records are ignored."""
        record = row.get("record")
        name = str(row.get("node") or UNNAMED)
        if record == "init":
            self._last = _init(self.found, row, name) or self._last
        elif record == "channel":
            _channel(self.found, row, name)
        elif record in _FACTS:
            _FACTS[record](self.found, row, name)
        else:
            return
        self.rows += 1

    def merge(self, other: Collector) -> None:
        """Take over what another collector found in the log of another node."""
        for name, facts in other.found.nodes.items():
            mine = self.found.node(name)
            mine.hcas |= facts.hcas
            mine.links |= facts.links
            mine.networks |= facts.networks
            mine.fused |= facts.fused
            mine.env |= facts.env
            mine.nvshmem |= facts.nvshmem
            mine.nvshmem_gpus |= facts.nvshmem_gpus
            mine.gdr_off += [item for item in facts.gdr_off if item not in mine.gdr_off]
        for key, communicator in other.found.communicators.items():
            held = self.found.communicators.setdefault(key, Communicator(key, communicator.nranks))
            held.members |= communicator.members
            held.folded += communicator.folded
        self.found.channels |= other.found.channels
        self.found.nodes_told = max(self.found.nodes_told or 0, other.found.nodes_told or 0) or None
        self.found.local_ranks_told = max(self.found.local_ranks_told or 0, other.found.local_ranks_told or 0) or None
        self.rows += other.rows
        self._last = self._last if other._last is None else self.found.communicators[other._last.key]

    def evidence(self) -> Evidence:
        """What was found, of the newest server life only (a log may hold restarts)."""
        if self._last is not None:
            _keep_newest_life(self.found, self._last)
        return self.found


def gather(rows: Iterable[Mapping[str, Any]]) -> Evidence:
    """Evidence of a finished set of rows."""
    collector = Collector()
    for row in rows:
        collector.add(row)
    return collector.evidence()


def _init(found: Evidence, row: Mapping[str, Any], name: str) -> Communicator | None:
    if row.get("phase") not in ("START", "COMPLETE"):
        return None
    found.node(name)
    nranks, rank = int(row["nranks"]), int(row["rank"])
    key = str(row.get("comm_id") or f"nranks {nranks}")
    communicator = found.communicators.setdefault(key, Communicator(key, nranks))
    gpu = row.get("nvml_device")
    if gpu is None:
        gpu = row.get("cuda_device") if row.get("cuda_device") is not None else row.get("gpu")
    member = communicator.members.get(rank)
    if member is None or member.pid != row.get("pid"):
        member = communicator.members[rank] = Member(rank, name, row.get("pid"), gpu)
    if row["phase"] == "START":
        member.started = True
    else:
        member.complete = True
        communicator.folded += int(row.get("repeated") or 1) - 1
    return communicator


def _channel(found: Evidence, row: Mapping[str, Any], name: str) -> None:
    if row.get("transport") != "NET" or row.get("net_index") is None:
        return
    found.node(name)
    receives = row.get("direction") == "receive"
    own, peer = (row["to_rank"], row["from_rank"]) if receives else (row["from_rank"], row["to_rank"])
    found.channels[
        Channel(
            name,
            row.get("pid"),
            int(row["channel"]),
            int(own),
            int(peer),
            row.get("direction"),
            str(row.get("network")),
            int(row["net_index"]),
            bool(row.get("gdrdma")),
            str(row.get("via")),
        )
    ] = None


def _hcas(found: Evidence, row: Mapping[str, Any], name: str) -> None:
    facts = found.node(name)
    for item in row["hcas"]:
        facts.hcas[item["index"]] = item["hca"]
        facts.links[item["hca"]] = item["link"]
    for index, names in (row.get("merged") or {}).items():
        facts.fused[int(index)] = "+".join(names)


def _network(found: Evidence, row: Mapping[str, Any], name: str) -> None:
    found.node(name).networks[str(row["network"])] = None


def _virtual(found: Evidence, row: Mapping[str, Any], name: str) -> None:
    if (row.get("parts") or 1) > 1:
        found.node(name).fused[row["net_index"]] = str(row["hca"])


def _gdr(found: Evidence, row: Mapping[str, Any], name: str) -> None:
    facts = found.node(name)
    target = str(row.get("hca") or row.get("gpu") or "")
    if row.get("enabled"):
        facts.gdr_off = [item for item in facts.gdr_off if item != target]
    elif target not in facts.gdr_off:
        facts.gdr_off.append(target)


def _env(found: Evidence, row: Mapping[str, Any], name: str) -> None:
    found.node(name).env[str(row["name"])] = str(row["value"])


def _comm(found: Evidence, row: Mapping[str, Any], name: str) -> None:
    found.node(name)
    found.nodes_told = max(found.nodes_told or 0, int(row["nodes"]))
    found.local_ranks_told = max(found.local_ranks_told or 0, int(row["local_ranks"]))


def _nvshmem(found: Evidence, row: Mapping[str, Any], name: str) -> None:
    facts = found.node(name)
    if row.get("network"):
        facts.nvshmem[str(row["network"])] = None
        facts.nvshmem_gpus.add(row.get("gpu"))


_FACTS = {
    "hcas": _hcas,
    "network": _network,
    "virtual_device": _virtual,
    "gdr": _gdr,
    "env": _env,
    "comm": _comm,
    "nvshmem": _nvshmem,
}


RECORDS = frozenset({"init", "channel", *_FACTS})  # records of rows that the gate looks at


def _keep_newest_life(found: Evidence, last: Communicator) -> None:
    """Drop communicators and channels of processes that a later start replaced on the same node."""
    alive = {(member.node, member.pid) for member in last.members.values()}
    if any(pid is None for _, pid in alive):
        return
    grown = True
    while grown:  # communicators share processes: all that hang together are one life
        grown = False
        for communicator in found.communicators.values():
            own = {(member.node, member.pid) for member in communicator.members.values()}
            if own & alive and not own <= alive:
                alive |= own
                grown = True
    covered = {node for node, _ in alive}
    kept: dict[str, Communicator] = {}
    dead: set[tuple[str, int | None]] = set()
    for key, communicator in found.communicators.items():
        own = {(member.node, member.pid) for member in communicator.members.values()}
        if own & alive or any(node not in covered for node, _ in own):
            kept[key] = communicator
        else:
            dead |= own
    found.communicators = kept
    found.channels = {item: None for item in found.channels if (item.node, item.pid) not in dead}
