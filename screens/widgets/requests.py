"""The percentile table of the load client's own measurements, with the SLO beside each metric."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from screens.widgets.panel import Panel
from screens.widgets.text import BLANK, NONE, Line, Span, line, milli, num, short, spark

Row = dict[str, Any]
WINDOWS = ("steady", "all", "recent")
_NAMES = {"ttft_ms": "TTFT ms", "tpot_ms": "TPOT ms", "itl_ms": "ITL  ms", "e2e_ms": "E2E  ms"}
STATS = ("p50", "p95", "p99")


@dataclass(frozen=True)
class Load:
    """What the panel shows. `rows` of `live_requests`, `counts` of `live_counts`, `slo` metric -> {stat: bound}."""

    window: str
    rows: tuple[Row, ...] = ()
    counts: Row = field(default_factory=dict)
    slo: dict[str, dict[str, float]] = field(default_factory=dict)
    out_series: tuple[float | None, ...] = ()
    out_tps: float | None = None
    tick: Row | None = None


class Requests(Panel[Load]):
    """`w` changes the window: steady, all, the last minute."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("w", "window", "window", show=False)]

    class Window(Message):
        """Another window of requests is wanted."""

    def action_window(self) -> None:
        self.post_message(self.Window())

    def side_title(self) -> Line:
        if self.data is None:
            return BLANK
        few = any(0 < r["n"] < 100 for r in self.data.rows)
        return line((f"window {self.data.window}" + ("  * n < 100" if few else ""), "dim"))

    def draw(self, data: Load, width: int, height: int) -> list[Line]:
        if not data.rows and not data.counts and data.tick is None:
            return []
        wide = width >= 56
        head = f"{'':8}{'n':>6} {'p50':>8} {'p95':>8} {'p99':>9}" + ("  SLO" if data.slo else "")
        lines = [line((head, "dim"))]
        by_name = {r["metric"]: r for r in data.rows}
        lines += [self._metric(name, by_name.get(name), data.slo.get(name, {}), wide) for name in _NAMES]
        lines.append(self._counts(data, width))
        return lines[:height] if height >= len(lines) else [lines[0], *lines[1 : height - 1], lines[-1]][:height]

    def _metric(self, name: str, r: Row | None, slo: dict[str, float], wide: bool) -> Line:
        n = r["n"] if r else 0
        few = "*" if 0 < n < 100 else " "
        spans: list[Span] = [(_NAMES[name], "dim"), (short(n, 7) if n else f"{NONE:>7}", "dim")]
        for stat, width in (("p50", 9), ("p95", 9), ("p99", 9)):
            value = r[stat] if r else None
            broken = stat in slo and value is not None and value > slo[stat]
            spans.append((milli(value, width), "warn" if broken else "strong" if stat == "p50" else ""))
        spans.append((few, "dim"))
        for stat, bound in slo.items():
            value = r[stat] if r else None
            word = "?" if value is None else "ok" if value <= bound else f"▲ +{(value / bound - 1) * 100:.0f} %"
            role = "dim" if value is None else "ok" if value <= bound else "warn"
            spans.append((f"  {stat} {bound:g} " if wide else f" {bound:g} ", "dim"))
            spans.append((word, role))
        return Line(tuple(spans))

    def _counts(self, data: Load, width: int) -> Line:
        c, tick = data.counts, data.tick
        spans: list[Span] = [("out ", "dim"), (num(data.out_tps, 0), "strong"), (" tok/s ", "dim")]
        bars = min(max(width - 52, 0), 24)
        if bars >= 6:
            spans.append((spark(data.out_series, bars) + " ", "calm"))
        if tick is not None:
            spans += [(" in flight ", "dim"), (num(tick["in_flight"]), "")]
        spans += [(" ok ", "dim"), (num(c.get("ok")), "")]
        failed = c.get("failed")
        spans.append((f" fail {num(failed)}", "bad" if failed else "dim"))
        late = c.get("timed_out")
        spans.append((f" late {num(late)}", "warn" if late else "dim"))
        if c.get("cut"):
            spans.append((f" cut {c['cut']}", "dim"))
        if tick is not None and tick["saturated"]:
            spans.append(("  ▲ client saturated", "warn"))
        return Line(tuple(spans))
