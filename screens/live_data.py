"""The live screen's snapshot: one run at one instant, asked in a handful of queries that are all bounded in time."""

from __future__ import annotations

import heapq
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from screens.data import FOREVER, Asking, Feed, Row, View
from screens.widgets.devices import with_processes
from screens.widgets.logview import BUFFER, LogQuery
from screens.widgets.logview import place as log_place
from screens.widgets.rails import worth_showing
from screens.widgets.timeline import PhaseBit

S = 1_000_000_000
LOOK_BACK_S = 64  # of devices, rails and engine: as much as a sparkline shows
LOAD_BACK_S = 120
TREND_STEPS_S = (1, 2, 5, 10, 30, 60, 300, 900, 3600)
Clocks = tuple[list[str], list[int]]
BEFORE_LOAD = ("launch", "ready")  # phases that are not load: they may take much longer than it
LOG_SPANS_S = (
    3,
    30,
    300,
    3600,
    86_400,
    30 * 86_400,
)  # how far back lines are looked for, wider while too few are found


@dataclass(frozen=True)
class LiveView:
    """Everything the live screen shows. Times ending in `_ns` are on the run's clock."""

    attempts: tuple[Row, ...]
    attempt: Row
    now_ns: int
    running: bool
    phases: tuple[Row, ...] = ()
    gpus: list[Row] = field(default_factory=list)
    rails: list[Row] = field(default_factory=list)
    engine: Row | None = None
    window: str = "steady"
    requests: tuple[Row, ...] = ()
    counts: Row = field(default_factory=dict)
    load: tuple[Row, ...] = ()
    trend: tuple[Row, ...] = ()
    trend_step_s: int = 1
    findings: list[Row] = field(default_factory=list)
    logs: list[Row] = field(default_factory=list)
    nodes: tuple[Row, ...] = ()
    stage: Row | None = None
    slo: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def begin_ns(self) -> int | None:
        """Where the attempt's load began on the run's clock: its first phase of load, else its first tick."""
        return load_begin(self.phases) or (self.load[0]["wall_ns"] if self.load else None)


def clocks_of(rows: Sequence[Row]) -> Clocks:
    """Rows of `live_clock` as the arguments `names` and `shifts` of the queries that need them."""
    apart = [r for r in rows if r["node"] and r["shift_ns"]]
    return [r["node"] for r in apart], [r["shift_ns"] for r in apart]


def load_begin(phases: Sequence[Row]) -> int | None:
    starts = [p["start_ns"] for p in phases if p["start_ns"] is not None]
    loads = [p["start_ns"] for p in phases if p["start_ns"] is not None and p["name"] not in BEFORE_LOAD]
    return min(loads or starts, default=None)


