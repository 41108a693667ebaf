"""Manifest: the environment of the chosen run as variables, or what differs from another run (d)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from screens.base import ConsoleScreen
from screens.data import Row
from screens.dialogs import Ask
from screens.widgets.bars import Ends, TextPanel
from screens.widgets.table import Column, Table
from screens.widgets.text import NONE, Line, clean, line


@dataclass(frozen=True)
class ManifestView:
    run: str | None
    other: str | None
    rows: list[Row]
    total: int
    chosen: Row | None


class ManifestScreen(ConsoleScreen):
    PLACE = "manifest"
    KEY = "g m"
    ABOUT = "the environment of a run, and what differs from another"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "against", "what differs from another run, or back"),
        Binding("slash", "filter", "filter by name, value, node"),
    ]
    needle = ""
    other: str | None = None

    def body(self) -> ComposeResult:
        yield Table(
            "variables",
            (
                Column("name", 34, lambda r: (clean(r["name"], 120), "")),
                Column("node", 9, lambda r: (clean(r["node"] or "", 40), "dim"), keep=6),
                Column("rank", 4, lambda r: ("" if r["rank"] is None else str(r["rank"]), "dim"), ">", keep=3),
                Column("from", 8, lambda r: (clean(r["source"], 20), "dim"), keep=5),
                Column("value", 0, lambda r: (_shown(r), "")),
            ),
            key="key",
            empty="no manifest: choose a run on 8, or start one",
            ident="variables",
        )
        yield TextPanel("the whole value", empty="choose a variable", ident="value")

    def on_mount(self) -> None:
        self.query_one("#variables", Table).focus()

    async def fetch(self) -> ManifestView:
        runs = await self.feed.rows("runs_list", tables=("runs",))
        known = [r["run_id"] for r in runs]
        run = self.view.run_id or (known[0] if known else None)
        if run is None:
            return ManifestView(None, None, [], 0, None)
        if self.other:
            rows = await self.feed.rows("manifest_diff", run, self.other, tables=("variables",))
        else:
            rows = await self.feed.rows("manifest_rows", run, tables=("variables",))
        words = self.needle.lower().split()
        shown = [r for r in rows if all(w in _text(r) for w in words)]
        row = self.query_one("#variables", Table).row
        chosen = next((r for r in shown if row and r["key"] == row["key"]), shown[0] if shown else None)
        return ManifestView(run, self.other, shown, len(rows), chosen)

    def apply(self, snapshot: ManifestView) -> None:
        table = self.query_one("#variables", Table)
        what = "what differs: ours → theirs" if snapshot.other else "variables"
        if self.needle:
            what += f", filtered by {clean(self.needle, 40)!r}: {len(snapshot.rows)} of {snapshot.total}"
        table.title = f"{what}   /: filter   d: {'back' if snapshot.other else 'against another run'}"
        table.show(snapshot.rows)
        self.query_one("#value", TextPanel).show(_whole(snapshot.chosen))

    def place_panels(self, width: int, height: int) -> None:
        below = min(8, max(height // 4, 4))
        self.height_of(self.query_one("#variables"), height - below)
        self.height_of(self.query_one("#value"), below)

    def headline(self) -> Ends:
        view = self.snapshot
        if view is None or view.run is None:
            return self.heading((("manifest", ""),))
        against = f"  against {clean(view.other, 60)}" if view.other else ""
        return self.heading(((f"manifest  {clean(view.run, 60)}{against}  {view.total} variables", ""),))

    @on(Table.Moved, "#variables")
    def _moved(self) -> None:
        self.poke()

    @on(Table.Chosen, "#variables")
    def _open(self) -> None:
        self.query_one("#value", TextPanel).focus()

    def action_filter(self) -> None:
        def take(text: str | None) -> None:
            if text is not None:
                self.needle = text.strip()
                self.poke()

        self.app.push_screen(Ask("filter the variables", "words of name, value or node", self.needle), take)

    def action_against(self) -> None:
        if self.other:
            self.other = None
            self.poke()
            return

        def take(text: str | None) -> None:
            if text and text.strip():
                self.other = text.strip()
                self.poke()

        self.app.push_screen(Ask("compare with run", "its id (8 lists them)", ""), take)


def _shown(row: Row) -> str:
    if "a" in row:
        return f"{_value(row['a'])} → {_value(row['b'])}"
    return _value(row["value"])


def _value(text: str | None) -> str:
    return NONE if text is None else clean(text, 400)


def _text(row: Row) -> str:
    return f"{row['name']} {row['node'] or ''} {_shown(row)}".lower()


def _whole(row: Row | None) -> tuple[Line, ...]:
    if row is None:
        return ()
    out = [line((clean(row["name"], 200), "strong"), (f"  {row['source']}  {clean(row['node'] or '', 40)}", "dim"))]
    for label, key in (("ours    ", "a"), ("theirs  ", "b"), ("", "value")):
        if key in row:
            out.append(line((label, "accent"), _full(row[key])))
    return tuple(out)


def _full(text: str | None) -> str:
    return NONE if text is None else clean(text, 4000)
