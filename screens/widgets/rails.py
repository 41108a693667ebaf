"""Rail gauges: both directions of every port against its line rate, with what went wrong beside them."""

from __future__ import annotations

from typing import Any

from screens.widgets.panel import Panel
from screens.widgets.text import Line, Span, bar, clean, fit, num, short, spark

Row = dict[str, Any]


class Rails(Panel[list[Row]]):
    """Rows of `live_rails`: `tx_gbs` and `rx_gbs` in GB/s (1e9 bytes), `line_gbs` the port's line rate."""

    def draw(self, data: list[Row], width: int, height: int) -> list[Line]:
        busiest = max((max(r["tx_gbs"] or 0, r["rx_gbs"] or 0) for r in data), default=0.0)
        nodes = min(max((len(r["node"]) for r in data), default=0), 16) + 1
        ports = min(max((len(r["device"]) for r in data), default=0), 12)
        return [self._row(r, width, busiest, nodes, ports) for r in data[:height]]

    def _row(self, r: Row, width: int, busiest: float, nodes: int, ports: int) -> Line:
        name = fit(clean(r["node"], 40), nodes) + fit(clean(r["device"], 40), ports)
        small = width < 70
        bars = max(min((width - nodes - ports - 20 - 2 - 13) // 2, 40), 0)
        top = max(r["line_gbs"] or 0, r["tx_peak_gbs"] or 0, r["rx_peak_gbs"] or 0, 1e-9)
        spans: list[Span] = [(name, "title")]
        for way in ("tx", "rx"):
            value = r[f"{way}_gbs"]
            spans += [(f" {way} ", "dim"), (num(value, 1 if (value or 0) < 100 else 0, 5), "dim" if r["stale"] else "")]
            if bars >= 4:
                series = r[f"{way}_series"] or []
                drawn = spark(series, bars, top) if not small else bar((value or 0) / top, bars)
                spans.append((" " + drawn, "one" if way == "tx" else "two"))
        spans += [("  ", ""), *self._mark(r, busiest)]
        return Line(tuple(spans))

    def _mark(self, r: Row, busiest: float) -> list[Span]:
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
        if busiest >= 0.5 and max(r["tx_gbs"] or 0, r["rx_gbs"] or 0) < busiest * 0.02 and r["door"] == "rdma":
            return [("▲ idle rail", "warn")]
        if r["tx_gbs"] is None:
            return [("no counter", "dim")]
        share = None if not r["line_gbs"] else max(r["tx_gbs"], r["rx_gbs"] or 0) / r["line_gbs"]
        return [(f"{share * 100:.0f} % of {r['line_gbs']:.0f}" if share is not None else "line rate ?", "dim")]
