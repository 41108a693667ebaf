"""What home lists, made from the configuration and the store: nodes, deployments, cases, runs, how far plans are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from runners.spec import Case, ConfigError, Inventory
from screens.data import Row
from screens.widgets.lamps import lamp, worded
from screens.widgets.table import Column
from screens.widgets.text import NONE, Span, ago, clean, milli, num, stamp

S = 1_000_000_000
BUILT_IN = "first-round"


@dataclass(frozen=True)
class HomeView:
    nodes: tuple[Row, ...]
    deployments: tuple[Row, ...]
    cases: tuple[Row, ...]
    runs: tuple[Row, ...]
    history: tuple[Row, ...]
    now_ns: int
    plans: tuple[Progress, ...] = ()


@dataclass(frozen=True)
class Progress:
    """How far a plan is on its deployment: cases with a measured attempt, of how many; the first one without."""

    plan: str
    deployment: str
    measured: int
    cases: int
    next_case: str | None


MEASURED = frozenset({"OK", "TTFT_SLO_EXCEEDED", "TPOT_SLO_EXCEEDED", "SLO_EXCEEDED"})  # carried through


def progress_of(config: Inventory, history: Iterable[Row]) -> tuple[Progress, ...]:
    """Of every plan whose deployment is known, the operator's own first."""
    done = {(h["deployment"], h["case_name"]) for h in history if h["last_outcome"] in MEASURED}
    found = []
    for p in sorted(config.plans.values(), key=lambda p: p.name == BUILT_IN):
        dep = p.deployment or (next(iter(config.deployments)) if len(config.deployments) == 1 else None)
        labels = [c.label for name in p.cases for c in known_cases(config, name)]
        if dep is None or not labels:
            continue
        open_ = [label for label in labels if (dep, label) not in done]
        found.append(Progress(p.name, dep, len(labels) - len(open_), len(labels), open_[0] if open_ else None))
    return tuple(found)


def known_cases(config: Inventory, name: str) -> list[Case]:
    """Cases of a name; none for a name that is wrong, which the plan screen tells."""
    try:
        return config.case(name)
    except ConfigError:
        return []


def case_rows(config: Inventory, history: Iterable[Row]) -> tuple[Row, ...]:
    """What can be started: plans, then cases one by one, each with how it ended last. Nothing without a deployment."""
    if not config.deployments:
        return ()
    last: dict[tuple[str, int | None], Row] = {}
    for h in history:
        key = (h["case_name"], h["concurrency"])
        if key not in last or (h["last_ended_wall_ns"] or 0) > (last[key]["last_ended_wall_ns"] or 0):
            last[key] = h
    rows: list[Row] = [
        {
            "name": p.name,
            "kind": "plan",
            "what": f"{len(p.cases)} cases x {p.repeats}" + (f" on {p.deployment}" if p.deployment else ""),
            "last": None,
        }
        for p in sorted(config.plans.values(), key=lambda p: p.name == BUILT_IN)
    ]
    rows += [
        {"name": s.name, "kind": "sweep", "what": f"{s.vary} in {len(s.values)} steps x {s.repeats}", "last": None}
        for s in config.sweeps.values()
    ]
    for group in config.cases.values():
        for c in group:
            pace = f"rate {c.request_rate:g}/s" if c.request_rate else f"C {c.concurrency}"
            what = f"{c.isl}/{c.osl}  {pace}" + (f"  SLO {c.slo}" if c.slo else "")
            past = last.get((c.label, c.concurrency)) or last.get((c.name, c.concurrency))
            rows.append({"name": c.label, "kind": "case", "what": what, "last": past["last_outcome"] if past else None})
    return tuple(rows)


def node_rows(config: Inventory, states: Iterable[Row]) -> tuple[Row, ...]:
    """Configured nodes with how they are seen, and seen ones that are not configured."""
    seen = {s["node"]: s for s in states}
    nothing = {"state": None, "detail": None, "rtt_ms": None, "offset_ns": None, "error_ns": None, "wall_ns": None}
    rows = [
        {
            "node": n.name,
            "host": n.host,
            "devices": n.devices.count,
            "rails": len(n.rails),
            **nothing,
            **seen.pop(n.name, {}),
        }
        for n in config.nodes
    ]
    return (*rows, *({"host": "", "devices": None, "rails": None, **s} for s in seen.values()))


