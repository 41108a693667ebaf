"""Jobs: everything of ours that lives on the nodes, and the last lines of each."""

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
from screens.widgets.text import NONE, Span, ago, clean, line, num, short

S = 1_000_000_000


@dataclass(frozen=True)
class JobsView:
    jobs: list[Row]
    tail: list[Row]
    chosen: Row | None


class JobsScreen(ConsoleScreen):
    PLACE = "jobs"
    KEY = "0"
    ABOUT = "what of ours lives on the nodes"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "alive", "only living jobs, or all"),
        Binding("l", "live", "the run of this job on the live screen"),
    ]
    only_alive = False

    def body(self) -> ComposeResult:
        yield Table(
            "jobs",
            (
                Column("job", 34, lambda r: (clean(r["job_id"], 80), ""), keep=7),
                Column("node", 9, lambda r: (clean(r["node"], 40), "")),
                Column("kind", 9, lambda r: (clean(r["kind"], 20), "")),
                Column("rank", 4, lambda r: (num(r["rank"]), "dim"), ">", keep=4),
                Column("state", 11, lambda r: worded(r["state"])),
                Column("exit", 4, _exit, ">", keep=6),
                Column("pid", 8, lambda r: (num(r["pid"]), "dim"), ">", keep=3),
                Column("age", 7, self._age, ">", keep=5),
                Column("ends by", 8, self._ttl, ">", keep=2),
                Column("read", 6, lambda r: (short(r["bytes_read"]), "dim"), ">", keep=2),
                Column("folder", 0, lambda r: (clean(r["folder"], 200), "dim"), keep=1),
            ),
            key="job_id",
            empty="nothing of ours runs on the nodes, and nothing ran",
            ident="all-jobs",
        )
        yield TextPanel("output", empty="the chosen job has written nothing yet", ident="tail")

    def _age(self, r: Row) -> Span:
        end = r["ended_wall_ns"] or self.view.now()
        return ago((end - r["started_wall_ns"]) / S) if r["started_wall_ns"] else NONE, "dim"

    def _ttl(self, r: Row) -> Span:
        if r["ttl_s"] is None or r["started_wall_ns"] is None or r["state"] not in ("starting", "running"):
            return "", ""
        left = r["ttl_s"] - (self.view.now() - r["started_wall_ns"]) / S
        return (f"in {ago(left)}", "dim") if left > 0 else ("▲ overdue", "warn")

    def on_mount(self) -> None:
        self.query_one("#all-jobs", Table).focus()

    async def fetch(self) -> JobsView:
        jobs = list(await self.feed.rows("jobs_list", tables=("jobs", "offsets")))
        jobs.sort(key=lambda j: j["state"] not in ("starting", "running"))
        if self.only_alive:
            jobs = [j for j in jobs if j["state"] in ("starting", "running")]
        row = self.query_one("#all-jobs", Table).row
        chosen = next((j for j in jobs if row and j["job_id"] == row["job_id"]), jobs[0] if jobs else None)
        tail = await self.feed.rows("screen_job_tail", chosen["job_id"], tables=("log_lines",)) if chosen else []
        return JobsView(jobs, tail, chosen)

    def apply(self, snapshot: JobsView) -> None:
        table = self.query_one("#all-jobs", Table)
        table.title = "jobs, living ones (a shows all)" if self.only_alive else "jobs (a shows only living ones)"
        table.show(snapshot.jobs)
        tail = self.query_one("#tail", TextPanel)
        if snapshot.chosen:
            tail.title = f"output of {clean(snapshot.chosen['job_id'], 60)}"
        tail.show(tuple(line((f"{clean(r['stream'], 8)} ", "dim"), clean(r["text"], 2000)) for r in snapshot.tail))
        if not tail.has_focus:
            tail.bottom()

    def place_panels(self, width: int, height: int) -> None:
        n = len(self.snapshot.jobs) if self.snapshot else 1
        jobs = min(max(n, 1) + 2, height * 2 // 3)
        self.height_of(self.query_one("#all-jobs"), jobs)
        self.height_of(self.query_one("#tail"), height - jobs)

    def headline(self) -> Ends:
        jobs = self.snapshot.jobs if self.snapshot else []
        alive = sum(1 for j in jobs if j["state"] in ("starting", "running"))
        return self.heading(
            (
                (f"jobs  {alive} alive of {len(jobs)}", ""),
                ("   `twinrail jobs --reap` ends what was left behind", "dim"),
            )
        )

    @on(Table.Moved, "#all-jobs")
    def _other(self) -> None:
        self.poke()

    @on(Table.Chosen, "#all-jobs")
    def _open(self) -> None:
        self.query_one("#tail", TextPanel).focus()

    def action_alive(self) -> None:
        self.only_alive = not self.only_alive
        self.poke()

    def action_live(self) -> None:
        row = self.query_one("#all-jobs", Table).row
        if row and row["run_id"]:
            self.post_message(Go("live", run_id=row["run_id"]))


def _exit(r: Row) -> Span:
    return num(r["exit_code"]) if r["exit_code"] is not None else "", "bad" if r["exit_code"] else "dim"
