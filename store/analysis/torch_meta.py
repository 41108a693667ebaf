"""What a torch trace says about itself beside its events: rank, clock base, hardware; never who, where or with what
environment."""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from store.analysis.events import EventStream

_FILE_RANK: Final = (
    re.compile(r"(?:^|[^a-z])rank[-_]?(\d{1,5})(?!\d)", re.I),
    re.compile(r"(?:^|[^A-Za-z])TP-?(\d{1,5})(?!\d)"),
    re.compile(r"(?:^|[^a-z])worker[-_]?(\d{1,5})(?!\d)", re.I),
)
_BASE: Final = re.compile(rb'"baseTimeNanoseconds"\s*:\s*"?(\d{1,19})')
_RANK: Final = re.compile(rb'"rank"\s*:\s*(\d{1,6})')
_WORLD: Final = re.compile(rb'"world_size"\s*:\s*(\d{1,6})')


def label_ranks(labels: list[str]) -> dict[str, int]:
    """The ranks behind the labels of a merged trace: their TP number where that tells them apart, else their order."""
    found = {label: re.search(r"(?:TP|rank)[-_ ]?(\d{1,5})", label, re.I) for label in labels}
    numbers = {label: int(match.group(1)) for label, match in found.items() if match}
    if len(set(numbers.values())) == len(labels):
        return numbers
    return {label: i for i, label in enumerate(sorted(labels))}


def file_rank(name: str) -> int | None:
    for pattern in _FILE_RANK:
        if found := pattern.search(name):
            return int(found.group(1))
    return None


def meta_of(stream: EventStream) -> dict[str, Any]:
    """What the trace says about itself beside its events; written before or after them, by version."""
    meta: dict[str, Any] = {}
    try:
        head = orjson.loads(stream.header + b"]}")
        meta = head if isinstance(head, dict) else {}
    except orjson.JSONDecodeError:
        pass
    for place in (stream.header, stream.trailer):
        if "baseTimeNanoseconds" not in meta and (base := _BASE.search(place)):
            meta["baseTimeNanoseconds"] = int(base.group(1))
        at = place.find(b'"distributedInfo"')
        if "distributedInfo" not in meta and at >= 0 and (rank := _RANK.search(place, at)):
            world = _WORLD.search(place)
            meta["distributedInfo"] = {"rank": int(rank.group(1)), "world_size": int(world.group(1)) if world else None}
    return meta


def facts_of(head: dict[str, Any], device: int | None) -> dict[str, Any]:
    """What may be shown of a trace's header: hardware and versions, nothing that names a person, host or path."""
    facts: dict[str, Any] = {}
    devices = head.get("deviceProperties")
    if isinstance(devices, list) and devices:
        known = [d for d in devices if isinstance(d, dict)]
        mine = next((d for d in known if d.get("id") == device), known[0] if known else {})
        facts = {"device_name": mine.get("name") or None, "multiprocessors": mine.get("numSms")}
    for key in ("vllm_version", "cupti_version", "roctracer_version", "cuda_runtime_version", "hip_runtime_version"):
        if isinstance(head.get(key), str | int | float):
            facts[key] = head[key]
    return facts
