"""The rails: ports, links, MTU, GIDs, the devices inside a container, and who reaches whom."""

from __future__ import annotations

import re
from collections.abc import Iterable

from runners.formats.base import collect
from runners.formats.rdma_tools import parse_devinfo
from runners.gates.preflight.base import Scope, Seen, Verdict, differing, listed, usable_gid
from runners.spec import Rail

ADDRESS = re.compile(r"\d+: (\S+)\s+inet (\d{1,3}(?:\.\d{1,3}){3})/(\d{1,2})")


def addresses(seen: Seen) -> dict[str, tuple[str, int]]:
    """netdev -> (IPv4 address, prefix length), by `ip addr`; what it did not tell comes from the GIDs, prefix 0."""
    found: dict[str, tuple[str, int]] = {}
    # A node without /sys/class/net has netdevs of its own making (the embedded lab): `ip` speaks of another machine.
    told = seen.facts.blocks.get("addresses", []) if "net" not in seen.facts.missing else []
    for line in told:
        if match := ADDRESS.match(line):
            found.setdefault(match[1], (match[2], int(match[3])))
    for rail in seen.node.rails:
        if rail.netdev not in found and (gid := usable_gid(seen.facts, rail.hca)):
            found[rail.netdev] = (gid[1], 0)
    return found


def mtu_of(seen: Seen, rail: Rail) -> int | None:
    text = seen.facts.of("net").get(rail.netdev, {}).get("mtu", "")
    return int(text) if text.isdigit() else None


def active_mtu(seen: Seen, hca: str) -> int | None:
    """Active MTU of an RDMA port, by ibv_devinfo."""
    rows = collect(parse_devinfo(seen.facts.blocks.get(f"ibv_devinfo.{hca}", []))).rows
    value = rows[0].get("active_mtu") if rows else None
    return value if isinstance(value, int) else None


def ports(scope: Scope) -> Iterable[Verdict]:
    """Each configured rail: there, up, at its speed, with an address and a usable GID."""
    if not scope.node.rails:
        status = "warn" if scope.spread and scope.node.devices.count else "not_applicable"
        fix = "add rails = [...] to [[nodes]]; `twinrail init` finds them" if status == "warn" else ""
        return [Verdict("rails", status, "no rails are configured", fix)]
    found = [_port(scope, rail) for rail in scope.node.rails]
    order = ("fail", "warn", "unknown", "pass")
    worst = next((s for s in order if any(v.status == s for v in found)), "pass")
    detail = "; ".join(v.detail for v in found)
    return [Verdict("rails", worst, detail, "; ".join(v.fix for v in found if v.fix))]


def _port(scope: Scope, rail: Rail) -> Verdict:
    facts = scope.facts
    known = facts.of("hca")
    name = f"{rail.netdev}={rail.hca}"
    if rail.hca not in known and not facts.complete:
        return Verdict("rails", "unknown", f"{name}: {facts.why('hca')}")
    if rail.hca not in known:
        there = listed(known) or facts.why("hca")
        fix = f"load the driver of {rail.hca} (lspci | grep -i mellanox; ibv_devices), or correct rails ="
        return Verdict("rails", "fail" if scope.spread else "warn", f"{name}: no such HCA; there: {there}", fix)
    port = known[rail.hca]
    state, phys, rate = port.get("state", ""), port.get("phys_state", ""), port.get("rate", "")
    if "ACTIVE" not in state:
        fix = f"cable, switch port and `ip link set {rail.netdev} up`"
        where = f"{name}: {state or 'no state'}, {phys or 'no physical state'}"
        return Verdict("rails", "fail" if scope.spread else "warn", where, fix)
    said, fixes = [], []
    gbps = re.match(r"(\d+(?:\.\d+)?) *Gb", rate)
    said.append(rate.partition(" (")[0] or "rate unknown")
    if gbps and rail.gbps and float(gbps[1]) < rail.gbps:
        fixes.append(f"{rail.netdev} runs at {gbps[1]} Gb/s, {rail.gbps:g} expected: cable, transceiver, switch port")
    netdev = port.get("netdev", "")
    if netdev and netdev != rail.netdev:
        fixes.append(f"{rail.hca} belongs to {netdev}, not {rail.netdev}: correct rails =")
    mtu = mtu_of(scope.seen, rail)
    active = active_mtu(scope.seen, rail.hca)
    said.append(f"MTU {mtu or 'unknown'}, RDMA {active or 'unknown'}")
    if active is not None and active < 4096 and port.get("link_layer") == "Ethernet":
        fixes.append(f"RDMA MTU of {rail.hca} is {active}: ip link set {rail.netdev} mtu 9000 (and the switch)")
    if facts.of("net") and rail.netdev not in facts.of("net"):
        fixes.append(f"no netdev {rail.netdev}: ip -br link")
    if rail.address and (now := addresses(scope.seen).get(rail.netdev)) and now[0] != rail.address:
        fixes.append(f"{rail.netdev} has {now[0]}, rails = says {rail.address}")
    gid = usable_gid(facts, rail.hca)
    if port.get("link_layer", "Ethernet") == "Ethernet":
        told = bool(facts.table("gid"))
        said.append(f"GID {gid[0]}" if gid else "no RoCE v2 GID with IPv4" if told else "GIDs unknown")
        if not gid and told:
            fixes.append(f"give {rail.netdev} an IPv4 address: RoCE v2 needs one to route (show_gids)")
    asked = {**scope.node.env, **(scope.dep.env if scope.dep else {})}.get("NCCL_IB_GID_INDEX")
    if asked and gid and asked != str(gid[0]):
        fixes.append(f"NCCL_IB_GID_INDEX={asked} is set, {rail.hca} needs {gid[0]}")
    status = "warn" if fixes else "pass" if mtu else "unknown"
    return Verdict("rails", status, f"{name}: {', '.join(said)}", "; ".join(fixes))


