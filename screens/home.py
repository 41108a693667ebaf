"""Home: what runs, the nodes and why they are as they are, deployments, cases to start, past runs, what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from screens.base import Command, ConsoleScreen, Go
from screens.data import Row, View
from screens.dialogs import Ask
from screens.home_now import now_lines
from screens.home_rows import (
    HomeView,
    case_rows,
    deployment_rows,
    node_rows,
    node_why,
    progress_of,
    result_cell,
    run_columns,
)
from screens.metrics import Metrics
from screens.widgets.bars import Ends, TextPanel
from screens.widgets.lamps import worded
from screens.widgets.table import Column, Table
from screens.widgets.text import Line, clean, num, wrap

S = 1_000_000_000
WATCH_S = 3600.0


class HomeScreen(ConsoleScreen):
    PLACE = "home"
    KEY = "1"
    ABOUT = "what runs, the nodes, what to start, the next step"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "mark", "mark a case, to start several"),
        Binding("u", "up", "bring the deployment up"),
        Binding("d", "down", "take the deployment down"),
        Binding("o", "app.open_trace", "open a trace: where the time goes, no node needed"),
    ]

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.metrics = Metrics(self.feed)

    def body(self) -> ComposeResult:
        mark = self.view.marked
        yield TextPanel("now", ident="now")
        with Horizontal(id="home-upper"):
            with Vertical(id="home-left"):
                yield Table(
                    "nodes",
                    (
                        Column("node", 10, lambda r: (clean(r["node"], 60), "")),
                        Column("state", 13, lambda r: worded(r["state"]) if r["state"] else ("○ not seen", "dim")),
                        Column("GPU", 3, lambda r: (num(r["devices"]), "dim"), ">", keep=3),
                        Column("rails", 5, lambda r: (num(r["rails"]), "dim"), ">", keep=2),
                        Column("", 0, node_why, keep=4),
                    ),
                    key="node",
                    empty="no node is configured: `twinrail init` asks and writes twinrail.toml",
                    ident="nodes",
                    header=False,
                )
                yield Table(
                    "deployments   u up, d down",
                    (
                        Column("name", 10, lambda r: (clean(r["deployment"], 60), "")),
                        Column("state", 10, lambda r: worded(r["state"]) if r["state"] else ("○ never up", "dim")),
                        Column("what", 13, lambda r: (clean(r["what"], 40), "dim"), keep=3),
                        Column("last result", 0, result_cell, keep=5),
                    ),
                    key="deployment",
                    empty="no deployment is configured: [deployments.NAME] in twinrail.toml",
                    ident="deployments",
                    header=False,
                )
            yield Table(
                "start   isl/osl, load   enter, x marks several",
                (
                    Column("", 1, lambda r: ("■" if r["name"] in mark else " ", "accent")),
                    Column("name", 14, lambda r: (clean(r["name"], 60), "" if r["kind"] == "case" else "strong")),
                    Column("what", 0, lambda r: (clean(r["what"], 100), "dim")),
                    Column("last", 12, lambda r: worded(r["last"]) if r["last"] else ("", ""), keep=3),
                ),
                key="name",
                empty="what can be started appears here with the first deployment",
                ident="cases",
                header=False,
            )
        yield Table(
            "runs   enter opens one",
            run_columns(self.view.now),
            key="run_id",
            empty="no run yet: choose a plan or a case above and press enter",
            ident="runs",
        )

    def on_mount(self) -> None:
        self.query_one("#cases", Table).focus()

    async def fetch(self) -> HomeView:
        config = self.view.session.config
        history = await self.feed.rows("screen_history", tables=("attempts", "runs"))
        known = await self.feed.rows("screen_deployments", tables=("lives", "attempts", "runs"))
        return HomeView(
            nodes=node_rows(config, await self.feed.rows("live_nodes", tables=("node_states", "clock_offsets"))),
            deployments=deployment_rows(config, [await self._with_result(d) for d in known]),
            cases=case_rows(config, history),
            runs=tuple((await self.feed.rows("runs_list", tables=("runs", "attempts", "orders")))[:500]),
            history=tuple(history),
            now_ns=self.view.now(),
            plans=progress_of(config, history),
        )

    def _now(self, snap: HomeView) -> list[Line]:
        return now_lines(snap, bool(self.view.session.config.nodes), self.view.session.owner.alive)

    async def _with_result(self, deployment: Row) -> Row:
        """The figures of a deployment's last finished attempt: of its steady window, else of all its requests."""
        for window in ("steady", "all"):
            if deployment["attempt_id"] is None:
                break
            found = await self.metrics.of({"attempt_id": deployment["attempt_id"], "state": "done"}, window)
            if found and found["output_tps"] is not None:
                return {**deployment, "result": found, "window": window}
        return {**deployment, "result": None, "window": ""}

    def apply(self, snapshot: HomeView) -> None:
        self.query_one("#now", TextPanel).show(tuple(self._now(snapshot)))
        self.query_one("#nodes", Table).show(list(snapshot.nodes))
        self.query_one("#deployments", Table).show(list(snapshot.deployments))
        self.query_one("#cases", Table).show(list(snapshot.cases))
        self.query_one("#runs", Table).show(list(snapshot.runs))

    def place_panels(self, width: int, height: int) -> None:
        snap: HomeView | None = self.snapshot
        nodes = max(len(snap.nodes), 1) if snap else 1
        deployments = max(len(snap.deployments), 1) if snap else 1
        cases = max(len(snap.cases), 1) if snap else 1
        now = 1 + (min(len(wrap(self._now(snap), width)), 6) if snap else 1)
        narrow = width < 110
        for ident in ("#home-upper", "#home-left"):
            self.query_one(ident).set_class(narrow, "-stacked")
        runs = max((height - now) // 3, 4)
        upper = height - now - runs
        self.height_of(self.query_one("#now"), now)
        self.height_of(self.query_one("#home-upper"), upper)
        if narrow:
            top_nodes, top_deployments = min(nodes, 4), min(deployments, 3)
            left = 2 + top_nodes + top_deployments
            self.height_of(self.query_one("#home-left"), left)
            self.height_of(self.query_one("#nodes"), 1 + top_nodes)
            self.height_of(self.query_one("#deployments"), 1 + top_deployments)
            self.height_of(self.query_one("#cases"), max(upper - left, 3))
        else:
            upper = min(upper, max(2 + nodes + deployments + 2, cases + 1))
            runs = height - now - upper
            self.height_of(self.query_one("#home-upper"), upper)
            self.height_of(self.query_one("#home-left"), upper)
            self.height_of(self.query_one("#nodes"), min(nodes + 1, upper // 2))
            self.height_of(self.query_one("#deployments"), upper - min(nodes + 1, upper // 2))
            self.height_of(self.query_one("#cases"), upper)
        self.height_of(self.query_one("#runs"), runs)

    def headline(self) -> Ends:
        config = self.view.session.config
        return self.heading(
            ((clean(config.project.name, 40), ""), (f"  {clean(config.path or 'no configuration', 80)}", "dim"))
        )

    def forget(self) -> None:
        super().forget()
        self.metrics.forget()

    # --- actions

    @on(Table.Chosen, "#nodes")
    def _node(self, event: Table.Chosen) -> None:
        self.post_message(Go("node", node=event.row["node"]))

    @on(Table.Chosen, "#runs")
    def _run(self, event: Table.Chosen) -> None:
        place = "live" if event.row["state"] == "running" else "run"
        self.post_message(Go(place, run_id=event.row["run_id"]))

    @on(Table.Chosen, "#deployments")
    def _deployment(self, event: Table.Chosen) -> None:
        if event.row["run_id"]:
            self.post_message(Go("run", run_id=event.row["run_id"]))

    @on(Table.Chosen, "#cases")
    def _case(self, event: Table.Chosen) -> None:
        snap: HomeView = self.snapshot
        marked = tuple(r["name"] for r in snap.cases if r["name"] in self.view.marked)
        self.start(marked or (event.row["name"],))

    def start(self, what: tuple[str, ...]) -> None:
        """Show on the plan screen what starting `what` will do."""
        self.post_message(Go("plan", what=what))

    def action_mark(self) -> None:
        table = self.query_one("#cases", Table)
        if table.has_focus and table.row and table.row["kind"] == "case":
            self.view.marked ^= {table.row["name"]}
            table.redraw()
            table.action_move(1)

    def _chosen_deployment(self) -> str | None:
        row = self.query_one("#deployments", Table).row
        return row["deployment"] if row else None

    def action_up(self) -> None:
        if name := self._chosen_deployment():
            self.send("up", deployment=name)

    def action_down(self) -> None:
        if name := self._chosen_deployment():
            self._take_down(name)

    def _take_down(self, name: str) -> None:
        def go(text: str | None) -> None:
            if text == "down":
                self.send("down", deployment=name)

        self.app.push_screen(Ask(f"take {clean(name, 40)} down?", "write down to confirm; its logs are kept"), go)

    def _watch(self) -> None:
        self.send("start_watch", seconds=WATCH_S)

    def ordered(self, kind: str, answer: Row) -> None:
        if kind == "start_watch" and answer.get("run_id"):
            self.post_message(Go("live", run_id=answer["run_id"]))

    def commands(self) -> Iterable[Command]:
        if self.snapshot is None:
            return
        for r in self.snapshot.cases:
            name = r["name"]
            yield Command(f"start: {name}", f"{r['kind']}: {r['what']}", lambda name=name: self.start((name,)))
        if self.view.session.config.nodes:
            yield Command("watch", "metrics and logs with no run, for an hour", self._watch)
        for d in self.snapshot.deployments:
            name = d["deployment"]
            if d["state"] == "ready":
                yield Command(f"down: {name}", "stop its server", lambda name=name: self._take_down(name))
                yield Command(
                    f"restart: {name}",
                    "a new server life; refused while a run uses it",
                    lambda name=name: self.send("restart", deployment=name),
                )
            elif d["asked_engine"] != "external":
                yield Command(f"up: {name}", "start its server", lambda name=name: self.send("up", deployment=name))
