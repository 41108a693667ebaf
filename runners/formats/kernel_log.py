"""Kernel log (dmesg, journald, kmsg): NVIDIA Xid, lost GPUs, OOM killer, segfaults, RDMA link changes.

Some drivers report a lost GPU over three lines without any Xid, so the matcher looks at single facts, not at blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from runners.formats import text
from runners.formats.base import Event, Item, Kind, Value, columns

_PREFIXES: Final = (
    re.compile(r"(?P<time>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (?P<node>[\w.-]+) kernel: (?:\[ *[\d.]+\] ?)?"),
    re.compile(r"(?P<time>\d{4}-\d\d-\d\dT[\d:.,+Z-]+) (?P<node>[\w.-]+) kernel: (?:\[ *[\d.]+\] ?)?"),
    re.compile(r"(?:\w+ *:\w+ *: ?)?\[(?P<time>[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\] ?"),
    re.compile(r"\w+ *:\w+ *: ?(?:\[? *)(?P<time>\d{4}-\d\d-\d\dT[\d:.,+-]+|[\d.]+)\]? ?"),
    re.compile(r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.,]\d+[+-]\d\d:?\d\d) "),
    re.compile(r"(?P<kmsg>\d{1,4},\d{1,20},\d{1,20},[^;]{1,20});"),
    re.compile(r"(?:<\d+>)?\[ *(?P<time>\d+\.\d+)\] ?"),
    re.compile(r"\[\.\.\.\] ?"),
)

_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<bus>[0-9a-fA-F:.]+)\): (?P<xid>\d{1,5})(?:, |$)"
    r"(?:pid=(?P<pid>'?<unknown>'?|'?\d+'?), )?(?:name=(?P<process>[^,]{1,80}), )?(?P<text>.*)"
)
# What the numbers mean (NVIDIA's Xid catalogue); sub: what the reader should do with it.
XID_NAMES: Final = {
    13: "graphics engine exception",
    31: "GPU memory page fault",
    43: "GPU stopped processing",
    45: "preemptive cleanup, after another error",
    48: "double-bit ECC error",
    63: "row remapping recorded",
    64: "row remapping failure",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high single-bit ECC error rate",
    94: "contained ECC error",
    95: "uncontained ECC error",
    119: "GSP RPC time-out",
    120: "GSP error",
    145: "NVLink error",
    149: "NVLink error",
    154: "GPU recovery action changed",
}
_FATAL: Final = frozenset({48, 64, 79, 94, 95, 119, 120})

# name, pattern, role, reason, sub
_RULES: Final = tuple(
    (name, re.compile(pattern), role, reason, sub)
    for name, pattern, role, reason, sub in (
        (
            "gpu_lost",
            r"(?:GPU|NVIDIA GPU) (?P<bus>[0-9a-fA-F:.]{7,})\b.*(?:fallen off the bus|lost)|"
            r"NVRM: GPU at PCI:(?P<bus2>[0-9a-fA-F:.]+): has fallen off the bus|"
            r"(?P<bus3>[0-9a-fA-F]{4}:[0-9a-fA-F:.]+).*fallen off the bus",
            "cause",
            "ENGINE_CRASH",
            "GPU_LOST",
        ),
        (
            "oom_kill",
            r"(?P<cgroup>Memory cgroup )?[Oo]ut of memory: Kill(?:ed)? process (?P<pid>\d+) \((?P<process>[^)]{1,64})\)"
            r"(?:.*?anon-rss:(?P<anon_rss_kb>\d+)kB)?",
            "cause",
            "OOM",
            "HOST_OOM",
        ),
        (
            "oom_kill",
            r"oom-kill:.*?task=(?P<process>[^,]{1,64}),pid=(?P<pid>\d+)|(?P<process2>\S{1,64}) invoked oom-killer",
            "cause",
            "OOM",
            "HOST_OOM",
        ),
        (
            "segfault",
            r"(?P<process>\S{1,64})\[(?P<pid>\d+)\]: segfault at (?P<address>[0-9a-f]+) .*? error (?P<code>\d+)"
            r"(?: in (?P<library>[\w.+-]+))?",
            "cause",
            "ENGINE_CRASH",
            None,
        ),
        (
            "rdma_link",
            r"mlx5_core (?P<bus>[0-9a-fA-F:.]+)(?: (?P<device>[\w.]+))?: .*?Link (?P<state>INIT|ACTIVE|DOWN|up|down)\b",
            "note",
            None,
            None,
        ),
        (
            "rdma_driver_error",
            r"mlx5_core (?P<bus>[0-9a-fA-F:.]+)(?: \S+)?: .*(?:health compromised|device's health|cmd_work_handler|"
            r"poll_health|firmware internal error|timeout)",
            "cause",
            None,
            None,
        ),
        ("peer_memory_error", r"nvidia-peermem.*(?:invalid|error|fail)", "note", None, None),
        ("pcie_error", r"AER: .*(?:[Uu]ncorrect|[Ff]atal)|PCIe Bus Error: severity=Uncorrected", "cause", None, None),
        ("hung_task", r"task (?P<process>\S{1,64}):(?P<pid>\d+) blocked for more than (?P<seconds>\d+) seconds",
         "cause", None, None),
        ("driver_mismatch", r"NVRM: API mismatch", "cause", None, None),
    )
)  # fmt: skip
_HINT = re.compile(r"NVRM|fallen off|[Oo]ut of memory|oom|segfault|mlx5|peermem|AER|PCIe|blocked for|GPU")


def _peeled(line: str) -> tuple[str | None, str | None, str]:
    """(node, time, message)."""
    for pattern in _PREFIXES:
        match = pattern.match(line)
        if match:
            found = match.groupdict()
            if found.get("kmsg"):
                micros = text.integer(found["kmsg"].split(",")[2])
                return None, None if micros is None else f"{micros / 1e6:.6f}", line[match.end() :]
            return found.get("node"), found.get("time"), line[match.end() :]
    return None, None, line


def parse_line(line: str) -> Event | None:
    """One raw line -> an event or None. Details: bus id, xid, pid, process, text."""
    line = text.clean(line)[: text.MATCHED]
    if _HINT.search(line) is None:
        return None
    node, time, message = _peeled(line)
    if match := _XID.search(message):
        xid = int(match["xid"])
        detail: dict[str, Value] = {
            "line": text.shown(message),
            "pci_bus_id": match["bus"],
            "xid": xid,
            "meaning": XID_NAMES.get(xid),
            "pid": text.integer((match["pid"] or "").strip("'")),
            "process": None if (match["process"] or "<unknown>") == "<unknown>" else match["process"],
            "text": text.shown(match["text"]),
            "role": "cause" if xid in _FATAL else "note",
            "reason": "ENGINE_CRASH" if xid in _FATAL else None,
        }
        if xid == 79:
            detail["sub"] = "GPU_LOST"
        return Event("xid", node, None, time, detail)
    for name, pattern, role, reason, sub in _RULES:
        match = pattern.search(message)
        if match:
            detail = {"line": text.shown(message), "role": role, "reason": reason}
            if sub:
                detail["sub"] = sub
            for key, value in match.groupdict().items():
                if value is not None:
                    plain = "pci_bus_id" if key.startswith("bus") else key.rstrip("2")
                    detail[plain] = int(value[:18]) if value.isdecimal() and key != "address" else value
            return Event(name, node, None, time, detail)
    return None


_GPU_NAMED = re.compile(r"NVRM: The NVIDIA GPU (?P<bus>[0-9a-fA-F:.]{7,})\s*$")
_REACH: Final = 4  # lines between the GPU's name and "fallen off the bus"


class KernelLog:
    """A stream of kernel lines; remembers the GPU that a report over several lines began with."""

    def __init__(self) -> None:
        self._bus: str | None = None
        self._left = 0

    def feed(self, line: str) -> Event | None:
        """The event that this line completes, or None."""
        event = parse_line(line)
        if event is not None:
            return event
        if self._bus is not None:
            self._left -= 1
            if "fallen off the bus" in line or "not responding" in line:
                node, time, message = _peeled(text.clean(line))
                detail: dict[str, Value] = {
                    "line": text.shown(message),
                    "pci_bus_id": self._bus,
                    "role": "cause",
                    "reason": "ENGINE_CRASH",
                    "sub": "GPU_LOST",
                }
                self._bus = None
                return Event("gpu_lost", node, None, time, detail)
            if self._left <= 0:
                self._bus = None
        elif match := _GPU_NAMED.search(text.clean(line)[: text.MATCHED]):
            self._bus, self._left = match["bus"], _REACH
        return None


def parse(lines: Iterable[str]) -> Iterator[Item]:
    """Events of a kernel log; lines of no interest pass by."""
    log = KernelLog()
    for line in lines:
        event = log.feed(line)
        if event is not None:
            yield event


def sniff(head: str) -> int:
    """Kernel prefixes and the drivers' own words."""
    if re.search(r"NVRM: (?:Xid|GPU)|kernel: (?:mlx5_core|\[)|: segfault at |oom-kill:|invoked oom-killer", head):
        return 90
    if re.search(r"^(?:<\d+>)?\[ *\d+\.\d{6}\] ", head, re.MULTILINE):
        return 60
    if re.search(r"^(?:kern|daemon|user) *:\w+ *: ", head, re.MULTILINE) or "NVRM: " in head:
        return 80
    return 75 if "fallen off the bus" in head or re.search(r"[Oo]ut of memory: Kill(?:ed)? process", head) else 0


NAMES: Final = ("xid", *dict.fromkeys(rule[0] for rule in _RULES))
KIND: Final = Kind("kernel_log", "dmesg, journalctl -k or /dev/kmsg", columns(""), sniff, parse, NAMES)
