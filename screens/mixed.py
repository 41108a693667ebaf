"""Interference: what long prefills do to a steady decode: before, during, after, and how soon it recovers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from screens.base import Command, ConsoleScreen, Go
from screens.data import Row, View
from screens.live_bar import node_lamps
from screens.mixed_data import MixedView, look_mixed
from screens.widgets.bars import Ends
from screens.widgets.chart import Chart, Plot, Series
from screens.widgets.injections import Injections, Span
from screens.widgets.lamps import worded
from screens.widgets.table import Column, Table
from screens.widgets.text import NONE, clean, milli, num, span_s
from screens.widgets.text import Span as Text

S = 1_000_000_000
ENDS = ("sent_ns", "first_ns", "end_ns")
NONE_YET = "no attempt with injected prefills yet"
EMPTY = f"{NONE_YET}\n\nM1 on the plan screen (4), or in a shell:\ntwinrail run M1"


def _window(name: str, keep: int) -> Column:
    metric, _, stat = name.rpartition("_")
    head = f"{metric.removesuffix('_ms').upper()} {stat}"

    def cell(r: Row) -> Text:
        few = stat == "p99" and 0 < (r.get(f"{metric}_n") or 0) < 100
        return milli(r[name]) + ("*" if few else ""), "strong" if stat == "p95" else ""

    return Column(head, 9, cell, ">", keep=keep)


WINDOWS = (
    Column("window", 7, lambda r: (r["window"], "strong")),
    Column("long", 7, lambda r: (span_s(r["duration_s"]), "dim"), ">", keep=5),
    *(_window(f"tpot_ms_{s}", k) for s, k in (("p50", 7), ("p95", 9), ("p99", 6))),
    *(_window(f"itl_ms_{s}", k) for s, k in (("p50", 4), ("p95", 8), ("p99", 5), ("max", 3))),
    Column("out tok/s", 9, lambda r: (num(r["output_tps"], 1), "strong"), ">", keep=9),
    Column("gaps", 0, lambda r: (num(r["itl_ms_n"]), "dim"), keep=1),
)


def _ended(r: Row) -> Text:
    if r["end_ns"] is None:
        return "◐ running", "accent"
    return ("● ok", "ok") if r["status"] == "ok" else (f"✖ {clean(r['error'] or r['status'], 20)}", "bad")


def _recovery(r: Row) -> Text:
    if r["end_ns"] is None:
        return "", ""
    return (f"{r['recovery_s']:.0f} s", "") if r["recovery_s"] is not None else ("▲ not in time", "warn")


INJECTED = (
    Column("#", 2, lambda r: (num(r["number"]), "dim"), ">"),
    Column("tokens", 7, lambda r: (num(r["prompt_tokens"]), ""), ">", keep=5),
    Column("ended", 9, _ended),
    Column("TTFT ms", 8, lambda r: (milli(r["ttft_ms"]), "strong"), ">"),
    Column("recovered", 13, _recovery, keep=8),
    Column("queue", 5, lambda r: (num(r["waiting"]), "warn" if r["waiting"] else ""), ">", keep=6),
    Column("chunks", 6, lambda r: (num(r["chunks"]), "dim"), ">", keep=3),
    Column("", 0, lambda r: ("", "")),
)


def injected(i: Row, begin_ns: int) -> Span:
    """Where one long request lies on the charts' axis."""
    sent, first, ended = ((i[k] - begin_ns) / S if i[k] is not None else None for k in ENDS)
    return Span(sent, first, ended, i["number"])


