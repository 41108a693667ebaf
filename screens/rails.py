"""Rails: every port of a node by direction, its share of line and node, its troubles, and how that went over time."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult

from screens.data import Row
from screens.history import History, HistoryScreen, Window
from screens.widgets.chart import Chart
from screens.widgets.table import Column, Table
from screens.widgets.text import NONE, Span, clean, num, short

CHARTS = ("rail-tx", "rail-rx", "rail-trouble")
ROLES = ("one", "two", "three", "accent")


def _rate(value: float | None) -> Span:
    return (NONE if value is None else f"{value:.2f}", "")


def _count(value: int | None) -> Span:
    return (short(value), "warn" if value else "dim") if value is not None else (NONE, "dim")


def _pause(r: Row) -> Span:
    if r["rx_pauses"] is None and r["tx_pauses"] is None:
        return ("no PFC" if r["pfc"] == "not configured" else NONE), "dim"
    said = f"{short(r['rx_pauses'] or 0)}/{short(r['tx_pauses'] or 0)}"
    return said, "warn" if r["rx_pauses"] or r["tx_pauses"] else "dim"


class RailsScreen(HistoryScreen):
    PLACE = "rails"
    KEY = "g l"
    ABOUT = "rails: both directions, balance, pauses, loss; history"

    def body(self) -> ComposeResult:
        yield Table(
            "rails   GB/s, and what the counters gained in this window",
            (
                Column("device", 8, lambda r: (clean(r["device"], 20), "accent")),
                Column("netdev", 6, lambda r: (clean(r["netdev"] or NONE, 16), ""), keep=6),
                Column("numa", 4, lambda r: (num(r["numa"]), "dim"), ">", keep=3),
                Column(
                    "state",
                    7,
                    lambda r: (clean(r["state"] or NONE, 12), "" if r["state"] == "ACTIVE" else "bad"),
                    keep=7,
                ),
                Column("tx", 6, lambda r: _rate(r["tx_gbs"]), ">"),
                Column("rx", 6, lambda r: _rate(r["rx_gbs"]), ">"),
                Column("line%", 5, lambda r: (num(r["line_pct"], 1), ""), ">", keep=7),
                Column("node%", 5, lambda r: (num(r["node_pct"]), "warn" if _unequal(r) else ""), ">"),
                Column("again", 6, lambda r: _count(r["retransmits"]), ">", keep=8),
                Column("late", 5, lambda r: _count(r["timeouts"]), ">", keep=5),
                Column("drop", 5, lambda r: _count(r["drops"]), ">", keep=6),
                Column("err", 5, lambda r: _count(r["errors"]), ">", keep=5),
                Column("pause r/t", 9, _pause, ">", keep=6),
                Column("cnp", 5, lambda r: _count(r["cnp"]), ">", keep=2),
                Column("ecn", 5, lambda r: _count(r["ecn"]), ">", keep=2),
                Column("resets", 6, lambda r: _count(r["resets"]), ">", keep=1),
                Column("", 0, lambda r: (clean(r["missing"] or "", 80), "dim"), keep=0),
            ),
            key="device",
            empty="no port counters in this window; RDMA ports are read from /sys/class/infiniband",
            ident="rails-table",
        )
        for ident, title in zip(CHARTS, ("tx GB/s", "rx GB/s", "trouble"), strict=True):
            yield Chart(title, empty="no sample in this window", ident=ident)

    async def ask(self, window: Window, node: str | None) -> dict[str, list[Row]]:
        run, t0, t1, step = window.run_id, window.t0, window.t1, window.step_s
        ports = await self.feed.rows("rail_window", run, t0, t1, node, *window.clocks)
        history = await self.feed.rows("rail_history", run, t0, t1, step, node, *window.clocks)
        return {"ports": ports, "history": history}

    @on(Table.Moved, "#rails-table")
    def _other_rail(self) -> None:
        self.show()

    def apply(self, snapshot: History) -> None:
        ports, history, window = snapshot.rows["ports"], snapshot.rows["history"], snapshot.window
        table = self.query_one("#rails-table", Table)
        table.show(ports)
        by_rail = [(p["device"], [r for r in history if r["device"] == p["device"]]) for p in ports[: len(ROLES)]]
        for ident, column in (("#rail-tx", "tx_gbs"), ("#rail-rx", "rx_gbs")):
            named = [(clean(d, 12), ROLES[i], rows, column) for i, (d, rows) in enumerate(by_rail)]
            self.query_one(ident, Chart).show(window.plot_many(named) if named else None)
        row = table.row or (ports[0] if ports else None)
        mine = [r for r in history if row is not None and r["device"] == row["device"]]
        chart = self.query_one("#rail-trouble", Chart)
        chart.title = f"{clean(row['device'], 12)}: retransmissions, pauses, drops a step" if row else "trouble"
        curves = (("again", "one", "retransmits"), ("pauses", "two", "pauses"), ("drops", "three", "drops"))
        chart.show(window.plot(mine, curves))

    def place_panels(self, width: int, height: int) -> None:
        snap: History | None = self.snapshot
        table = 2 + min(max(len(snap.rows["ports"]) if snap else 1, 1), 6)
        self.height_of(self.query_one("#rails-table"), table)
        self.charts_in(CHARTS, height - table)


def _unequal(r: Row) -> bool:
    return r["node_pct"] is not None and r["rails"] > 1 and r["node_pct"] < 80 / r["rails"]
