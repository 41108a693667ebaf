"""How GPUs reach each other and the rails: peer to peer, ACS and IOMMU, NUMA.

ACS redirection and a translating IOMMU send peer-to-peer traffic through the root complex, or break it: the first
all-reduce then hangs (local-inference-lab/rtx6kpro#15).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from runners.formats import nvidia_smi_topo
from runners.formats.base import collect
from runners.gates.preflight.base import Facts, Scope, Verdict, listed, unknown
from runners.gates.preflight.gpus import gpu_rows

REDIRECTS = ("SrcValid+", "ReqRedir+", "CmpltRedir+", "UpstreamFwd+")


def matrix(facts: Facts, name: str) -> list[dict[str, Any]]:
    """Rows of `nvidia-smi topo -m` or `-p2p r`, see runners.formats.nvidia_smi_topo."""
    return collect(nvidia_smi_topo.parse(facts.blocks.get(name, []))).rows


def peer_to_peer(scope: Scope) -> Iterable[Verdict]:
    """Whether the driver lets every pair of GPUs read each other's memory."""
    if scope.node.devices.vendor != "nvidia" or scope.node.devices.count < 2:
        return [Verdict("p2p", "not_applicable", "fewer than two NVIDIA GPUs")]
    env = {**scope.node.env, **(scope.dep.env if scope.dep else {})}
    off = [f"{k}={v}" for k in ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL") if (v := env.get(k))]
    asked = f"; {listed(off)} is set" if off else ""
    rows = [r for r in matrix(scope.facts, "p2p") if r["class"] == "gpu"]
    words = [w for r in rows for name, w in r["links"].items() if name != r["device"] and w in _P2P]
    if not words:
        why = "topo -p2p gave no matrix" if "p2p" in scope.facts.blocks else scope.facts.why("p2p")
        return [Verdict("p2p", "unknown", why + asked, "nvidia-smi topo -p2p r")]
    bad = [w for w in words if w != "OK"]
    if not bad:
        return [Verdict("p2p", "pass", f"all {len(words)} directions are OK{asked}")]
    kinds = listed(f"{bad.count(w)} {w} ({_P2P[w]})" for w in sorted(set(bad)))
    fix = "look at ACS and IOMMU below; NCCL then copies through host memory, or set NCCL_P2P_DISABLE=1 in env"
    return [Verdict("p2p", "warn", f"of {len(words)} directions {kinds}{asked}", fix)]


_P2P = {
    "OK": "works",
    "CNS": "chipset not supported",
    "GNS": "GPU not supported",
    "TNS": "topology not supported",
    "NS": "not supported",
    "DR": "disabled by the driver",
    "U": "unknown",
}


def acs(scope: Scope) -> Iterable[Verdict]:
    """PCIe bridges that redirect peer-to-peer requests."""
    if "acs.read" not in scope.facts.values:
        return [unknown("acs", scope.facts, "acs", "as root: lspci -vvv | grep -i acsctl")]
    rows = [c for c in scope.facts.table("acs") if len(c) >= 3]
    on = [c[0] for c in rows if any(flag in c[2] for flag in REDIRECTS)]
    if on:
        fix = "turn ACS off in the BIOS, or: setpci -s BUS ECAP_ACS+0x6.w=0000 for each bridge (until the next boot)"
        return [Verdict("acs", "warn", f"ACS redirects on {len(on)} of {len(rows)} ports: {listed(on)}", fix)]
    return [Verdict("acs", "pass", f"no redirection on {len(rows)} ports with ACS")]


def iommu(scope: Scope) -> Iterable[Verdict]:
    """Whether GPUs and rails sit behind a translating IOMMU."""
    facts = scope.facts
    groups = facts.number("iommu.groups")
    words = [w for w in facts.values.get("host.cmdline", "").split() if "iommu" in w]
    asked = f"; kernel command line: {' '.join(words)}" if words else ""
    if groups is None:
        return [unknown("iommu", facts, "iommu.groups")]
    if not groups:
        return [Verdict("iommu", "pass", f"no IOMMU groups: it is off{asked}")]
    kinds: dict[str, list[str]] = {}
    for cells in facts.table("pci"):
        if len(cells) >= 4 and cells[3]:
            kinds.setdefault(cells[3], []).append(cells[0])
    translated = [bus for kind, buses in kinds.items() if kind.startswith("DMA") for bus in buses]
    if translated:
        fix = "boot with iommu=pt (pass-through), or iommu=off on bare metal"
        return [Verdict("iommu", "warn", f"{len(translated)} devices are translated: {listed(translated)}{asked}", fix)]
    if not kinds:
        return [Verdict("iommu", "unknown", f"{groups} groups, their type is not told{asked}", "iommu=pt is wanted")]
    return [Verdict("iommu", "pass", f"{groups} groups, {listed(kinds)}{asked}")]


def numa_map(scope: Scope) -> Iterable[Verdict]:
    """Which rail each GPU is nearest to; a rail that is far from half of them makes the rails unequal."""
    if not scope.node.rails or scope.node.devices.count == 0:
        return [Verdict("numa_map", "not_applicable", "no rails, or no devices, configured")]
    rows = [r for r in matrix(scope.facts, "topo") if r["class"] == "gpu"]
    hcas = [r.hca for r in scope.node.rails]
    if rows and any(set(r["best_nics"]) & set(hcas) for r in rows):
        return [_by_topo(rows, hcas)]
    return [_by_numa(scope, hcas)]


def _by_topo(rows: list[dict[str, Any]], hcas: list[str]) -> Verdict:
    near: dict[str, list[str]] = {hca: [] for hca in hcas}
    far = []
    for row in rows:
        best = [h for h in row["best_nics"] if h in near]
        if row["best_nic_link"] == "SYS" or not best:
            far.append(str(row["device"]))
        for hca in best[:1] if row["best_nic_link"] != "SYS" else ():
            near[hca].append(f"{row['device'].removeprefix('GPU')}:{row['best_nic_link']}")
    said = "; ".join(f"{hca}: GPU {listed(gpus, 8) or 'none'}" for hca, gpus in near.items())
    idle = [hca for hca, gpus in near.items() if not gpus]
    fix = "look: nvidia-smi topo -m; a GPU sends over its nearest rail, so the rails will carry unequal shares"
    if far or idle:
        extra = f"; across sockets from every rail: {listed(far, 8)}" if far else f"; nearest to none: {listed(idle)}"
        return Verdict("numa_map", "warn", said + extra, fix)
    return Verdict("numa_map", "pass", said)


def _by_numa(scope: Scope, hcas: list[str]) -> Verdict:
    rails = {hca: scope.facts.of("hca").get(hca, {}).get("numa_node", "") for hca in hcas}
    numas = {_bus(c[0]): c[2] for c in scope.facts.table("pci") if len(c) >= 3}
    gpus = [numas.get(_bus(str(r.get("pci_bus_id") or "")), "") for r in gpu_rows(scope.facts, "nvidia")]
    if not all(rails.values()) or not gpus or not all(gpus):
        why = f"{scope.facts.why('topo')}; and sysfs tells no NUMA node of all GPUs and rails"
        return Verdict("numa_map", "unknown", why, "nvidia-smi topo -m")
    counts = {n: gpus.count(n) for n in sorted(set(gpus))}
    said = f"rails on NUMA {rails}, GPUs a NUMA node {counts}".replace("'", "")
    lonely = [n for n in counts if n not in rails.values()]
    if lonely:
        return Verdict("numa_map", "warn", f"{said}; no rail on NUMA {listed(lonely)}", "nvidia-smi topo -m")
    return Verdict("numa_map", "pass", said)


def _bus(text: str) -> str:
    """PCI address without its domain's padding: 00000000:16:00.0 and 0000:16:00.0 are one."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}"
