"""sar, mpstat and pidstat: blocks of a header line and its rows (sysstat 10 to 12.7).

The first line names kernel, host, date and CPUs; headers repeat; a 12-hour locale puts AM or PM after the time;
`Average:` rows are no samples; `--human` puts units into cells and is refused (each such line is counted as skipped).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from runners.formats import jsontext, text
from runners.formats.base import SKIP, Event, Item, Kind, Row, Value, columns

_FIRST = re.compile(r"Linux (\S+) \(([^)]*)\)\s+(\S+)\s+_(\S+?)_\s+\((\d+) CPU\)")
_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)(?: (AM|PM))?\s+")
_EPOCH = re.compile(r"\s*(\d{9,12})\s+")
_ITEMS: Final = {
    "CPU": "cpu",
    "IFACE": "netdev",
    "DEV": "device",
    "NODE": "numa_node",
    "INTR": "interrupt",
    "BUS": "bus",
}
_PIDSTAT: Final = frozenset({"UID", "USER", "PID", "TGID"})


def _clock(match: re.Match[str]) -> str:
    hour = int(match[1])
    if match[4]:
        hour = hour % 12 + (12 if match[4] == "PM" else 0)
    return f"{hour:02d}:{match[2]}:{match[3]}"


def column(name: str) -> str:
    """A header cell as a column name: `%usr` -> usr_pct, `rxkB/s` -> rx_kb_per_s, `kB_rd/s` -> kb_rd_per_s."""
    special = {
        "rxkB/s": "rx_kb_per_s",
        "txkB/s": "tx_kb_per_s",
        "rxbyt/s": "rx_bytes_per_s",
        "txbyt/s": "tx_bytes_per_s",
    }
    if name in special:
        return special[name]
    if name in ("VSZ", "RSS", "StkSize", "StkRef"):
        return f"{name.lower()}_kb"
    if name.startswith("%"):
        return f"{name[1:].lower()}_pct"
    return re.sub(r"[^a-z0-9]+", "_", name.lower().replace("/s", "_per_s")).strip("_") or "value"


class Tables:
    """Reads the blocks of one output and yields (names, time, cells) as rows."""

    def __init__(self) -> None:
        self.top: Row = {"host": None, "date": None, "cpus": None}
        self.names: list[str] = []
        self.human = False

    def first_line(self, line: str) -> bool:
        """Take the line that names the host; False when it is another."""
        match = _FIRST.match(line)
        if match is None:
            return False
        self.top = {"host": match[2], "date": match[3], "cpus": int(match[5][:9])}
        return True

    def row(self, line: str) -> Item | None:
        """A row, SKIP, or None for headers and other lines without data."""
        if line.startswith("Average:") or line.startswith("Summary:"):
            return None
        if line.startswith("#"):
            words = line.lstrip("# ").split()
            if words[:1] != ["Time"] or not _is_header(words[1:]):
                return SKIP
            self.names = words
            return None
        match = _TIME.match(line)
        epoch = _EPOCH.match(line) if match is None and self.names[:1] == ["Time"] else None
        if match is None and epoch is None:
            return SKIP
        time: Value = _clock(match) if match else int(epoch[1]) if epoch else None
        words = line[(match or epoch).end() :].split()  # type: ignore[union-attr]  # one of the two matched
        if not words:
            return SKIP
        if match is not None and _is_header(words):
            self.names = words
            return None
        if line.rstrip().endswith(" LINUX RESTART") or "LINUX RESTART" in line:
            return Event("restart", time=str(time), detail={"line": text.shown(line)})
        names = self.names[1:] if self.names[:1] == ["Time"] else self.names
        return self._cells(words, names, time) if names else SKIP

    def _cells(self, words: list[str], names: list[str], time: Value) -> Item:
        if names[-1] == "Command" and len(words) > len(names):
            words = [*words[: len(names) - 1], " ".join(words[len(names) - 1 :])]
        if len(words) != len(names):
            return SKIP
        row: Row = {"time": time if isinstance(time, str) else None, "epoch_s": time if isinstance(time, int) else None}
        for name, cell in zip(names, words, strict=True):
            if name in _ITEMS and len(row) == 2:
                row[_ITEMS[name]] = cell
            elif name == "Command":
                row["thread"] = cell.startswith("|__")
                row["command"] = cell.removeprefix("|__")
            elif name in ("policy", "USER"):
                row[column(name)] = cell
            else:
                value = text.number(cell)
                if value is None and cell not in text.ABSENT:
                    return self._refused(cell)
                row[column(name)] = value
        if "tgid" in row:
            row["pid"] = row["tgid"]
        row.update(self.top)
        return row

    def _refused(self, cell: str) -> Item:
        """A cell that is no number: with a unit in it, say once that the output was made with --human."""
        if not self.human and text.quantity(cell) is not None:
            self.human = True
            return Event("units_in_cells", detail={"cell": cell, "line": "made with --human: rerun without it"})
        return SKIP


def _is_header(words: list[str]) -> bool:
    """A header has no number in it but names with %, /s or known items."""
    named = bool(words) and (
        words[0] in _ITEMS or words[0] in _PIDSTAT or any(word.startswith("%") or word.endswith("/s") for word in words)
    )
    return named and not any(text.number(word) is not None for word in words[1:])


def parse(lines: Iterable[str]) -> Iterator[Item]:
    """Rows of any of the three tools' text output."""
    tables = Tables()
    for line in text.cleaned(lines):
        if not line.strip() or tables.first_line(line):
            continue
        item = tables.row(line.lstrip() if line.lstrip().startswith("#") else line)
        if item is not None:
            yield item


