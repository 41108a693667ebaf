"""The channel part of the RDMA gate: transport, GPUDirect, both directions, every rail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runners.gates.evidence import UNNAMED, Channel, Communicator, Evidence

_RDMA_NAMES = ("IB", "RDMA", "GIN", "UCX", "SHARP")  # network names of verbs transports and their plugins


def judge_channels(
    found: Evidence,
    rings: Sequence[Communicator],
    pairs: Sequence[Communicator],
    expected_nodes: Sequence[str],
    expected_rails: Mapping[str, tuple[str, ...]],
) -> tuple[list[str], list[str]]:
    """(proofs of a fault, gaps in the evidence).

    rings  communicators over nodes whose traffic goes both ways (collectives)
    pairs  pipeline groups, whose traffic mostly goes from lower to higher rank
    """
    fails: list[str] = []
    unknowns: list[str] = []
    crossing = [item for item in found.channels if _crosses(item, found)]
    if not crossing:
        unknowns.append(
            "no channel line between nodes (NCCL_DEBUG_SUBSYS without NET hides them): the transport is not proved"
        )
        return fails, unknowns
    _transports(crossing, found, fails, unknowns)
    _directions(crossing, found, bool(rings) or not pairs, expected_nodes, unknowns)
    _silent(rings, crossing, found, unknowns)
    _pair_directions(pairs, crossing, found, unknowns)
    _rails(crossing, found, expected_rails, fails, unknowns)
    return fails, unknowns


def _candidates(item: Channel, found: Evidence) -> list[Communicator]:
    """Communicators to which the line can belong: the printing process is its `own` rank there."""
    fitting = []
    for communicator in found.communicators.values():
        member = communicator.members.get(item.own)
        same = member is not None and member.node == item.node and (item.pid is None or member.pid == item.pid)
        if same and item.peer < communicator.nranks:
            fitting.append(communicator)
    return fitting


def _crosses(item: Channel, found: Evidence) -> bool:
    """Between nodes, or not known to stay inside one."""
    fitting = _candidates(item, found)
    return not fitting or any(_over(communicator, item) for communicator in fitting)


def _over(communicator: Communicator, item: Channel) -> bool:
    """Is the other end on another node, as far as is known?"""
    peer = communicator.members.get(item.peer)
    return peer is None or peer.node != item.node


def _transports(crossing: Sequence[Channel], found: Evidence, fails: list[str], unknowns: list[str]) -> None:
    sockets = [item for item in crossing if item.network.startswith("Socket")]
    for name in dict.fromkeys(item.node for item in sockets):
        lines = [item for item in sockets if item.node == name]
        fails.append(f"{name}: {len(lines)} channels run over sockets, e.g. {lines[0].text}")
    others = [item for item in crossing if not item.network.startswith("Socket")]
    bounced = [item for item in others if not item.gdrdma]
    for name in dict.fromkeys(item.node for item in bounced):
        lines = [item for item in bounced if item.node == name]
        facts = found.nodes[name]
        off = f" (GPU Direct RDMA disabled for {', '.join(facts.gdr_off)})" if facts.gdr_off else ""
        fails.append(
            f"{name}: {len(lines)} channels without GDRDMA go through host memory, e.g. {lines[0].text}{off} "
            "(broken link: driver module)"
        )
    strange = {item.network for item in others if not any(word in item.network for word in _RDMA_NAMES)}
    unknowns += [f"the network {name} is not known to be RDMA" for name in sorted(strange)]


def _peer_node(item: Channel, found: Evidence, nodes: Sequence[str]) -> str | None:
    for communicator in _candidates(item, found):
        peer = communicator.members.get(item.peer)
        if peer is not None and peer.node != item.node:
            return peer.node
    rest = [name for name in nodes if name != item.node]
    return rest[0] if len(rest) == 1 else None


def _directions(
    crossing: Sequence[Channel],
    found: Evidence,
    both_ways: bool,
    expected_nodes: Sequence[str],
    unknowns: list[str],
) -> None:
    nodes = list(expected_nodes) or [name for name in found.nodes if name != UNNAMED]
    sends: set[tuple[str, str | None]] = set()
    receives: set[tuple[str | None, str]] = set()
    for item in crossing:
        peer = _peer_node(item, found, nodes)
        if item.direction == "send":
            sends.add((item.node, peer))
        elif item.direction == "receive":
            receives.add((peer, item.node))
    if both_ways:
        for name in nodes:
            if not any(origin == name for origin, _ in sends):
                unknowns.append(f"{name}: no [send] channel to another node")
            if not any(target == name for _, target in receives):
                unknowns.append(f"{name}: no [receive] channel from another node")
    unknowns += _single_ends(crossing, found, nodes)
    for origin, target in sends:
        if target is not None and target in nodes and (origin, target) not in receives:
            unknowns.append(f"{origin} -> {target}: sent, but no [receive] line on {target}")
    for source, target in receives:
        if source is not None and source in nodes and (source, target) not in sends:
            unknowns.append(f"{source} -> {target}: received, but no [send] line on {source}")


def _single_ends(crossing: Sequence[Channel], found: Evidence, nodes: Sequence[str]) -> list[str]:
    """NCCL prints each channel at both ends: one end alone is a lost line or a connection that never stood."""
    ends: dict[tuple[str, int, int, int], dict[str, Channel]] = {}
    for item in crossing:
        if item.direction and item.node in nodes:
            pair = (item.own, item.peer) if item.direction == "send" else (item.peer, item.own)
            fitting = [held for held in _candidates(item, found) if _over(held, item)]
            for key in [held.key for held in fitting] or [""]:
                ends.setdefault((key, item.number, *pair), {})[item.direction] = item
    single = dict.fromkeys(item for held in ends.values() if len(held) == 1 for item in held.values())
    alone = [item for item in single if _peer_node(item, found, nodes) in nodes]
    if not alone:
        return []
    first = alone[0]
    other = "receive" if first.direction == "send" else "send"
    return [f"{len(alone)} channels show one end only, e.g. {first.text} on {first.node} without its [{other}] line"]


def _silent(rings: Sequence[Communicator], crossing: Sequence[Channel], found: Evidence, unknowns: list[str]) -> None:
    """Engines create several communicators: channels of a smaller one prove nothing for the one of all ranks."""
    size = max((item.nranks for item in rings), default=0)
    keys = {item.key for item in rings if item.nranks == size}
    for item in crossing:
        fitting = _candidates(item, found)
        if not fitting or any(held.key in keys and _over(held, item) for held in fitting):
            return
    if keys:
        unknowns.append(f"no channel between nodes belongs to a communicator of {size} ranks")


def _pair_directions(
    pairs: Sequence[Communicator], crossing: Sequence[Channel], found: Evidence, unknowns: list[str]
) -> None:
    """Pipeline groups: activations go from a stage to the next, often only that way."""
    keys = {item.key for item in pairs}
    forward: dict[str, set[str]] = {}
    for item in crossing:
        for communicator in _candidates(item, found):
            origin, target = (item.own, item.peer) if item.direction == "send" else (item.peer, item.own)
            if communicator.key in keys and origin < target and item.direction:
                forward.setdefault(communicator.key, set()).add(item.direction)
    for communicator in pairs:
        seen = forward.get(communicator.key, set())
        for word in ("send", "receive"):
            if word not in seen:
                places = " and ".join(f"{m.node} GPU {m.gpu}" for m in communicator.members.values())
                unknowns.append(f"pipeline group ({places}): no forward [{word}] channel")


_LARGE = 8  # below so many ranks rings and trees alone join most pairs
_SPOKEN = 0.75  # more pairs over nodes than this are no ring and no tree


def exchange_gaps(found: Evidence, spanning: Sequence[Communicator], size: int | None) -> list[str]:
    """Pairs of ranks on different nodes that an all-to-all needs and no line shows, one reason a rank and direction.

    size  ranks of the communicator that must exchange all to all; None where only the lines can tell that one does
    """
    gaps: list[str] = []
    candidates = [item for item in spanning if (item.nranks == size if size else item.nranks >= _LARGE)]
    if not candidates:
        return gaps
    seen: dict[str, dict[str, set[tuple[int, int]]]] = {}
    for item in found.channels:
        if item.direction is None:
            continue
        ends = (item.own, item.peer) if item.direction == "send" else (item.peer, item.own)
        for communicator in _candidates(item, found):
            seen.setdefault(communicator.key, {}).setdefault(item.direction, set()).add(ends)
    found_whole: list[list[str]] = []
    for communicator in candidates:
        members = communicator.members
        wanted = {(a, b) for a in members for b in members if members[a].node != members[b].node}
        words = seen.get(communicator.key, {})
        spoken = (words.get("send", set()) | words.get("receive", set())) & wanted
        if size is None and len(spoken) <= _SPOKEN * len(wanted):
            continue
        missing = [
            (ends[at], ends[1 - at], word)
            for at, word in enumerate(("send", "receive"))
            for ends in sorted(wanted - words.get(word, set()))
        ]
        found_whole.append(_spelt(communicator, missing))
    # Tensor ranks and experts may have communicators of one size: one of them exchanges.
    return min(found_whole, key=len, default=gaps) if size else [text for texts in found_whole for text in texts]


def _spelt(communicator: Communicator, missing: Sequence[tuple[int, int, str]]) -> list[str]:
    """`missing` holds (rank whose line is absent, its peer, word)."""
    peers: dict[tuple[int, str], list[int]] = {}
    for own, peer, word in missing:
        peers.setdefault((own, word), []).append(peer)
    texts = []
    for (own, word), others in peers.items():
        member = communicator.members[own]
        preposition = "to" if word == "send" else "from"
        listed = ", ".join(map(str, sorted(others)[:16])) + (" ..." if len(others) > 16 else "")
        texts.append(
            f"{member.node} GPU {member.gpu}: rank {own} of {communicator.nranks} shows no [{word}] channel "
            f"{preposition} ranks {listed} (all-to-all)"
        )
    return texts if len(texts) <= _TOLD else [*texts[:_TOLD], f"{len(texts) - _TOLD} more ranks and directions"]


_TOLD = 16  # reasons of one kind


def _rails(
    crossing: Sequence[Channel],
    found: Evidence,
    expected: Mapping[str, tuple[str, ...]],
    fails: list[str],
    unknowns: list[str],
) -> None:
    for name in dict.fromkeys(item.node for item in crossing):
        facts = found.nodes[name]
        wanted = set(expected.get(name, ())) or set(facts.hcas.values())
        lines = [item for item in crossing if item.node == name and not item.network.startswith("Socket")]
        if not wanted or not lines:
            continue
        used: set[str] = set()
        for item in lines:
            used |= facts.rails_of(item.net_index)
        for hca in sorted(wanted - used):
            text = f"{name}: no channel uses the rail {hca}"
            (fails if _gapless(lines) else unknowns).append(text)


def _gapless(lines: Sequence[Channel]) -> bool:
    """All channel numbers from 0 on are there in each direction seen, more than one of them: no line is missing."""
    for direction in {item.direction for item in lines}:
        numbers = {item.number for item in lines if item.direction == direction}
        if numbers != set(range(len(numbers))) or len(numbers) < 2:
            return False
    return True
