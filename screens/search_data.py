"""The search screen's snapshot: the points of one search as the journal holds them, and the one being measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from screens.data import FOREVER, Feed, Row, View
from screens.live_data import ended, slo_of, target_requests

S = 1_000_000_000
LOAD_BACK_S = 10  # the rate of the point being measured is that of so many seconds
STATS = ("p50", "p95", "p99", "mean")
# answer -> (its letter on the ring, in words, in a word)
ANSWERS = {
    "max_within_slo": ("S", "within SLO", "SLO"),
    "max_tps": ("T", "most TPS", "TPS"),
    "max_successful": ("M", "most load", "load"),
    "max_unpreempted": ("P", "before pre-emption", "calm"),
}
METRICS = ("tpot_ms", "ttft_ms", "e2e_ms")


@dataclass(frozen=True)
class SearchView:
    """`points`: rows of `search_points` in order of work, settled ones only, each with what the table needs besides
    (`load`, `tps`, `share` within the SLO, `rings`). `step`: shown as it was after so many points; None is now."""

    run: Row
    points: tuple[Row, ...]
    settled: int  # points settled in all
    live: Row | None = None
    step: int | None = None
    case: dict[str, Any] = field(default_factory=dict)
    rules: dict[str, Any] = field(default_factory=dict)
    verdict: dict[str, Any] = field(default_factory=dict)
    why: str | None = None  # the answer for which the point at work is measured
    knee: Row | None = None  # the load behind which tokens cost most latency
    slo: dict[str, dict[str, float]] = field(default_factory=dict)
    pace: Row = field(default_factory=dict)
    nodes: tuple[Row, ...] = ()
    searches: tuple[str, ...] = ()  # run ids, newest first
    tps: str = "output_tps"
    now_ns: int = 0

    @property
    def running(self) -> bool:
        return self.run["run_state"] not in ("done", None)


def object_of(text: object) -> dict[str, Any]:
    """A JSON object that the journal keeps; {} when it is missing or no object."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def part(options: dict[str, Any], name: str) -> dict[str, Any]:
    found = options.get(name)
    return found if isinstance(found, dict) else {}


def load_of(row: Row) -> float | None:
    """What was varied: the request rate where there is one, else the concurrency."""
    rate, concurrency = row.get("request_rate"), row.get("concurrency")
    return rate if rate is not None else concurrency


def load_word(row: Row) -> str:
    """ "C 48" or "2.5/s"."""
    rate = row.get("request_rate")
    return f"{rate:g}/s" if rate is not None else f"C {row.get('concurrency')}"


def bounds_in(slo: dict[str, Any]) -> dict[str, dict[str, float]]:
    """metric -> {statistic: bound} of an SLO as a run keeps it."""
    known = {
        m: {s: float(v) for s, v in part(slo, m).items() if s in STATS and isinstance(v, int | float)} for m in METRICS
    }
    return {m: found for m, found in known.items() if found}


def bounds_of(slo: dict[str, dict[str, float]]) -> list[float | None]:
    """TTFT, TPOT and E2E bound of a single request: the loosest of the metric's statistics, so that the P95 bound is
    kept when at least 95 % of the requests keep it."""
    return [max(slo[m].values()) if slo.get(m) else None for m in ("ttft_ms", "tpot_ms", "e2e_ms")]


def rings_of(verdict: dict[str, Any], load: float | None) -> str:
    """Letters of the answers that the point at `load` gives."""
    letters = ""
    for name, (letter, *_) in ANSWERS.items():
        said = verdict.get(name)
        if isinstance(said, dict) and load is not None and load_of(said) == load:
            letters += letter
    return letters


async def chosen_run(view: View, feed: Feed) -> tuple[str | None, tuple[str, ...]]:
    """The search to show (the operator's, else the running one, else the newest) and all of them, newest first."""
    runs = [r for r in await feed.rows("runs_list", tables=("runs", "attempts")) if r["kind"] == "search"]
    ids = tuple(r["run_id"] for r in runs)
    if view.run_id in ids:
        return view.run_id, ids
    alive = [r["run_id"] for r in runs if r["state"] != "done"]
    return next(iter((*alive, *ids)), None), ids


