"""Check: what the last preflight found on every node, and what to do next. Enter or c checks again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from screens.base import Command, ConsoleScreen
from screens.data import Row
from screens.widgets.bars import Ends, TextPanel
from screens.widgets.lamps import worded
from screens.widgets.table import Column, Table
from screens.widgets.text import Line, Span, ago, clean, line

S = 1_000_000_000
SHOWN = ("fail", "warn", "unknown")


@dataclass(frozen=True)
class CheckView:
    rows: list[Row]
    counts: Row | None
    chosen: Row | None


class CheckScreen(ConsoleScreen):
    PLACE = "check"
    KEY = "g c"
    ABOUT = "preflight: what is wrong on the nodes, and the next step"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "check", "check all nodes again"),
        Binding("F", "check_full", "the same, hashing whole model files"),
        Binding("a", "all", "all verdicts, or only what needs a look"),
    ]
    only_bad = False
    asked_ns: int | None = None

    def body(self) -> ComposeResult:
        yield Table(
            "verdicts",
            (
                Column("node", 10, lambda r: (clean(r["node"] or "all", 40), "")),
                Column("check", 13, lambda r: (clean(r["name"], 40), "")),
                Column("status", 16, lambda r: worded(r["status"]), keep=8),
                Column("found", 0, lambda r: (clean(r["detail"] or "", 400), "dim" if _calm(r) else ""), keep=7),
            ),
            key="key",
            empty="no check yet: c asks every node (seconds; nothing there is changed)",
            ident="verdicts",
        )
        yield TextPanel("the chosen verdict", empty="choose a verdict: its figures and the next step", ident="verdict")

    def on_mount(self) -> None:
        self.query_one("#verdicts", Table).focus()

    async def fetch(self) -> CheckView:
        rows = list(await self.feed.rows("check_latest", tables=("gates",)))
        counts = await self.feed.rows("check_counts", tables=("gates",))
        shown = [r for r in rows if r["status"] in SHOWN] if self.only_bad else rows
        row = self.query_one("#verdicts", Table).row
        chosen = next((r for r in shown if row and r["key"] == row["key"]), shown[0] if shown else None)
        return CheckView(shown, counts[0] if counts else None, chosen)

    def apply(self, snapshot: CheckView) -> None:
        table = self.query_one("#verdicts", Table)
        table.title = "verdicts that need a look (a: all)" if self.only_bad else "verdicts (a: only those to look at)"
        table.show(snapshot.rows)
        self.query_one("#verdict", TextPanel).show(_verdict(snapshot.chosen))

    def place_panels(self, width: int, height: int) -> None:
        below = min(8, max(height // 3, 4))
        self.height_of(self.query_one("#verdicts"), height - below)
        self.height_of(self.query_one("#verdict"), below)

    def headline(self) -> Ends:
        return self.heading(_summary(self.snapshot.counts if self.snapshot else None, self.view.now(), self.asked_ns))

    @on(Table.Moved, "#verdicts")
    def _other(self) -> None:
        self.poke()

    @on(Table.Chosen, "#verdicts")
    def _open(self) -> None:
        self.query_one("#verdict", TextPanel).focus()

    def action_check(self) -> None:
        self.asked_ns = self.view.now()
        self.send("check")

    def action_check_full(self) -> None:
        self.asked_ns = self.view.now()
        self.send("check", full=True)

    def action_all(self) -> None:
        self.only_bad = not self.only_bad
        self.poke()

    def commands(self) -> list[Command]:
        return [Command("check all nodes", "preflight: seconds, changes nothing", self.action_check)]

    def ordered(self, kind: str, answer: dict[str, Any]) -> None:
        self.forget()


def _calm(row: Row) -> bool:
    return row["status"] in ("pass", "not_applicable")


def _summary(counts: Row | None, now: int, asked_ns: int | None) -> list[Span]:
    if asked_ns is not None and (counts is None or counts["wall_ns"] < asked_ns):
        return [("check  ", ""), ("◐ asking the nodes", "warn")]
    if counts is None:
        return [("check  never", "")]
    said: list[Span] = [(f"check  {ago((now - counts['wall_ns']) / S)} ago on {counts['nodes']} nodes   ", "")]
    for status, role in (("fail", "bad"), ("warn", "warn"), ("unknown", "warn"), ("pass", "ok")):
        if counts[status]:
            said.append((f"{worded(status)[0].split(' ')[0]} {counts[status]} {status}  ", role))
    return said


def _verdict(row: Row | None) -> tuple[Line, ...]:
    if row is None:
        return ()
    out = [
        line((f"{clean(row['node'] or 'all nodes', 40)}  {clean(row['name'], 40)}  ", "strong"), worded(row["status"]))
    ]
    out.append(line(clean(row["detail"] or "", 4000)))
    if row["fix"] and row["status"] != "pass":
        out.append(line(("next  ", "accent"), clean(row["fix"], 4000)))
    return tuple(out)
