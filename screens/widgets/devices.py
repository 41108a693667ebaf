"""The device grid: 16 to 64 GPUs in the room there is, from one line a node to one line a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from screens.widgets.panel import Panel
from screens.widgets.text import NONE, Line, Span, clean, fit, line, num, short, spark

Row = dict[str, Any]
HARMLESS = {"", "gpu_idle", "applications_clocks_setting", "sw_power_cap", "none", "not active"}


def throttled(gpu: Row) -> str:
    """The throttle reasons that matter, or ''. A software power cap is how a GPU with a limit works, not a fault."""
    reasons = [r.strip() for r in str(gpu.get("throttle") or "").split(",")]
    return ",".join(r for r in reasons if r.lower() not in HARMLESS)


def reason(gpu: Row) -> str:
    """The throttle reasons in few letters."""
    text = throttled(gpu)
    known = [word for word in ("thermal", "power_brake", "sync_boost") if word in text]
    return " ".join(known).replace("_", " ") or clean(text, 40)


def node_names(data: Sequence[Row]) -> list[str]:
    return sorted({g["node"] for g in data})


def _range(values: Sequence[float | None], digits: int = 0) -> str:
    known = [v for v in values if v is not None]
    if not known:
        return NONE
    low, high = min(known), max(known)
    return f"{low:.{digits}f}" if round(low, digits) == round(high, digits) else f"{low:.{digits}f}-{high:.{digits}f}"


def _mem(gpu: Row) -> float | None:
    used, total = gpu.get("mem_used_bytes"), gpu.get("mem_total_bytes")
    return 100 * used / total if used is not None and total else None


class Devices(Panel[list[Row]]):
    """Rows of `live_gpus`."""

    def lines_wanted(self, level: int) -> int:
        """Lines without the title: level 0 = a line a node, 1 = grid of three, 2 = grid of six, 3 = a line a GPU."""
        data = self.data or []
        blocks = sum(-(-sum(1 for g in data if g["node"] == n) // 8) for n in node_names(data))
        return {0: len(node_names(data)), 1: 3 * blocks, 2: 6 * blocks, 3: len(data) + len(node_names(data))}[level]

    def draw(self, data: list[Row], width: int, height: int) -> list[Line]:
        if not data:
            return []
        nodes = [(n, [g for g in data if g["node"] == n]) for n in node_names(data)]
        if height >= self.lines_wanted(3):
            return [entry for n, gpus in nodes for entry in self._rows(n, gpus, width)]
        for level, metrics in ((2, 6), (1, 3)):
            if height >= self.lines_wanted(level):
                return [entry for n, gpus in nodes for entry in self._grid(n, gpus, width, metrics)]
        return [self._summary(n, gpus, width) for n, gpus in nodes]

    def _summary(self, node: str, gpus: list[Row], width: int) -> Line:
        utils = [g["util_pct"] for g in gpus]
        known = [u for u in utils if u is not None]
        stale = [g for g in gpus if g["stale"]]
        watts = [g["power_w"] for g in gpus if g["power_w"] is not None]
        spans: list[Span] = [
            (fit(clean(node, 40), 8), "title"),
            (f"{len(gpus)} GPU util ", "dim"),
            (num(sum(known) / len(known) if known else None, 0, 3), ""),
            (f" % ({_range(utils)})", "dim"),
            ("  mem ", "dim"),
            (_range([_mem(g) for g in gpus]), ""),
            (" %  ", "dim"),
            (short(sum(watts) if watts else None), ""),
            (" W  ", "dim"),
            (_range([g["temp_c"] for g in gpus]), ""),
            (" °C  ", "dim"),
        ]
        spans += self._mark(gpus, stale)
        return Line(tuple(spans))

    def _mark(self, gpus: list[Row], stale: list[Row]) -> list[Span]:
        if stale:
            age = max(g["age_s"] for g in stale)
            return [(f"▲ no data for {age:.0f} s", "warn")]
        hot = [g for g in gpus if throttled(g)]
        if hot:
            names = ",".join(str(g["gpu"]) for g in hot[:4])
            return [(f"▲ {names} {reason(hot[0])}", "warn")]
        known = [g["util_pct"] for g in gpus if g["util_pct"] is not None]
        if known and max(known) - min(known) >= 25:
            slow = min((g for g in gpus if g["util_pct"] is not None), key=lambda g: g["util_pct"])
            return [(f"▲ {slow['gpu']} at {slow['util_pct']:.0f} %", "warn")]
        return []

    def _grid(self, node: str, gpus: list[Row], width: int, metrics: int) -> list[Line]:
        lines: list[Line] = []
        for start in range(0, len(gpus), 8):
            part = gpus[start : start + 8]
            cell = min(max((width - 22) // max(len(part), 1), 5), 7)
            stale = [g for g in part if g["stale"]]
            head: list[Span] = [(fit(clean(node, 40), 8), "title")]
            head += [(num(g["gpu"], 0, cell), "dim") for g in part]
            head += [(" ", ""), *self._mark(part, stale)]
            lines.append(Line(tuple(head)))
            wanted: list[tuple[str, list[float | None], int]] = [
                ("util %", [g["util_pct"] for g in part], 0),
                ("mem %", [_mem(g) for g in part], 0),
                ("W", [g["power_w"] for g in part], 0),
                ("°C", [g["temp_c"] for g in part], 0),
                ("MHz", [g["sm_mhz"] for g in part], 0),
            ]
            for label, values, digits in wanted[: metrics - 1]:
                spans: list[Span] = [(fit(label, 8), "dim")]
                spans += [self._cell(g, label, v, digits, cell) for g, v in zip(part, values, strict=True)]
                lines.append(Line(tuple(spans)))
        return lines

    def _cell(self, gpu: Row, label: str, value: float | None, digits: int, width: int) -> Span:
        if gpu["stale"]:
            return num(value, digits, width - 1) + "?", "dim"
        slow = label == "util %" and value is not None and value < 50 and (gpu["peer_util_pct"] or 0) >= 75
        if slow or (label == "MHz" and throttled(gpu)):
            return num(value, digits, width - 1) + "▲", "warn"
        return num(value, digits, width - 1) + " ", ""

    def _rows(self, node: str, gpus: list[Row], width: int) -> list[Line]:
        bars = max(min(width - 62, 60), 0)
        head = f"{fit(clean(node, 40), 8)}{'util':>4} % {fit('', bars)}  {'mem GiB':>12} {'W':>9} {'°C':>4} {'MHz':>5}"
        lines = [line((fit(head, width), "dim"))]
        for g in gpus:
            gib = NONE if g["mem_used_bytes"] is None else f"{g['mem_used_bytes'] / 2**30:.1f}"
            of = "" if g["mem_total_bytes"] is None else f"/{g['mem_total_bytes'] / 2**30:.0f}"
            cap = "" if g["power_limit_w"] is None else f"/{g['power_limit_w']:.0f}"
            role = "dim" if g["stale"] else ""
            spans: list[Span] = [
                (f"  gpu{g['gpu']:<3}", "dim"),
                self._cell(g, "util %", g["util_pct"], 0, 6),
                (" " + spark(g["util_series"] or [], bars, 100.0) + " ", "calm"),
                (f"{gib + of:>12} ", role),
                (f"{num(g['power_w'], 0) + cap:>9} ", role),
                (num(g["temp_c"], 0, 4) + " ", role),
                (num(g["sm_mhz"], 0, 5), role),
            ]
            if g["stale"]:
                spans.append((f"  ▲ no data for {g['age_s']:.0f} s", "warn"))
            elif throttled(g):
                spans.append((f"  ▲ {reason(g)}", "warn"))
            lines.append(Line(tuple(spans)))
        return lines