class MixedScreen(ConsoleScreen):
    PLACE = "mixed"
    KEY = "g i"
    ABOUT = "interference: long prefills in a steady decode"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket", "other(-1)", "attempt before"),
        Binding("right_square_bracket", "other(1)", "attempt after"),
        Binding("l", "live", "this attempt on the live screen"),
    ]

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.snapshot: MixedView | None = None

    def body(self) -> ComposeResult:
        yield Chart("gaps", empty=EMPTY, ident="gaps")
        yield Injections(ident="injections")
        yield Chart("tok/s", empty="throughput appears with the first tokens", ident="mixed-tps")
        with Horizontal(id="mixed-lower"):
            yield Table(
                "before, during, after", WINDOWS, key="window", empty="windows come with steady", ident="windows"
            )
            yield Table(
                "injected   enter: what happened then",
                INJECTED,
                key="number",
                empty="nothing was injected yet",
                ident="injected",
            )

    async def fetch(self) -> MixedView | None:
        return await look_mixed(self.view, self.feed)

    def apply(self, snapshot: MixedView) -> None:
        snap = snapshot
        xs = [(r["at_ns"] - snap.begin_ns) / S + snap.step_ms / 2000 for r in snap.timeline]
        ends = [i["end_ns"] or i["sent_ns"] for i in snap.injections if i["sent_ns"] is not None]
        span = max([*xs, *((e - snap.begin_ns) / S for e in ends), 1.0])
        marks = tuple(
            ((i["sent_ns"] - snap.begin_ns) / S, f"#{i['number']}") for i in snap.injections if i["sent_ns"] is not None
        )
        bounds = tuple((v, f"SLO {k}") for k, v in snap.slo.get("itl_ms", snap.slo.get("tpot_ms", {})).items())
        step = f"{snap.step_ms} ms" if snap.step_ms < 1000 else f"{snap.step_ms // 1000} s"
        gaps = self.query_one("#gaps", Chart)
        ended = ", of requests that have ended" if snap.running else ""
        gaps.title = f"decode: gaps between chunks ms, by {step}{ended}"
        curves = (("p50", "one", "itl_p50"), ("p95", "two", "itl_p95"), ("max", "dim", "itl_max"))
        series = [Series(n, role, xs, [r[key] for r in snap.timeline]) for n, role, key in curves]
        gaps.show(Plot(series, 0.0, span, marks, bounds, origin_ns=snap.origin_ns) if xs else None)
        rate = self.query_one("#mixed-tps", Chart)
        rate.title = "decode: output tok/s"
        series = [Series("out", "one", xs, [r["output_tps"] for r in snap.timeline])]
        rate.show(Plot(series, 0.0, span, marks, origin_ns=snap.origin_ns) if xs else None)
        strip = self.query_one(Injections)
        strip.place(span, gaps.margin)
        strip.show(tuple(injected(i, snap.begin_ns) for i in snap.injections if i["sent_ns"] is not None))
        self.query_one("#windows", Table).show(list(snap.windows))
        self.query_one("#injected", Table).show(list(snap.injections))

    def place_panels(self, width: int, height: int) -> None:
        snap = self.snapshot
        narrow = width < 110
        lower = min(max(6, 2 + (len(snap.injections) if snap else 1)), max(height // 3, 6))
        below = (6 + min(lower, height // 4)) if narrow else lower
        charts = max(height - below - 1, 4)
        second = charts // 2 if charts >= 14 else 0
        self.height_of(self.query_one("#gaps"), charts - second)
        self.height_of(self.query_one(Injections), 1)
        self.height_of(self.query_one("#mixed-tps"), second)
        self.query_one("#mixed-lower").set_class(narrow, "-stacked")
        self.height_of(self.query_one("#mixed-lower"), below)
        self.height_of(self.query_one("#windows"), min(6, below) if narrow else below)
        self.height_of(self.query_one("#injected"), below - 6 if narrow else below)

    def headline(self) -> Ends:
        snap = self.snapshot
        if snap is None:
            return self.heading((("interference  ", ""), (NONE_YET, "dim")))
        a, inject = snap.attempt, snap.inject
        long = f"{num(inject.get('isl'))}-token prefills" if isinstance(inject.get("isl"), int) else "long prefills"
        at = snap.attempts.index(a["attempt_id"]) + 1
        lamps = node_lamps(snap.nodes, False) if snap.running else []
        return self.heading(
            (
                (clean(a["case_name"], 30), "strong"),
                (f"  isl {num(a['isl'])} osl {num(a['osl'])} C {num(a['concurrency'])} + {long}  ", "dim"),
                worded(a["outcome"] or a["state"]),
                (f"  {clean(a['detail'] or '', 80)}", "dim"),
            ),
            (
                *lamps,
                (
                    f"{at}/{len(snap.attempts)}  {clean(a['run_id'], 60)} on {clean(a['deployment'] or NONE, 30)} ",
                    "dim",
                ),
            ),
        )

    # --- actions

    @on(Chart.Here)
    def _of_this_attempt(self) -> None:
        self._choose()

    def _choose(self) -> None:
        if self.snapshot is not None:
            a = self.snapshot.attempt
            self.view.run_id, self.view.attempt_id = a["run_id"], a["attempt_id"]

    @on(Table.Chosen, "#injected")
    def _injected(self, event: Table.Chosen) -> None:
        if event.row["sent_wall_ns"] is not None:
            self._choose()
            self.post_message(Chart.Here(event.row["sent_wall_ns"]))

    def action_other(self, by: int) -> None:
        snap = self.snapshot
        if snap is not None:
            at = snap.attempts.index(snap.attempt["attempt_id"]) + by
            self.view.attempt_id = snap.attempts[min(max(at, 0), len(snap.attempts) - 1)]
            self.view.run_id = snap.runs[min(max(at, 0), len(snap.attempts) - 1)]
            self.poke()

    def action_live(self) -> None:
        if self.snapshot is not None:
            a = self.snapshot.attempt
            self.post_message(Go("live", run_id=a["run_id"], attempt_id=a["attempt_id"]))

    def commands(self) -> Iterable[Command]:
        if self.snapshot is not None:
            yield Command("interference: live or replay", "this attempt on the live screen", self.action_live)
