"""Compare: A against B, verdict first, then what changed and every metric with its interval."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from screens.base import Command, ConsoleScreen, Go
from screens.compare_rows import CHANGE_COLUMNS, METRIC_COLUMNS, change_lines, mark_column, metric_lines, verdict_lines
from screens.data import Row, View
from screens.dialogs import Reader
from screens.home_rows import run_columns
from screens.widgets.bars import Ends, TextPanel
from screens.widgets.table import Table
from screens.widgets.text import Span, clean
from store.errors import OwnerGone, StoreError

NONE_YET = "choose a run and press a, another and press b; or one of `twinrail ab --run` and press enter"


@dataclass(frozen=True)
class CompareView:
    """`document` of the pair, or `refused`: why there is none. Rows of both tables carry a key of their own."""

    runs: list[Row]
    document: dict[str, Any] | None
    refused: str | None
    metrics: list[Row]
    changes: list[Row]


class CompareScreen(ConsoleScreen):
    PLACE = "compare"
    KEY = "6"
    ABOUT = "A against B: verdict, intervals, what changed"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "take('a')", "the chosen run is A"),
        Binding("b", "take('b')", "the chosen run is B"),
        Binding("x", "swap", "A and B change places"),
        Binding("n", "noise", "differences that are known noise, or only the others"),
        Binding("c", "clear", "choose anew"),
    ]

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.pair: dict[str, str] = {}
        self.noise = False
        self.snapshot: CompareView | None = None
        self._known: tuple[object, dict[str, Any] | None, str | None] = (None, None, None)

    def body(self) -> ComposeResult:
        with Horizontal(id="compare-upper"):
            yield Table(
                "runs   a, b: one side   enter: both sides of an A/B run",
                (mark_column(self.pair), *run_columns(self.view.now)),
                key="run_id",
                empty="no finished run yet: 4 starts one",
                ident="sides",
            )
            yield TextPanel("verdict", empty=NONE_YET, ident="judgement")
        yield Table("metrics   enter: in words", METRIC_COLUMNS, key="key", empty="", ident="metrics")
        yield Table("what differs   n: noise too", CHANGE_COLUMNS, key="key", empty="", ident="changes")

    def on_mount(self) -> None:
        self.query_one("#sides", Table).focus()

    async def fetch(self) -> CompareView:
        rows = await self.feed.rows("runs_list", tables=("runs", "attempts"))
        runs = [r for r in rows if r["state"] == "done" and r["kind"] in ("run", "search", "ab", "profile")]
        document, refused = await self._document(runs)
        said = document or {"metrics": [], "changed": []}
        changes = [c for c in said["changed"] if self.noise or c["kind"] != "noise"]
        return CompareView(
            runs,
            document,
            refused,
            [{**m, "key": f"{m['case'] or ''} {m['name']}"} for m in said["metrics"]],
            [{**c, "key": c["name"]} for c in changes],
        )

    async def _document(self, runs: list[Row]) -> tuple[dict[str, Any] | None, str | None]:
        """The comparison of the pair, made once; of the newest A/B run until anything is chosen."""
        pair = self.pair or next(({"ab": r["run_id"]} for r in runs if r["kind"] == "ab"), {})
        sides = ([pair["ab"]], []) if "ab" in pair else ([pair.get("a")], [pair.get("b")])
        if not pair or ("ab" not in pair and None in (*sides[0], *sides[1])):
            return None, None
        key = (tuple(sides[0]), tuple(sides[1]))
        if self._known[0] != key:
            try:
                document = await self.view.session.compare([str(r) for r in sides[0]], [str(r) for r in sides[1]])
            except OwnerGone:
                raise
            except StoreError as e:
                self._known = (key, None, str(e))
            else:
                self._known = (key, document, None)
        return self._known[1], self._known[2]

    def apply(self, snapshot: CompareView) -> None:
        self.query_one("#sides", Table).show(snapshot.runs)
        panel = self.query_one("#judgement", TextPanel)
        panel.empty = clean(snapshot.refused, 300) if snapshot.refused else self._asks()
        panel.show(tuple(verdict_lines(snapshot.document)) if snapshot.document else None)
        metrics, changes = self.query_one("#metrics", Table), self.query_one("#changes", Table)
        metrics.empty = "no metric of both sides" if snapshot.document else "the metrics of a comparison appear here"
        changes.empty = "nothing differs" if snapshot.document else "what differs between the sides appears here"
        metrics.show(snapshot.metrics)
        changes.show(snapshot.changes)

    def _asks(self) -> str:
        missing = [s.upper() for s in "ab" if s not in self.pair]
        if len(missing) != 1:
            return NONE_YET
        return f"and now {missing[0]}: choose a run and press {missing[0].lower()}"

    def place_panels(self, width: int, height: int) -> None:
        snap = self.snapshot
        narrow = width < 110
        self.query_one("#compare-upper").set_class(narrow, "-stacked")
        said = len(verdict_lines(snap.document)) if snap and snap.document else 1
        upper = min(max(said + 1, 6), max(height // 3, 4))
        lists = 4 if narrow else 0
        changes = min(3 + len(snap.changes) if snap else 3, max(height // 4, 4))
        self.height_of(self.query_one("#compare-upper"), upper + lists)
        self.height_of(self.query_one("#sides"), lists if narrow else upper)
        self.height_of(self.query_one("#judgement"), upper)
        self.height_of(self.query_one("#metrics"), max(height - upper - lists - changes, 3))
        self.height_of(self.query_one("#changes"), changes)

    def headline(self) -> Ends:
        snap = self.snapshot
        if snap is None or snap.document is None:
            return self.heading((("compare  ", ""), ("nothing compared yet", "dim")))
        sides = snap.document["sides"]
        left: list[Span] = [
            ("A ", "dim"),
            (clean(sides["a"]["label"], 40), "strong"),
            ("   B ", "dim"),
            (clean(sides["b"]["label"], 40), "strong"),
        ]
        return self.heading(left, ((f"a replicate is one {snap.document['replicate']} ", "dim"),))

    @on(Table.Chosen, "#sides")
    def _both(self, event: Table.Chosen) -> None:
        if event.row["kind"] == "ab":
            self._choose({"ab": event.row["run_id"]})
        else:
            self.notify("press a or b: this run is one side")

    @on(Table.Chosen, "#metrics")
    def _metric(self, event: Table.Chosen) -> None:
        self.app.push_screen(Reader(clean(event.row["name"], 40), tuple(metric_lines(event.row))))

    @on(Table.Chosen, "#changes")
    def _change(self, event: Table.Chosen) -> None:
        self.app.push_screen(Reader(clean(event.row["name"], 60), tuple(change_lines(event.row))))

    def _choose(self, pair: dict[str, str]) -> None:
        self.pair.clear()
        self.pair.update(pair)
        self.poke()

    def action_take(self, side: str) -> None:
        row = self.query_one("#sides", Table).row
        if row is not None:
            kept = {k: v for k, v in self.pair.items() if k in "ab" and len(k) == 1}
            self._choose({**kept, side: row["run_id"]})

    def action_swap(self) -> None:
        if {"a", "b"} <= self.pair.keys():
            self._choose({"a": self.pair["b"], "b": self.pair["a"]})

    def action_noise(self) -> None:
        self.noise = not self.noise
        self.poke()

    def action_clear(self) -> None:
        self._choose({})

    def commands(self) -> Iterable[Command]:
        yield Command("compare: choose anew", "forget both sides", self.action_clear)
        if {"a", "b"} <= self.pair.keys():
            yield Command("compare: swap A and B", "", self.action_swap)
        for side in "ab":
            if side in self.pair:
                run_id = self.pair[side]
                yield Command(
                    f"compare: open {side.upper()}", run_id, lambda r=run_id: self.post_message(Go("run", run_id=r))
                )