async def look_search(view: View, feed: Feed, step: int | None) -> SearchView | None:
    """The search to show, now or as it was after `step` points. None when the store holds none."""
    run_id, ids = await chosen_run(view, feed)
    if run_id is None:
        return None
    attempts = await feed.rows("live_run", run_id, tables=("runs", "attempts", "lives"))
    if not attempts:
        return None
    run = attempts[0]
    options = object_of(run["spec"])
    case, rules, verdict, doing = (part(options, name) for name in ("case", "rules", "verdict", "step"))
    slo = bounds_in(part(options, "slo")) or slo_of(view, {"case_spec": json.dumps(case)})
    tables = ("points", "attempts", "runs", "phases")
    rows = await feed.rows("search_points", run_id, tables=tables)
    good = await feed.rows("search_goodput", run_id, *bounds_of(slo), tables=tables)
    knee = await feed.rows("search_knee", run_id, tables=tables)
    pace = await feed.rows("search_pace", run_id, tables=("points", "attempts", "lives"))
    served = {load_of(g): g for g in good}
    kind = "input_tps" if case.get("osl") == 1 else "output_tps"
    settled = [r for r in rows if r["outcome"] is not None]
    shown = settled if step is None else settled[:step]
    now = step is None or step >= len(settled)
    points = tuple(
        {
            **r,
            "key": f"point {r['ordinal']}",
            "load": load_of(r),
            "tps": r[kind],
            "share": served.get(load_of(r), {}).get("slo_share") if slo else None,
            "goodput_rps": served.get(load_of(r), {}).get("goodput_rps") if slo else None,
            "rings": rings_of(verdict, load_of(r)) if now else "",
        }
        for r in shown
    )
    view_of = SearchView(
        run=run,
        points=points,
        settled=len(settled),
        step=None if now else step,
        case=case,
        rules=rules,
        verdict=verdict,
        why=doing.get("why"),
        knee=knee[0] if knee and now else None,
        slo=slo,
        pace=pace[0] if pace else {},
        nodes=tuple(await feed.rows("live_nodes", tables=("node_states", "clock_offsets"))),
        searches=ids,
        tps=kind,
        now_ns=view.now(),
    )
    if not view_of.running or not now:
        return view_of
    return await _with_live(view_of, feed, attempts, kind)


async def _with_live(snap: SearchView, feed: Feed, attempts: Sequence[Row], kind: str) -> SearchView:
    """The same with a row of the attempt that is on."""
    on = next((a for a in reversed(attempts) if a["state"] == "running"), None)
    if on is None:
        return snap
    a = on["attempt_id"]
    phases = await feed.rows("live_phases", snap.run["run_id"], tables=("phases", "clock_offsets"))
    names = [p["name"] for p in phases if p["attempt_id"] == a]
    window = "steady" if "steady" in names else "all"
    shift = {
        c["node"]: c["shift_ns"]
        for c in await feed.rows("live_clock", snap.run["run_id"], tables=("clock_offsets", "runs"))
    }
    here = snap.now_ns - shift.get("", 0) + shift.get(on["node"] or "", 0)  # the load client's clock
    rows = await feed.rows("live_requests", a, window, FOREVER, tables=("requests",), every=2, key=(a, window))
    counts = await feed.rows("live_counts", a, window, FOREVER, tables=("requests",), every=2, key=(a, window))
    ticks = await feed.rows("live_load", a, here - LOAD_BACK_S * S, here)
    rates = [t[kind] for t in ticks if t[kind] is not None]
    live: Row = {
        **{k: on[k] for k in ("attempt_id", "concurrency", "request_rate", "repeat", "started_wall_ns")},
        **{f"{r['metric']}_{s}": r[s] for r in rows for s in (*STATS, "n")},
        "key": "live",
        "repeats": snap.rules.get("repeats"),
        "ordinal": None,
        "load": load_of(on),
        "tps": sum(rates) / len(rates) if rates else None,
        "phase": names[-1] if names else None,
        "ended": ended(counts[0]) if counts else 0,
        "target": target_requests(on),
        "rings": "",
        "share": None,
        "goodput_rps": None,
    }
    return SearchView(**{**snap.__dict__, "live": live})
