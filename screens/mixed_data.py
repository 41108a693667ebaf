"""The interference screen's snapshot: one attempt with long requests put into a running load."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from screens.data import Feed, Row, View
from screens.live_data import case_of, slo_of

STEPS_MS = (250, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 600_000)
POINTS = 240  # steps in a timeline, at most


@dataclass(frozen=True)
class MixedView:
    """Times ending in `_ns` are the load client's monotonic clock; `origin_ns` is the run's clock at `begin_ns`."""

    attempt: Row
    attempts: tuple[str, ...]
    runs: tuple[str, ...]  # the run of each of `attempts`
    begin_ns: int = 0
    origin_ns: int | None = None
    step_ms: int = 1000
    windows: tuple[Row, ...] = ()
    injections: tuple[Row, ...] = ()
    timeline: tuple[Row, ...] = ()
    inject: dict[str, Any] = field(default_factory=dict)
    slo: dict[str, dict[str, float]] = field(default_factory=dict)
    nodes: tuple[Row, ...] = ()

    @property
    def running(self) -> bool:
        return bool(self.attempt["state"] == "running")


async def look_mixed(view: View, feed: Feed) -> MixedView | None:
    """The operator's attempt if it injects, else the running one or the newest. None when there is none."""
    found = await feed.rows("mixed_attempts", tables=("attempts", "runs"))
    mine = [a for a in found if a["run_id"] == view.run_id] or found
    if not mine:
        return None
    on = next((a for a in mine if a["state"] == "running"), None)
    return await _look(view, feed, next((a for a in mine if a["attempt_id"] == view.attempt_id), on or mine[0]), found)


async def _look(view: View, feed: Feed, attempt: Row, found: list[Row]) -> MixedView:
    name = attempt["attempt_id"]

    async def ask(query: str, *args: object) -> list[Row]:
        return await feed.rows(query, *args, tables=("requests", "phases"), every=5, key=args)

    windows_of = await ask("attempt_windows", name)
    steady = next((w for w in windows_of if w["window"] == "steady"), None) or next(iter(windows_of), {})
    injections = await ask("mixed_injections", name)
    windows = await ask("mixed_windows", name)
    recovery = {r["number"]: r["recovery_s"] for r in await ask("mixed_recovery", name)}
    begin = steady.get("start_ns") or 0
    span_ms = (steady.get("duration_s") or 0) * 1000
    step = next((s for s in STEPS_MS if span_ms / s <= POINTS), STEPS_MS[-1])
    timeline = await ask("mixed_timeline", name, step)
    first = next((i for i in injections if i["sent_wall_ns"] is not None), None)
    return MixedView(
        attempt=attempt,
        attempts=tuple(a["attempt_id"] for a in found),
        runs=tuple(a["run_id"] for a in found),
        begin_ns=begin,
        origin_ns=None if first is None else first["sent_wall_ns"] - (first["sent_ns"] - begin),
        step_ms=step,
        windows=tuple(windows),
        injections=tuple({**i, "recovery_s": recovery.get(i["number"])} for i in injections),
        timeline=tuple(timeline),
        inject=case_of(attempt).get("inject") or {},
        slo=slo_of(view, attempt),
        nodes=tuple(await feed.rows("live_nodes", tables=("node_states", "clock_offsets"))),
    )
