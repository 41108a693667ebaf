"""The device grid: 16 to 64 GPUs in the room there is, from one line a node to one line a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from screens.widgets.panel import Panel
from screens.widgets.text import NONE, Line, Span, clean, crop, fit, line, num, short, spark, width_of

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


def with_processes(gpus: Sequence[Row], processes: Sequence[Row]) -> list[Row]:
    """Rows of `live_gpus`, each with `processes`: those of `live_gpu_processes` on the same GPU, the largest first."""
    by_gpu: dict[tuple[str, str], list[Row]] = {}
    for p in processes:
        if p["gpu_uuid"]:
            by_gpu.setdefault((p["node"], p["gpu_uuid"]), []).append(p)
    return [{**g, "processes": by_gpu.get((g["node"], g.get("uuid") or ""), [])} for g in gpus]


def holder(gpu: Row) -> Span:
    """Who holds the GPU's memory: the largest process, or one that is not ours; how much, and how many more."""
    held = gpu.get("processes") or []
    if not held:
        return "", ""
    strangers = [q for q in held if q["ours"] is False]
    p = (strangers or held)[0]
    gib = "" if p["mem_used_bytes"] is None else f" {p['mem_used_bytes'] / 2**30:.1f} GiB"
    more = f" +{len(held) - 1}" if len(held) > 1 else ""
    name = clean(p["name"] or NONE, 200).rsplit("/", 1)[-1][:24]
    return f"{'▲ not ours: ' if strangers else ''}{p['pid']} {name}{gib}{more}", "warn" if strangers else "dim"


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
    return 100 * used / total if used is not None and total else gpu.get("mem_used_pct")


def block(width: int) -> int:
    """GPUs beside each other in a grid of this width: 8, or 16 where they keep five cells each."""
    return 16 if width >= 8 + 16 * 5 + 10 else 8


class Devices(Panel[list[Row]]):
    """Rows of `live_gpus`, with `processes` where they are known."""

    def lines_wanted(self, level: int) -> int:
        """Lines without the title: level 0 = a line a node, 1 = grid of three, 2 = grid of six, 3 = a line a GPU."""
        data, each = self.data or [], block(self.size.width)
        blocks = sum(-(-sum(1 for g in data if g["node"] == n) // each) for n in node_names(data))
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
        """One line: a bar a GPU where there is room, then what the node's GPUs have in common."""
        utils = [g["util_pct"] for g in gpus]
        known = [u for u in utils if u is not None]
        watts = [g["power_w"] for g in gpus if g["power_w"] is not None]
        stale = [g for g in gpus if g["stale"]]
        mark = self._mark(gpus, stale)
        bars = spark(utils, len(gpus), 100.0) + " " if len(gpus) <= width - 40 else ""
        spans: list[Span] = [
            (fit(clean(node, 40), 8), "title"),
            (bars, "dim" if stale else "calm"),
            (num(sum(known) / len(known) if known else None, 0, 3), ""),
            (f" % ({_range(utils)})  ", "dim"),
        ]
        spans += crop([*mark, ("  ", "")], width - width_of(spans)) if mark else ()
        for part in (
            [("mem ", "dim"), (_range([_mem(g) for g in gpus]), ""), (" %  ", "dim")],
            [(short(sum(watts) if watts else None), ""), (" W  ", "dim")],
            [(_range([g["temp_c"] for g in gpus]), ""), (" °C", "dim")],
        ):
            if width_of(spans) + width_of(part) > width:  # whole or not at all: half a number would be a wrong one
                break
            spans += part
        return Line(tuple(spans))

    def _mark(self, gpus: list[Row], stale: list[Row]) -> list[Span]:
        if stale:
            age = max(g["age_s"] for g in stale)
            return [(f"▲ no data for {age:.0f} s", "warn")]
        hot = [g for g in gpus if throttled(g)]
        if hot:
            names = ",".join(str(g["gpu"]) for g in hot[:4])
            return [(f"▲ {names} {reason(hot[0])}", "warn")]
        strange = [g for g in gpus if any(p["ours"] is False for p in g.get("processes") or [])]
        if strange:
            return [(f"▲ {strange[0]['gpu']} {holder(strange[0])[0].removeprefix('▲ ')}", "warn")]
        known = [g["util_pct"] for g in gpus if g["util_pct"] is not None]
        if known and max(known) - min(known) >= 25:
            slow = min((g for g in gpus if g["util_pct"] is not None), key=lambda g: g["util_pct"])
            return [(f"▲ {slow['gpu']} at {slow['util_pct']:.0f} %", "warn")]
        return []

    def _grid(self, node: str, gpus: list[Row], width: int, metrics: int) -> list[Line]:
        lines: list[Line] = []
        each = block(width)
        for start in range(0, len(gpus), each):
            part = gpus[start : start + each]
            cell = min(max((width - 22) // max(len(part), 1), 5), 7)
            stale = [g for g in part if g["stale"]]
            head: list[Span] = [(fit(clean(node, 40), 8), "title")]
            head += [(num(g["gpu"], 0, cell), "dim") for g in part]
            head += [(" ", ""), *self._mark(part, stale)]
            lines.append(Line(crop(head, width)))
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
        held = any(g.get("processes") for g in gpus)
        bars = max(min(width - (92 if held else 62), 60), 0)
        head = f"{fit(clean(node, 40), 8)}{'util':>4} % {fit('', bars)}  {'mem GiB':>12} {'W':>9} {'°C':>4} {'MHz':>5}"
        head += "  process" if held else ""
        lines = [line((fit(head, width), "dim"))]
        for g in gpus:
            gib = f"{_mem(g):.0f} %" if _mem(g) is not None else NONE
            gib = gib if g["mem_used_bytes"] is None else f"{g['mem_used_bytes'] / 2**30:.1f}"
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
            who = holder(g)
            spans += [("  ", ""), who] if who[0] else []
            lines.append(Line(crop(spans, width)))
        return lines
