"""Which parser reads which stream of which job."""

from __future__ import annotations

from functools import cache

from runners.clients.loadgen import LoadgenReader
from runners.probes import PROBES, Reader
from runners.probes.logs import LogReader


@cache
def reader_of(kind: str, stream: str) -> Reader:
    """The reader for a job's stream: load client and probes write lines of ours on stdout, all else is a log."""
    if stream == "stdout":
        if kind == "client":
            return LoadgenReader()
        if kind.startswith("probe.") and kind[6:] in PROBES:
            return PROBES[kind[6:]]
    return LogReader()
