"""The two sides of a comparison as replicates: which attempts count, what one independent measurement is."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from store.records import SERVED

OURS = frozenset({"CANCELLED", "CLIENT_ERROR", "NODE_LOST"})  # an end that says nothing about the variant
_SHAPE = ("isl", "osl", "concurrency", "asked_rate", "client")
_CASE = ("prefix_share", "api", "prompt", "ignore_eos", "inject", "filler", "requests")

Row = Mapping[str, Any]
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Side:
    """What is compared: the attempts of these runs, or of one variant (its JSON, as attempts have it) of theirs."""

    label: str
    runs: tuple[str, ...]
    variant: str | None = None


@dataclass(slots=True)
class Sample:
    """The attempts of one side, by case."""

    side: Side
    served: dict[Key, list[Row]] = field(default_factory=dict)
    failed: list[Row] = field(default_factory=list)

    @property
    def lives(self) -> list[str]:
        rows = [*self.failed, *(r for rows in self.served.values() for r in rows)]
        return sorted({r["life_id"] for r in rows if r["life_id"]})


def key_of(row: Row) -> Key:
    """What must be the same for two attempts to be the same work: case, lengths, load, client and its ways."""
    case = orjson.loads(row["case_spec"] or "{}")
    more = tuple(orjson.dumps(case.get(k), option=orjson.OPT_SORT_KEYS).decode() for k in _CASE)
    name = str(row["case_name"])
    return (name.rpartition("@")[0] if row["variant"] else name, *(row[k] for k in _SHAPE), *more)


def sample_of(side: Side, rows: Iterable[Row]) -> Sample:
    """The side's part of the rows of `ab_attempts`."""
    served: dict[Key, list[Row]] = defaultdict(list)
    sample = Sample(side)
    for row in rows:
        if row["run_id"] not in side.runs or (side.variant is not None and row["variant"] != side.variant):
            continue
        if row["outcome"] in SERVED:
            served[key_of(row)].append(row)
        else:
            sample.failed.append(row)
    sample.served = dict(served)
    return sample


def block_of(row: Row) -> tuple[str, int]:
    """Attempts of both sides with the same block were measured side by side."""
    return row["run_id"], row["repeat"]


def paired(a: Sample, b: Sample, keys: Sequence[Key]) -> bool:
    """Whether the sides were measured in blocks, and no server life reaches over two blocks of its side."""
    if a.side.variant is None or set(a.side.runs) != set(b.side.runs):
        return False
    for sample in (a, b):
        blocks: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for key in keys:
            for row in sample.served[key]:
                blocks[row["life_id"]].add(block_of(row))
        if any(len(seen) > 1 for seen in blocks.values()):
            return False
    return True


def pairs_of(a: Sample, b: Sample, keys: Sequence[Key], metric: str) -> list[tuple[float, float]]:
    """(A, B) a block in which both sides have the metric for every case; the geometric mean over the cases."""
    out = []
    sides = [{(block_of(r), k): r[metric] for k in keys for r in s.served[k] if _usable(r, metric)} for s in (a, b)]
    for block in sorted({b for b, _ in sides[0]} & {b for b, _ in sides[1]}):
        values = [[side.get((block, k)) for k in keys] for side in sides]
        if all(v is not None for side in values for v in side):
            out.append((_geometric(values[0]), _geometric(values[1])))
    return out


def replicates_of(sample: Sample, keys: Sequence[Key], metric: str, *, by_life: bool) -> list[float]:
    """One value an independent measurement: a server life when the servers differ, else an attempt."""
    groups: dict[Any, dict[Key, list[float]]] = defaultdict(lambda: defaultdict(list))
    for key in keys:
        for row in sample.served[key]:
            if _usable(row, metric):
                groups[row["life_id"] if by_life else block_of(row)][key].append(row[metric])
    return [
        _geometric([sum(values) / len(values) for values in by_key.values()])
        for by_key in groups.values()
        if len(by_key) == len(keys)
    ]


def _usable(row: Row, metric: str) -> bool:
    """Whether the attempt has the metric: a tail needs requests beyond it."""
    if row[metric] is None or row[metric] <= 0:
        return False
    base, _, which = metric.rpartition("_")
    least = {"p99": 100, "p95": 20}.get(which)
    return least is None or row[f"{base}_n"] >= least


def _geometric(values: Sequence[float | None]) -> float:
    known = [v for v in values if v is not None]
    return math.exp(math.fsum(math.log(v) for v in known) / len(known))
