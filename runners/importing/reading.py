"""Read one captured file: guess its kind, stream its rows, fold its events, judge its transport lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runners.formats import incidents, kinds, nccl_errors, reader
from runners.formats.base import Event, Kind, Row, Texts
from runners.gates import rdma
from runners.gates.evidence import RECORDS, Collector
from store.masking import mask_text


class UnknownKindError(ValueError):
    """The kind asked for is not in the list."""


@dataclass(slots=True)
class FileReading:
    """The reading of one file. Iterate `rows()` to its end, then the other fields are filled.

    kind      None when the content is of no known kind
    events    folded: equal lines of many ranks are one event with ranks and a count
    verdict   of the RDMA gate, None when the file has no NCCL or NVSHMEM line
    stop      the stop reason that the events prove, None when none does
    """

    path: Path
    kind: Kind | None = None
    events: list[Event] = field(default_factory=list)
    skipped: int = 0
    cut_lines: int = 0
    row_count: int = 0
    verdict: rdma.Verdict | None = None
    stop: dict[str, Any] | None = None
    collector: Collector = field(default_factory=Collector)
    _handle: Any = None
    _head: bytes = b""

    @property
    def transport_seen(self) -> bool:
        """Does the file say anything about the transport between GPUs?"""
        return self.collector.rows > 0 or any(event.name in nccl_errors.NAMES for event in self.events)

    def rows(self) -> Iterator[Row | Texts]:
        """Rows in the file's order (those read many at a time as JSON); at the end events and verdict are ready."""
        if self.kind is None:
            return
        counted = reader.Counted()
        folded = incidents.Incidents()
        stream = reader.lines(self._handle, self._head, self.kind.long_lines, self.kind.noise, counted)
        add = self.collector.add
        for item in (self.kind.texts or self.kind.parse)(stream):
            if isinstance(item, dict):
                self.row_count += 1
                if item.get("record") in RECORDS:
                    add(item)
                yield item
            elif isinstance(item, Texts):
                self.row_count += item.count
                yield item
            elif isinstance(item, Event):
                folded.add(item)
            else:
                self.skipped += 1
        self.cut_lines = counted.cut_lines
        self.events = [_masked(event) for event in folded.result()]
        self.stop = incidents.stop_reason(self.events)
        if self.transport_seen:
            self.verdict = rdma.judge_evidence(self.collector.evidence(), self.events)


# A Python dict printed into a log: 'api_key': ['x'] (names that only begin like a secret, as tokenizer, stay).
_PRINTED = re.compile(
    r"""(['"][\w-]*(?:api_?key|token|secret|password|credential)s?['"]: ?)(\[[^\]]*\]|'[^']*'|"[^"]*")""", re.IGNORECASE
)


def _masked(event: Event) -> Event:
    """The event without secrets: start-up lines print whole command lines."""
    detail = event.detail
    for name, value in detail.items():
        if isinstance(value, str):
            detail[name] = mask_text(_PRINTED.sub(r"\1'***'", value))
    return event


def open_file(path: Path, kind: str | None = None) -> FileReading:
    """Open a file and settle its kind. Raises OSError and UnknownKindError."""
    if kind is not None and kind not in kinds.BY_NAME:
        raise UnknownKindError(kind)
    handle = reader.open_binary(path)
    head = handle.read(reader.HEAD)
    found = kinds.BY_NAME[kind] if kind else kinds.guess(reader.decoded(head))
    return FileReading(path, found, _handle=handle, _head=head)


def combined_verdict(files: list[FileReading]) -> rdma.Verdict | None:
    """One verdict over the logs of several nodes; None when fewer than two files speak of the transport."""
    speaking = [item for item in files if item.transport_seen]
    if len(speaking) < 2:
        return None
    whole = Collector()
    for item in speaking:
        whole.merge(item.collector)
    return rdma.judge_evidence(whole.evidence(), [event for item in speaking for event in item.events])
