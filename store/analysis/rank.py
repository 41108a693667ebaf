"""The report of one rank's device: its breakdown, kernels, steps and host side, as plain JSON values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from store.analysis.algebra import Algebra, Parts
from store.analysis.families import COMMUNICATION, FAMILIES, Match, Rule, match
from store.analysis.timeline import KERNEL, NO_ID, Int, Timeline, column

_LAUNCH: Final = re.compile(r"launch", re.I)
_NO_LAUNCH: Final = re.compile(r"hostfunc|launchbounds|callconfiguration", re.I)


@dataclass
class RankView:
    """A timeline with what every analysis of it needs, computed once."""

    timeline: Timeline
    algebra: Algebra
    matches: list[Match]
    launch_calls: Int
    launch_of: Int = field(default_factory=column)
    """The row of `calls` that launched each device event; NO_ID where it is not in the capture."""


def view(timeline: Timeline, extra: tuple[Rule, ...] = ()) -> RankView:
    """Families, time algebra and launches of one timeline (which must hold a device event)."""
    matches = [match(name, extra) for name in timeline.names]
    index = {family: i for i, family in enumerate(FAMILIES)}
    by_name = column([index[found.family] for found in matches])
    algebra = Algebra(timeline.events, FAMILIES, by_name[timeline.events.name])
    launching = [bool(_LAUNCH.search(name)) and not _NO_LAUNCH.search(name) for name in timeline.names]
    is_launch = np.array(launching, dtype=bool)[timeline.calls.name]
    return RankView(timeline, algebra, matches, np.flatnonzero(is_launch), _launch_of(timeline))


def _launch_of(timeline: Timeline) -> Int:
    """For each device event the first call with its correlation (one graph launch has many events)."""
    calls = timeline.calls.correlation
    order = np.argsort(calls, kind="stable")
    order = order[calls[order] != NO_ID]
    known = calls[order]
    wanted = timeline.events.correlation
    if not len(known):
        return np.full(len(wanted), NO_ID, dtype=np.int64)
    at = np.minimum(np.searchsorted(known, wanted, side="left"), len(known) - 1)
    found: Int = np.where((known[at] == wanted) & (wanted != NO_ID), order[at], NO_ID)
    return found


def parts_json(parts: Parts) -> dict[str, Any]:
    """The parts of a window under the names of the `analyze` document."""
    return {
        "wall_ns": parts.wall_ns,
        "compute_ns": dict(parts.compute_ns),
        "overlap_ns": parts.overlap_ns,
        "communication_exposed_ns": parts.communication_exposed_ns,
        "copy_exposed_ns": parts.copy_exposed_ns,
        "idle_ns": parts.idle_ns,
    }


def rank_json(seen: RankView) -> dict[str, Any]:
    """One entry of `ranks`, without steps and without what needs the other ranks."""
    timeline, algebra = seen.timeline, seen.algebra
    events = timeline.events
    parts = algebra.parts()
    launches = timeline.calls.correlation[seen.launch_calls]
    return {
        "rank": timeline.rank,
        "file": timeline.file,
        "device": timeline.device,
        "label": timeline.label,
        "source": timeline.source,
        **parts_json(parts),
        "cumulative_ns": algebra.cumulative(),
        "communication_wait_ns": None,
        "start_ns": parts.start_ns,
        "base_ns": timeline.base_ns,
        "compute_busy_ns": algebra.compute.total,
        "communication_busy_ns": algebra.communication.total,
        "kernels": int((events.kind == KERNEL).sum()),
        "copies": int((events.kind != KERNEL).sum()),
        "launches": len(np.unique(launches[launches != NO_ID])) + int((launches == NO_ID).sum()),
        "events_without_launch": int((seen.launch_of == NO_ID).sum()),
        "world_size": timeline.world_size,
        "facts": timeline.facts,
        "problems": timeline.problems,
    }


def kernel_rows(seen: RankView) -> list[dict[str, Any]]:
    """Kernels, copies and fills by name: count and summed device time."""
    events = seen.timeline.events
    length = events.end - events.start
    size = len(seen.timeline.names)
    rows = []
    for copies in (False, True):
        mine = (events.kind != KERNEL) == copies
        counts = np.bincount(events.name[mine], minlength=size)
        totals = np.zeros(size, dtype=np.int64)
        np.add.at(totals, events.name[mine], length[mine])
        for i in np.flatnonzero(counts):
            found = seen.matches[i]
            rows.append(
                {
                    "name": seen.timeline.names[i],
                    "family": found.family,
                    "count": int(counts[i]),
                    "total_ns": int(totals[i]),
                    "copy": copies,
                    "matched": found.rule is not None,
                }
            )
    return rows


def no_communication(seen: RankView) -> str | None:
    """The warning that a capture of several ranks shows no communication at all."""
    timeline = seen.timeline
    if seen.algebra.cumulative().get(COMMUNICATION) or (timeline.world_size or 1) <= 1:
        return None
    return (
        f"no communication kernel was recognised although the capture belongs to {timeline.world_size} ranks: "
        "look at the unmatched kernels, and at whether the capture holds the kernels inside graphs"
    )
