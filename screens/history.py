"""The base of the screens with a history: one run, a window of its clock that zooms and moves, phases as marks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from textual.binding import Binding, BindingType

from screens.base import Command, ConsoleScreen
from screens.data import Row
from screens.dialogs import Reader
from screens.live_data import Clocks, S, clocks_of
from screens.widgets.bars import Ends
from screens.widgets.chart import Chart, Plot, Series
from screens.widgets.text import Line, Span, clean, line, span_s
from store.errors import StoreError

SPANS_S = (120, 300, 900, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600)
STEPS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
POINTS = 200  # most steps of a curve
PHASES = ("warmup", "ramp", "steady", "drain")


@dataclass(frozen=True)
class Window:
    """What part of which run is shown. Instants are on the run's clock."""

    run_id: str
    running: bool
    t0: int
    t1: int
    step_s: int
    clocks: Clocks = ([], [])
    marks: tuple[tuple[int, str], ...] = ()

    def plot(
        self,
        rows: Sequence[Row],
        curves: Iterable[tuple[str, str, str]],
        limits: Sequence[tuple[float, str]] = (),
        scale: float = 1.0,
    ) -> Plot | None:
        """Curves (name, colour role, column) over rows with `at_ns`. Where no row is for two steps a curve breaks."""
        if not rows:
            return None
        xs, kept = self._gapped(rows)
        series = tuple(
            Series(name, role, xs, [None if r is None or r[column] is None else r[column] * scale for r in kept])
            for name, role, column in curves
        )
        return self._framed(series, limits)

    def plot_many(self, named: Sequence[tuple[str, str, Sequence[Row], str]], scale: float = 1.0) -> Plot | None:
        """Curves (name, colour role, rows, column), each over rows of its own."""
        series = []
        for name, role, rows, column in named:
            xs, kept = self._gapped(rows)
            series.append(
                Series(name, role, xs, [None if r is None or r[column] is None else r[column] * scale for r in kept])
            )
        return self._framed(tuple(series), ()) if any(s.xs for s in series) else None

    def _framed(self, series: tuple[Series, ...], limits: Sequence[tuple[float, str]]) -> Plot:
        marks = tuple(((at - self.t0) / S, word) for at, word in self.marks if self.t0 < at < self.t1)
        return Plot(series, 0.0, max((self.t1 - self.t0) / S, 1.0), marks, tuple(limits), origin_ns=self.t0)

    def _gapped(self, rows: Sequence[Row]) -> tuple[list[float], list[Row | None]]:
        xs: list[float] = []
        kept: list[Row | None] = []
        for row in rows:
            x = (row["at_ns"] - self.t0) / S + self.step_s / 2
            if xs and x - xs[-1] > max(2.5 * self.step_s, 6.0):
                xs.append((xs[-1] + x) / 2)
                kept.append(None)
            xs.append(x)
            kept.append(row)
        return xs, kept


@dataclass(frozen=True)
class History:
    """A snapshot: the window and the rows of the queries by name."""

    window: Window
    nodes: tuple[str, ...] = ()
    node: str | None = None
    rows: dict[str, list[Row]] = field(default_factory=dict)


