"""Threads: which threads of the server fill their cores or wait for one, and where the workers' memory lies."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult

from screens.data import Row
from screens.history import History, HistoryScreen, Window
from screens.widgets.chart import Chart
from screens.widgets.table import Column, Table
from screens.widgets.text import NONE, Span, clean, num, short, spark


def _busy(value: float | None) -> Span:
    return num(value, 1), "warn" if (value or 0) >= 95 else ""


class ThreadsScreen(HistoryScreen):
    PLACE = "threads"
    KEY = "g t"
    ABOUT = "threads of the server by name: cores, run queue, switches, faults, NUMA"

    def body(self) -> ComposeResult:
        yield Table(
            "threads   % of a core",
            (
                Column("tid", 8, lambda r: (str(r["tid"]), "dim"), ">", keep=4),
                Column("role", 11, lambda r: (clean(r["role"] or NONE, 12), "accent")),
                Column("thread", 15, lambda r: (clean(r["name"] or NONE, 16), "")),
                Column("core%", 5, lambda r: _busy(r["core_pct"]), ">"),
                Column("peak", 5, lambda r: _busy(r["peak_pct"]), ">", keep=6),
                Column(
                    "wait%", 5, lambda r: (num(r["wait_pct"], 1), "warn" if (r["wait_pct"] or 0) >= 10 else ""), ">"
                ),
                Column("inv/s", 6, lambda r: (short(r["involuntary_per_s"]), ""), ">", keep=5),
                Column("vol/s", 6, lambda r: (short(r["voluntary_per_s"]), "dim"), ">", keep=3),
                Column(
                    "majflt",
                    6,
                    lambda r: (short(r["major_faults"]), "warn" if r["major_faults"] else "dim"),
                    ">",
                    keep=3,
                ),
                Column("cpu", 4, lambda r: (num(r["last_cpu"]), "dim"), ">", keep=4),
                Column("moved", 5, lambda r: (num(r["cpus"]), "dim"), ">", keep=2),
                Column("", 12, lambda r: (spark(r["series"] or [], 12, 100.0), "calm"), keep=5),
                Column("process", 0, lambda r: (clean(r["process"] or NONE, 100), "dim"), keep=2),
            ),
            key="tid",
            empty="no thread of a server in this window: found by our jobs, else by the titles of engines",
            ident="thread-table",
        )
        yield Table(
            "memory of the processes by NUMA node",
            (
                Column("pid", 8, lambda r: (str(r["pid"]), "dim"), ">"),
                Column("process", 24, lambda r: (clean(r["process"] or NONE, 60), "")),
                Column("GiB", 7, lambda r: (num(None if r["bytes"] is None else r["bytes"] / 2**30, 1), ""), ">"),
                Column(
                    "away%", 5, lambda r: (num(r["away_pct"], 1), "warn" if (r["away_pct"] or 0) >= 10 else ""), ">"
                ),
                Column("cpus", 12, lambda r: (clean(r["cpus"] or NONE, 24), "dim"), keep=3),
                Column("", 0, lambda r: (clean(r["missing"] or r["by_node"] or "", 100), "dim")),
            ),
            key="pid",
            empty="no pages read in this window: once a minute, of processes that may be read",
            ident="numa-table",
        )
        yield Chart("core %", empty="a curve appears with the second sample of the thread", ident="thread-chart")

    async def ask(self, window: Window, node: str | None) -> dict[str, list[Row]]:
        run, t0, t1 = window.run_id, window.t0, window.t1
        threads = await self.feed.rows("thread_top", run, t0, t1, node, *window.clocks, 60)
        numa = await self.feed.rows("thread_numa", run, t0 - 60 * 10**9, t1 + 10**9, node, *window.clocks)
        row = self.query_one("#thread-table", Table).row
        tid = row["tid"] if row is not None and any(r["tid"] == row["tid"] for r in threads) else None
        tid = threads[0]["tid"] if tid is None and threads else tid
        step = max(window.step_s, 5)
        one = await self.feed.rows("thread_history", run, t0, t1, step, node, tid, *window.clocks) if threads else []
        return {"threads": threads, "numa": numa, "one": one}

    @on(Table.Moved, "#thread-table")
    def _other_thread(self) -> None:
        self.poke()

    def apply(self, snapshot: History) -> None:
        rows = snapshot.rows
        table = self.query_one("#thread-table", Table)
        table.show(rows["threads"])
        self.query_one("#numa-table", Table).show(rows["numa"])
        chart = self.query_one("#thread-chart", Chart)
        row = table.row
        chart.title = f"{clean(row['role'] or '', 12)} {clean(row['name'] or '', 16)}: % of a core" if row else "core %"
        curves = (("on a core", "one", "core_pct"), ("waiting for one", "two", "wait_pct"))
        chart.show(snapshot.window.plot(rows["one"], curves))

    def place_panels(self, width: int, height: int) -> None:
        snap: History | None = self.snapshot
        chart = 7 if height < 30 else 10
        numa = min(2 + (len(snap.rows["numa"]) if snap else 0), height // 4) if snap and snap.rows["numa"] else 0
        numa = numa if height >= 20 else 0
        self.height_of(self.query_one("#thread-chart"), chart)
        self.height_of(self.query_one("#numa-table"), numa)
        self.height_of(self.query_one("#thread-table"), max(height - chart - numa, 3))