def case_of(attempt: Row) -> dict[str, Any]:
    """The case as it was asked for; {} when it was not kept or cannot be read."""
    try:
        found = json.loads(attempt.get("case_spec") or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def target_requests(attempt: Row) -> int | None:
    """Requests to be sent in steady: what the case asks, else max(5 C, 20)."""
    asked = case_of(attempt).get("requests")
    if isinstance(asked, int):
        return asked
    return max(5 * attempt["concurrency"], 20) if attempt.get("concurrency") else None


def slo_of(view: View, attempt: Row) -> dict[str, dict[str, float]]:
    """metric -> {statistic: bound} of the attempt's case."""
    name = case_of(attempt).get("slo")
    slo = view.session.config.slo.get(name) if isinstance(name, str) else None
    if slo is None:
        return {}
    bounds = slo.model_dump(exclude_none=True, include={"ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"})
    return {metric: found for metric, found in bounds.items() if found}


def netdevs_of(view: View) -> dict[str, set[str]]:
    """node -> the netdevs of its configured rails."""
    return {n.name: {r.netdev for r in n.rails} for n in view.session.config.nodes}


def choose(attempts: list[Row], wanted: str | None) -> Row:
    """The attempt to show: the asked one, else the running one, else the last that began, else the first."""
    for a in attempts:
        if wanted is not None and a["attempt_id"] == wanted:
            return a
    running = [a for a in attempts if a["state"] == "running"]
    begun = [a for a in attempts if a["started_wall_ns"] is not None and a["state"] != "planned"]
    return running[-1] if running else begun[-1] if begun else attempts[0]


def phase_bits(view: LiveView) -> tuple[PhaseBit, ...]:
    """The attempt's phases for the strip; what is left of steady follows from the requests ended in it."""
    bits = []
    for p in view.phases:
        if p["start_ns"] is None or p["start_ns"] > view.now_ns:
            continue
        now = p["end_ns"] is None or p["end_ns"] > view.now_ns
        took = ((view.now_ns if now else p["end_ns"]) - p["start_ns"]) / S
        left = steady_left_s(view, took) if now and p["name"] == "steady" else None
        bits.append(PhaseBit(p["name"], max(took, 0.0), left, now and view.running))
    return tuple(bits)


def steady_left_s(view: LiveView, took: float) -> float | None:
    target, done = target_requests(view.attempt), ended(view.counts)
    if not target or not done or took <= 0:
        return None
    return max(took * (target - done) / done, 0.0)


def ended(counts: Row) -> int:
    return sum(counts.get(k) or 0 for k in ("ok", "failed", "timed_out"))


def eta_s(view: LiveView) -> float | None:
    """Seconds until the run ends: what is left of this attempt and the median of those done for each planned one."""
    done = [a for a in view.attempts if a["state"] == "done" and a["ended_wall_ns"] and a["started_wall_ns"]]
    planned = sum(1 for a in view.attempts if a["state"] == "planned")
    bits = phase_bits(view)
    left = next((b.left_s for b in bits if b.now and b.left_s is not None), None)
    if planned and not done:
        return None
    each = statistics.median((a["ended_wall_ns"] - a["started_wall_ns"]) / S for a in done) if planned else 0.0
    return None if left is None else left + planned * each


async def log_rows(feed: Feed, run_id: str | None, now_ns: int, clocks: Clocks, live: bool, q: LogQuery) -> list[Row]:
    """The lines that `q` asks for, by run clock: the last BUFFER up to `now_ns`, or half as many on each side of an
    instant. Looks a short time around first, further only while too few are found."""
    if q.apart:
        each = [await _log_rows(feed, run_id, now_ns, clocks, live, replace(q, node=n)) for n in q.nodes]
        return list(heapq.merge(*each, key=log_place))
    return await _log_rows(feed, run_id, now_ns, clocks, live, q)


async def _log_rows(feed: Feed, run_id: str | None, now_ns: int, clocks: Clocks, live: bool, q: LogQuery) -> list[Row]:
    asked = (q.level, q.node, q.needle)
    at, edge = (now_ns, None) if q.around_ns is None or q.around_ns > now_ns else (q.around_ns, q.edge)
    n = BUFFER if q.around_ns is None else BUFFER // 2
    enough = 40 if live and q.around_ns is None else n
    rows: list[Row] = []
    pace = f"log span {q.node}"
    for step in range(feed.pace(pace), len(LOG_SPANS_S)):
        span = LOG_SPANS_S[step]
        rows = await feed.session.rows("live_logs", run_id, at - span * S, at, *clocks, *asked, n, False, edge)
        if len(rows) >= (enough if step else n):
            flood = len(rows) == n and at - rows[0]["at_ns"] < LOG_SPANS_S[0] * S
            feed.set_pace(pace, 0 if flood else 1)  # of a flood the last seconds fill the buffer
            break
    if q.around_ns is None:
        return rows
    after: list[Row] = []
    begin = at if edge is not None else at + 1
    for span in LOG_SPANS_S:
        end = min(at + span * S, now_ns)
        after = await feed.session.rows("live_logs", run_id, begin, end, *clocks, *asked, n, True, edge)
        if len(after) >= n or end == now_ns:
            break
    return rows + after


async def look(view: View, feed: Feed, run_id: str, window: str, at_ns: int | None, logs: LogQuery) -> LiveView | None:
    """The run `run_id` now, or at `at_ns` of its clock. None when the store does not know it."""
    attempts = await feed.rows("live_run", run_id, tables=("runs", "attempts", "lives"))
    if not attempts:
        return None
    attempt = choose(attempts, view.attempt_id)
    clock = await feed.rows("live_clock", run_id, tables=("clock_offsets", "runs"))
    shift = {c["node"]: c["shift_ns"] for c in clock}
    clocks = clocks_of(clock)
    running = attempt["run_state"] == "running" and attempt["state"] in ("running", "planned", None)
    phases = [
        p
        for p in await feed.rows("live_phases", run_id, tables=("phases", "clock_offsets"))
        if p["attempt_id"] == attempt["attempt_id"]
    ]
    end = last_instant(attempt, phases, shift) if not running else None
    live = running and at_ns is None
    now = at_ns if at_ns is not None else end if end is not None else view.now() - shift.get("", 0)
    here = now + shift.get(attempt["node"] or "", 0)  # now on the clock of the load client's node
    until = FOREVER if live else here
    t0 = now - LOOK_BACK_S * S
    a = attempt["attempt_id"]
    begin = load_begin(phases) or t0
    span = (now - begin) / S
    step = next((s for s in TREND_STEPS_S if span / s <= 45), TREND_STEPS_S[-1])
    window = window if window == "recent" or any(p["name"] == "steady" for p in phases) else "all"
    until_recent = here if window == "recent" else until
    at = (a, window, at_ns)
    args = (a, window, until_recent)
    rows = await feed.rows("live_requests", *args, tables=("requests",), every=2, key=at)
    gaps = await feed.rows("live_itl", *args, tables=("requests",), every=feed.pace("live_itl"), key=at)
    feed.set_pace("live_itl", 5 + (gaps[0]["n"] if gaps else 0) // 40_000)
    counts = await feed.rows("live_counts", *args, tables=("requests",), every=2, key=at)
    stage = await feed.rows("live_stage", run_id, until, tables=("log_events",)) if not phases else []
    window_of = (run_id, t0, now, *clocks)
    gpus, rails, load, engine, held = await feed.together(
        Asking("live_gpus", window_of),
        Asking("live_rails", window_of),
        Asking("live_load", (a, here - LOAD_BACK_S * S, here)),
        Asking("live_engine", window_of, every=2, key=(run_id, at_ns)),
        Asking("live_gpu_processes", window_of, every=5, key=(run_id, at_ns)),
    )
    return LiveView(
        attempts=tuple(attempts),
        attempt=attempt,
        now_ns=now,
        running=running,
        phases=tuple(phases),
        gpus=with_processes(gpus, held),
        rails=worth_showing(rails, netdevs_of(view)),
        engine=engine[0] if engine else None,
        window=window,
        requests=(*rows, *gaps),
        counts=counts[0] if counts else {},
        load=tuple(load),
        trend=tuple(await feed.rows("live_trend", a, step, until, tables=("requests",), every=2, key=(*at, step))),
        trend_step_s=step,
        findings=await feed.rows("live_findings", run_id, until, tables=("findings", "gates", "log_events")),
        logs=await log_rows(feed, run_id, now, clocks, live, logs),
        nodes=tuple(await feed.rows("live_nodes", tables=("node_states", "clock_offsets"))),
        stage=stage[0] if stage else None,
        slo=slo_of(view, attempt),
    )


def last_instant(attempt: Row, phases: list[Row], shift: dict[str, int]) -> int | None:
    """The end of an attempt that is over, on the run's clock."""
    ends = [p["end_ns"] for p in phases if p["end_ns"] is not None]
    owner = shift.get("", 0)
    for key in ("ended_wall_ns", "run_ended_wall_ns"):
        if attempt[key] is not None:
            ends.append(attempt[key] - owner)
            break
    return max(ends) if ends else None
