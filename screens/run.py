"""Run: every attempt with its windows, then requests, phases and commands of the chosen one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from screens.base import Command, ConsoleScreen, Go
from screens.data import Row, View
from screens.dialogs import Ask, Reader
from screens.metrics import Metrics
from screens.run_grid import columns, grid_rows
from screens.run_rows import ATTEMPTS, COMMANDS, NOTHING, RunView, S, summary
from screens.widgets.bars import Ends, TextPanel
from screens.widgets.chart import Chart, Plot, Series
from screens.widgets.lamps import worded
from screens.widgets.table import Table
from screens.widgets.text import NONE, clean, line, num, stamp


class RunScreen(ConsoleScreen):
    PLACE = "run"
    KEY = "g r"
    ABOUT = "one run: attempts, requests, commands"
    PERIOD_S = 2.0
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "window", "window: steady or all"),
        Binding("l", "live", "show this attempt on the live screen, or replay it"),
        Binding("v", "grid", "attempts, or cases by repeats with their spread"),
        Binding("m", "metric", "scatter: TTFT, TPOT or E2E"),
        Binding("n", "note", "write a note"),
    ]

    window = "steady"
    metric = "ttft_ms"
    grid = False

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.metrics = Metrics(self.feed)

    def body(self) -> ComposeResult:
        yield Table("attempts", ATTEMPTS, key="attempt_id", empty="no attempt yet", ident="attempts")
        yield Table("cases by repeats", columns(()), key="case_name", empty="no case yet", ident="grid")
        with Horizontal(id="run-middle"):
            yield Chart("requests", empty="requests appear when they end", ident="scatter")
            yield TextPanel("summary", ident="summary")
        yield Table(
            "commands   enter reads one", COMMANDS, key="command_id", empty="no command was recorded", ident="commands"
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
        attempts = [{**NOTHING, **(await self.metrics.of(r, self.window) or {}), **r} for r in asked]
        if self.metrics.behind:
            self.poke()
        row = self.query_one("#attempts", Table).row
        ids = [a["attempt_id"] for a in attempts]
        chosen = row["attempt_id"] if row and row["attempt_id"] in ids else self.view.attempt_id
        chosen = chosen if chosen in ids else (ids[0] if ids else None)
        scatter = await self.feed.rows("request_metrics", chosen, tables=("requests",)) if chosen else []
        phases = await self.feed.rows("live_phases", rid, tables=("phases", "clock_offsets"))
        cases = await self.feed.rows("live_grid", rid, tables=("attempts", "phases"), every=5, key=rid)
        gpus = await self.feed.rows("gpu_shares", rid, tables=("gpu_samples", "phases"), every=10, key=rid)
        rails = await self.feed.rows("rail_shares", rid, tables=("rail_samples", "phases"), every=10, key=rid)
        return RunView(
            grid=grid_rows(cases, [{**a, "tps": await self._tps(a)} for a in attempts]),
            run=run,
            window=self.window,
            attempts=attempts,
            commands=await self.feed.rows("run_commands", rid, tables=("commands", "jobs")),
            gates=await self.feed.rows("screen_gates", rid, tables=("gates",)),
            notes=await self.feed.rows("run_notes", rid, tables=("notes",)),
            chosen=chosen,
            scatter=scatter,
            phases=[p for p in phases if p["attempt_id"] == chosen],
            gpus=next((g for g in gpus if g["attempt_id"] == chosen), None),
            rails=[r for r in rails if r["attempt_id"] == chosen],
        )

    async def _tps(self, attempt: Row) -> float | None:
        """What a case goes by: input tokens/s for one output token, else output; in steady, else in all it sent."""
        kind = "input_tps" if attempt["osl"] == 1 else "output_tps"
        for window in ("steady", "all"):
            found = await self.metrics.of(attempt, window)
            if found is not None and found[kind] is not None:
                return float(found[kind])
        return None

    def apply(self, snapshot: RunView) -> None:
        table = self.query_one("#attempts", Table)
        first = table.data is None
        few = any(0 < (a["ttft_ms_n"] or 0) < 100 for a in snapshot.attempts)
        note = "   * p99 of fewer than 100 requests" if few else ""
        table.title = f"attempts, window {snapshot.window} (w changes, v: spread){note}"
        table.show(snapshot.attempts)
        if first and snapshot.chosen:
            table.select(snapshot.chosen)
        grid = self.query_one("#grid", Table)
        grid.title = "cases by repeats, steady window (v: attempts, enter: the case's attempts)"
        grid.columns = columns(snapshot.grid)
        grid.show(snapshot.grid)
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
        n = 1 if snap is None else len(snap.grid) if self.grid else len(snap.attempts)
        attempts = min(max(n, 1) + 2, max(height // 2, 5))
        commands = max(min(height // 4, 2 + (len(snap.commands) if snap else 1)), 3)
        middle = height - attempts - commands
        narrow = width < 100
        self.height_of(self.query_one("#attempts"), 0 if self.grid else attempts)
        self.height_of(self.query_one("#grid"), attempts if self.grid else 0)
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

    @on(Table.Chosen, "#grid")
    def _case(self, event: Table.Chosen) -> None:
        self.action_grid()
        if event.row["cells"]:
            self.query_one("#attempts", Table).select(event.row["cells"][0]["attempt_id"])

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

    def action_grid(self) -> None:
        self.grid = not self.grid
        self.show()
        self.query_one("#grid" if self.grid else "#attempts", Table).focus()

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
            yield Command("run: spread of repeats", "cases by repeats, or attempts", self.action_grid)
            if self.snapshot.run["kind"] == "search":
                rid = self.snapshot.run["run_id"]
                yield Command(
                    "search: frontier", "points and answers", lambda: self.post_message(Go("search", run_id=rid))
                )
            yield Command("run: other window", "steady or all", self.action_window)
