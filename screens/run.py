"""Run: every attempt with its windows, then requests, phases and commands of the chosen one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from screens.base import Command, ConsoleScreen, Go
from screens.data import Row, View
from screens.dialogs import Ask, Reader
from screens.metrics import Metrics
from screens.widgets.bars import Ends, TextPanel
from screens.widgets.chart import Chart, Plot, Series
from screens.widgets.lamps import worded
from screens.widgets.table import Column, Table
from screens.widgets.text import NONE, Line, Span, clean, line, milli, num, short, span_s, stamp

S = 1_000_000_000


@dataclass(frozen=True)
class RunView:
    run: Row
    window: str
    attempts: list[Row]
    commands: list[Row]
    gates: list[Row]
    notes: list[Row]
    chosen: str | None
    scatter: list[Row]
    phases: list[Row]


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


_NOTHING: Row = dict.fromkeys(
    [
        *("ok", "failed", "timed_out", "cut", "input_tokens", "output_tokens", "input_tps", "output_tps", "duration_s"),
        *(f"{m}_ms_{k}" for m in ("ttft", "tpot", "itl", "e2e") for k in ("n", "p50", "p95", "p99")),
    ]
)


class RunScreen(ConsoleScreen):
    PLACE = "run"
    KEY = "g r"
    ABOUT = "one run: attempts, requests, commands"
    PERIOD_S = 2.0
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "window", "window: steady or all"),
        Binding("l", "live", "show this attempt on the live screen, or replay it"),
        Binding("m", "metric", "scatter: TTFT, TPOT or E2E"),
        Binding("n", "note", "write a note"),
    ]

    window = "steady"
    metric = "ttft_ms"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.metrics = Metrics(self.feed)

    def body(self) -> ComposeResult:
        yield Table("attempts", ATTEMPTS, key="attempt_id", empty="no attempt yet", ident="attempts")
        with Horizontal(id="run-middle"):
            yield Chart("requests", empty="requests appear when they end", ident="scatter")
            yield TextPanel("summary", ident="summary")
        yield Table(
            "commands   enter reads one",
            (
                Column("began", 8, lambda r: (stamp(r["started_wall_ns"]), "dim"), keep=3),
                Column("purpose", 8, lambda r: (clean(r["purpose"], 20), "")),
                Column(
                    "label", 9, lambda r: (clean(r["label"], 20), "warn" if r["label"] == "planned" else "dim"), keep=5
                ),
                Column("node", 8, lambda r: (clean(r["node"] or NONE, 30), "dim"), keep=4),
                Column("exit", 4, _exit, ">", keep=6),
                Column("command", 0, lambda r: (clean(r["text"], 400), "")),
            ),
            key="command_id",
            empty="no command was recorded",
            ident="commands",
        )

    def on_mount(self) -> None:
        self.query_one("#attempts", Table).focus()

    async def fetch(self) -> RunView | None:
        runs = await self.feed.rows("runs_list", tables=("runs", "attempts"))
        wanted = [r for r in runs if r["run_id"] == self.view.run_id] or runs[:1]
        if not wanted:
            return None
        run = wanted[0]
        rid = run["run_id"]
        rows = await self.feed.rows("live_run", rid, tables=("runs", "attempts", "lives"))
        asked = [r for r in rows if r["attempt_id"] is not None]
        attempts = [{**_NOTHING, **(await self.metrics.of(r, self.window) or {}), **r} for r in asked]
        if self.metrics.behind:
            self.poke()
        row = self.query_one("#attempts", Table).row
        ids = [a["attempt_id"] for a in attempts]
        chosen = row["attempt_id"] if row and row["attempt_id"] in ids else self.view.attempt_id
        chosen = chosen if chosen in ids else (ids[0] if ids else None)
        scatter = await self.feed.rows("request_metrics", chosen, tables=("requests",)) if chosen else []
        phases = await self.feed.rows("live_phases", rid, tables=("phases", "clock_offsets"))
        return RunView(
            run=run,
            window=self.window,
            attempts=attempts,
            commands=await self.feed.rows("run_commands", rid, tables=("commands", "jobs")),
            gates=await self.feed.rows("screen_gates", rid, tables=("gates",)),
            notes=await self.feed.rows("run_notes", rid, tables=("notes",)),
            chosen=chosen,
            scatter=scatter,
            phases=[p for p in phases if p["attempt_id"] == chosen],
        )

    def apply(self, snapshot: RunView) -> None:
        table = self.query_one("#attempts", Table)
        first = table.data is None
        few = any(0 < (a["ttft_ms_n"] or 0) < 100 for a in snapshot.attempts)
        note = "   * p99 of fewer than 100 requests" if few else ""
        table.title = f"attempts, window {snapshot.window} (w changes){note}"
        table.show(snapshot.attempts)
        if first and snapshot.chosen:
            table.select(snapshot.chosen)
        self._scatter(snapshot)
        self.query_one("#summary", TextPanel).show(tuple(summary(snapshot)))
        commands = sorted(snapshot.commands, key=lambda c: c["purpose"] == "probe")  # what matters first
        self.query_one("#commands", Table).show(commands)

    def _scatter(self, snap: RunView) -> None:
        chart = self.query_one("#scatter", Chart)
        name = self.metric.split("_")[0].upper()
        chart.title = f"{name} ms by time sent (m changes)"
        points = [r for r in snap.scatter if r[self.metric] is not None]
        begin, wall = min(
            ((r["sent_ns"], r["sent_wall_ns"]) for r in snap.scatter if r["sent_ns"] is not None), default=(0, None)
        )
        if not points:
            chart.show(None)
            return
        last = max((r["sent_ns"] - begin) / S for r in points)
        kinds = (("measured", "one", True), ("other", "dim", False))
        series = [
            Series(
                label,
                role,
                [(r["sent_ns"] - begin) / S for r in points if r["measured"] is flag],
                [r[self.metric] for r in points if r["measured"] is flag],
                dots=True,
            )
            for label, role, flag in kinds
        ]
        chart.show(Plot(series, 0.0, max(last, 1.0), origin_ns=wall))

    @on(Chart.Here)
    def _of_this_attempt(self) -> None:
        if self.snapshot is not None:  # the base then shows the instant on the live screen
            self.view.run_id, self.view.attempt_id = self.snapshot.run["run_id"], self.snapshot.chosen

    def place_panels(self, width: int, height: int) -> None:
        snap: RunView | None = self.snapshot
        n = len(snap.attempts) if snap else 1
        attempts = min(max(n, 1) + 2, max(height // 2, 5))
        commands = max(min(height // 4, 2 + (len(snap.commands) if snap else 1)), 3)
        middle = height - attempts - commands
        narrow = width < 100
        self.height_of(self.query_one("#attempts"), attempts)
        self.query_one("#run-middle").set_class(narrow, "-stacked")
        self.height_of(self.query_one("#run-middle"), middle)
        self.height_of(self.query_one("#scatter"), (middle // 2 if middle >= 14 else 0) if narrow else middle)
        self.height_of(
            self.query_one("#summary"), (middle - middle // 2 if middle >= 14 else middle) if narrow else middle
        )
        self.height_of(self.query_one("#commands"), commands)

    def headline(self) -> Ends:
        snap: RunView | None = self.snapshot
        if snap is None:
            return self.heading((("run  ", ""), ("no run yet: 1 goes home, choose a case there", "dim")))
        r = snap.run
        return self.heading(
            (
                (clean(r["run_id"], 60), "strong"),
                (f"  {clean(r['plan'] or r['kind'], 30)} on {clean(r['deployment'] or NONE, 40)}  ", ""),
                worded(r["outcome"] or r["state"]),
                (f"  {clean(r['detail'] or '', 60)}", "dim"),
            ),
            ((clean(r["who"] or "", 30) + " ", "dim"),),
        )

    def forget(self) -> None:
        super().forget()
        self.metrics.forget()

    # --- actions

    @on(Table.Moved, "#attempts")
    def _other(self, event: Table.Moved) -> None:
        self.view.attempt_id = event.row["attempt_id"]
        self.poke()

    @on(Table.Chosen, "#attempts")
    def _attempt(self, event: Table.Chosen) -> None:
        self.view.attempt_id = event.row["attempt_id"]
        self.action_live()

    @on(Table.Chosen, "#commands")
    def _command(self, event: Table.Chosen) -> None:
        r = event.row
        exit_code = (
            "running" if r["ended_wall_ns"] is None and r["label"] == "executed" else f"exit {num(r['exit_code'])}"
        )
        texts = [
            line(
                (f"{r['label']}", "warn" if r["label"] == "planned" else "strong"),
                f"  {clean(r['purpose'], 20)} on {clean(r['node'] or NONE, 40)}  {exit_code}",
            ),
            line(("folder  ", "dim"), clean(r["cwd"] or NONE, 400)),
            line(("began   ", "dim"), f"{stamp(r['started_wall_ns'], '%Y-%m-%d %H:%M:%S')} UTC"),
            line(""),
            line(clean(r["text"], 20_000)),
        ]
        self.app.push_screen(Reader("command", tuple(texts)))

    def action_window(self) -> None:
        self.window = "all" if self.window == "steady" else "steady"
        self.poke()

    def action_metric(self) -> None:
        order = ("ttft_ms", "tpot_ms", "e2e_ms")
        self.metric = order[(order.index(self.metric) + 1) % 3]
        self.show()

    def action_live(self) -> None:
        if self.snapshot is not None:
            self.post_message(Go("live", run_id=self.snapshot.run["run_id"], attempt_id=self.snapshot.chosen))

    def action_note(self) -> None:
        if self.snapshot is None:
            return
        run_id = self.snapshot.run["run_id"]

        def go(text: str | None) -> None:
            if text:
                self.send("note", run_id=run_id, text=text)

        self.app.push_screen(Ask("note on this run", "what you saw or did; it goes into notes.md"), go)

    def commands(self) -> Iterable[Command]:
        if self.snapshot is not None:
            yield Command("run: live or replay", "this attempt on the live screen", self.action_live)
            yield Command("run: write a note", "kept with the run", self.action_note)
            yield Command("run: other window", "steady or all", self.action_window)


def _exit(r: Row) -> Span:
    if r["exit_code"] is None:
        return ("…" if r["ended_wall_ns"] is None and r["label"] == "executed" else NONE), "dim"
    return num(r["exit_code"]), "bad" if r["exit_code"] else "dim"


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
