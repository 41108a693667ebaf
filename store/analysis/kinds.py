"""What the steps of a kind have in common: prefill, decode and mixed side by side, per step and per token."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from store.analysis.chains import small_share
from store.analysis.rank import RankView
from store.analysis.steps import Step
from store.analysis.timeline import KERNEL, Int

_PARTS: Final = ("wall_ns", "overlap_ns", "communication_exposed_ns", "copy_exposed_ns", "idle_ns")
_COUNTS: Final = ("kernels", "graph_kernels", "launches")
_TOP: Final = 15


def by_kind(seen: RankView, steps: list[Step], shown: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Sums over the steps of each kind, with time and launches per token where the steps say their tokens."""
    kinds: dict[str, dict[str, Any]] = {}
    for kind in dict.fromkeys(step.meaning.kind for step in steps):
        mine = [(step, row) for step, row in zip(steps, shown, strict=True) if step.meaning.kind == kind]
        rows = [row for _, row in mine]
        told = [row for row in rows if row["tokens"]]
        tokens = sum(row["tokens"] for row in told) or None
        wall = sum(row["wall_ns"] for row in told)
        launches = sum(row["launches"] for row in told)
        batches = sorted({row["tokens"] for row in told})
        kinds[kind] = {
            "steps": len(rows),
            "tokens": tokens,
            **{part: sum(row[part] for row in rows) for part in (*_PARTS, *_COUNTS)},
            "compute_ns": _added(row["compute_ns"] for row in rows),
            "cumulative_ns": _added(row["cumulative_ns"] for row in rows),
            "step_wall_ns": _spread([row["wall_ns"] for row in rows]),
            "wall_ns_per_token": round(wall / tokens) if tokens else None,
            "launches_per_step": round(sum(row["launches"] for row in rows) / len(rows), 2),
            "launches_per_token": round(launches / tokens, 4) if tokens else None,
            "kernels_per_step": round(sum(row["kernels"] for row in rows) / len(rows), 2),
            "kernels_per_token": round(sum(row["kernels"] for row in told) / tokens, 4) if tokens else None,
            **small_share(_kernel_lengths(seen, [step for step, _ in mine])),
            "graph_share": _ratio(sum(r["graph_kernels"] for r in rows), sum(r["kernels"] for r in rows)),
            "batches": batches[:64],
            "top_kernels": _top_kernels(seen, [step for step, _ in mine]),
        }
    return kinds


def _added(many: Any) -> dict[str, int]:
    total: dict[str, int] = defaultdict(int)
    for one in many:
        for family, ns in one.items():
            total[family] += ns
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None


def _spread(values: list[int]) -> Mapping[str, int]:
    low, middle, high = np.percentile(values, [0, 50, 100])
    return {"min": round(low), "median": round(middle), "max": round(high)}


def _kernel_lengths(seen: RankView, steps: list[Step]) -> Int:
    """Lengths of the kernels that the steps launched."""
    events = seen.timeline.events
    rows = np.concatenate([step.rows for step in steps])
    rows = rows[events.kind[rows] == KERNEL]
    lengths: Int = events.end[rows] - events.start[rows]
    return lengths


def _top_kernels(seen: RankView, steps: list[Step]) -> list[dict[str, Any]]:
    """Kernels that the steps launched, by summed time."""
    timeline = seen.timeline
    rows = np.concatenate([step.rows for step in steps])
    rows = rows[timeline.events.kind[rows] == KERNEL]
    size = len(timeline.names)
    name = timeline.events.name[rows]
    count, total = np.bincount(name, minlength=size), np.zeros(size, dtype=np.int64)
    np.add.at(total, name, timeline.events.end[rows] - timeline.events.start[rows])
    best = sorted(np.flatnonzero(count).tolist(), key=lambda i: -int(total[i]))[:_TOP]
    return [
        {"name": timeline.names[i], "family": seen.matches[i].family, "count": int(count[i]), "total_ns": int(total[i])}
        for i in best
    ]