def parse_mpstat(lines: Iterable[str]) -> Iterator[Item]:
    """mpstat, text or -o JSON (also cut off: repaired at the last complete element)."""
    stream = iter(lines)
    head: list[str] = []
    for line in stream:
        head.append(line)
        if line.strip():
            break
    rest = _chained(head, stream)
    if head and head[-1].lstrip().startswith("{"):
        yield from _mpstat_json(jsontext.document(rest))
    else:
        yield from parse(rest)


def _chained(head: list[str], rest: Iterator[str]) -> Iterator[str]:
    yield from head
    yield from rest


def _mpstat_json(loaded: Value) -> Iterator[Item]:
    try:
        hosts = loaded["sysstat"]["hosts"]
        samples = [(host, sample) for host in hosts for sample in host.get("statistics", [])]
    except (TypeError, KeyError, AttributeError):
        yield SKIP
        return
    for host, sample in samples:
        loads = sample.get("cpu-load") if isinstance(sample, dict) else None
        for load in loads if isinstance(loads, list) else []:
            if not isinstance(load, dict) or "cpu" not in load:
                yield SKIP
                continue
            row: Row = {"time": sample.get("timestamp"), "epoch_s": None, "cpu": str(load["cpu"])}
            row.update({f"{name}_pct": value for name, value in load.items() if name != "cpu"})
            row.update(host=host.get("nodename"), date=host.get("date"), cpus=host.get("number-of-cpus"))
            yield row


def _sniff(head: str, header: str) -> int:
    found = re.search(rf"^(?:\d\d:\d\d:\d\d(?: [AP]M)?|#\s+Time)\s+{header}", head, re.MULTILINE)
    return (94 if _FIRST.search(head) else 88) if found else 0


def sniff_mpstat(head: str) -> int:
    """CPU %usr without the columns that only sar prints, or the JSON form."""
    if '"sysstat"' in head and '"cpu-load"' in head:
        return 95
    # sar -u orders %usr %nice %sys %iowait %steal; mpstat has %irq in between
    return _sniff(head, r"CPU\s+%usr\s+%nice\s+%sys\s+%iowait\s+%irq")


def sniff_pidstat(head: str) -> int:
    """UID or USER, then PID or TGID."""
    return _sniff(head, r"(?:UID|USER)\s+(?:PID|TGID)")


def sniff_sar(head: str) -> int:
    """IFACE, or sar's own order of CPU columns, or any other block under the Linux line."""
    # --human moves the item to the end of the line: recognised, to be refused with the reason
    score = _sniff(head, r"(?:IFACE|rxpck/s|%usr|CPU|DEV|NODE|INTR|proc/s|pswpin/s|pgpgin/s|tps|kbmemfree|runq-sz)\s*")
    return min(score, 90)


_TOP: Final = (
    "time text - 24 h, node's local time\nepoch_s int s with -h\nhost text -\ndate text - as written\ncpus int -\n"
)
_OPEN: Final = "\n(others) float - every other header cell: %x -> x_pct, x/s -> x_per_s"
KIND_MPSTAT: Final = Kind(
    "mpstat",
    "mpstat (text or -o JSON)",
    columns(
        _TOP + "cpu text - all, or the CPU's number\nusr_pct float %\nnice_pct float %\nsys_pct float %\n"
        "iowait_pct float %\nirq_pct float %\nsoft_pct float %\nsteal_pct float %\nguest_pct float %\n"
        "gnice_pct float %\nidle_pct float %" + _OPEN
    ),
    sniff_mpstat,
    parse_mpstat,
    ("restart", "units_in_cells"),
    long_lines=True,
)
KIND_PIDSTAT: Final = Kind(
    "pidstat",
    "pidstat",
    columns(
        _TOP + "uid int -\npid int -\ntgid int - null on a thread's row\ntid int - null on a process's row\n"
        "usr_pct float %\nsystem_pct float %\nguest_pct float %\nwait_pct float % absent before 11.5\n"
        "cpu_pct float % of one CPU\ncpu int - last CPU\ncommand text -\nthread bool -" + _OPEN
    ),
    sniff_pidstat,
    parse,
    ("restart", "units_in_cells"),
)
KIND_SAR: Final = Kind(
    "sar",
    "sar (kernel traffic only: RoCE passes by)",
    columns(
        _TOP + "cpu text -\nnetdev text -\nrxpck_per_s float -\ntxpck_per_s float -\nrx_kb_per_s float kB/s\n"
        "tx_kb_per_s float kB/s\nifutil_pct float %" + _OPEN
    ),
    sniff_sar,
    parse,
    ("restart", "units_in_cells"),
)
