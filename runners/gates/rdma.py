"""The RDMA gate: does the traffic between nodes run over RoCE with GPUDirect, both ways, on every rail? Fail closed.

FAIL needs evidence of a wrong transport, a missing rank or a transport error; PASS needs everything that the topology
asks for; all else is UNKNOWN, which refuses as well. Port counters support a verdict and never make one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from runners.formats.base import Event
from runners.gates.channels import exchange_gaps, judge_channels
from runners.gates.evidence import UNNAMED, Communicator, Evidence, gather

PASS: Final = "PASS"
FAIL: Final = "FAIL"
UNKNOWN: Final = "UNKNOWN"
NOT_APPLICABLE: Final = "NOT_APPLICABLE"


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the topology asks for. Node names are those that the rows carry.

    hcas     node -> RDMA devices that must carry traffic
    deepep   expert parallelism runs over NVSHMEM, whose channels NCCL does not print
    all_to_all  False where experts exchange by allgather and reduce-scatter, which need rings only
    """

    nodes: tuple[str, ...]
    ranks_per_node: int
    tp: int = 1
    pp: int = 1
    ep: int = 1
    hcas: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    deepep: bool = False
    all_to_all: bool = True

    @property
    def world(self) -> int:
        """Ranks of the deployment."""
        return len(self.nodes) * self.ranks_per_node

    @property
    def spanning_sizes(self) -> set[int]:
        """Sizes of the communicators that must reach over nodes."""
        sizes = {size for size in (self.tp, self.ep) if size > self.ranks_per_node}
        if self.pp > 1:
            sizes.add(self.pp)
        return sizes or {self.world}

    @property
    def exchange_size(self) -> int | None:
        """Ranks of the communicator in which every rank must reach every other one: experts apart from tensor ranks."""
        apart = self.ep > self.ranks_per_node and self.ep != self.tp
        return self.ep if apart and self.all_to_all and not self.deepep else None

    @property
    def nccl_crosses(self) -> bool:
        """Must NCCL itself print channels between nodes? Not when only NVSHMEM traffic crosses."""
        return not self.deepep or bool(self.spanning_sizes - {self.ep}) or self.tp > self.ranks_per_node


@dataclass(slots=True)
class Verdict:
    """The gate's answer.

    matrix    node -> GPU -> {rank, state: COMPLETE | START | MISSING}
    broken    links of the chain that are broken, e.g. "device node"
    override  the operator's words, when a refusal was overridden; it marks every result
    """

    gate: str
    reasons: list[str] = field(default_factory=list)
    matrix: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    override: str | None = None

    @property
    def allows(self) -> bool:
        """May a benchmark start?"""
        return self.gate in (PASS, NOT_APPLICABLE) or self.override is not None

    def as_dict(self) -> dict[str, Any]:
        """JSON shape: {gate, reasons, matrix, broken, notes, override}."""
        return {
            "gate": self.gate,
            "reasons": self.reasons,
            "matrix": self.matrix,
            "broken": self.broken,
            "notes": self.notes,
            "override": self.override,
        }


def overridden(verdict: Verdict, reason: str) -> Verdict:
    """The same verdict with the operator's reason. Raises ValueError when the reason is not given in words."""
    words = [word for word in reason.split() if any(letter.isalpha() for letter in word)]
    if len(words) < 3:
        raise ValueError("an override of the RDMA gate needs a reason in words")
    verdict.override = " ".join(reason.split())
    return verdict


def judge(
    rows: Iterable[Mapping[str, Any]],
    events: Iterable[Event] = (),
    expect: Expectation | None = None,
    counters: Mapping[str, Mapping[str, tuple[int, int]]] | None = None,
) -> Verdict:
    """The verdict over the lines of all nodes.

    rows      rows of nccl_log, each with the node's name; other rows are ignored
    events    events of the same logs
    expect    the topology; without it (offline) the log's own HCAs and communicators are what must be complete
    counters  node -> HCA -> (bytes sent, bytes received) in the run: notes only
    """
    return judge_evidence(gather(rows), events, expect, counters)