class HistoryScreen(ConsoleScreen):
    """Subclasses ask their queries in `ask` and show them in `apply`."""

    PERIOD_S = 2.0
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("plus,equals_sign", "zoom(-1)", "shorter window"),
        Binding("minus", "zoom(1)", "longer window"),
        Binding("comma", "move(-1)", "earlier by half a window"),
        Binding("full_stop", "move(1)", "later by half a window"),
        Binding("0", "newest", "back to the newest", show=False),
        Binding("G", "growth", "how the store grows"),
        Binding("left_square_bracket", "other(-1)", "node before"),
        Binding("right_square_bracket", "other(1)", "node after"),
    ]

    def __init__(self, view: Any) -> None:
        super().__init__(view)
        self.span = 1  # index of SPANS_S
        self.end_ns: int | None = None  # of the window; None follows the newest

    async def ask(self, window: Window, node: str | None) -> dict[str, list[Row]]:
        """Rows by name. Raises StoreError."""
        raise NotImplementedError

    async def fetch(self) -> History | None:
        window = await self._window()
        if window is None:
            return None
        reach = await self.feed.rows("alert_reach", window.run_id, window.t0, *window.clocks)
        nodes = tuple(r["node"] for r in reach) or tuple(n.name for n in self.view.session.config.nodes)
        node = self.view.node if self.view.node in nodes else (nodes[0] if nodes else None)
        return History(window, nodes, node, await self.ask(window, node))

    async def _window(self) -> Window | None:
        runs = await self.feed.rows("runs_list", tables=("runs", "attempts"))
        run_id = self.view.run_id
        if run_id is None:
            alive = [r for r in runs if r["state"] == "running"]
            if not runs:
                return None
            run_id = (alive or runs)[0]["run_id"]
        attempts = await self.feed.rows("live_run", run_id, tables=("runs", "attempts", "lives"))
        if not attempts:
            return None
        clock = await self.feed.rows("live_clock", run_id, tables=("clock_offsets", "runs"))
        owner = next((c["shift_ns"] for c in clock if c["node"] == ""), 0) or 0
        running = attempts[0]["run_state"] in ("running", "collecting")
        over = attempts[0]["run_ended_wall_ns"]
        now = (self.view.now() if running or over is None else over) - owner
        end = min(self.end_ns, now) if self.end_ns is not None else now
        span = SPANS_S[self.span]
        step = next((s for s in STEPS_S if span / s <= POINTS), STEPS_S[-1])
        phases = await self.feed.rows("live_phases", run_id, tables=("phases", "clock_offsets"))
        marks = tuple((p["start_ns"], p["name"]) for p in phases if p["name"] in PHASES and p["start_ns"] is not None)
        begun = attempts[0]["created_wall_ns"] - owner
        t0 = max(end - span * S, begun - 10 * S) if end - begun > 60 * S else end - span * S
        return Window(run_id, running, t0 // (step * S) * step * S, end, step, clocks_of(clock), marks)

    # --- actions

    def action_zoom(self, by: int) -> None:
        self.span = min(max(self.span + by, 0), len(SPANS_S) - 1)
        self._again()

    def action_move(self, by: int) -> None:
        snap: History | None = self.snapshot
        if snap is None:
            return
        self.end_ns = snap.window.t1 + by * SPANS_S[self.span] * S // 2
        if by > 0 and self.end_ns > self.view.now():
            self.end_ns = None
        self._again()

    def action_newest(self) -> None:
        self.end_ns = None
        self._again()

    def action_other(self, by: int) -> None:
        snap: History | None = self.snapshot
        if snap is None or len(snap.nodes) < 2:
            return
        at = snap.nodes.index(snap.node) if snap.node in snap.nodes else 0
        self.view.node = snap.nodes[(at + by) % len(snap.nodes)]
        self._again()

    def _again(self) -> None:
        self.forget()
        self.poke()

    def headline(self) -> Ends:
        snap: History | None = self.snapshot
        if snap is None:
            return self.heading(((f"{self.PLACE}  ", ""), ("no run yet: 4 plans one, 1 starts a case", "dim")))
        window = snap.window
        parts: list[Span] = [(f"{self.PLACE}  ", ""), (clean(window.run_id, 60), "strong")]
        if snap.node is not None and self.by_node:
            parts.append((f"  {clean(snap.node, 40)}", "accent"))
            if len(snap.nodes) > 1:
                parts.append((f" {snap.nodes.index(snap.node) + 1}/{len(snap.nodes)} [ ]", "dim"))
        shown = f"  {span_s((window.t1 - window.t0) / S)} by {span_s(window.step_s)}  + - , ."
        tail: list[Span] = [(shown, "dim")]
        if self.end_ns is not None:
            tail.append(("  held, 0 newest", "warn"))
        return self.heading(parts, tail)

    by_node: ClassVar[bool] = True

    def charts_in(self, ids: Sequence[str], room: int) -> None:
        """Share `room` lines among the charts called `ids`, the first ones first, none below six lines."""
        count = min(len(ids), max(room // 6, 1))
        each, more = divmod(max(room, 3), count)
        for i, ident in enumerate(ids):
            self.height_of(self.query_one(f"#{ident}", Chart), (each + (i < more)) if i < count else 0)

    def commands(self) -> Iterable[Command]:
        yield Command("view: shorter window", "also +", lambda: self.action_zoom(-1))
        yield Command("view: longer window", "also -", lambda: self.action_zoom(1))
        yield Command("view: back to the newest", "also 0", self.action_newest)
        yield Command("store: what grows, and what a retention would free", "rows by table, also G", self.action_growth)

    def action_growth(self) -> None:
        self.run_worker(self._show_growth(), group="growth", exclusive=True)

    async def _show_growth(self) -> None:
        """Rows of the last hour and of finished runs older than a week: a preview, nothing is removed."""
        now = self.view.now()
        try:
            hour = await self.feed.session.rows("rollup_growth", now - 3600 * S, now)
            week = await self.feed.session.rows("rollup_growth", now - 7 * 86400 * S, now)
        except StoreError as e:
            self.notify(clean(e, 300), severity="error", markup=False)
            return
        self.app.push_screen(Reader("the store", growth_lines(self.view.session.config.store_path, hour, week)))


def growth_lines(path: Path, hour: Sequence[Row], week: Sequence[Row]) -> tuple[Line, ...]:
    """Size of the store's file, rows by table, and what of them belongs to finished runs older than a week."""
    old = {r["name"]: r["old_rows"] for r in week}
    size = path.stat().st_size if path.exists() else None
    head = "" if size is None else f", {size / 2**20:,.0f} MiB"
    out = [line((clean(str(path), 200), "strong"), head), line("")]
    out.append(line((f"{'table':<18}{'rows':>14}{'last hour':>12}{'older than 7 d':>16}", "dim")))
    out += [line(f"{r['name']:<18}{r['rows']:>14,}{r['window_rows']:>12,}{old.get(r['name'], 0):>16,}") for r in hour]
    out += [line(""), line(("the last column is of finished runs: what a retention of a week would free", "dim"))]
    return tuple(out)
