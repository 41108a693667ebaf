"""Rows of the run screen: its attempts, its commands, and the chosen attempt in words."""

from __future__ import annotations

from dataclasses import dataclass, field

from screens.data import Row
from screens.widgets.lamps import worded
from screens.widgets.table import Column
from screens.widgets.text import NONE, Line, Span, clean, line, milli, num, short, span_s, stamp

S = 1_000_000_000


@dataclass(frozen=True)
class RunView:
    run: Row
    window: str
    attempts: list[Row]
    grid: list[Row]
    commands: list[Row]
    gates: list[Row]
    notes: list[Row]
    chosen: str | None
    scatter: list[Row]
    phases: list[Row]
    gpus: Row | None = None  # of `gpu_shares`, for the chosen attempt
    rails: list[Row] = field(default_factory=list)


def _quantile(metric: str, stat: str, keep: int) -> Column:
    def cell(r: Row) -> Span:
        text = milli(r[f"{metric}_{stat}"])
        few = stat == "p99" and 0 < (r[f"{metric}_n"] or 0) < 100
        return text + ("*" if few else ""), "strong" if stat == "p50" else ""

    return Column(f"{metric.split('_')[0].upper()} {stat}", 9, cell, ">", keep=keep)


ATTEMPTS = (
    Column("#", 3, lambda r: (num(r["ordinal"]), "dim"), ">"),
    Column("case", 14, lambda r: (clean(r["case_name"], 40), "")),
    Column(
        "C", 5, lambda r: (num(r["concurrency"]) if r["request_rate"] is None else f"{r['request_rate']:g}/s", ""), ">"
    ),
    Column("rep", 3, lambda r: (num(r["repeat"]), "dim"), ">", keep=3),
    Column("outcome", 14, lambda r: worded(r["outcome"] or r["state"])),
    Column("ok", 6, lambda r: (num(r["ok"]), ""), ">", keep=6),
    Column("fail", 5, lambda r: (num(r["failed"]), "bad" if r["failed"] else "dim"), ">", keep=5),
    Column("late", 5, lambda r: (num(r["timed_out"]), "warn" if r["timed_out"] else "dim"), ">", keep=3),
    Column("in tok/s", 9, lambda r: (num(r["input_tps"], 1), ""), ">", keep=6),
    Column("out tok/s", 9, lambda r: (num(r["output_tps"], 1), "strong"), ">", keep=8),
    *(_quantile(m, stat, keep) for m in ("ttft_ms", "tpot_ms") for stat, keep in (("p50", 5), ("p95", 7), ("p99", 4))),
    _quantile("itl_ms", "p95", 3),
    _quantile("e2e_ms", "p95", 4),
    Column("window", 8, lambda r: (span_s(r["duration_s"]), "dim"), ">", keep=2),
    Column(
        "marks",
        0,
        lambda r: (", ".join(clean(f, 30) for f in r["flags"] or ()) or clean(r["detail"] or "", 100), "warn"),
        keep=1,
    ),
)


NOTHING: Row = dict.fromkeys(
    [
        *("ok", "failed", "timed_out", "cut", "input_tokens", "output_tokens", "input_tps", "output_tps", "duration_s"),
        *(f"{m}_ms_{k}" for m in ("ttft", "tpot", "itl", "e2e") for k in ("n", "p50", "p95", "p99")),
    ]
)


def _exit(r: Row) -> Span:
    if r["exit_code"] is None:
        return ("…" if r["ended_wall_ns"] is None and r["label"] == "executed" else NONE), "dim"
    return num(r["exit_code"]), "bad" if r["exit_code"] else "dim"


COMMANDS = (
    Column("began", 8, lambda r: (stamp(r["started_wall_ns"]), "dim"), keep=3),
    Column("purpose", 8, lambda r: (clean(r["purpose"], 20), "")),
    Column("label", 9, lambda r: (clean(r["label"], 20), "warn" if r["label"] == "planned" else "dim"), keep=5),
    Column("node", 8, lambda r: (clean(r["node"] or NONE, 30), "dim"), keep=4),
    Column("exit", 4, _exit, ">", keep=6),
    Column("command", 0, lambda r: (clean(r["text"], 400), "")),
)


def _hardware(snap: RunView) -> list[Line]:
    """How much of its GPUs, PCIe and rails the chosen attempt used."""
    lines: list[Line] = []
    if (g := snap.gpus) is not None:
        low = f"{num(g['least_pct'])} % on {clean(g['least_gpu'] or NONE, 40)}"
        said = f"{g['gpus']} busy {num(g['util_pct'], 1)} %, least {low}, PCIe {num(g['pcie_pct'], 1)} % of line"
        lines.append(line(("GPUs     ", "dim"), said))
    for r in snap.rails:
        said = (
            f"{clean(r['node'], 30)} {clean(r['device'], 20)} tx {num(r['tx_gbs'], 2)} rx {num(r['rx_gbs'], 2)} GB/s, "
        )
        said += f"{num(r['line_pct'], 1)} % of line, {num(r['node_pct'])} % of the node"
        lines.append(line(("rail     ", "dim"), said))
    return lines


def summary(snap: RunView) -> list[Line]:
    """The chosen attempt in words: phases, counts, tokens; then gates that need a look and notes."""
    lines: list[Line] = []
    a = next((a for a in snap.attempts if a["attempt_id"] == snap.chosen), None)
    if a is not None:
        lines.append(
            line((clean(a["case_name"], 40), "strong"), f" repeat {a['repeat']}  ", worded(a["outcome"] or a["state"]))
        )
        if a["detail"]:
            lines.append(line((clean(a["detail"], 300), "warn")))
        took = " ".join(
            f"{p['name']} {span_s((p['end_ns'] - p['start_ns']) / S)}"
            for p in snap.phases
            if p["end_ns"] is not None and p["start_ns"] is not None
        )
        lines.append(line(("phases   ", "dim"), took or NONE))
        lines.append(
            line(
                ("requests ", "dim"),
                f"ok {num(a['ok'])}  failed {num(a['failed'])}  late {num(a['timed_out'])}  cut {num(a['cut'])}",
            )
        )
        lines.append(
            line(
                ("tokens   ", "dim"),
                f"in {short(a['input_tokens'])}  out {short(a['output_tokens'])}, counted in window {snap.window}",
            )
        )
        lines.append(
            line(
                ("client   ", "dim"),
                f"{clean(a['client'], 30)} on {clean(a['node'] or NONE, 30)}, life {clean(a['life_id'] or NONE, 40)}",
            )
        )
        lines += _hardware(snap)
        errors = sorted({clean(r["error"], 60) for r in snap.scatter if r["error"]})
        if errors:
            lines.append(line(("errors   ", "dim"), (", ".join(errors[:6]), "bad")))
    lines += [
        line(
            worded(g["status"]),
            f" gate {clean(g['name'], 40)} {clean(g['node'] or '', 30)}: {clean(g['detail'] or '', 200)}",
        )
        for g in snap.gates
        if g["status"] not in ("pass", "not_applicable")
    ]
    lines += [
        line((f"note {stamp(n['wall_ns'], '%H:%M')} {clean(n['who'], 20)}: ", "dim"), clean(n["text"], 300))
        for n in snap.notes[-5:]
    ]
    return lines
