"""Runs: all of them, newest first; enter opens the details, l the live screen at that run."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from screens.base import ConsoleScreen, Go
from screens.data import Row
from screens.dialogs import Ask
from screens.home_rows import run_columns
from screens.widgets.bars import Ends
from screens.widgets.table import Table
from screens.widgets.text import clean


class RunsScreen(ConsoleScreen):
    PLACE = "runs"
    KEY = "8"
    ABOUT = "all runs, newest first"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l", "live", "show the run on the live screen, or replay it"),
        Binding("slash", "filter", "filter the runs"),
    ]
    needle = ""

    def body(self) -> ComposeResult:
        yield Table(
            "runs   enter: details   l: live or replay   /: filter",
            run_columns(self.view.now),
            key="run_id",
            empty="no run yet: 1 goes home, choose a plan or a case there and press enter",
            ident="all-runs",
        )

    def on_mount(self) -> None:
        self.query_one(Table).focus()

    async def fetch(self) -> list[Row]:
        return await self.feed.rows("runs_list", tables=("runs", "attempts"))

    def apply(self, snapshot: list[Row]) -> None:
        needle = self.needle.lower()
        keys = ("run_id", "kind", "plan", "deployment", "outcome", "state", "who", "why", "detail")
        kept = [r for r in snapshot if needle in " ".join(str(r[k] or "") for k in keys).lower()]
        table = self.query_one(Table)
        table.empty = (
            f"no run matches {clean(self.needle, 40)!r}: / and an empty text shows all" if needle else table.empty
        )
        table.show(kept)

    def headline(self) -> Ends:
        n = len(self.snapshot or ())
        return self.heading(
            ((f"runs  {n}", ""), (f"  filter {clean(self.needle, 40)}" if self.needle else "", "accent"))
        )

    @on(Table.Chosen)
    def _open(self, event: Table.Chosen) -> None:
        self.post_message(Go("run", run_id=event.row["run_id"]))

    def action_live(self) -> None:
        row = self.query_one(Table).row
        if row:
            self.post_message(Go("live", run_id=row["run_id"]))

    def action_filter(self) -> None:
        def go(text: str | None) -> None:
            if text is not None:
                self.needle = text
                self.show()

        self.app.push_screen(
            Ask("filter the runs", "a piece of run id, case plan, deployment, outcome or reason", self.needle), go
        )
