"""Which parser reads which stream of which job."""

from __future__ import annotations

from functools import cache

import orjson

from runners.clients import CLIENTS
from runners.probes import PROBES, Reader
from runners.probes.logs import LogReader
from store.records import Job


def reader_of(job: Job, stream: str) -> Reader:
    """The reader for a job's stream: load clients write what their adapter reads, probes lines of ours on stdout, and
    all else is a log."""
    if job.kind == "client":
        known = orjson.loads(job.context) if job.context else {}
        client = CLIENTS.get(known.get("client", "loadgen"))
        if client is not None and (reader := client.reader(stream, known)) is not None:
            return reader
    return _plain(job.kind, stream)


@cache  # a log's reader remembers the lines that mean nothing
def _plain(kind: str, stream: str) -> Reader:
    if stream == "stdout" and kind.startswith("probe.") and kind[6:] in PROBES:
        return PROBES[kind[6:]]
    return LogReader()


def files_of(job: Job) -> dict[str, str]:
    """Streams that a job writes besides stdout and stderr: name -> runners.clients.base.DOCUMENT or LINES."""
    known = orjson.loads(job.context) if job.context else {}
    files = known.get("files")
    return dict(files) if isinstance(files, dict) else {}