def alike(scope: Scope) -> Iterable[Verdict]:
    """The n-th rail of every node: one MTU, one speed, one subnet; and one GID index over all rails of a node."""
    nodes = [s for s in scope.others.values() if s.node.rails]
    if len(nodes) < 2:
        return [Verdict("rails_same", "not_applicable", "fewer than two nodes with rails")]
    if len({len(s.node.rails) for s in nodes}) > 1:
        counts = differing({s.node.name: str(len(s.node.rails)) for s in nodes})
        return [Verdict("rails_same", "warn", f"numbers of rails differ: {counts}", "correct rails = in [[nodes]]")]
    wrong, fixes = [], []
    for number, rail in enumerate(nodes[0].node.rails):
        per_node = {s.node.name: (s, s.node.rails[number]) for s in nodes}
        mtus = {n: str(mtu_of(s, r) or "") for n, (s, r) in per_node.items()}
        speeds = {n: s.facts.of("hca").get(r.hca, {}).get("rate", "") for n, (s, r) in per_node.items()}
        nets = {n: _subnet(s, r) for n, (s, r) in per_node.items()}
        if len({m for m in mtus.values() if m}) > 1:
            wrong.append(f"MTU of {rail.netdev}: {differing(mtus)}")
            fixes.append("one MTU on a rail, on the switch too: ip link set DEV mtu 9000")
        if len({v for v in speeds.values() if v}) > 1:
            wrong.append(f"speed of {rail.netdev}: {differing(speeds)}")
        if len({v for v in nets.values() if v}) > 1:
            wrong.append(f"subnet of {rail.netdev}: {differing(nets)}")
            fixes.append("rails in different subnets need routes, or rails = in the same order on all nodes")
    for seen in nodes:
        indices = {r.hca: g[0] for r in seen.node.rails if (g := usable_gid(seen.facts, r.hca))}
        if len(set(indices.values())) > 1:
            wrong.append(f"GID index on {seen.node.name}: {differing({h: str(i) for h, i in indices.items()})}")
            fixes.append("one NCCL_IB_GID_INDEX cannot fit: NCCL 2.21+ finds it by NCCL_IB_ROCE_VERSION_NUM=2")
    if wrong:
        return [Verdict("rails_same", "warn", listed(wrong), "; ".join(dict.fromkeys(fixes)))]
    return [Verdict("rails_same", "pass", f"{len(nodes[0].node.rails)} rails alike on {len(nodes)} nodes")]


def _subnet(seen: Seen, rail: Rail) -> str:
    address, prefix = addresses(seen).get(rail.netdev, ("", 0))
    if not prefix:
        return ""
    value = int.from_bytes(bytes(int(part) & 255 for part in address.split(".")), "big")
    base = (value >> (32 - prefix) << (32 - prefix)).to_bytes(4, "big")
    return f"{'.'.join(str(b) for b in base)}/{prefix}"


