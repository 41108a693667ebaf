"""Node: one machine in full: devices, rails, host, busiest threads, and its log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from screens.base import Command, ConsoleScreen
from screens.data import Row
from screens.dialogs import Ask
from screens.jump import instant
from screens.live_data import S, clocks_of, log_rows, netdevs_of
from screens.widgets.bars import Ends, TextPanel
from screens.widgets.devices import Devices, with_processes
from screens.widgets.lamps import worded
from screens.widgets.logview import LogView
from screens.widgets.rails import Rails, worth_showing
from screens.widgets.table import Column, Table
from screens.widgets.text import NONE, Line, ago, bar, clean, line, num, short, spark


@dataclass(frozen=True)
class NodeView:
    node: str
    state: Row | None
    gpus: list[Row]
    rails: list[Row]
    host: Row | None
    threads: list[Row]
    logs: list[Row]
    checks: list[Row]
    now_ns: int


class NodeScreen(ConsoleScreen):
    PLACE = "node"
    KEY = "3"
    ABOUT = "one node: devices, rails, host, logs"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket", "other(-1)", "node before"),
        Binding("right_square_bracket", "other(1)", "node after"),
        Binding("slash", "search", "search the log"),
        Binding("t", "jump", "show the log around a time"),
        Binding("f", "follow", "follow the log"),
    ]

    def body(self) -> ComposeResult:
        yield TextPanel("host", empty="nothing is known of this node yet: `twinrail check` asks it", ident="host")
        yield Devices("GPU", empty="no GPU sample of the last two minutes", ident="devices")
        yield Rails("rails  GB/s", empty="no rail counter of the last two minutes", ident="rails")
        with Horizontal(id="node-lower"):
            yield Table(
                "threads   % of a core",
                (
                    Column("tid", 7, lambda r: (str(r["tid"]), "dim"), ">", keep=3),
                    Column("thread", 0, lambda r: (clean(r["name"] or NONE, 40), "")),
                    Column("%", 6, lambda r: (num(r["cpu_pct"], 1), "warn" if (r["cpu_pct"] or 0) >= 95 else ""), ">"),
                    Column("cpu", 4, lambda r: (num(r["last_cpu"]), "dim"), ">", keep=4),
                    Column("inv.sw", 7, lambda r: (short(r["involuntary"]), "dim"), ">", keep=2),
                ),
                key="tid",
                empty="no thread sample of the last two minutes",
                ident="threads",
            )
            yield LogView("log", empty="no log line of this node yet", ident="logs")

    def names(self) -> list[str]:
        known = [n.name for n in self.view.session.config.nodes]
        return known or ([self.view.node] if self.view.node else [])

    async def fetch(self) -> NodeView | None:
        states = await self.feed.rows("live_nodes", tables=("node_states", "clock_offsets"))
        names = self.names() or [s["node"] for s in states]
        if not names:
            return None
        name = self.view.node if self.view.node in names else names[0]
        self.view.node = name
        state = next((s for s in states if s["node"] == name), None)
        now = self.view.now()
        offset = (state["offset_ns"] or 0) if state else 0
        clocks = clocks_of(await self.feed.rows("live_clock", None, tables=("clock_offsets", "runs")))
        t0 = now - 120 * S
        gpus = await self.feed.rows("live_gpus", None, t0, now, *clocks)
        held = await self.feed.rows("live_gpu_processes", None, t0, now, *clocks, every=2)
        gpus = with_processes([g for g in gpus if g["node"] == name], held)
        rails = await self.feed.rows("live_rails", None, t0, now, *clocks)
        host = await self.feed.rows("screen_host", t0 + offset, now + offset)
        query = replace(self.query_one(LogView).ask(), node=name)
        return NodeView(
            node=name,
            state=state,
            gpus=gpus,
            rails=worth_showing([r for r in rails if r["node"] == name], netdevs_of(self.view)),
            host=next((h for h in host if h["node"] == name), None),
            threads=await self.feed.rows("screen_threads", name, t0 + offset, now + offset, every=2, key=name),
            logs=await log_rows(self.feed, None, now, clocks, True, query),
            checks=[g for g in await self.feed.rows("screen_gates", None, tables=("gates",)) if g["node"] == name],
            now_ns=now,
        )

    def apply(self, snapshot: NodeView) -> None:
        self.query_one("#host", TextPanel).show(tuple(host_lines(snapshot, self.size.width)))
        self.query_one(Devices).show(snapshot.gpus)
        self.query_one(Rails).show(snapshot.rails)
        self.query_one("#threads", Table).show(snapshot.threads)
        logs = self.query_one(LogView)
        logs.nodes = (snapshot.node,)
        logs.show(snapshot.logs)

    def place_panels(self, width: int, height: int) -> None:
        snap: NodeView | None = self.snapshot
        host = 1 + (len(host_lines(snap, width)) if snap else 1)
        rails = 1 + max(len(snap.rails) if snap else 1, 1)
        devices = self.query_one(Devices)
        room = height - host - rails - max(height // 4, 6)
        want = next((n for n in (devices.lines_wanted(level) for level in (3, 2, 1, 0)) if n + 1 <= room), 1)
        gpus = 1 + max(want, 1)
        self.height_of(self.query_one("#host"), host)
        self.height_of(devices, gpus)
        self.height_of(self.query_one(Rails), rails)
        lower = max(height - host - gpus - rails, 3)
        self.height_of(self.query_one("#node-lower"), lower)
        threads = self.query_one("#threads")
        self.height_of(threads, lower if width >= 100 else 0)
        self.height_of(self.query_one(LogView), lower)

    def headline(self) -> Ends:
        snap: NodeView | None = self.snapshot
        if snap is None:
            return self.heading((("node  ", ""), ("no node is configured: `twinrail init` asks for them", "dim")))
        names = self.names()
        at = (
            f"  {names.index(snap.node) + 1}/{len(names)}  [ ] other node"
            if snap.node in names and len(names) > 1
            else ""
        )
        state = worded(snap.state["state"]) if snap.state else ("○ not seen yet", "dim")
        return self.heading(((clean(snap.node, 60), "strong"), ("  ", ""), state, (at, "dim")))

    def action_other(self, by: int) -> None:
        names = self.names()
        if names:
            at = names.index(self.view.node) if self.view.node in names else 0
            self.view.node = names[(at + by) % len(names)]
            self.poke()

    @on(LogView.Wanted)
    def _other_lines(self) -> None:
        self.poke()

    def action_search(self) -> None:
        logs = self.query_one(LogView)

        def go(text: str | None) -> None:
            if text is not None:
                logs.search(text)
                logs.focus()

        self.app.push_screen(
            Ask("search the log", "text in a line; empty shows all", logs.query_state.needle or ""), go
        )

    def action_jump(self) -> None:
        def go(text: str | None) -> None:
            at = instant(text or "", self.view.now())
            if at is not None:
                self.query_one(LogView).jump(at)
                self.query_one(LogView).focus()
            elif text:
                self.notify(f"{clean(text, 20)!r} is no time; write 14:31:07 (UTC)", severity="warning")

        self.app.push_screen(Ask("show the log around a time", "14:31:07 (UTC)"), go)

    def action_follow(self) -> None:
        self.query_one(LogView).action_follow()

    def commands(self) -> Iterable[Command]:
        for name in self.names():
            yield Command(f"node: {name}", "show this node", lambda name=name: self._show(name))

    def _show(self, name: str) -> None:
        self.view.node = name
        self.poke()


def host_lines(snap: NodeView, width: int) -> list[Line]:
    """The machine in a few lines: link and clock, CPU, memory, and checks that need a look."""
    lines: list[Line] = []
    if snap.state is not None:
        s = snap.state
        clock = NONE if s["offset_ns"] is None else f"{s['offset_ns'] / 1e6:+.1f} ± {(s['error_ns'] or 0) / 1e6:.1f} ms"
        seen = ago((snap.now_ns - s["wall_ns"]) / S)
        lines.append(
            line(
                ("link     ", "dim"),
                worded(s["state"]),
                (f"  {clean(s['detail'] or '', 120)}", "warn" if s["state"] != "up" else "dim"),
                (f"  rtt {num(s['rtt_ms'], 1)} ms  clock {clock}  as of {seen} ago", "dim"),
            )
        )
    h = snap.host
    if h is not None:
        bars = max(min(width - 70, 60), 0)
        full = f"  ▲ {h['full_cores']} full" if h["full_cores"] else ""
        lines.append(
            line(
                ("cpu      ", "dim"),
                num(h["busy_pct"], 1, 5),
                (" % of ", "dim"),
                num(h["cores"]),
                (" cores  ", "dim"),
                (spark(h["busy_series"] or [], bars, 100.0), "calm"),
                ("  hottest ", "dim"),
                f"cpu{num(h['hottest_cpu'])} {num(h['hottest_pct'])} %",
                (full, "warn"),
                ("  load ", "dim"),
                num(h["load1"], 1),
            )
        )
        total, free = h["mem_total_bytes"], h["mem_available_bytes"]
        share = None if not total or free is None else 1 - free / total
        swap = h["swap_used_bytes"]
        lines.append(
            line(
                ("memory   ", "dim"),
                num(None if share is None else share * 100, 1, 5),
                " % ",
                (bar(share, min(bars, 20)), "accent"),
                (f"  of {num(total / 2**30 if total else None)} GiB", "dim"),
                ("  swap ", "dim"),
                (num(swap / 2**30 if swap is not None else None, 1) + " GiB", "warn" if swap else ""),
                ("  disk free ", "dim"),
                num(h["disk_free_bytes"] / 2**30 if h["disk_free_bytes"] is not None else None) + " GiB",
            )
        )
    for g in snap.checks:
        if g["status"] in ("fail", "warn", "unknown"):
            fix = f"  fix: {clean(g['fix'], 200)}" if g["fix"] else ""
            lines.append(
                line(worded(g["status"]), f" {clean(g['name'], 40)}: {clean(g['detail'] or '', 200)}", (fix, "accent"))
            )
    return lines[:8]
