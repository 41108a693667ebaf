"""CPU, memory, load, netdevs and disk of a node from /proc (proc(5)), and the cost of this probe itself.

A tick forks nothing but sleep: the shell reads the sums of CPU, load and memory. Every fifth tick `head -v` reads the
cores one by one (a node has hundreds) and the netdevs too, every tenth vmstat, and df is asked of the job's own folder.
Kernel netdev counters do not see RoCE; the rails probe reads the other door.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from runners.formats import proc, text
from runners.formats.base import Item, Skip
from runners.probes.base import Frame, Parsed, ProbeContext, parse_frames, sections, sh_argv
from runners.spec import Node
from store.records import CpuSample, HostSample, RailSample, Record

_SCRIPT: Final = r"""
n=0
while :; do
  frame host
  if [ $(( n % 5 )) -eq 0 ]; then
    head -v -n 8192 /proc/stat /proc/meminfo /proc/loadavg /proc/net/dev /proc/$$/stat 2>/dev/null
  else
    for f in /proc/stat /proc/loadavg /proc/$$/stat; do
      read -r line <$f && printf '==> %s <==\n%s\n' $f "$line"
    done
    printf '==> /proc/meminfo <==\n'
    while read -r line; do printf '%s\n' "$line"; case $line in SwapFree:*) break;; esac; done </proc/meminfo
  fi
  if [ $(( n % 10 )) -eq 0 ]; then
    head -v -n 999 /proc/vmstat 2>/dev/null; printf '==> df <==\n'; timeout -k 1 5 df -Pk . 2>/dev/null
  fi
  printf '#end\n'
  n=$(( n + 1 ))
  pause
done
"""

# Interfaces of containers and virtual switches: hundreds on a busy node, and none of them is a wire.
_VIRTUAL = re.compile(
    r"(?:lo\Z|veth|docker|podman|nerdctl|br-|cali|cni|kube-|flannel|vxlan|virbr|vnet|tap|tun|dummy|lxc|ifb|sit|gre|ip6)"
)


class HostProbe:
    name = "host"
    needs_server = False

    def argv(self, node: Node, interval_s: float = 1.0, url: str | None = None) -> list[str]:
        return sh_argv(_SCRIPT, self.name, interval_s)

    def parse(self, data: bytes, context: ProbeContext, final: bool = False) -> Parsed:
        return parse_frames(data, context, final, _rows)


def _rows(frame: Frame, context: ProbeContext) -> tuple[list[Record], int]:
    if frame.kind != "host":
        return [], 1
    found = sections(frame.text())
    bad = 0

    def rows(path: str, parse: Callable[[Iterable[str]], Iterator[Item]]) -> list[dict[str, Any]]:
        nonlocal bad
        out = []
        for item in parse(found.get(path, ())):
            if isinstance(item, dict):
                out.append(item)
            elif isinstance(item, Skip):
                bad += 1
        return out

    at: dict[str, Any] = {
        "run_id": context.run_id,
        "node": context.node,
        "wall_ns": frame.wall_ns,
        "mono_ns": frame.mono_ns,
    }
    stat = rows("/proc/stat", proc.parse_stat)
    records: list[Record] = [_cpu(at, row) for row in stat if row["cpu"] is not None]
    counters = next((row for row in stat if row["cpu"] is None), {})
    memory = next(iter(rows("/proc/meminfo", proc.parse_meminfo)), {})
    load = next(iter(rows("/proc/loadavg", proc.parse_loadavg)), {})
    shell = next((path for path in found if path.endswith("/stat") and path != "/proc/stat"), "")
    own = next(iter(rows(shell, _own)), {})
    faults = {w[0]: text.integer(w[1]) for line in found.get("/proc/vmstat", ()) if len(w := line.split()) == 2}
    size, free = _disk(found.get("df", ()))
    if counters or memory or load:
        records.append(
            HostSample(
                **at,
                source="proc",
                load1=load.get("load_1m"),
                runnable=counters.get("procs_running", load.get("tasks_running")),
                threads=load.get("tasks_total"),
                ctx_switches_total=counters.get("context_switches_total"),
                mem_total_bytes=memory.get("mem_total_bytes"),
                mem_available_bytes=memory.get("mem_available_bytes"),
                swap_used_bytes=_less(memory.get("swap_total_bytes"), memory.get("swap_free_bytes")),
                disk_free_bytes=free,
                probe_cpu_ticks=own.get("cpu_ticks"),
                blocked=counters.get("procs_blocked"),
                faults_total=faults.get("pgfault"),
                major_faults_total=faults.get("pgmajfault"),
                disk_total_bytes=size,
            )
        )
    netdevs = rows("/proc/net/dev", proc.parse_net_dev)
    records += [_netdev(at, row) for row in netdevs if not _VIRTUAL.match(row["netdev"])]
    return records, bad


def _plus(*values: int | None) -> int | None:
    """The sum of what is known; None when nothing is."""
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def _less(total: int | None, part: int | None) -> int | None:
    return None if total is None or part is None else total - part


def _cpu(at: dict[str, Any], row: dict[str, Any]) -> CpuSample:
    """nice counts as user, softirq as irq; guest time is already inside user (proc_stat(5))."""
    return CpuSample(
        **at,
        source="proc",
        cpu=None if row["cpu"] == "all" else int(row["cpu"][:9]),
        user_ticks=_plus(row["user_jiffies"], row["nice_jiffies"]),
        system_ticks=row["system_jiffies"],
        idle_ticks=row["idle_jiffies"],
        iowait_ticks=row["iowait_jiffies"],
        irq_ticks=_plus(row["irq_jiffies"], row["softirq_jiffies"]),
        steal_ticks=row["steal_jiffies"],
    )


def _netdev(at: dict[str, Any], row: dict[str, Any]) -> RailSample:
    return RailSample(
        **at,
        source="proc",
        device=row["netdev"],
        door="netdev",
        rx_bytes=row["rx_bytes"],
        tx_bytes=row["tx_bytes"],
        rx_packets=row["rx_packets"],
        tx_packets=row["tx_packets"],
        errors_total=row["rx_errs"] + row["tx_errs"],
        drops_total=row["rx_drop"] + row["tx_drop"],
        rx_errors_total=row["rx_errs"],
        tx_errors_total=row["tx_errs"],
        rx_drops_total=row["rx_drop"],
        tx_drops_total=row["tx_drop"],
    )


def _own(lines: Iterable[str]) -> Iterator[Item]:
    """CPU of the probe's shell and of the children it waited for: fields 14 to 17 of /proc/<pid>/stat."""
    for line in lines:
        words = line.rpartition(") ")[2].split()
        ticks = [text.integer(word) for word in words[11:15]]
        known = [v for v in ticks if v is not None]
        if len(known) == 4:
            yield {"cpu_ticks": sum(known)}


def _disk(lines: Iterable[str]) -> tuple[int | None, int | None]:
    """Size and free bytes from `df -Pk` (POSIX: header, then device, 1024-blocks, used, available, capacity, mount)."""
    for line in lines:
        words = line.split()
        blocks = (text.integer(words[1]), text.integer(words[3])) if len(words) >= 6 else (None, None)
        if blocks[0] is not None and blocks[1] is not None:
            return blocks[0] * 1024, blocks[1] * 1024
    return None, None
