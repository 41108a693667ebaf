"""Limits and settings of the node that slow a server down or stop it: ulimits, cgroups, kernel, CPU."""

from __future__ import annotations

import re
from collections.abc import Iterable

from runners.gates.preflight.base import Facts, Scope, Verdict, listed, unknown

NOFILE = 65_535
NUMA_FIX = "sysctl -w kernel.numa_balancing=0: pages that move between nodes are jitter"


def ulimits_of(facts: Facts) -> dict[str, str]:
    """Soft limits by name, as /proc/self/limits says them."""
    found = {}
    for line in facts.blocks.get("limits", []):
        parts = re.split(r" {2,}", line.strip())
        if len(parts) >= 3 and parts[0].startswith("Max "):
            found[parts[0].removeprefix("Max ")] = parts[1]
    return found


def ulimits(scope: Scope) -> Iterable[Verdict]:
    """memlock (RDMA registers GPU and host memory) and nofile, as a process of ours gets them."""
    facts, where = scope.facts, ""
    inside = scope.seen.inside
    if scope.dep is not None and scope.dep.launcher == "docker" and inside is not None:
        facts, where = inside, "in the container"
    limits = ulimits_of(facts)
    memlock, nofile = limits.get("locked memory"), limits.get("open files")
    if memlock is None or nofile is None:
        return [unknown("ulimits", facts, "limits", "ulimit -l; ulimit -n")]
    detail = f"memlock {memlock}, nofile {nofile} {where}".rstrip()
    root = scope.facts.values.get("host.uid") == "0"
    low_files = nofile.isdigit() and int(nofile) < NOFILE
    needs = scope.spread and bool(scope.node.rails)
    fixes = []
    if memlock != "unlimited" and needs and not (root and not where):
        fixes.append("memlock must be unlimited for RDMA: /etc/security/limits.conf, or LimitMEMLOCK=infinity")
    if low_files:
        fixes.append(f"nofile {NOFILE} or more: a server opens a file a connection")
    if memlock != "unlimited" and needs and root and not where:
        detail += " (root is not held to memlock)"
    return [Verdict("ulimits", "warn" if fixes else "pass", detail, "; ".join(fixes))]


def cpu_limits(scope: Scope) -> Iterable[Verdict]:
    """CPU quota and CPU set of our cgroup and of those above it."""
    facts = scope.facts
    total, usable = facts.number("host.cpus"), facts.number("host.cpus_usable")
    quotas = []
    for cells in facts.table("limit"):
        if len(cells) >= 3 and cells[0] == "cpu.max":
            quota, _, period = cells[2].partition(" ")
            if quota.isdigit() and period.isdigit() and int(period):
                quotas.append(int(quota) / int(period))
    if total is None or usable is None:
        return [unknown("cpu_limits", facts, "host.cpus", "nproc --all; nproc")]
    detail = f"{usable} of {total} CPUs, affinity {facts.values.get('affinity.cpus', 'unknown')}"
    if quotas:
        detail += f", quota {min(quotas):g} CPUs"
    held = usable < total or (quotas and min(quotas) < total)
    fix = "the scheduler thread may starve: lift CPUQuota= or cpuset of this login (systemctl show user.slice)"
    return [Verdict("cpu_limits", "warn" if held else "pass", detail, fix if held else "")]


def kernel(scope: Scope) -> Iterable[Verdict]:
    """Settings that are known to matter, each with what it should be."""
    facts = scope.facts
    now = sysctls(facts)
    bad, fixes = [], []
    if now.get("kernel.numa_balancing", "0") != "0":
        bad.append(f"numa_balancing {now['kernel.numa_balancing']}")
        fixes.append(NUMA_FIX)
    if now.get("vm.zone_reclaim_mode", "0") != "0":
        bad.append(f"zone_reclaim_mode {now['vm.zone_reclaim_mode']}")
        fixes.append("sysctl -w vm.zone_reclaim_mode=0")
    maps = now.get("vm.max_map_count", "")
    if maps.isdigit() and int(maps) < 65_530:
        bad.append(f"max_map_count {maps}")
        fixes.append("sysctl -w vm.max_map_count=262144")
    governor = facts.values.get("host.governor")
    if governor and governor != "performance":
        bad.append(f"governor {governor}")
        fixes.append("cpupower frequency-set -g performance")
    swap, free = facts.number("memory.SwapTotal"), facts.number("memory.SwapFree")
    if swap is not None and free is not None and swap - free > 1 << 20:
        bad.append(f"{(swap - free) / 2**20:.1f} GiB swapped out")
        fixes.append("something has been short of memory: free -g; swapoff -a when it fits")
    if not now:
        return [unknown("kernel", facts, "sysctl")]
    said = [f"numa_balancing {now.get('kernel.numa_balancing', '-')}", f"governor {governor or 'unknown'}"]
    thp = re.search(r"\[(\w+)\]", facts.values.get("kernel.thp", ""))
    said += [f"transparent huge pages {thp[1] if thp else 'unknown'}", f"kernel {facts.values.get('host.kernel')}"]
    return [Verdict("kernel", "warn" if bad else "pass", listed(bad or said), "; ".join(fixes))]


def sysctls(facts: Facts) -> dict[str, str]:
    """The block of `head -v` as {kernel.pid_max: text}."""
    found: dict[str, str] = {}
    name = None
    for line in facts.blocks.get("sysctl", []):
        if line.startswith("==> ") and line.endswith(" <=="):
            name = line[4:-4].replace("/", ".")
        elif name and line.strip():
            found.setdefault(name, line.strip())
    return found


def gpudirect(scope: Scope) -> Iterable[Verdict]:
    """The module by which the NIC reads GPU memory; without it and without dma-buf NCCL goes through the host."""
    if scope.node.devices.vendor != "nvidia" or not scope.node.rails or not scope.spread:
        return [Verdict("gpudirect", "not_applicable", "needs NVIDIA GPUs, rails and more than one node")]
    if "kernel.modules" not in scope.facts.values and "host.kernel" not in scope.facts.values:
        return [unknown("gpudirect", scope.facts, "kernel.modules")]
    modules = scope.facts.values.get("kernel.modules", "").split()
    peer = [m for m in modules if m in ("nvidia_peermem", "nv_peer_mem")]
    if peer:
        return [Verdict("gpudirect", "pass", f"{listed(peer)} is loaded")]
    version = re.match(r"(\d+)\.(\d+)", scope.facts.values.get("host.kernel", ""))
    if version and (int(version[1]), int(version[2])) >= (5, 12) and "nvidia" in modules:
        detail = "nvidia_peermem is not loaded; dma-buf may do (kernel 5.12+, open driver): the gate will see"
        return [Verdict("gpudirect", "warn", detail, "modprobe nvidia_peermem")]
    if "nvidia" not in modules:
        return [Verdict("gpudirect", "unknown", "no nvidia module is listed on this node", "lsmod | grep nvidia")]
    return [Verdict("gpudirect", "warn", "nvidia_peermem is not loaded", "modprobe nvidia_peermem")]
