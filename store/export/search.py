"""What a search adds to its run's document: the points, what stopped the climb, the three answers."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from store.export.reader import STATS, Reader
from store.queries import call

if TYPE_CHECKING:
    from store.database import Table

ANSWERS = ("max_successful", "max_tps", "max_within_slo")
_FIGURES = ("repeats", "input_tps", "output_tps", "spread_pct", "within_slo", "prefix_hit_share")
_ENGINE = ("waiting", "running_top", "kv_top", "preempted")


def search_part(reader: Reader, run: Mapping[str, Any]) -> dict[str, Any]:
    """Keys for the document of a search run. Points come in order of work; TPS in tokens/s, times in ms.

    An answer is {concurrency, input_tps, output_tps, bounded_by, above}: what limits it, and the next concurrency tried
    for which it no longer holds (null: none was tried, the climb's stop bounds it).
    """
    options = orjson.loads(run["spec"] or "{}")
    said = options.get("verdict") or {}
    rows = reader.query(call("search_points", run["run_id"])).dicts()
    engine = _engine(reader.query(call("search_repeats", [a for r in rows for a in r["attempts"] or []])))
    goodput = reader.query(call("search_goodput", run["run_id"], *_bounds(options.get("slo") or {}))).dicts()
    good = {_load(r): r for r in goodput}
    points = [{**_point(r, engine.get(_load(r), {})), **_good(good.get(_load(r)), options.get("slo"))} for r in rows]
    knees = reader.query(call("search_knee", run["run_id"])).dicts()
    known = {_load(p): p for p in points}
    case = options.get("case") or {}
    return {
        "search": {
            **{k: case.get(k) for k in ("name", "isl", "osl", "slo")},
            "tps": "input_tps" if case.get("osl") == 1 else "output_tps",
            **(options.get("rules") or {}),
            "spread_pct": _percent(said.get("spread")),
            "tolerance_pct": _percent(said.get("tolerance")),
        },
        "points": points,
        # A search that was cut before anything stopped its climb was stopped by what cut it.
        "stopped": said.get("stopped") or (None if run["outcome"] == "OK" else run["outcome"]),
        "stopped_detail": said.get("detail") or (None if run["outcome"] == "OK" else run["detail"]),
        "answers": {name: _answer(said.get(name), known) for name in ANSWERS},
        "knee": {k: knees[0][k] for k in ("concurrency", "request_rate", "p95_ms")} if knees else None,
        **({"max_unpreempted": _answer(said["max_unpreempted"], known)} if said.get("max_unpreempted") else {}),
    }


def _bounds(slo: Mapping[str, Any]) -> list[float | None]:
    """What one request must keep of an SLO, in ms: the loosest of a metric's statistics, so that a P95 bound is kept
    when at least 95 % of the requests keep it."""
    known = [[v for v in (slo.get(m) or {}).values() if v is not None] for m in ("ttft_ms", "tpot_ms", "e2e_ms")]
    return [max(values, default=None) for values in known]


def _good(row: Mapping[str, Any] | None, slo: Any) -> dict[str, Any]:
    """Requests/s of a point; without an SLO every request is within it, which says nothing: null."""
    known = row or {}
    within = {k: known.get(k) if slo else None for k in ("slo_share", "goodput_rps")}
    return {"served_rps": known.get("served_rps"), **within}


def _point(row: Mapping[str, Any], engine: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{k: row[k] for k in ("ordinal", "concurrency", "request_rate", "outcome", "detail", *_FIGURES)},
        **{k: engine.get(k) for k in _ENGINE},
        **{m: {s: row[f"{m}_{s}"] for s in STATS} for m in ("ttft_ms", "tpot_ms", "e2e_ms")},
        "attempts": row["attempts"] or [],
    }


def _load(row: Mapping[str, Any]) -> float | None:
    """Concurrency, or requests/s in a search by rate."""
    rate = row.get("request_rate")
    return row["concurrency"] if rate is None else float(rate)


def _engine(table: Table) -> dict[float | None, dict[str, Any]]:
    """Load -> what the engine showed, the highest of its repeats."""
    out: dict[float | None, dict[str, Any]] = {}
    for row in table.dicts():
        mine = out.setdefault(_load(row), {})
        for key in _ENGINE:
            if row[key] is not None:
                mine[key] = max(row[key], mine.get(key, row[key]))
    return out


def _answer(said: Mapping[str, Any] | None, points: Mapping[float | None, Mapping[str, Any]]) -> dict[str, Any] | None:
    if not said or _load(said) not in points:
        return None
    point = points[_load(said)]
    return {**{k: point[k] for k in ("concurrency", "request_rate", "input_tps", "output_tps")}, **said}


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def points_text(document: Mapping[str, Any]) -> str:
    """The points of a search's document as CSV, by concurrency; `answers` names those that a point gives. An empty
    cell is a figure that is not known."""
    stats = [(m, s) for m in ("ttft_ms", "tpot_ms", "e2e_ms") for s in STATS]
    plain = ("ordinal", "concurrency", "request_rate", "outcome", *_FIGURES, *_ENGINE)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["run_id", *plain, *(f"{m}_{s}" for m, s in stats), "answers", "detail", "simulated"])
    for p in sorted(document["points"], key=lambda p: _load(p) or 0):
        answers = [n for n, a in document["answers"].items() if a and _load(a) == _load(p)]
        figures = [*(p[k] for k in plain), *(p[m][s] for m, s in stats)]
        row = [document["run_id"], *figures, " ".join(answers), p["detail"], document["simulated"]]
        writer.writerow(["" if v is None else v for v in row])
    return out.getvalue()
