"""Communication across ranks: the same collective on every rank, who came last, and what was waiting and what transfer.

A collective cannot end before its last rank has arrived, so on each rank the time from its own start to the latest
arrival is waiting, the rest transfer. Collectives are matched by process group and sequence number where the framework
recorded them, else by their order among those of the same kind and group.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from store.analysis.algebra import Cover, cover
from store.analysis.families import COMMUNICATION
from store.analysis.rank import RankView
from store.analysis.timeline import KERNEL, Int, column

_OPERATIONS: Final = (
    (
        "all_reduce",
        r"all_?reduce|cross_?device_?reduce|quick_?reduce|(?:one|two)_?shot|multimem|local_device_load|rms.*lamport",
    ),
    ("reduce_scatter", r"reduce_?scatter"),
    ("all_gather", r"all_?gather"),
    ("all_to_all", r"all_?to_?all|all2all|a2a"),
    ("send_recv", r"send_?recv|(?:^|_)(?:i?send|i?recv)(?:$|_)"),
    ("broadcast", r"broadcast"),
    ("notify", r"notify|layout|clean_low_latency"),
    ("dispatch", r"dispatch"),
    ("combine", r"combine"),
    ("barrier", r"barrier|signal"),
    ("reduce", r"reduce"),
)
_SIZES: Final = {
    "byte": 1,
    "char": 1,
    "int8": 1,
    "uint8": 1,
    "float8": 1,
    "bool": 1,
    "half": 2,
    "bfloat16": 2,
    "float16": 2,
}
_SIZES_4_8: Final = {"float": 4, "float32": 4, "int": 4, "int32": 4, "long": 8, "int64": 8, "double": 8, "float64": 8}
_POINT_TO_POINT: Final = re.compile(r"^(?:send|recv|isend|irecv|_?p2p)", re.I)
_FIXED_SHARE: Final = 0.6
_SIGMAS: Final = 1.64
"""How far beyond chance (1 / ranks) a share must lie to be a habit: 95 % of a one-sided normal approximation."""
_ENOUGH: Final = 8
_CLOCK_DOUBT_NS: Final = 20_000


@dataclass(frozen=True)
class RankCollectives:
    """One rank's communication kernels on the shared clock, in start order.

    start, end: ns, wall clock where known. kind: operation, group and bytes of each. key: what the same collective has
    on every rank, by sequence number, or None. order_key: of what it is the n-th. compute: where the rank computed.
    """

    rank: int | None
    file: str
    device: int | None
    world_size: int | None
    start: Int
    end: Int
    kind: list[tuple[str, str, int | None]]
    order_key: list[tuple[str, ...]]
    key: list[tuple[str, ...] | None]
    compute: Cover


def operation_of(name: str) -> str:
    """all_reduce, all_gather, dispatch, ...: what a communication kernel does, by its name or its framework's word."""
    text = name.lower()
    return next((operation for operation, pattern in _OPERATIONS if re.search(pattern, text)), "other")


def rank_collectives(seen: RankView) -> RankCollectives:
    """The communication kernels of a rank with what identifies them."""
    timeline = seen.timeline
    events = timeline.events
    family = seen.algebra.families.index(COMMUNICATION)
    rows = np.flatnonzero((events.kind == KERNEL) & (seen.algebra.family == family))
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    base = timeline.base_ns or 0
    by_name = {i: operation_of(timeline.names[i]) for i in set(events.name[rows].tolist())}
    kinds: list[tuple[str, str, int | None]] = []
    order_keys: list[tuple[str, ...]] = []
    keys: list[tuple[str, ...] | None] = []
    for row in rows.tolist():
        args = timeline.collectives.get(row)
        operation = by_name[int(events.name[row])]
        if args is None:
            kinds.append((operation, "", None))
            order_keys.append((operation, timeline.names[int(events.name[row])]))
            keys.append(None)
            continue
        operation = operation_of(args.operation or "") if args.operation else operation
        group = f"{args.group or ''}{args.ranks or ''}"
        size = _bytes(args.elements_in, args.dtype)
        kinds.append((operation, args.group or "", size))
        point = args.operation is not None and _POINT_TO_POINT.match(args.operation) is not None
        order_keys.append(("", str(row)) if point else (operation, group, str(args.elements_in)))
        keys.append(None if args.sequence is None or point else (operation, group, str(args.sequence)))
    compute = seen.algebra.compute
    return RankCollectives(
        rank=timeline.rank,
        file=timeline.file,
        device=timeline.device,
        world_size=timeline.world_size,
        start=events.start[rows] + base,
        end=events.end[rows] + base,
        kind=kinds,
        order_key=order_keys,
        key=keys,
        compute=Cover(compute.start + base, compute.end + base, compute.before),
    )


