"""The table of a search: a row a point."""

from __future__ import annotations

from screens.data import Row
from screens.widgets.lamps import lamp, worded
from screens.widgets.table import Column
from screens.widgets.text import NONE, Span, clean, milli, num

WORDS = {
    "OK": "OK",
    "TTFT_SLO_EXCEEDED": "TTFT over SLO",
    "TPOT_SLO_EXCEEDED": "TPOT over SLO",
    "SLO_EXCEEDED": "over SLO",
    "ENGINE_CRASH": "engine crash",
}


def outcome_cell(r: Row) -> Span:
    if r["key"] == "live":
        return f"◐ {clean(r['phase'] or 'starting', 12)} {r['ended']}/{num(r['target'])}", "accent"
    said = WORDS.get(r["outcome"])
    return (f"{lamp(r['outcome'])[0]} {said}", lamp(r["outcome"])[1]) if said else worded(r["outcome"])


def load_cell(r: Row) -> Span:
    rate = r.get("request_rate")
    return f"{rate:g}/s" if rate is not None else num(r.get("concurrency")), "accent" if r.get(
        "key"
    ) == "live" else "strong"


def spread_cell(r: Row) -> Span:
    if r["key"] == "live":
        return "10 s", "dim"
    return (NONE if r["spread_pct"] is None else f"±{r['spread_pct']:.1f}%"), "dim"


def _figure(name: str) -> Column:
    metric, _, stat = name.rpartition("_")
    head = f"{metric.removesuffix('_ms').upper()} {stat}"

    def cell(r: Row) -> Span:
        few = stat == "p99" and 0 < (r.get(f"{metric}_n") or 0) < 100
        return milli(r.get(name)) + ("*" if few else ""), "dim" if r["key"] == "live" else ""

    return Column(head, 8, cell, ">", keep=8 if stat == "p95" else 2)


def share_cell(r: Row) -> Span:
    share = r["share"]
    return num(None if share is None else 100 * share, 1), "warn" if share is not None and share < 0.95 else ""


def _repeats(r: Row) -> Span:
    return (f"{r['repeat']}/{num(r['repeats'])}" if r["key"] == "live" else num(r["repeats"])), "dim"


COLUMNS = (
    Column("#", 3, lambda r: (num(r["ordinal"]), "dim"), ">", keep=3),
    Column("load", 5, load_cell, ">"),
    Column("", 5, lambda r: (f"({r['rings']})" if r["rings"] else "", "strong"), keep=8),
    Column("outcome", 15, outcome_cell),
    Column("tok/s", 8, lambda r: (num(r["tps"], 1), "dim" if r["key"] == "live" else "strong"), ">"),
    Column("±", 6, spread_cell, ">", keep=7),
    _figure("ttft_ms_p95"),
    _figure("tpot_ms_p95"),
    Column("SLO %", 6, share_cell, ">", keep=6),
    Column("good/s", 6, lambda r: (num(r["goodput_rps"], 2), "dim"), ">", keep=4),
    Column("rep", 3, _repeats, ">", keep=5),
    _figure("ttft_ms_p50"),
    _figure("tpot_ms_p50"),
    _figure("ttft_ms_p99"),
    _figure("tpot_ms_p99"),
    Column("hits %", 6, lambda r: (percent(r.get("prefix_hit_share")), "dim"), ">", keep=3),
    Column("why", 0, lambda r: (clean(r.get("detail") or "", 300), "dim"), keep=1),
)


def percent(share: float | None) -> str:
    return num(None if share is None else 100 * share, 1)
