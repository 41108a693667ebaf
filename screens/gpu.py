"""GPU: every device of a node, with the history of the one under the cursor and who holds its memory."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult

from screens.data import Row
from screens.history import History, HistoryScreen, Window
from screens.live_data import S
from screens.widgets.chart import Chart
from screens.widgets.table import Column, Table
from screens.widgets.text import NONE, Span, clean, num

CHARTS = ("gpu-util", "gpu-clock", "gpu-power", "gpu-pcie")


def _mem(r: Row) -> Span:
    used, total = r["mem_used_bytes"], r["mem_total_bytes"]
    return (num(100.0 * used / total) if used is not None and total else NONE, "")


def _gb(value: float | None) -> Span:
    return (NONE if value is None else f"{value / 1e9:.2f}", "")


def _state(r: Row) -> Span:
    if (r["missing"] or "").startswith("all: "):
        return f"✖ {clean(r['missing'][5:], 60)}", "bad"
    if r["throttle"]:
        return f"▲ {clean(r['throttle'], 60)}", "warn"
    if r["stale"]:
        return f"▲ last seen {r['age_s']:.0f} s ago", "warn"
    if r["ecc_errors_total"]:
        return f"▲ {r['ecc_errors_total']} ECC errors", "warn"
    return "", ""


class GpuScreen(HistoryScreen):
    PLACE = "gpu"
    KEY = "g g"
    ABOUT = "GPUs: use, memory, clocks, power, PCIe, who holds them; history"

    def body(self) -> ComposeResult:
        yield Table(
            "GPUs",
            (
                Column("gpu", 3, lambda r: (str(r["gpu"]), "accent"), ">"),
                Column("util", 4, lambda r: (num(r["util_pct"]), ""), ">"),
                Column("mem%", 4, _mem, ">"),
                Column("W", 4, lambda r: (num(r["power_w"]), ""), ">", keep=7),
                Column("°C", 3, lambda r: (num(r["temp_c"]), "warn" if (r["temp_c"] or 0) >= 85 else ""), ">", keep=7),
                Column("MHz", 5, lambda r: (num(r["sm_mhz"]), ""), ">", keep=7),
                Column("rx GB/s", 7, lambda r: _gb(r["pcie_rx_bps"]), ">", keep=5),
                Column("tx GB/s", 7, lambda r: _gb(r["pcie_tx_bps"]), ">", keep=5),
                Column("tensor", 6, lambda r: (num(r["tensor_active_pct"]), ""), ">", keep=3),
                Column("dram", 5, lambda r: (num(r["dram_active_pct"]), ""), ">", keep=3),
                Column("P", 3, lambda r: (clean(r["pstate"] or NONE, 8), "dim"), keep=2),
                Column("", 0, _state),
            ),
            key="gpu",
            empty="no GPU sample in the last minute; g g shows them during and after a run",
            ident="gpus",
        )
        yield Table(
            "processes",
            (
                Column("pid", 8, lambda r: (str(r["pid"]), "dim"), ">"),
                Column("process", 0, lambda r: (clean(r["name"] or NONE, 60), "")),
                Column("GPUs", 4, lambda r: (str(r["gpus"]), ""), ">"),
                Column("GiB", 7, lambda r: (num(None if r["bytes"] is None else r["bytes"] / 2**30, 1), ""), ">"),
                Column("whose", 8, lambda r: _whose(r["ours"])),
            ),
            key="pid",
            empty="no process was seen on the GPUs",
            ident="gpu-processes",
        )
        for ident, title in zip(CHARTS, ("util %", "SM MHz", "power W and °C", "PCIe GB/s"), strict=True):
            yield Chart(title, empty="no sample in this window", ident=ident)

    async def ask(self, window: Window, node: str | None) -> dict[str, list[Row]]:
        run, t0, t1, step = window.run_id, window.t0, window.t1, window.step_s
        gpus = await self.feed.rows("live_gpus", run, t1 - 60 * S, t1, *window.clocks)
        mine = [g for g in gpus if g["node"] == node]
        chosen = self._chosen(mine)
        one = await self.feed.rows("gpu_history", run, t0, t1, step, node, chosen, *window.clocks)
        mean = await self.feed.rows("gpu_node_history", run, t0, t1, step, node, *window.clocks)
        held = await self.feed.rows("gpu_holders", run, t1 - 120 * S, t1, node, *window.clocks)
        return {"gpus": mine, "one": one if chosen is not None else [], "mean": mean, "processes": held}

    def _chosen(self, gpus: list[Row]) -> int | None:
        row = self.query_one("#gpus", Table).row
        if row is not None and any(g["gpu"] == row["gpu"] for g in gpus):
            return int(row["gpu"])
        return gpus[0]["gpu"] if gpus else None

    @on(Table.Moved, "#gpus")
    def _other_gpu(self) -> None:
        self.poke()

    def apply(self, snapshot: History) -> None:
        rows, window = snapshot.rows, snapshot.window
        self.query_one("#gpus", Table).show(rows["gpus"])
        self.query_one("#gpu-processes", Table).show(rows["processes"])
        one, chosen = rows["one"], self._chosen(rows["gpus"])
        name = f"GPU {chosen}" if chosen is not None else ""
        mean = rows["mean"]
        charts = {
            "gpu-util": (
                f"{name} util %",
                window.plot_many(((name, "one", one, "util_pct"), ("node", "two", mean, "util_pct"))),
            ),
            "gpu-clock": (
                f"{name} SM MHz",
                window.plot_many(((name, "one", one, "sm_mhz"), ("node", "two", mean, "sm_mhz"))),
            ),
            "gpu-power": (f"{name} W and °C", window.plot(one, (("W", "one", "power_w"), ("°C", "two", "temp_c")))),
            "gpu-pcie": (
                f"{name} PCIe GB/s",
                window.plot(one, (("rx", "one", "pcie_rx_bps"), ("tx", "two", "pcie_tx_bps")), scale=1e-9),
            ),
        }
        for ident, (title, plot) in charts.items():
            chart = self.query_one(f"#{ident}", Chart)
            chart.title = title
            chart.show(plot)

    def place_panels(self, width: int, height: int) -> None:
        snap: History | None = self.snapshot
        count = len(snap.rows["gpus"]) if snap else 1
        gpus = 2 + min(max(count, 1), max(height // 2 - 3, 2))
        held = len(snap.rows["processes"]) if snap else 0
        processes = 2 + min(held, 4) if held and height >= 30 else 0
        self.height_of(self.query_one("#gpus"), gpus)
        self.height_of(self.query_one("#gpu-processes"), processes)
        self.charts_in(CHARTS, height - gpus - processes)


def _whose(ours: bool | None) -> Span:
    return {True: ("ours", ""), False: ("▲ other", "warn"), None: ("?", "dim")}[ours]
