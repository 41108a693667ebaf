"""A run as one JSON document (`run`, `demo`, `show --json`), from named queries alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from store.analysis.statistics import BAR
from store.errors import StoreError
from store.export.hardware import hardware_part
from store.export.reader import STATS, Reader
from store.export.search import search_part
from store.export.watch import watch_part
from store.queries import call

LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "itl_per_token_ms", "e2e_ms")
RATES = ("input_tps", "output_tps", "total_tps", "request_rate")


def window_document(row: Mapping[str, Any] | None) -> dict[str, Any]:
    """One row of `attempt_metrics` as JSON; every figure null for a window that is not there."""
    get = (row or {}).get
    return {
        "requests": {k: get(k) for k in ("ok", "failed", "timed_out", "cut")},
        "tokens": {"input": get("input_tokens"), "output": get("output_tokens")},
        "duration_s": get("duration_s"),
        **{k: get(k) for k in RATES},
        **{m: {s: get(f"{m}_{s}") for s in STATS} for m in LATENCIES},
    }


def attempt_windows(reader: Reader, attempt_id: str) -> dict[str, dict[str, Any]]:
    """Window name -> its document, of one attempt. A window that was never reached is left out."""
    rows = reader.query(call("attempt_metrics", attempt_id)).dicts()
    return {r["window"]: window_document(r) for r in rows if r["start_ns"] is not None}


def run_document(reader: Reader, run_id: str) -> dict[str, Any]:
    """The whole run; void attempts (cut by a crash on our side and repeated) are left out. A search has more keys.

    Raises:
        StoreError: no such run.
    """
    runs = reader.query(call("run_row", run_id)).dicts()
    if not runs:
        raise StoreError(f"no run is called {run_id!r}; `twinrail runs` lists them")
    run = runs[0]
    figures: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in reader.query(call("run_metrics", run_id)).dicts():
        figures.setdefault(row["attempt_id"], {})[row["window"]] = row
    marks: dict[str, list[str]] = {}
    for row in reader.query(call("alert_flags", run_id)).dicts():
        marks.setdefault(row["attempt_id"], []).append(row["flag"])
    hardware = hardware_part(reader, run_id)
    cases: dict[str, dict[str, Any]] = {}
    for a in reader.query(call("run_attempts", run_id)).dicts():
        if a["state"] == "void":
            continue
        case = cases.setdefault(a["case_name"], _case(a))
        attempt = _attempt(a, figures.get(a["attempt_id"], {}), marks.get(a["attempt_id"], []))
        case["attempts"].append({**attempt, "hardware": hardware.get(a["attempt_id"])})
    for row in reader.query(call("run_spread", run_id)).dicts():
        cases[row["case_name"]].update(_spread(row))
    return {
        "run_id": run_id,
        "simulated": run["simulated"],
        "state": run["state"],
        "outcome": run["outcome"],
        "detail": run["detail"],
        "deployment": run["deployment"],
        **_asked(run),
        "cases": list(cases.values()),
        **(search_part(reader, run) if run["kind"] == "search" else {}),
        **(watch_part(reader, run) if run["kind"] == "watch" else {}),
    }


def _asked(run: Mapping[str, Any]) -> dict[str, Any]:
    """What was said at the start: what changes, why that should matter, the expected effect, and how cases vary."""
    try:
        said = json.loads(run["spec"] or "{}")
    except ValueError:
        said = {}
    return {"why": run["why"], **{k: said.get(k) for k in ("changes", "expects", "vary")}}


def _case(attempt: Mapping[str, Any]) -> dict[str, Any]:
    names = {"case": "case_name", "isl": "isl", "osl": "osl", "concurrency": "concurrency"}
    known = {**{k: attempt[v] for k, v in names.items()}, "request_rate": attempt["request_rate"]}
    return {**known, **_spread({}), "attempts": []}


def _spread(row: Mapping[str, Any]) -> dict[str, Any]:
    """How far the repeats of a case agree, over all that were carried through; `unstable`: above the bar of 3 %, with
    the likely why in words; null for fewer than two."""
    spread = row.get("spread_pct")
    unstable = None if spread is None else spread > 100 * BAR
    return {
        "mean_tps": row.get("mean_tps"),
        "spread_pct": spread,
        "unstable": unstable,
        "unstable_why": list(row.get("why") or []) if unstable else [],
    }


def _attempt(attempt: Mapping[str, Any], windows: Mapping[str, Mapping[str, Any]], marks: list[str]) -> dict[str, Any]:
    steady = windows.get("steady")
    return {
        "attempt": attempt["repeat"],
        "attempt_id": attempt["attempt_id"],
        "life": attempt["life_id"],
        "outcome": attempt["outcome"],
        "detail": attempt["detail"],
        "window": "steady",
        **window_document(steady if steady and steady["start_ns"] is not None else None),
        "all": window_document(windows.get("all")),
        "flags": list(dict.fromkeys([*(attempt["flags"] or []), *marks])),
    }
