"""Search: where each load lands between tokens a second and latency, why the search went where it went, the answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from screens.base import Command, ConsoleScreen, Go
from screens.data import View
from screens.dialogs import Ask, Reader
from screens.live_bar import node_lamps
from screens.search_data import METRICS, SearchView, load_of, load_word, look_search
from screens.search_rows import COLUMNS, load_cell
from screens.search_text import legend, point_lines, tps_word, words
from screens.widgets.bars import Ends, TextPanel
from screens.widgets.frontier import Cloud, Frontier, Spot
from screens.widgets.lamps import lamp, worded
from screens.widgets.table import Table
from screens.widgets.text import NONE, Span, clean, num, span_s

NONE_YET = "no search yet: s starts one"
EMPTY = "no search yet\n\ns starts one here, or in a shell:\ntwinrail search CASE"


class SearchScreen(ConsoleScreen):
    PLACE = "search"
    KEY = "5"
    ABOUT = "a concurrency search: its frontier, reasons, answers"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "start", "start a search"),
        Binding("a", "again", "measure the chosen point again (a finished search)"),
        Binding("c", "go_on", "carry a finished search on: finer, or further"),
        Binding("m", "metric", "frontier over TPOT, TTFT or E2E"),
        Binding("o", "order", "rows by load, or in order of work"),
        Binding("comma", "step(-1)", "as it was a point before"),
        Binding("full_stop", "step(1)", "a point on"),
        Binding("e", "now", "end: back to now"),
        Binding("left_square_bracket", "other(1)", "search before"),
        Binding("right_square_bracket", "other(-1)", "search after"),
        Binding("l", "live", "the point's last attempt on the live screen"),
        Binding("n", "note", "write a note"),
        Binding("x", "stop", "stop the search"),
    ]

    metric = "tpot_ms"
    by_load = True

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.step: int | None = None
        self.snapshot: SearchView | None = None

    def body(self) -> ComposeResult:
        with Horizontal(id="search-upper"):
            yield Frontier("frontier", empty=EMPTY, ident="frontier")
            yield Table(
                "points   enter reads one",
                COLUMNS,
                key="key",
                empty="a point appears when its repeats are done",
                ident="points",
            )
        yield TextPanel(
            "what happens next, and why", empty="the search says here what it measures next, and why", ident="why"
        )

    def on_mount(self) -> None:
        self.query_one("#points", Table).focus()

    async def fetch(self) -> SearchView | None:
        return await look_search(self.view, self.feed, self.step)

    def apply(self, snapshot: SearchView) -> None:
        table = self.query_one("#points", Table)
        rows = sorted(snapshot.points, key=lambda r: r["load"] or 0) if self.by_load else list(snapshot.points)
        table.show(([snapshot.live] if snapshot.live else []) + rows)
        self._frontier(snapshot)
        self.query_one("#why", TextPanel).show(words(snapshot))

    @staticmethod
    def _stat(snap: SearchView, metric: str) -> str:
        """The percentile that the SLO bounds, so that its line and the points mean the same; P95 without one."""
        return next((s for s in ("p95", "p99", "p50", "mean") if s in snap.slo.get(metric, {})), "p95")

    def _frontier(self, snap: SearchView) -> None:
        metric = self.metric
        if metric == "tpot_ms" and snap.case.get("osl") == 1:
            metric = "ttft_ms"  # one token has no time per further token
        stat = self._stat(snap, metric)
        chosen = self.query_one("#points", Table).row
        spots = []
        for r in sorted((*snap.points, *([snap.live] if snap.live else [])), key=lambda r: r["load"] or 0):
            x, y = r.get(f"{metric}_{stat}"), r["tps"]
            if x is None or y is None:
                continue
            live = r["key"] == "live"
            sign, role = ("◐", "accent") if live else lamp(r["outcome"])
            here = chosen is not None and chosen["key"] == r["key"]
            knee = " knee" if snap.knee is not None and load_of(snap.knee) == r["load"] else ""
            spots.append(Spot(x, y, load_cell(r)[0] + knee, sign, role, r["rings"], live, here))
        name = metric.removesuffix("_ms").upper()
        bound = snap.slo.get(metric, {}).get(stat)
        panel = self.query_one(Frontier)
        panel.title = f"{tps_word(snap)} over {name} {stat.upper()} ms (m changes)"
        panel.empty = (
            "points appear here when their repeats are done" if not snap.points else "no point has both figures"
        )
        limits = ((bound, f"SLO {bound:g}"),) if bound is not None else ()
        panel.show(Cloud(spots, f"{name} {stat} ms", tps_word(snap), limits, legend(snap)))

    def place_panels(self, width: int, height: int) -> None:
        snap = self.snapshot
        narrow = width < 110
        lines = len(words(snap)) if snap else 1
        below = min(1 + lines + (2 if height >= 34 else 0), max(height // 3, 5))
        upper = max(height - below, 4)
        rows = 2 + (len(snap.points) + bool(snap.live) if snap else 1)
        self.query_one("#search-upper").set_class(narrow, "-stacked")
        table = min(max(rows, 4), max(upper // 2, 4)) if narrow else upper
        self.height_of(self.query_one("#search-upper"), upper)
        self.height_of(self.query_one(Frontier), upper - table if narrow else upper)
        self.height_of(self.query_one("#points"), table)
        self.height_of(self.query_one("#why"), below)

    def headline(self) -> Ends:
        snap = self.snapshot
        if snap is None:
            return self.heading((("search  ", ""), (NONE_YET, "dim")))
        case, run = snap.case, snap.run
        left: list[Span] = [
            (clean(case.get("name") or "search", 30), "strong"),
            (
                f"  isl {num(case.get('isl'))} osl {num(case.get('osl'))}  on {clean(run['deployment'] or NONE, 30)}  ",
                "dim",
            ),
        ]
        if snap.step is not None:
            left.append((f"▌▌ after point {snap.step} of {snap.settled}", "accent"))
        elif snap.running:
            left += [
                worded(run["run_state"]),
                (f"  {snap.settled} points, {span_s(snap.pace.get('took_s') or 0)}", "dim"),
            ]
        else:
            left += [worded(run["run_outcome"]), (f"  {snap.settled} points", "dim")]
        lamps = node_lamps(snap.nodes, False) if snap.running else []
        at = f"{snap.searches.index(run['run_id']) + 1}/{len(snap.searches)}  " if len(snap.searches) > 1 else ""
        name = f"run {clean(run['run_id'], 60)} " if self.size.width >= 120 else ""
        return self.heading(left, (*lamps, (f"{at}{name}", "dim")))

    # --- actions

    @on(Table.Moved, "#points")
    def _moved(self) -> None:
        if self.snapshot is not None:
            self._frontier(self.snapshot)

    @on(Table.Chosen, "#points")
    def _open(self, event: Table.Chosen) -> None:
        if self.snapshot is not None:
            self.app.push_screen(Reader(f"point {load_word(event.row)}", tuple(point_lines(event.row, self.snapshot))))

    def action_metric(self) -> None:
        self.metric = METRICS[(METRICS.index(self.metric) + 1) % len(METRICS)]
        self.show()

    def action_order(self) -> None:
        self.by_load = not self.by_load
        self.show()

    def action_step(self, by: int) -> None:
        snap = self.snapshot
        if snap is None or not snap.settled:
            return
        at = (snap.settled if self.step is None else self.step) + by
        self.step = None if at >= snap.settled else max(at, 1)
        self.poke()

    def action_now(self) -> None:
        self.step = None
        self.poke()

    def action_other(self, by: int) -> None:
        snap = self.snapshot
        if snap is not None:
            at = snap.searches.index(snap.run["run_id"]) + by
            self.view.run_id = snap.searches[min(max(at, 0), len(snap.searches) - 1)]
            self.view.attempt_id = None
            self.action_now()

    def action_live(self) -> None:
        row, snap = self.query_one("#points", Table).row, self.snapshot
        if row is None or snap is None:
            return
        ids = [row["attempt_id"]] if row["key"] == "live" else row["attempts"] or []
        if ids:
            self.post_message(Go("live", run_id=snap.run["run_id"], attempt_id=ids[-1]))

    def action_start(self) -> None:
        names = [*self.view.session.config.searches, *self.view.session.config.cases]

        def go(text: str | None) -> None:
            what, _, rest = (text or "").strip().partition(",")
            rules = going_on(rest) if rest else {}
            if what and (rules or not rest):
                self.send("start_search", what=what.strip(), **rules)
            elif text:
                self.notify("write for example: D2, max 64, step 8, repeats 2", severity="warning")

        hint = "NAME[, max 256, step 16, refine 4, repeats 3]; NAME: " + " ".join(clean(n, 20) for n in names[:6])
        self.app.push_screen(Ask("start a search over concurrency", hint, names[0] if names else ""), go)

    def _finished(self) -> SearchView | None:
        if self.snapshot is not None and not self.snapshot.running:
            return self.snapshot
        self.notify("this is for a finished search; it still runs, or there is none")
        return None

    def action_again(self) -> None:
        row, snap = self.query_one("#points", Table).row, self._finished()
        if row is None or snap is None:
            return

        def go(text: str | None) -> None:
            if text == "again":
                self.send("continue_search", run_id=snap.run["run_id"], again=float(row["load"]))

        takes = span_s(snap.pace.get("point_s"))
        self.app.push_screen(Ask(f"measure {load_word(row)} again? about {takes}", "write again to confirm"), go)

    def action_go_on(self) -> None:
        snap = self._finished()
        if snap is None:
            return

        def go(text: str | None) -> None:
            changes: dict[str, float] = {k: v for k, v in going_on(text or "").items() if k != "step"}
            if snap.rules.get("unit") is not None and "max_concurrency" in changes:
                changes["max_rate"] = changes.pop("max_concurrency")
            if changes:
                self.send("continue_search", run_id=snap.run["run_id"], **changes)
            elif text:
                self.notify("write for example: refine 2, or max 512, or repeats 5", severity="warning")

        self.app.push_screen(Ask("carry the search on", "refine 2 | max 512 | repeats 5; several with commas"), go)

    def ordered(self, kind: str, answer: dict[str, object]) -> None:
        if kind in ("start_search", "continue_search") and isinstance(answer.get("run_id"), str):
            self.view.run_id, self.view.attempt_id = str(answer["run_id"]), None
            self.action_now()

    def action_note(self) -> None:
        if self.snapshot is None:
            return
        run_id = self.snapshot.run["run_id"]

        def go(text: str | None) -> None:
            if text:
                self.send("note", run_id=run_id, text=text)

        self.app.push_screen(Ask("note on this search", "what you saw or did; it goes into notes.md"), go)

    def action_stop(self) -> None:
        if self.snapshot is None or not self.snapshot.running:
            self.notify("no search is on here")
            return
        run_id = self.snapshot.run["run_id"]

        def go(text: str | None) -> None:
            if text == "stop":
                self.send("stop_run", run_id=run_id)

        self.app.push_screen(Ask(f"stop search {clean(run_id, 60)}?", "write stop to confirm; all data are kept"), go)

    def commands(self) -> Iterable[Command]:
        yield Command("search: start", "climb over concurrency until something stops it", self.action_start)
        if self.snapshot is None:
            return
        run_id = self.snapshot.run["run_id"]
        yield Command(
            "search: attempts of it",
            "every repeat, on the run screen",
            lambda: self.post_message(Go("run", run_id=run_id)),
        )
        yield Command("search: this point live or replayed", "its last attempt on the live screen", self.action_live)
        if self.snapshot.running:
            yield Command("search: stop", "keeps all data; asks first", self.action_stop)


def going_on(text: str) -> dict[str, int]:
    """ "refine 2, max 512" as parameters of the order; {} when it is not understood."""
    names = {"refine": "refine", "max": "max_concurrency", "repeats": "repeats", "step": "step"}
    found = {}
    for part in text.split(","):
        name, _, value = part.strip().partition(" ")
        if name not in names or not value.strip().isdecimal():
            return {}
        found[names[name]] = int(value)
    return found