def _bytes(elements: int | None, dtype: str | None) -> int | None:
    size = (_SIZES | _SIZES_4_8).get((dtype or "").lower().removeprefix("torch."))
    return elements * size if elements is not None and size else None


def collective_rows(mine: RankCollectives) -> list[dict[str, Any]]:
    """One rank's communication by operation, group and size: count, time, and how much of it no compute covered."""
    if not len(mine.start):
        return []
    exposed = mine.end - mine.start - mine.compute.within(mine.start, mine.end)
    sums: dict[tuple[str, str, int | None], list[int]] = defaultdict(lambda: [0, 0, 0])
    for kind, length, bare in zip(mine.kind, (mine.end - mine.start).tolist(), exposed.tolist(), strict=True):
        total = sums[kind]
        total[0] += 1
        total[1] += length
        total[2] += bare
    return [
        {
            "operation": operation,
            "group": group or None,
            "bytes": size,
            "count": count,
            "total_ns": total,
            "mean_ns": round(total / count),
            "exposed_ns": bare,
        }
        for (operation, group, size), (count, total, bare) in sorted(sums.items(), key=lambda item: -item[1][1])
    ]


@dataclass(frozen=True)
class Matched:
    """Collectives found on two ranks or more: row i is one collective, column r the rank; -1 where a rank lacks it."""

    rows: Int
    uneven: bool


def match_ranks(ranks: Sequence[RankCollectives]) -> Matched:
    """Match collectives across ranks, by number where there is one, else by order."""
    table: dict[tuple[str, ...], list[int]] = {}
    counts: list[Counter[tuple[str, ...]]] = []
    for r, mine in enumerate(ranks):
        seen: Counter[tuple[str, ...]] = Counter()
        for i, (key, order) in enumerate(zip(mine.key, mine.order_key, strict=True)):
            if key is None and not order[0]:
                continue
            name = ("n", *key) if key is not None else ("o", *order)
            seen[name] += 1
            cells = table.setdefault((*name, str(seen[name])), [-1] * len(ranks))
            cells[r] = i
        counts.append(seen)
    uneven = any(len({count[name] for count in counts if name in count}) > 1 for name in set().union(*counts))
    rows = [cells for cells in table.values() if sum(cell >= 0 for cell in cells) > 1]
    return Matched(column(rows).reshape(len(rows), len(ranks)), uneven)


@dataclass
class AcrossRanks:
    """What only several ranks together can tell. wait_ns: per rank, exposed waiting; None where nothing matched."""

    wait_ns: list[int | None]
    wait_total_ns: list[int | None]
    clock_offset_ns: list[int | None]
    stragglers: list[dict[str, Any]]
    operations: list[dict[str, Any]]
    problems: list[str]


def across_ranks(ranks: Sequence[RankCollectives]) -> AcrossRanks:
    """Waiting, stragglers and clock check of ranks that were captured together."""
    size = len(ranks)
    result = AcrossRanks([None] * size, [None] * size, [None] * size, [], [], [])
    if size < 2:
        return result
    matched = match_ranks(ranks)
    table = matched.rows
    if not len(table):
        return result
    if matched.uneven:
        result.problems.append(
            "the ranks hold different numbers of collectives (captures that do not cover the same steps?): they are "
            "matched by number, or by order from the first, and waiting is as good as that match"
        )
    has = table >= 0
    start, end = _gather(ranks, table, "start"), _gather(ranks, table, "end")
    last = np.where(has, start, np.iinfo(np.int64).min).max(axis=1)
    for r, mine in enumerate(ranks):
        here = has[:, r]
        until = np.minimum(np.maximum(last[here], start[here, r]), end[here, r])
        waiting = cover(start[here, r], until)
        result.wait_total_ns[r] = waiting.total
        result.wait_ns[r] = waiting.total - int(mine.compute.within(waiting.start, waiting.end).sum())
    result.clock_offset_ns = _clock_offsets(end, has, result.problems, ranks)
    result.stragglers = _stragglers(ranks, start, has)
    result.operations = _operations(ranks, table, start, end, last, has)
    world = max((mine.world_size or 0) for mine in ranks)
    if world > size:
        result.problems.append(
            f"{size} of {world} ranks were captured: the latest arrival is the latest of these, so waiting is a lower "
            "bound"
        )
    return result