def judge_evidence(
    found: Evidence,
    events: Iterable[Event] = (),
    expect: Expectation | None = None,
    counters: Mapping[str, Mapping[str, tuple[int, int]]] | None = None,
) -> Verdict:
    """`judge` over rows that were collected one by one."""
    if expect is not None and len(expect.nodes) == 1:
        return Verdict(NOT_APPLICABLE, ["one node: no traffic between nodes"])
    fails: list[str] = []
    unknowns: list[str] = []
    verdict = Verdict(PASS)
    _transport_errors(events, fails, verdict)
    # A machine of its own needs no RDMA device; an error on the wire is one wherever it stands.
    if expect is None and set(verdict.broken) <= {"device node"} and _single_node(found):
        verdict.gate, verdict.reasons = NOT_APPLICABLE, ["all ranks are on one node: no traffic between nodes"]
        verdict.matrix = _matrix(found, None)
        return verdict
    _networks(found, fails, verdict)
    _nodes_seen(found, expect, unknowns)
    spanning = _communicators(found, expect, fails, unknowns)
    _devices(found, expect, fails, unknowns)
    if expect is not None and expect.deepep:
        _nvshmem(found, expect, unknowns)
    rails = {name: tuple(expect.hcas[name]) for name in expect.hcas} if expect else {}
    names = list(expect.nodes) if expect else []
    channel_fails, channel_unknowns = judge_channels(found, *_rings_and_pairs(found, spanning, expect), names, rails)
    channel_unknowns += exchange_gaps(found, spanning, expect.exchange_size if expect else None)
    fails[:0] = channel_fails  # a wrong transport is the first thing to know
    if expect is None or expect.nccl_crosses:
        unknowns += channel_unknowns
    verdict.matrix = _matrix(found, expect)
    _counter_notes(counters, verdict)
    if fails:
        verdict.gate, verdict.reasons = FAIL, fails + unknowns
    elif unknowns:
        verdict.gate, verdict.reasons = UNKNOWN, unknowns
    else:
        verdict.reasons = _praise(found, spanning)
    return verdict


_BROKEN: Final = frozenset({"peer_memory_missing", "peer_unreachable"})


def _transport_errors(events: Iterable[Event], fails: list[str], verdict: Verdict) -> None:
    """Errors on the wire or in the devices; an echo alone (flushed queue) still is an error."""
    for event in events:
        link = event.detail.get("link")
        if not (event.name.startswith(("rdma_", "no_rdma", "nvshmem_")) or event.name in _BROKEN):
            continue
        if event.detail.get("role") == "note" or event.name == "rdma_async_event":
            continue
        where = f"{event.node}: " if event.node else ""
        pair = f", subnet pair {event.detail['pair']}" if event.detail.get("pair") else ""
        cause = f" (broken link: {link})" if link else ""
        meaning = f", {event.detail['meaning']}" if event.detail.get("meaning") else ""
        text = f"{where}{event.detail.get('line', event.name)}{meaning}{cause}{pair}"
        if text not in fails and len(fails) < 40:
            fails.append(text)
        if link and link not in verdict.broken:
            verdict.broken.append(str(link))


def _single_node(found: Evidence) -> bool:
    """Everything seen is one node by its own words: every communicator complete on it and no network channel."""
    if found.channels or any(name.startswith("Socket") for facts in found.nodes.values() for name in facts.networks):
        inside = found.communicators and all(
            len(item.nodes) == 1 and item.complete == set(range(item.nranks)) for item in found.communicators.values()
        )
        if not inside or found.channels:
            return False
    if found.nodes_told is not None:
        return found.nodes_told == 1
    return bool(found.communicators) and all(
        len(item.nodes) == 1 and item.nodes != [UNNAMED] and item.complete == set(range(item.nranks))
        for item in found.communicators.values()
    )


def _networks(found: Evidence, fails: list[str], verdict: Verdict) -> None:
    for name, facts in found.nodes.items():
        if any(network.startswith("Socket") for network in facts.networks):
            cause = ""
            if facts.env.get("NCCL_IB_DISABLE") not in (None, "0"):
                cause = " because NCCL_IB_DISABLE is set"
            elif "device node" in verdict.broken:
                cause = " after no RDMA device could be opened (is /dev/infiniband in the container?)"
            fails.append(f"{name}: NCCL uses the network Socket{cause}")


