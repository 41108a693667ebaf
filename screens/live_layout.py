"""Where the live screen's panels go: one column of short panels on a small terminal, two columns on a wide one."""

from __future__ import annotations

from screens.base import ConsoleScreen
from screens.live_data import LiveView
from screens.live_watch import alone
from screens.widgets.devices import Devices
from screens.widgets.panel import Panel
from screens.widgets.timeline import PhaseStrip

WIDE = 110  # cells from which two columns fit
REQUESTS = 7  # rule, head, four metrics, counts


def place(screen: ConsoleScreen, snap: LiveView | None, width: int, height: int) -> None:
    """Give every panel its height, from the terminal's size and what there is to show."""
    nodes = max(len({g["node"] for g in snap.gpus}) if snap else 1, 1)
    rails = max(len(snap.rails) if snap else 1, 1)
    found = min(len(snap.findings), 4 if height >= 40 else 2) if snap else 0
    narrow = width < WIDE
    for panel in screen.query("#devices, #engine, #rails, #findings").results(Panel):
        panel.set_compact(narrow)
    screen.query("#left, #right, #upper").set_class(narrow, "-stacked")
    screen.height_of(screen.query_one(PhaseStrip), 1)
    requests = 0 if alone(snap) else REQUESTS
    if narrow:
        _one_column(screen, height, requests, nodes, min(rails, 4), found)
    else:
        _two_columns(screen, height, requests, rails, found)


def _one_column(screen: ConsoleScreen, height: int, requests: int, nodes: int, rails: int, found: int) -> None:
    room = height - 1 - requests - nodes - rails - 1 - found
    chart = 8 if room >= 16 else 0
    _set(
        screen,
        {
            "#requests": requests,
            "#devices": nodes,
            "#engine": 1,
            "#rails": rails,
            "#tpot": chart,
            "#tps": 0,
            "#findings": found,
            "#left": requests + nodes,
            "#right": 1 + rails + chart,
            "#upper": 1 + requests + nodes + rails + chart,
            "#logs": max(room - chart, 3),
        },
    )


def _two_columns(screen: ConsoleScreen, height: int, requests: int, rails: int, found: int) -> None:
    findings = 1 + max(found, 1)
    upper = height - 1 - findings - max(height // 4, 6)
    devices = screen.query_one(Devices)
    wanted = (devices.lines_wanted(level) for level in (3, 2, 1, 0))
    lines = next((n for n in wanted if n + 1 <= upper - requests), 2)
    right = 5 + 1 + rails
    upper = min(upper, max(requests + 1 + max(lines, 1), right + 20))
    charts = upper - right
    two = charts >= 14
    _set(
        screen,
        {
            "#requests": requests,
            "#devices": upper - requests,
            "#engine": 5,
            "#rails": 1 + rails,
            "#tpot": (charts // 2 if two else charts) if charts >= 4 else 0,
            "#tps": charts - charts // 2 if two else 0,
            "#findings": findings,
            "#left": upper,
            "#right": upper,
            "#upper": upper,
            "#logs": height - 1 - upper - findings,
        },
    )


def _set(screen: ConsoleScreen, heights: dict[str, int]) -> None:
    for ident, lines in heights.items():
        screen.height_of(screen.query_one(ident), lines)