def deployment_rows(config: Inventory, known: Iterable[Row]) -> tuple[Row, ...]:
    seen = {d["deployment"]: d for d in known}
    nothing = dict.fromkeys(
        (
            "life_id",
            "state",
            "life_outcome",
            "life_detail",
            "version",
            "outcome",
            "case_name",
            "concurrency",
            "attempt_id",
            "result_wall_ns",
            "started_wall_ns",
            "run_id",
        )
    )
    rows: list[Row] = []
    for d in config.deployments.values():
        t = d.topology
        shape = (
            f"TP{t.tp}"
            + (f" PP{t.pp}" if t.pp > 1 else "")
            + (f" DP{t.dp}" if t.dp > 1 else "")
            + (f" EP{t.ep}" if t.ep > 1 else "")
        )
        found = seen.pop(d.name, nothing)
        rows.append({**nothing, **found, "deployment": d.name, "what": f"{d.engine} {shape}", "asked_engine": d.engine})
    return (*rows, *({**nothing, **d, "what": d["engine"] or "", "asked_engine": d["engine"]} for d in seen.values()))


def result_cell(r: Row) -> Span:
    """The last finished attempt: its case, output rate and P95 of TPOT by its window, and what ended it if not OK."""
    if r["outcome"] is None:
        return NONE, "dim"
    sign, role = lamp(r["outcome"])
    word = "" if r["outcome"] == "OK" else f" {r['outcome'].replace('_', ' ')}"
    result = r.get("result")
    figures = ""
    if result and result["output_tps"] is not None:
        figures = f" {num(result['output_tps'], 1)} tok/s {r['window']}, TPOT p95 {milli(result['tpot_ms_p95'])}"
    return f"{sign} {clean(r['case_name'], 24)}{figures}{word}", role if r["outcome"] != "OK" else ""


def node_why(r: Row) -> Span:
    if r["state"] == "up":
        clock = (
            ""
            if r["offset_ns"] is None
            else f"  clock {r['offset_ns'] / 1e6:+.1f} ±{(r['error_ns'] or 0) / 1e6:.1f} ms"
        )
        rtt = "" if r["rtt_ms"] is None else f"rtt {r['rtt_ms']:.1f} ms"
        return f"{rtt}{clock}  {clean(r['detail'] or '', 100)}".strip(), "dim"
    if r["state"] is None:
        return "not asked yet: check or a run connects", "dim"
    if r["state"] == "closed":
        return "not connected: nothing of ours needs it now; check or a run connects", "dim"
    return clean(r["detail"] or "", 200), "warn"


def run_columns(now: Any) -> tuple[Column, ...]:
    """Columns of a list of runs; `now` gives the owner's clock in ns."""
    return (
        Column("run", 26, lambda r: (clean(r["run_id"], 60), "")),
        Column("kind", 8, lambda r: (clean(r["plan"] or r["kind"], 30), "dim"), keep=4),
        Column("deployment", 12, lambda r: (clean(r["deployment"] or NONE, 40), "dim"), keep=3),
        Column("outcome", 14, lambda r: worded(r["outcome"] or r["state"])),
        Column("attempts", 8, _attempts, ">", keep=5),
        Column("began UTC", 12, lambda r: (stamp(r["created_wall_ns"], "%m-%d %H:%M"), "dim"), keep=2),
        Column("ago", 7, lambda r: (ago((now() - r["created_wall_ns"]) / S), "dim"), ">", keep=6),
        Column("why", 0, lambda r: (clean(r["detail"] or r["why"] or "", 200), "dim"), keep=1),
    )


def _attempts(r: Row) -> Span:
    bad = r["attempts_not_ok"]
    return f"{r['attempts_done']}/{r['attempts']}" + (f" ✖{bad}" if bad else ""), "warn" if bad else ""
