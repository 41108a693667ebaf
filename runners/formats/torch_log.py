"""PyTorch's own log lines (c10d and glog style): collective time-outs, watchdogs, out-of-memory tracebacks.

Header: `[E909 08:45:30.167701534 ProcessGroupNCCL.cpp:2252] [PG ID 2 PG GUID 3 Rank 7] text`: level, month and day
without a year, time, place, then the rank.
"""

from __future__ import annotations

import re

from runners.formats.base import Item
from runners.formats.log_events import event_of
from runners.formats.prefix import peel
from runners.formats.text import MATCHED, clean

_HEADER = re.compile(
    r"\[?[IWEFC](\d{1,2})(\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?)(?: +\d+)? ([\w./-]+:\d+)\] ?(?:\[(?:[^\]]*?)Rank (\d+)\] ?)?"
)


def torch_header(line: str) -> tuple[str | None, int | None, str]:
    """(time `MM-DD HH:MM:SS.n`, rank, message); the first two None when the line has no such header."""
    match = _HEADER.match(line)
    if match is None:
        return None, None, line
    rank = int(match[5][:9]) if match[5] else None
    return f"{int(match[1]):02d}-{match[2]} {match[3]}", rank, line[match.end() :]


def parse_line(line: str) -> Item | None:
    """One raw line -> a typed event or None."""
    prefix, rest = peel(clean(line)[:MATCHED])
    time, rank, message = torch_header(rest)
    return event_of(message, prefix, time, rank)


def sniff(head: str) -> int:
    """c10d headers, torch's out-of-memory text, or a Python traceback."""
    if "ProcessGroupNCCL.cpp" in head or "torch.OutOfMemoryError" in head or "torch.cuda.OutOfMemoryError" in head:
        return 72
    return 30 if "Traceback (most recent call last)" in head else 0
