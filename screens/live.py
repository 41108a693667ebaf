"""Live: is the run healthy, how far is it, where to look next. A past run looks the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from screens.base import Command, ConsoleScreen, Go
from screens.data import Row, View
from screens.dialogs import Ask, Reader
from screens.jump import instant
from screens.live_bar import live_bar
from screens.live_data import LiveView, S, look, phase_bits
from screens.live_layout import place
from screens.live_watch import alone, engine_plots
from screens.widgets.bars import Ends
from screens.widgets.chart import Chart, Plot, Series
from screens.widgets.devices import Devices
from screens.widgets.engine import Engine, EngineView
from screens.widgets.findings import Findings
from screens.widgets.logview import LogView
from screens.widgets.rails import Rails
from screens.widgets.requests import WINDOWS, Load, Requests
from screens.widgets.text import clean, line, stamp
from screens.widgets.timeline import PhaseStrip


class LiveScreen(ConsoleScreen):
    PLACE = "live"
    KEY = "2"
    ABOUT = "the run as it goes, or a past one again"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket", "attempt(-1)", "attempt before"),
        Binding("right_square_bracket", "attempt(1)", "attempt after"),
        Binding("comma", "step(-10)", "10 s back in time"),
        Binding("full_stop", "step(10)", "10 s on in time"),
        Binding("p", "play", "play from here, or faster"),
        Binding("e", "now", "end: back to now"),
        Binding("t", "jump", "jump to a time"),
        Binding("slash", "search", "search the logs"),
        Binding("f", "follow", "follow the logs"),
        Binding("n", "note", "write a note"),
        Binding("x", "stop", "stop the run"),
    ]

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.window = "steady"
        self.at_ns: int | None = None  # the instant shown; None is now (or the end of a past attempt)
        self.speed = 0
        self.snapshot: LiveView | None = None

    def body(self) -> ComposeResult:
        yield PhaseStrip(ident="phases", focusable=False)
        with Horizontal(id="upper"):
            with Vertical(id="left"):
                yield Requests("requests", empty="no request has ended yet", ident="requests")
                yield Devices("GPU", empty="no GPU sample yet: the probes start with the server", ident="devices")
            with Vertical(id="right"):
                yield Engine("engine", empty="the engine has not reported yet", ident="engine")
                yield Rails("rails  GB/s", empty="no rail counter yet", ident="rails")
                yield Chart("TPOT ms", empty="a curve appears when requests have ended", ident="tpot")
                yield Chart("tok/s", empty="throughput appears with the first tick of the load client", ident="tps")
        yield Findings(ident="findings")
        yield LogView("logs", empty="no log line yet", ident="logs")

    # --- data

    def on_screen_resume(self) -> None:
        if self.view.hold_ns is not None:  # another screen asked what happened then
            self.at_ns, self.speed, self.view.hold_ns = self.view.hold_ns, 0, None
            self.query_one(LogView).action_follow()

    async def fetch(self) -> LiveView | None:
        run_id = self.view.run_id
        if run_id is None:
            runs = await self.feed.rows("runs_list", tables=("runs", "attempts"))
            alive = [r for r in runs if r["state"] == "running"]
            if not runs:
                return None
            run_id = (alive or runs)[0]["run_id"]
        if self.speed and self.at_ns is not None:
            self.at_ns += int(self.speed * self.PERIOD_S * S)
            if self.snapshot is not None and self.at_ns >= self._end(self.snapshot):
                self.at_ns, self.speed = None, 0
        logs = self.query_one(LogView).ask()
        return await look(self.view, self.feed, run_id, self.window, self.at_ns, logs)

    def _end(self, snap: LiveView) -> int:
        ends = [p["end_ns"] for p in snap.phases if p["end_ns"] is not None]
        return self.view.now() if snap.running else max(ends, default=snap.now_ns)

    def apply(self, snapshot: LiveView) -> None:
        snap = snapshot
        self.query_one(PhaseStrip).show(phase_bits(snap))
        tick = snap.load[-1] if snap.load else None
        self.query_one(Requests).show(
            Load(
                window=snap.window,
                rows=snap.requests,
                counts=snap.counts,
                slo=snap.slo,
                out_series=tuple(r["output_tps"] for r in snap.load),
                out_tps=self._recent(snap, "output_tps"),
                tick=tick if snap.running or self.at_ns is not None else None,
            )
        )
        self.query_one(Devices).show(snap.gpus)
        engine = self.query_one(Engine)
        who = " ".join(clean(w, 30) for w in (snap.attempt["engine"], snap.attempt["version"]) if w)
        engine.title = f"engine {who}".rstrip()
        engine.show(EngineView(snap.engine, snap.attempt["concurrency"]) if snap.engine else None)
        self.query_one(Rails).show(snap.rails)
        self._charts(snap)
        self.query_one(Findings).show(snap.findings)
        logs = self.query_one(LogView)
        logs.nodes = tuple(sorted({r["node"] for r in snap.nodes} | {r["node"] for r in snap.logs}))
        logs.show(snap.logs)

    @staticmethod
    def _recent(snap: LiveView, key: str) -> float | None:
        """Mean of the last ten seconds' rates."""
        known = [r[key] for r in snap.load[-10:] if r[key] is not None]
        return sum(known) / len(known) if known else None

    def _charts(self, snap: LiveView) -> None:
        if alone(snap):
            for ident, (title, plot) in zip(("#tpot", "#tps"), engine_plots(snap), strict=True):
                chart = self.query_one(ident, Chart)
                chart.title = title
                chart.show(plot)
            return
        begin = snap.begin_ns
        if begin is None:
            self.query_one("#tpot", Chart).show(None)
            self.query_one("#tps", Chart).show(None)
            return
        marks = tuple(
            ((p["start_ns"] - begin) / S, p["name"])
            for p in snap.phases
            if p["start_ns"] is not None and p["start_ns"] > begin
        )
        xs = [(r["at_ns"] + snap.trend_step_s * S / 2 - begin) / S for r in snap.trend]
        span = max((snap.now_ns - begin) / S, 1.0)
        bounds = snap.slo.get("tpot_ms", {})
        tpot = self.query_one("#tpot", Chart)
        tpot.title = f"TPOT ms, p50 and p95 of requests ended in {snap.trend_step_s} s"
        tpot.show(
            Plot(
                (
                    Series("p50", "one", xs, [r["tpot_p50"] for r in snap.trend]),
                    Series("p95", "two", xs, [r["tpot_p95"] for r in snap.trend]),
                ),
                0.0,
                span,
                marks,
                tuple((v, f"SLO {k}") for k, v in bounds.items()),
                origin_ns=begin,
            )
            if xs
            else None
        )
        ticks = [(r["wall_ns"] - snap.load[-1]["wall_ns"]) / S + (snap.now_ns - begin) / S for r in snap.load]
        tps = self.query_one("#tps", Chart)
        tps.title = "output tok/s, last 2 min"
        tps.show(
            Plot(
                (Series("out", "one", ticks, [r["output_tps"] for r in snap.load]),),
                ticks[0],
                max(ticks[-1], ticks[0] + 1),
                tuple(m for m in marks if m[0] > ticks[0]),
                origin_ns=begin,
            )
            if len(ticks) > 1
            else None
        )

    def place_panels(self, width: int, height: int) -> None:
        place(self, self.snapshot, width, height)

    def headline(self) -> Ends:
        held = self.at_ns is not None
        return self.heading(*live_bar(self.snapshot, self.size.width, held, self.speed, self.view.now()))

    # --- actions

    @on(Requests.Window)
    def _next_window(self) -> None:
        self.window = WINDOWS[(WINDOWS.index(self.window) + 1) % len(WINDOWS)]
        self.poke()

    @on(LogView.Wanted)
    def _other_lines(self) -> None:
        self.poke()

    @on(Chart.Here)
    def _what_happened(self, event: Chart.Here) -> None:
        event.prevent_default()  # it is shown here, no other screen is needed
        self._hold(event.at_ns)

    @on(Findings.Chosen)
    def _open_finding(self, event: Findings.Chosen) -> None:
        r: Row = event.row
        texts = [line((clean(r["title"], 500), "strong"))]
        for label, key in (("where", "node"), ("detail", "detail"), ("next", "next_step")):
            if r[key]:
                texts += [line((f"{label:8}", "dim"), clean(r[key], 4000))]
        texts.append(line(("seen    ", "dim"), f"{stamp(r['first_ns'])} to {stamp(r['last_ns'])}, {r['count']} times"))
        self.app.push_screen(Reader("finding", tuple(texts)))

    def action_attempt(self, by: int) -> None:
        snap = self.snapshot
        if snap is None or snap.attempt["attempt_id"] is None:
            return
        ids = [a["attempt_id"] for a in snap.attempts]
        at = min(max(ids.index(snap.attempt["attempt_id"]) + by, 0), len(ids) - 1)
        self.view.run_id, self.view.attempt_id = snap.attempt["run_id"], ids[at]
        self.action_now()

    def _hold(self, at_ns: int) -> None:
        """Show the instant `at_ns` of the run's clock in every panel."""
        self.at_ns = at_ns
        self.query_one(LogView).action_follow()
        self.poke()

    def action_step(self, seconds: int) -> None:
        if self.snapshot is not None:
            self._hold(min(self.snapshot.now_ns + seconds * S, self._end(self.snapshot)))

    def action_play(self) -> None:
        snap = self.snapshot
        if snap is None:
            return
        if self.at_ns is None and snap.begin_ns is not None and not snap.running:
            self.at_ns = snap.begin_ns
        if self.at_ns is not None:
            self.speed = {0: 1, 1: 4, 4: 16, 16: 60}.get(self.speed, 0)
            self.poke()
        else:
            self.notify("this is live; , steps back, then p plays from there")

    def action_now(self) -> None:
        self.at_ns, self.speed = None, 0
        self.query_one(LogView).action_follow()
        self.poke()

    def action_jump(self) -> None:
        def go(text: str | None) -> None:
            snap = self.snapshot
            if not text or snap is None:
                return
            at = instant(text, snap.now_ns, snap.begin_ns)
            if at is None:
                self.notify(
                    f"{clean(text, 20)!r} is no time; write 14:31:07 (UTC) or +90 (seconds since the start)",
                    severity="warning",
                )
            else:
                self._hold(at)

        self.app.push_screen(Ask("jump to a time", "14:31:07 (UTC), or +90 for seconds since the attempt began"), go)

    def action_search(self) -> None:
        logs = self.query_one(LogView)

        def go(text: str | None) -> None:
            if text is not None:
                logs.search(text)
                logs.focus()

        self.app.push_screen(
            Ask("search the logs", "text in a line; empty shows all", logs.query_state.needle or ""), go
        )

    def action_follow(self) -> None:
        self.query_one(LogView).action_follow()

    def action_note(self) -> None:
        if self.snapshot is None:
            return
        run_id = self.snapshot.attempt["run_id"]

        def go(text: str | None) -> None:
            if text:
                self.send("note", run_id=run_id, text=text)

        self.app.push_screen(Ask("note on this run", "what you saw or did; it goes into notes.md"), go)

    def action_stop(self) -> None:
        snap = self.snapshot
        if snap is None or snap.attempt["run_state"] != "running":
            self.notify("nothing runs here")
            return
        run_id = snap.attempt["run_id"]

        def go(text: str | None) -> None:
            if text == "stop":
                self.send("stop_run", run_id=run_id)

        self.app.push_screen(Ask(f"stop run {clean(run_id, 60)}?", "write stop to confirm; all data are kept"), go)

    def commands(self) -> Iterable[Command]:
        snap = self.snapshot
        if snap is None:
            return
        run_id = snap.attempt["run_id"]
        yield Command(
            "run: details", "attempts, windows, requests, commands", lambda: self.post_message(Go("run", run_id=run_id))
        )
        yield Command("run: write a note", "kept with the run", self.action_note)
        yield Command("logs: search", "lines that hold a text", self.action_search)
        yield Command("view: jump to a time", "every panel at one instant", self.action_jump)
        if snap.attempt["run_state"] == "running":
            yield Command("run: stop", "keeps all data; asks first", self.action_stop)
        else:
            yield Command("view: replay from the start", "p again for faster", self.action_play)
