"""What NCCL's own NVTX ranges say of a collective: operation, communicator and bytes, from the payload of the range.

NVTX_EVENTS.binaryData is, little-endian: domain, reserved, schema, reserved (u32 each), size of the payload, size of
all (u64 each), then the payload, whose fields NVTX_PAYLOAD_SCHEMA_ENTRIES names with their offsets (seen written down
for 2026.2; older ones have the schemas, or none). What does not fit that is left alone and counted.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from store.analysis.timeline import NO_ID, CollectiveArgs, DeviceEvents, HostCalls

_HEADER: Final = struct.Struct("<IIIIQQ")
_FORMS: Final = {5: struct.Struct("<I"), 18: struct.Struct("<Q"), 22: struct.Struct("<Q")}
"""Payload types that NCCL's fields have: 32-bit counts and ranks, 64-bit ids and sizes."""
_COMMUNICATOR, _BYTES, _RANKS = "NCCL communicator ID", "Message size [bytes]", "No. of ranks"
_MOST_BYTES: Final = 1 << 50

Schemas = dict[int, dict[str, tuple[int, int]]]
"""By schema: the fields by name, each offset and type."""


@dataclass(frozen=True)
class Operation:
    """One call of NCCL on a host thread (index into `Timeline.threads`). communicator, size, ranks: as far as said."""

    start: int
    thread: int
    name: str
    communicator: int | None
    size: int | None
    ranks: int | None


def schemas_of(rows: Iterable[tuple[Any, ...]]) -> Schemas:
    """Schemas from rows of schemaId, name, type, offset (None: 0); they repeat for each process."""
    found: Schemas = defaultdict(dict)
    for schema, name, kind, offset in rows:
        if isinstance(schema, int) and isinstance(name, str) and kind in _FORMS:
            found[schema][name] = (int(offset or 0), kind)
    return dict(found)


def fields_of(blob: object, schemas: Schemas) -> dict[str, int] | None:
    """The fields of one payload by name; None where it is not of the known form. Some exports hold it as hex text."""
    if isinstance(blob, str):
        try:
            blob = bytes.fromhex(blob)
        except ValueError:
            return None
    if not isinstance(blob, bytes) or len(blob) < _HEADER.size:
        return None
    _, _, schema, _, size, whole = _HEADER.unpack_from(blob)
    if schema not in schemas or whole != _HEADER.size + size or len(blob) < whole:
        return None
    found = {}
    for name, (offset, kind) in schemas[schema].items():
        form = _FORMS[kind]
        if 0 <= offset <= size - form.size:
            (found[name],) = form.unpack_from(blob, _HEADER.size + offset)
    return found


def operation_from(start: int, thread: int, name: str, fields: dict[str, int]) -> Operation:
    """An operation from a range's name and payload; sizes that no message has are not believed."""
    size = fields.get(_BYTES)
    return Operation(
        start,
        thread,
        name.removeprefix("nccl"),
        fields.get(_COMMUNICATOR),
        size if size is not None and size < _MOST_BYTES else None,
        fields.get(_RANKS),
    )


def collectives_of(
    operations: list[Operation], names: list[str], events: DeviceEvents, calls: HostCalls
) -> dict[int, CollectiveArgs]:
    """What ran as which kernel: row of `events` -> what was asked for.

    NCCL launches at the end of a group, after the ranges of its operations: a kernel takes the operations that its
    thread asked for since the launch before it. Several in one kernel are told by their first, their sizes added up.
    Kernels of a graph replay were asked for when the graph was captured and stay without.
    """
    nccl = np.array(["nccl" in name.lower() for name in names], dtype=bool)
    rows = np.flatnonzero(nccl[events.name] & (events.correlation != NO_ID)) if len(names) else events.name[:0]
    single, first, count = np.unique(events.correlation[rows], return_index=True, return_counts=True)
    row_of = {int(c): int(rows[i]) for c, i, n in zip(single, first, count, strict=True) if n == 1}
    ranks = {o.communicator: o.ranks for o in operations if o.ranks is not None}
    asked: dict[int, list[Operation]] = defaultdict(list)
    for operation in sorted(operations, key=lambda o: o.start):
        if operation.size is not None:
            asked[operation.thread].append(operation)
    launching = np.flatnonzero(np.isin(calls.correlation, np.array(list(row_of), dtype=np.int64)))
    found: dict[int, CollectiveArgs] = {}
    place: dict[int, int] = defaultdict(int)
    for call in launching[np.argsort(calls.start[launching], kind="stable")].tolist():
        thread, at = int(calls.thread[call]), int(calls.start[call])
        mine, begin = asked[thread], place[thread]
        end = begin
        while end < len(mine) and mine[end].start <= at:
            end += 1
        place[thread] = end
        row = row_of.pop(int(calls.correlation[call]), None)  # the driver's call inside the runtime's is the same one
        if row is not None and end > begin:
            group = mine[begin]
            found[row] = CollectiveArgs(
                operation=group.name,
                group=None if group.communicator is None else f"{group.communicator:#x}",
                group_size=ranks.get(group.communicator),
                elements_in=sum(operation.size or 0 for operation in mine[begin:end]),
                dtype="byte",
            )
    return found