def _nodes_seen(found: Evidence, expect: Expectation | None, unknowns: list[str]) -> None:
    if expect is not None:
        unknowns += [f"no NCCL lines from node {name}" for name in expect.nodes if name not in found.nodes]
    elif len([name for name in found.nodes if name != UNNAMED]) < (found.nodes_told or 2):
        seen = ", ".join(found.nodes) or "no node"
        unknowns.append(f"lines of {found.nodes_told or 'at least 2'} nodes are needed; seen: {seen}")


def _communicators(
    found: Evidence, expect: Expectation | None, fails: list[str], unknowns: list[str]
) -> list[Communicator]:
    """Communicators that reach over nodes, after judging their ranks."""
    if expect is not None:
        spanning = [item for item in found.communicators.values() if item.nranks in expect.spanning_sizes]
        spanning = [item for item in spanning if item.nranks > expect.ranks_per_node or len(item.nodes) > 1]
        for size in sorted(expect.spanning_sizes):
            wanted = expect.tp if expect.pp > 1 and size == expect.pp and size <= expect.ranks_per_node else 1
            count = sum(item.nranks == size for item in spanning)
            if count < wanted and not (expect.deepep and size == expect.ep and size != expect.tp):
                unknowns.append(f"{count} of {wanted} communicators of {size} ranks over nodes were seen")
    else:
        spanning = [item for item in found.communicators.values() if _reaches_over(item, found)]
        if not spanning:
            unknowns.append("no communicator over nodes was seen (Init lines missing: NCCL_DEBUG_SUBSYS without INIT?)")
    for item in spanning:
        _ranks(item, found, expect, fails, unknowns)
    if expect is not None:
        inside = {size for size in (expect.tp, expect.ep) if 1 < size <= expect.ranks_per_node}
        for item in found.communicators.values():
            if item.nranks in inside - expect.spanning_sizes and item not in spanning:
                _ranks(item, found, expect, fails, unknowns)
    return spanning


def _rings_and_pairs(
    found: Evidence, spanning: list[Communicator], expect: Expectation | None
) -> tuple[list[Communicator], list[Communicator]]:
    """Which communicators carry collectives and which pipeline stages.

    Offline, communicators of two ranks are pipeline pairs when there are several, or larger ones inside the nodes.
    """
    if expect is not None:
        pairs = [item for item in spanning if expect.pp > 1 and item.nranks == expect.pp != expect.tp]
    else:
        pairs = [item for item in spanning if item.nranks == 2]
        inside = any(item.nranks > 2 and item not in spanning for item in found.communicators.values())
        pairs = pairs if len(pairs) > 1 or inside else []
    return [item for item in spanning if item not in pairs], pairs


def _reaches_over(item: Communicator, found: Evidence) -> bool:
    if len(item.nodes) > 1:
        return True
    local = found.local_ranks_told
    if local is not None:
        return item.nranks > local
    return item.complete != set(range(item.nranks))


def _ranks(
    item: Communicator, found: Evidence, expect: Expectation | None, fails: list[str], unknowns: list[str]
) -> None:
    """Missing ranks: proof when the rest of their node is there, silence when the whole node is."""
    missing = sorted(set(range(item.nranks)) - item.complete)
    if not missing:
        return
    label = f"communicator of {item.nranks} ranks"
    if item.folded:
        unknowns.append(f"{label}: Ray folded equal lines of {item.folded} ranks; set RAY_DEDUP_LOGS=0")
        return
    if not item.complete:
        unknowns.append(f"{label}: no rank printed Init COMPLETE yet")
        return
    stuck = [rank for rank in missing if rank in item.members]
    if stuck:
        places = ", ".join(f"{rank} ({item.members[rank].node} GPU {item.members[rank].gpu})" for rank in stuck)
        fails.append(f"{label}: ranks {places} started and never completed")
    absent = [rank for rank in missing if rank not in item.members]
    if not absent:
        return
    per_node = expect.ranks_per_node if expect else _per_node(item, found)
    gone = [rank for rank in absent if not _block_seen(rank, per_node, item)]
    lost = [rank for rank in absent if rank not in gone]
    if gone:
        unknowns.append(f"{label}: nothing was seen of ranks {_spell(gone)}")
    if lost:
        text = f"{label}: ranks {_spell(lost)} are missing"
        sure = len(item.complete) * 2 >= item.nranks or (expect is not None and item.nranks > expect.ranks_per_node)
        (fails if sure else unknowns).append(text)


