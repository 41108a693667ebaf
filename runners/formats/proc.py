"""Files under /proc: stat, meminfo, loadavg, net/dev, <pid>/stat (proc(5)).

Counters are cumulative since boot; rates are the reader's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from runners.formats import text
from runners.formats.base import SKIP, Item, Kind, Row, columns

CPU_FIELDS: Final = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
_COUNTERS: Final = {
    "ctxt": "context_switches_total",
    "btime": "boot_time_s",
    "processes": "forks_total",
    "procs_running": "procs_running",
    "procs_blocked": "procs_blocked",
}


def parse_stat(lines: Iterable[str]) -> Iterator[Item]:
    """/proc/stat: one row per cpu line (`cpu` is "all" or the number) and one row with `cpu` null for the counters."""
    totals: Row = {}
    for line in text.cleaned(lines):
        words = line.split()
        if not words:
            continue
        if words[0].startswith("cpu"):
            values = [text.integer(word) for word in words[1:]]
            name = words[0][3:]
            if len(values) < 4 or None in values or not (name == "" or name.isdecimal()):
                yield SKIP
                continue
            padded = [*values, *([None] * len(CPU_FIELDS))][: len(CPU_FIELDS)]
            row: Row = {"cpu": name or "all"}
            row.update({f"{field}_jiffies": value for field, value in zip(CPU_FIELDS, padded, strict=True)})
            yield row
        elif words[0] in _COUNTERS:
            value = text.integer(words[1]) if len(words) > 1 else None
            if value is None:
                yield SKIP
            else:
                totals[_COUNTERS[words[0]]] = value
        elif words[0] not in {"intr", "softirq", "page", "swap"}:
            yield SKIP
    if totals:
        yield {"cpu": None, **totals}


_MEMINFO = re.compile(r"([A-Za-z][\w()]*):\s+(\d{1,19})(?: kB)?\Z")
_MEM_COLUMNS: Final = {
    "MemTotal": "mem_total_bytes",
    "MemFree": "mem_free_bytes",
    "MemAvailable": "mem_available_bytes",
    "Buffers": "buffers_bytes",
    "Cached": "cached_bytes",
    "SwapTotal": "swap_total_bytes",
    "SwapFree": "swap_free_bytes",
    "Dirty": "dirty_bytes",
    "Shmem": "shmem_bytes",
    "AnonPages": "anon_bytes",
    "Mlocked": "mlocked_bytes",
    "HugePages_Total": "hugepages_total",
    "HugePages_Free": "hugepages_free",
    "Hugepagesize": "hugepage_size_bytes",
}


def parse_meminfo(lines: Iterable[str]) -> Iterator[Item]:
    """/proc/meminfo: one row; kB become bytes; MemAvailable is null on old kernels; other keys in `extra`."""
    row: Row = dict.fromkeys(_MEM_COLUMNS.values())
    extra: Row = {}
    seen = False
    for line in text.cleaned(lines):
        if not line:
            continue
        match = _MEMINFO.match(line)
        if match is None:
            yield SKIP
            continue
        seen = True
        value = int(match[2]) * (1024 if line.endswith("kB") else 1)
        name = _MEM_COLUMNS.get(match[1])
        if name:
            row[name] = value
        else:
            extra[match[1]] = value
    if seen:
        yield {**row, "extra": extra}


_LOADAVG = re.compile(r"(\d+\.\d+) (\d+\.\d+) (\d+\.\d+) (\d+)/(\d+) (\d+)\Z")


def parse_loadavg(lines: Iterable[str]) -> Iterator[Item]:
    """/proc/loadavg: one row a line."""
    for line in text.cleaned(lines):
        if not line:
            continue
        match = _LOADAVG.match(line)
        if match is None or len(line) > 200:
            yield SKIP
            continue
        yield {
            "load_1m": float(match[1]),
            "load_5m": float(match[2]),
            "load_15m": float(match[3]),
            "tasks_running": int(match[4]),
            "tasks_total": int(match[5]),
            "last_pid": int(match[6]),
        }


_NET_RX: Final = ("bytes", "packets", "errs", "drop", "fifo", "frame", "compressed", "multicast")
_NET_TX: Final = ("bytes", "packets", "errs", "drop", "fifo", "colls", "carrier", "compressed")


def parse_net_dev(lines: Iterable[str]) -> Iterator[Item]:
    """/proc/net/dev: one row per interface, cumulative; kernel traffic only (RoCE passes by)."""
    names = [f"rx_{name}" for name in _NET_RX] + [f"tx_{name}" for name in _NET_TX]
    for line in text.cleaned(lines):
        if not line or "|" in line:
            continue
        device, colon, rest = line.rpartition(":")
        values = [text.integer(word) for word in rest.split()]
        if not colon or len(values) != len(names) or None in values:
            yield SKIP
            continue
        yield {"netdev": device.strip(), **dict(zip(names, values, strict=True))}


# Fields of /proc/<pid>/stat after "pid (comm) state", by position (proc_pid_stat(5)).
_PID_FIELDS: Final = {
    1: "ppid",
    7: "minor_faults_total",
    9: "major_faults_total",
    11: "user_jiffies",
    12: "system_jiffies",
    17: "threads",
    19: "start_time_jiffies",
    20: "vsize_bytes",
    21: "rss_pages",
    36: "last_cpu",
    39: "blkio_delay_jiffies",
}


def parse_pid_stat(lines: Iterable[str]) -> Iterator[Item]:
    """/proc/<pid>/stat (or task/<tid>/stat): one row a line. The name may hold blanks and brackets."""
    for line in text.cleaned(lines):
        if not line:
            continue
        head, opening, rest = line.partition(" (")
        comm, closing, tail = rest.rpartition(") ")
        pid = text.integer(head)
        words = tail.split()
        if not opening or not closing or pid is None or len(words) < 22 or not words[0].isalpha():
            yield SKIP
            continue
        row: Row = {"pid": pid, "comm": comm, "state": words[0]}
        row.update({name: text.integer(words[at]) if at < len(words) else None for at, name in _PID_FIELDS.items()})
        yield row


def _sniff_stat(head: str) -> int:
    return 95 if re.match(r"cpu  ?\d+ \d+ \d+ \d+", head) else 0


def _sniff_meminfo(head: str) -> int:
    return 95 if re.search(r"^MemTotal:\s+\d+ kB", head, re.MULTILINE) else 0


def _sniff_loadavg(head: str) -> int:
    first = head.strip().splitlines()[:1]
    return 95 if first and _LOADAVG.match(first[0].strip()) else 0


def _sniff_net_dev(head: str) -> int:
    return 98 if "Inter-|" in head and "face |bytes" in head else 0


def _sniff_pid_stat(head: str) -> int:
    return 90 if re.match(r"\d+ \(.{1,64}\) [A-Za-z] -?\d+ -?\d+ -?\d+ -?\d+ -?\d+ \d+", head.strip()) else 0


KIND_STAT: Final = Kind(
    "proc_stat",
    "/proc/stat",
    columns(
        "cpu text - all, the CPU's number, or null for the counters\n"
        + "\n".join(f"{name}_jiffies int jiffies cumulative" for name in CPU_FIELDS)
        + "\n"
        + "\n".join(f"{name} int {'s' if name.endswith('_s') else '-'}" for name in _COUNTERS.values())
    ),
    _sniff_stat,
    parse_stat,
)
KIND_MEMINFO: Final = Kind(
    "proc_meminfo",
    "/proc/meminfo",
    columns(
        "\n".join(f"{name} int {'bytes' if name.endswith('_bytes') else '-'}" for name in _MEM_COLUMNS.values())
        + "\nextra map bytes every other key (counts of huge pages have no unit)"
    ),
    _sniff_meminfo,
    parse_meminfo,
)
KIND_LOADAVG: Final = Kind(
    "proc_loadavg",
    "/proc/loadavg",
    columns(
        "load_1m float -\nload_5m float -\nload_15m float -\ntasks_running int -\ntasks_total int -\nlast_pid int -"
    ),
    _sniff_loadavg,
    parse_loadavg,
)
KIND_NET_DEV: Final = Kind(
    "proc_net_dev",
    "/proc/net/dev",
    columns(
        "netdev text -\n"
        + "\n".join(f"rx_{name} int {'bytes' if name == 'bytes' else '-'} cumulative" for name in _NET_RX)
        + "\n"
        + "\n".join(f"tx_{name} int {'bytes' if name == 'bytes' else '-'} cumulative" for name in _NET_TX)
    ),
    _sniff_net_dev,
    parse_net_dev,
)
KIND_PID_STAT: Final = Kind(
    "proc_pid_stat",
    "/proc/<pid>/stat",
    columns(
        "pid int -\ncomm text -\nstate text - R running, S sleeping, D uninterruptible, Z zombie\n"
        + "\n".join(
            f"{name} int {'jiffies' if 'jiffies' in name else 'bytes' if name.endswith('_bytes') else '-'}"
            for name in _PID_FIELDS.values()
        )
    ),
    _sniff_pid_stat,
    parse_pid_stat,
)