def _gather(ranks: Sequence[RankCollectives], table: Int, what: str) -> Int:
    columns = []
    for r, mine in enumerate(ranks):
        values: Int = getattr(mine, what)
        columns.append(values[np.maximum(table[:, r], 0)] if len(values) else np.zeros(len(table), dtype=np.int64))
    return np.stack(columns, axis=1)


def _clock_offsets(
    end: Int, has: np.ndarray[Any, Any], problems: list[str], ranks: Sequence[RankCollectives]
) -> list[int | None]:
    """How far each rank's ends lie from the others' in the middle: a collective ends everywhere at nearly one time."""
    first = np.where(has, end, np.iinfo(np.int64).max).min(axis=1)
    after = np.sort(np.where(has, end - first[:, None], np.iinfo(np.int64).max), axis=1)
    count, row = has.sum(axis=1), np.arange(len(end))
    middle = (after[row, (count - 1) // 2] + after[row, count // 2]) / 2
    offsets: list[int | None] = []
    for r, mine in enumerate(ranks):
        gap = (end[:, r] - first - middle)[has[:, r]]
        if len(gap) < _ENOUGH:
            offsets.append(None)
            continue
        offset = float(np.median(gap))
        spread = float(np.median(np.abs(gap - offset)))
        offsets.append(round(offset))
        if abs(offset) > _CLOCK_DOUBT_NS and abs(offset) > 4 * spread:
            problems.append(
                f"rank {mine.rank}: its collectives end {offset / 1000:+.0f} us from the other ranks' all along, so "
                "its clock is off by about that much; its waiting and its arrivals are off by as much"
            )
    return offsets


def _stragglers(ranks: Sequence[RankCollectives], start: Int, has: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    shown = np.where(has, start, np.iinfo(np.int64).min)
    order = np.sort(shown, axis=1)
    late = order[:, -1] - order[:, -2]
    first = np.where(has, start, np.iinfo(np.int64).max).min(axis=1)
    who = shown.argmax(axis=1)
    real = late > 0
    rows = []
    for r, mine in enumerate(ranks):
        mine_last = real & (who == r)
        count = int(mine_last.sum())
        if not count:
            continue
        there = has[:, r] & real
        present = int(there.sum())
        chance = float((1 / has.sum(axis=1)[there]).mean())
        habit = max(_FIXED_SHARE, chance + _SIGMAS * (chance * (1 - chance) / present) ** 0.5)
        rows.append(
            {
                "rank": mine.rank,
                "file": mine.file,
                "device": mine.device,
                "last": count,
                "collectives": present,
                "share": round(count / present, 4),
                "median_late_ns": int(np.median(late[mine_last])),
                "total_late_ns": int(late[mine_last].sum()),
                "median_spread_ns": int(np.median((order[:, -1] - first)[mine_last])),
                "fixed": bool(present >= _ENOUGH and count / present >= habit),
            }
        )
    return sorted(rows, key=lambda row: -float(str(row["total_late_ns"])))


def _operations(
    ranks: Sequence[RankCollectives], table: Int, start: Int, end: Int, last: Int, has: np.ndarray[Any, Any]
) -> list[dict[str, Any]]:
    """Waiting against transfer by operation, group and size, over all ranks."""
    length = np.where(has, end - start, 0)
    wait = np.clip(last[:, None] - start, 0, length)
    sums: dict[tuple[str, str, int | None], list[int]] = defaultdict(lambda: [0, 0, 0])
    shown = has.argmax(axis=1).tolist()
    waits, transfers = wait.sum(axis=1).tolist(), (length - wait).sum(axis=1).tolist()
    for cells, r, waited, moved in zip(table.tolist(), shown, waits, transfers, strict=True):
        total = sums[ranks[r].kind[cells[r]]]
        total[0] += 1
        total[1] += waited
        total[2] += moved
    return [
        {
            "operation": operation,
            "group": group or None,
            "bytes": size,
            "collectives": count,
            "wait_ns": wait,
            "transfer_ns": transfer,
        }
        for (operation, group, size), (count, wait, transfer) in sorted(
            sums.items(), key=lambda item: -sum(item[1][1:])
        )
    ]


def distinct_ranks(ranks: Iterable[RankCollectives]) -> list[int]:
    """Positions of the ranks that can be compared: the first of each rank number, all of those without one."""
    seen: set[tuple[int | None, int | None]] = set()
    chosen = []
    for i, mine in enumerate(ranks):
        if mine.rank is None or (mine.rank, None) not in seen:
            chosen.append(i)
            seen.add((mine.rank, None))
    return chosen
