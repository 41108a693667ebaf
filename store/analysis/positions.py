"""Which collective of a step it is: the n-th of its kind, over all steps of that kind.

A model issues the same collectives in the same order in every step (two all-reduces a layer under tensor parallelism,
a dispatch and a combine a MoE layer), so the position tells the layer without the capture naming it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

import numpy as np

from store.analysis.collectives import operation_of
from store.analysis.families import COMMUNICATION
from store.analysis.rank import RankView
from store.analysis.steps import Step
from store.analysis.timeline import KERNEL

_TOP: Final = 24


def positions(seen: RankView, steps: list[Step]) -> list[dict[str, Any]]:
    """The positions with most exposed time: kind of step, operation, position (from 0), count, mean and exposed ns."""
    events = seen.timeline.events
    family = seen.algebra.families.index(COMMUNICATION)
    sums: dict[tuple[str, str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    names: dict[int, str] = {}
    for step in steps:
        rows = step.rows[(seen.algebra.family[step.rows] == family) & (events.kind[step.rows] == KERNEL)]
        rows = rows[np.argsort(events.start[rows], kind="stable")]
        length = events.end[rows] - events.start[rows]
        exposed = length - seen.algebra.compute.within(events.start[rows], events.end[rows])
        order: dict[str, int] = defaultdict(int)
        for name, total, bare in zip(events.name[rows].tolist(), length.tolist(), exposed.tolist(), strict=True):
            operation = names.setdefault(name, "") or operation_of(seen.timeline.names[name])
            names[name] = operation
            row = sums[step.meaning.kind, operation, order[operation]]
            order[operation] += 1
            row[0] += 1
            row[1] += total
            row[2] += bare
    best = sorted(sums.items(), key=lambda item: (-item[1][2], item[0]))[:_TOP]
    return [
        {
            "kind": kind,
            "operation": operation,
            "position": position,
            "count": count,
            "mean_ns": round(total / count),
            "exposed_ns": bare,
        }
        for (kind, operation, position), (count, total, bare) in best
    ]