def reachable(scope: Scope) -> Iterable[Verdict]:
    """The matrix: every rail of a node to every rail of the others, with whole frames."""
    if not scope.node.rails or len(scope.others) < 2:
        return [Verdict("reach", "not_applicable", "one node, or no rails")]
    cells = scope.seen.reached
    if not cells:
        why = "no address of the other nodes' rails is known"
        return [Verdict("reach", "unknown", why, "set address = in rails")]
    order = {r.netdev: i for i, r in enumerate(scope.node.rails)}
    far = {(s.node.name, r.netdev): i for s in scope.others.values() for i, r in enumerate(s.node.rails)}
    same = [c for c in cells if order.get(c.rail) == far.get((c.node, c.far_rail))]
    cross = [c for c in cells if c not in same]
    said = [f"{c.rail}>{c.node}:{c.far_rail} {c.state.replace('_', ' ')}" for c in cells]
    lost = [c for c in same if c.state in ("lost", "silent")]
    dead = any(c.state == "lost" for c in lost)  # a filtered ping proves nothing
    big = [c for c in same if c.state == "big_lost"]
    if lost:
        names = listed(f"{c.rail} to {c.node} {c.address} ({c.detail})" for c in lost)
        fix = f"ping -I {lost[0].rail} {lost[0].address}; switch, VLAN, address and route of that rail"
        return [
            Verdict("reach", "fail" if scope.spread and dead else "warn", f"no answer: {names}. {listed(said, 8)}", fix)
        ]
    if big:
        names = listed(f"{c.rail} to {c.node} ({c.detail} bytes)" for c in big)
        fix = "MTU differs on the way (node or switch): ip link show; the small packets pass"
        return [Verdict("reach", "warn", f"whole frames are lost: {names}", fix)]
    if any(c.state == "unknown" for c in same):
        why = next(c.detail for c in same if c.state == "unknown")
        return [Verdict("reach", "unknown", why, "apt install iputils-ping, or setcap cap_net_raw+ep ping")]
    apart = cross and all(c.state != "ok" for c in cross)
    asked = {**scope.node.env, **(scope.dep.env if scope.dep else {})}.get("NCCL_CROSS_NIC")
    if apart and asked == "1":
        fix = 'set NCCL_CROSS_NIC = "0" in env: the rails do not reach each other'
        return [Verdict("reach", "warn", f"NCCL_CROSS_NIC=1, but {listed(said, 8)}", fix)]
    note = "; rails are apart: keep NCCL_CROSS_NIC=0" if apart else ""
    return [Verdict("reach", "pass", listed(said, 8) + note)]


def inside(scope: Scope) -> Iterable[Verdict]:
    """The RDMA devices and HCAs as a container of the image sees them."""
    if scope.dep is None or scope.dep.launcher != "docker" or not scope.ours or not scope.node.rails:
        return [Verdict("rails_inside", "not_applicable", "no container, or no rails")]
    seen = scope.seen.inside
    if seen is None:
        return [Verdict("rails_inside", "unknown", scope.seen.inside_why or "not asked", "see `image` of this node")]
    devices = [c[0] for c in seen.table("device") if c]
    hcas = list(seen.of("hca"))
    wanted = [r.hca for r in scope.node.rails]
    verbs = {h: dict(c[1:3] for c in scope.facts.table("hca") if c[0] == h and len(c) > 2).get("verbs") for h in wanted}
    missing = [h for h in wanted if h not in hcas]
    no_verbs = [f"{h} ({v})" for h, v in verbs.items() if v and v not in devices]
    if not any("uverbs" in d for d in devices) or no_verbs:
        lacking = listed(no_verbs) or "any uverbs"
        fix = "ls /dev/infiniband on the node; the launcher passes what is there (container_flags = for the rest)"
        detail = f"the container lacks {lacking}: NCCL would fall to TCP; it has {listed(devices) or 'none'}"
        return [Verdict("rails_inside", "fail" if scope.spread else "warn", detail, fix)]
    if missing:
        fix = "NCCL finds HCAs by /sys/class/infiniband: run it with --network=host and without a private sysfs"
        detail = f"{listed(devices)} are inside, but no {listed(missing)} in its sysfs (seen: {listed(hcas) or 'none'})"
        return [Verdict("rails_inside", "warn", detail, fix)]
    cm = "" if "/dev/infiniband/rdma_cm" in devices else "; no rdma_cm"
    return [Verdict("rails_inside", "pass", f"{listed(hcas)}; {listed(devices)}{cm}")]
