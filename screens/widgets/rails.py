"""Rail gauges: both directions of every port against its line rate, with what went wrong beside them."""

from __future__ import annotations

from typing import Any

from screens.widgets.panel import Panel
from screens.widgets.text import Line, Span, bar, clean, fit, num, short, spark

Row = dict[str, Any]


def worth_showing(data: list[Row], netdevs: dict[str, set[str]]) -> list[Row]:
    """RDMA ports; netdevs only where they are a configured rail that carries something, or where nothing else is."""
    rdma = {r["node"] for r in data if r["door"] == "rdma"}

    def wanted(r: Row) -> bool:
        if r["door"] == "rdma":
            return True
        peak = max(r["tx_peak_gbs"] or 0, r["rx_peak_gbs"] or 0)
        known = netdevs.get(r["node"], set())
        if r["device"] in known:
            return r["node"] not in rdma or peak >= 0.05
        return r["node"] not in rdma and not known and peak > 0

    return [r for r in data if wanted(r)]


class Rails(Panel[list[Row]]):
    """Rows of `live_rails`: `tx_gbs` and `rx_gbs` in GB/s (1e9 bytes), `line_gbs` the port's line rate.

    Curves share one scale, the busiest port's peak, so that rails can be compared; gauges are shares of line rate.
    """

    def draw(self, data: list[Row], width: int, height: int) -> list[Line]:
        nodes = min(max((len(r["node"]) for r in data), default=0), 16) + 1
        ports = min(max((len(r["device"]) for r in data), default=0), 12)
        peak = max((max(r["tx_peak_gbs"] or 0, r["rx_peak_gbs"] or 0) for r in data), default=0.0) or 1e-9
        return [self._row(r, width, peak, nodes, ports) for r in data[:height]]

    def _row(self, r: Row, width: int, peak: float, nodes: int, ports: int) -> Line:
        name = fit(clean(r["node"], 40), nodes) + fit(clean(r["device"], 40), ports)
        small = width < 70
        bars = max(min((width - nodes - ports - 20 - 2 - 13) // 2, 40), 0)
        spans: list[Span] = [(name, "title")]
        for way in ("tx", "rx"):
            value = r[f"{way}_gbs"]
            spans += [(f" {way} ", "dim"), (num(value, 1 if (value or 0) < 100 else 0, 5), "dim" if r["stale"] else "")]
            if bars >= 4:
                line_rate = r["line_gbs"] or peak
                drawn = bar((value or 0) / line_rate, bars) if small else spark(r[f"{way}_series"] or [], bars, peak)
                spans.append((" " + drawn, "one" if way == "tx" else "two"))
        spans += [("  ", ""), *self._mark(r, peak)]
        return Line(tuple(spans))

    def _mark(self, r: Row, peak: float) -> list[Span]:
        if r["stale"]:
            return [(f"▲ no data {r['age_s']:.0f} s", "warn")]
        if r["state"] not in (None, "", "ACTIVE", "active", "up", "4: ACTIVE"):
            return [(f"✖ {clean(r['state'], 20)}", "bad")]
        troubles = [
            f"{label} {short(r[key])}"
            for key, label in (
                ("errors", "err"),
                ("drops", "drop"),
                ("retransmits", "retr"),
                ("out_of_sequence", "ooo"),
                ("pause", "pause"),
            )
            if r[key]
        ]
        if troubles:
            return [("▲ " + " ".join(troubles), "warn")]
        if r["tx_peak_gbs"] is None and r["rx_peak_gbs"] is None:
            return [("no counter", "dim")]
        own = max(r["tx_peak_gbs"] or 0, r["rx_peak_gbs"] or 0)
        if peak >= 0.5 and own < peak * 0.02 and r["door"] == "rdma":
            return [("▲ idle rail", "warn")]
        share = max(r["tx_gbs"] or 0, r["rx_gbs"] or 0) / r["line_gbs"] if r["line_gbs"] else None
        return [(f"{share * 100:.0f} % of {r['line_gbs']:.0f}" if share is not None else "line rate ?", "dim")]