def _per_node(item: Communicator, found: Evidence) -> int:
    if found.local_ranks_told and item.nranks > found.local_ranks_told:
        return found.local_ranks_told
    most = max(sum(member.node == node for member in item.members.values()) for node in item.nodes)
    nodes = max(len(item.nodes), 2)
    return max(most, -(-item.nranks // nodes)) if item.nranks > nodes else 1


def _block_seen(rank: int, per_node: int, item: Communicator) -> bool:
    block = rank // per_node
    return any(other // per_node == block for other in item.members)


def _spell(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:16])) + (" ..." if len(ranks) > 16 else "")


def _devices(found: Evidence, expect: Expectation | None, fails: list[str], unknowns: list[str]) -> None:
    for name, facts in found.nodes.items():
        if name == UNNAMED and len(found.nodes) > 1:
            continue
        if not facts.hcas:
            unknowns.append(f"{name}: no `NET/IB : Using` line, so the RDMA devices in use are not known")
        elif expect is not None and name in expect.hcas:
            opened = set(facts.hcas.values())
            fails += [f"{name}: {hca} was not opened by NCCL" for hca in expect.hcas[name] if hca not in opened]


def _nvshmem(found: Evidence, expect: Expectation, unknowns: list[str]) -> None:
    for name in expect.nodes:
        facts = found.nodes.get(name)
        if facts is None or not facts.nvshmem:
            unknowns.append(f"{name}: no line tells that NVSHMEM opened its transport; set NVSHMEM_DEBUG=INFO")
        elif None not in facts.nvshmem_gpus and len(facts.nvshmem_gpus) < expect.ranks_per_node:
            unknowns.append(f"{name}: NVSHMEM lines of {len(facts.nvshmem_gpus)} of {expect.ranks_per_node} GPUs")


def _matrix(found: Evidence, expect: Expectation | None) -> dict[str, dict[str, dict[str, Any]]]:
    """Init state per node and GPU, from the largest communicators."""
    matrix: dict[str, dict[str, dict[str, Any]]] = {}
    for item in sorted(found.communicators.values(), key=lambda comm: comm.nranks):
        for member in item.members.values():
            state = "COMPLETE" if member.complete else "START"
            cell = {"rank": member.rank, "nranks": item.nranks, "state": state}
            matrix.setdefault(member.node, {})[str(member.gpu)] = cell
    if expect is not None:
        for at, name in enumerate(expect.nodes):
            row = matrix.setdefault(name, {})
            for gpu in range(expect.ranks_per_node):
                rank = at * expect.ranks_per_node + gpu
                row.setdefault(str(gpu), {"rank": rank, "nranks": expect.world, "state": "MISSING"})
    return {node: dict(sorted(row.items())) for node, row in matrix.items()}


def _counter_notes(counters: Mapping[str, Mapping[str, tuple[int, int]]] | None, verdict: Verdict) -> None:
    for node, ports in (counters or {}).items():
        for at, word in enumerate(("sent", "received")):
            total = sum(moved[at] for moved in ports.values())
            shares = ", ".join(f"{hca} {moved[at] / total:.0%}" for hca, moved in ports.items()) if total else "nothing"
            verdict.notes.append(f"{node}: port counters {word}: {shares}")


def _praise(found: Evidence, spanning: list[Communicator]) -> list[str]:
    sizes = sorted({item.nranks for item in spanning}, reverse=True)
    rails = "; ".join(f"{name}: {', '.join(dict.fromkeys(facts.hcas.values()))}" for name, facts in found.nodes.items())
    return [
        f"communicators of {', '.join(map(str, sizes))} ranks complete on every rank",
        f"{len(found.channels)} network channels, all with GPUDirect RDMA, both directions ({rails})",
    ]
