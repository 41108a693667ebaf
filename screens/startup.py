"""Start-up: how far each node of a server life has come, beside what is usual; which ranks a stage waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from screens.base import ConsoleScreen, Go
from screens.data import Row
from screens.widgets.bars import Ends, TextPanel
from screens.widgets.lamps import worded
from screens.widgets.table import Column, Table
from screens.widgets.text import NONE, Line, Span, ago, clean, line

S = 1_000_000_000
_WORDS = {"done": ("● done", "ok"), "now": ("◐ now", "warn"), "failed here": ("✖ failed here", "bad")}


@dataclass(frozen=True)
class StartView:
    lives: list[Row]
    life: Row | None
    stages: list[Row]
    lines: list[Row]


class StartupScreen(ConsoleScreen):
    PLACE = "startup"
    KEY = "g s"
    ABOUT = "how servers come up: stages of every node, and what hangs"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("l", "live", "the run of this life on the live screen")]

    def body(self) -> ComposeResult:
        yield Table(
            "server lives",
            (
                Column("life", 0, lambda r: (clean(r["life_id"], 80), ""), keep=8),
                Column("deployment", 16, lambda r: (clean(r["deployment"], 40), "")),
                Column("state", 12, lambda r: worded(r["state"])),
                Column("came up in", 11, lambda r: (_s(r["ready_s"]), ""), ">", keep=6),
                Column("ended", 15, lambda r: worded(r["outcome"]) if r["outcome"] else ("", ""), keep=5),
            ),
            key="life_id",
            empty="no server was started yet: `twinrail up DEPLOYMENT`, or start a plan on 4",
            ident="lives",
        )
        yield Table(
            "stages",
            (
                Column("stage", 10, lambda r: (clean(r["stage"], 20), "strong" if r["state"] == "now" else "")),
                Column("node", 10, lambda r: (clean(r["node"] or "all", 40), "")),
                Column("state", 14, lambda r: _WORDS.get(r["state"], (f"○ {r['state']}", "dim")), keep=8),
                Column("ranks", 7, _ranks, ">", keep=6),
                Column("began", 8, lambda r: (_s(r["begin_s"]), ""), ">", keep=4),
                Column("done at", 8, _done, ">", keep=7),
                Column("usual", 8, lambda r: (_s(r["typical_s"]), "dim"), ">", keep=7),
                Column("waits for", 0, _waits, keep=3),
            ),
            key="key",
            empty="this server is not ours: no stages are seen",
            ident="stages",
        )
        yield TextPanel("what the ranks said last", empty="nothing yet", ident="said")

    def on_mount(self) -> None:
        self.query_one("#lives", Table).focus()

    async def fetch(self) -> StartView:
        lives = list(await self.feed.rows("startup_lives", tables=("lives",)))
        row = self.query_one("#lives", Table).row
        life = next((r for r in lives if row and r["life_id"] == row["life_id"]), lives[0] if lives else None)
        if life is None:
            return StartView([], None, [], [])
        tables = ("lives", "jobs", "log_events")
        stages = await self.feed.rows("startup_stages", life["life_id"], tables=tables)
        stages = [{**r, "key": f"{r['stage']}/{r['node']}"} for r in stages]
        lines = await self.feed.rows("startup_lines", life["life_id"], tables=("log_lines",))
        return StartView(lives, life, stages, list(lines))

    def apply(self, snapshot: StartView) -> None:
        self.query_one("#lives", Table).show(snapshot.lives)
        table = self.query_one("#stages", Table)
        life = snapshot.life
        table.title = f"stages of {clean(life['life_id'], 60)}, seconds since its process began" if life else "stages"
        table.show(snapshot.stages)
        said: list[Line] = []
        if life and life["detail"]:
            bad = life["outcome"] not in (None, "OK")
            outcome = f"{life['outcome']}: " if life["outcome"] else ""
            said.append(
                line((outcome, "bad" if bad else ""), (clean(life["detail"]), "" if life["outcome"] else "warn"))
            )
        said += [line((f"{clean(r['node'], 20)} ", "accent"), clean(r["text"], 2000)) for r in snapshot.lines]
        self.query_one("#said", TextPanel).show(tuple(said))

    def place_panels(self, width: int, height: int) -> None:
        snapshot = self.snapshot
        stages = min(max(len(snapshot.stages) if snapshot else 1, 1) + 2, max(height - 8, 4))
        lives = min(max(len(snapshot.lives) if snapshot else 1, 1) + 2, max((height - stages) // 2, 4))
        self.height_of(self.query_one("#lives"), lives)
        self.height_of(self.query_one("#stages"), stages)
        self.height_of(self.query_one("#said"), max(height - lives - stages, 0))

    def headline(self) -> Ends:
        life = self.snapshot.life if self.snapshot else None
        if life is None:
            return self.heading((("start-up", ""),))
        spans: list[Span] = [(f"start-up  {clean(life['deployment'], 40)}  ", ""), worded(life["state"])]
        if life["state"] == "starting" and life["started_wall_ns"]:
            spans.append((f"  for {ago((self.view.now() - life['started_wall_ns']) / S)}", ""))
        usual = next((r["typical_s"] for r in self.snapshot.stages if r["stage"] == "ready"), None)
        if usual is not None:
            spans.append((f"  usually {_s(usual)}", "dim"))
        return self.heading(spans)

    @on(Table.Moved, "#lives")
    def _other(self) -> None:
        self.poke()

    @on(Table.Chosen, "#lives")
    def _open(self) -> None:
        self.query_one("#stages", Table).focus()

    def action_live(self) -> None:
        row = self.query_one("#lives", Table).row
        if row and row["run_id"]:
            self.post_message(Go("live", run_id=row["run_id"]))


def _s(seconds: float | None) -> str:
    return NONE if seconds is None else f"{seconds:.1f} s"


def _done(row: Row) -> Span:
    """Slower than usual by half is said in words too: the figure beside it is the usual one."""
    late = row["end_s"] is not None and row["typical_s"] and row["end_s"] > 1.5 * row["typical_s"] + 1
    return f"{'▲' if late else ''}{_s(row['end_s'])}", "warn" if late else ""


def _ranks(row: Row) -> Span:
    return (f"{row['ended']}/{row['begun']}" if row["begun"] else "", "")


def _waits(row: Row) -> Span:
    """Ranks that began the stage and are not through it."""
    waiting = row["waiting"] or []
    if not waiting or row["state"] == "done":
        return "", ""
    more = f" and {len(waiting) - 12} more" if len(waiting) > 12 else ""
    return f"ranks {', '.join(str(r) for r in waiting[:12])}{more}", "warn"
