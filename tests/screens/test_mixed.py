"""The interference screen: its windows, injections and recovery are those of the raw chunks."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import pytest
from textual.pilot import Pilot

from console.app import TwinrailApp
from screens.live import LiveScreen
from screens.mixed import MixedScreen
from screens.widgets.chart import Chart
from screens.widgets.injections import Injections, Span
from screens.widgets.table import Table
from screens.widgets.text import milli, num
from tests.screens.conftest import OpenApp, goto, settled
from tests.screens.mixed_scene import ATTEMPT, STEADY
from tests.screens.samples import S
from tests.screens.test_figures import change, raw
from tests.screens.test_widgets import Stage

STATES = {"empty": "empty", "live": "mixing", "lost": "unheard", "error": "broken"}
SIZES = [(80, 24), (120, 40), (200, 60)]
Gap = tuple[int, int, float, int]  # request, ns at its end, ms, tokens


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("state", STATES)
def test_picture(snap_compare: Any, open_app: OpenApp, state: str, size: tuple[int, int]) -> None:
    async def show(pilot: Pilot[int]) -> None:
        await goto(pilot, MixedScreen.KEY)

    assert snap_compare(open_app(STATES[state]), terminal_size=size, run_before=show)


def injected(app: TwinrailApp) -> list[tuple[int, int]]:
    found = raw(app, "SELECT sent_ns, end_ns FROM requests WHERE kind = 'inject' ORDER BY sent_ns")
    return [(int(a), int(b)) for a, b in found]


def gaps_by_window(app: TwinrailApp) -> dict[str, list[Gap]]:
    """Every gap of the background from steady on, by the instant at which it ended."""
    long = injected(app)
    out: dict[str, list[Gap]] = {"before": [], "during": [], "after": []}
    for request, sent, chunks, tokens in raw(
        app, "SELECT request_id, sent_ns, chunk_ns, chunk_tokens FROM requests WHERE kind = 'load'"
    ):
        for i in range(1, len(chunks)):
            at = sent + chunks[i]
            if at >= STEADY:
                inside = any(a <= at < b for a, b in long)
                window = "before" if at < long[0][0] else "during" if inside else "after"
                out[window].append((request, at, (chunks[i] - chunks[i - 1]) / 1e6, tokens[i]))
    return out


def expected(name: str, gaps: list[Gap], seconds: float) -> list[str]:
    by_request: dict[int, list[Gap]] = {}
    for g in gaps:
        by_request.setdefault(g[0], []).append(g)
    tpot = [sum(g[2] for g in mine) / sum(g[3] for g in mine) for mine in by_request.values()]
    itl = [g[2] for g in gaps]
    few = "*" if len(tpot) < 100 else ""
    figures = [milli(float(np.quantile(tpot, q))) for q in (0.5, 0.95, 0.99)]
    figures[2] += few
    figures += [milli(float(np.quantile(itl, q))) for q in (0.5, 0.95, 0.99)]
    return [name, *figures, milli(max(itl)), num(sum(g[3] for g in gaps) / seconds, 1), num(len(gaps))]


async def test_windows_are_those_of_the_raw_chunks(open_app: OpenApp) -> None:
    app = open_app("mixed")
    async with app.run_test(size=(220, 60)) as pilot:
        screen = await goto(pilot, MixedScreen.KEY)

        def check() -> None:
            shown = [t.replace("▸", " ").split() for t in screen.query_one("#windows", Table).plain().splitlines()[2:5]]
            gaps, long = gaps_by_window(app), injected(app)
            end = max(g[1] for found in gaps.values() for g in found)
            during = sum(b - a for a, b in long) / 1e9
            seconds = {
                "before": (long[0][0] - STEADY) / 1e9,
                "during": during,
                "after": (end - long[0][0]) / 1e9 - during,
            }
            for words, (name, found) in zip(shown, gaps.items(), strict=True):
                duration = 1 if ":" in words[1] else 2  # "01:07" or "22 s"
                assert [words[0], *words[1 + duration :]] == expected(name, found, seconds[name])

        check()
        before = screen.query_one("#windows", Table).plain()
        change(
            app,
            "UPDATE requests SET chunk_ns = list_transform(chunk_ns, lambda c: c + c // 50) "
            "WHERE kind = 'load' AND request_id = 20",
        )
        change(app, "UPDATE requests SET end_ns = end_ns + 2000000000 WHERE kind = 'inject' AND request_id = 10001")
        await pilot.press("r")
        await settled(pilot, screen)
        assert screen.query_one("#windows", Table).plain() != before
        check()


async def test_each_injection_tells_its_ttft_queue_and_how_soon_the_decode_recovered(open_app: OpenApp) -> None:
    app = open_app("mixed")
    async with app.run_test(size=(200, 60)) as pilot:
        screen = await goto(pilot, MixedScreen.KEY)
        gaps = gaps_by_window(app)
        calm = statistics.median(g[2] for g in gaps["before"])
        long = injected(app)
        rows = screen.query_one("#injected", Table).plain().splitlines()[2:]
        for n, (sent, over) in enumerate(long):
            words = rows[n].replace("▸", " ").split()
            assert words[:5] == [str(n + 1), "131072", "●", "ok", milli((over - 1_000_000 - sent) / 1e6)]
            until = long[n + 1][0] if n + 1 < len(long) else 1 << 62
            after = [g for g in gaps["after"] if over <= g[1] < until]
            seconds: dict[int, list[float]] = {}
            for g in after:
                seconds.setdefault((g[1] - over) // S, []).append(g[2])
            back = min(s for s, found in seconds.items() if statistics.median(found) <= 1.1 * calm)
            assert words[5:7] == [str(back), "s"]
            assert words[7] == "1", "one request waited"


async def test_an_injection_that_failed_says_so(open_app: OpenApp) -> None:
    app = open_app("broken")
    async with app.run_test(size=(200, 60)) as pilot:
        screen = await goto(pilot, MixedScreen.KEY)
        row = screen.query_one("#injected", Table).plain().splitlines()[3]
        assert "✖ reset" in row
        assert "–" in row, "no TTFT is no zero"


async def test_enter_on_an_injection_shows_that_instant_live(open_app: OpenApp) -> None:
    app = open_app("mixed")
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await goto(pilot, MixedScreen.KEY)
        table = screen.query_one("#injected", Table)
        table.focus()
        await pilot.press("down", "enter")
        await pilot.pause()
        assert isinstance(app.screen, LiveScreen)
        assert app.view.attempt_id == ATTEMPT
        at = raw(app, "SELECT sent_wall_ns FROM requests WHERE request_id = 10001")[0][0]
        assert app.screen.at_ns == at


@pytest.mark.parametrize("ident", ["#gaps", "#mixed-tps"])
async def test_the_cursor_of_a_chart_leads_to_its_instant(open_app: OpenApp, ident: str) -> None:
    app = open_app("mixed")
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await goto(pilot, MixedScreen.KEY)
        chart = screen.query_one(ident, Chart)
        chart.focus()
        await pilot.press("shift+left", "enter")
        await pilot.pause()
        assert isinstance(app.screen, LiveScreen)
        wall, mono = raw(app, "SELECT sent_wall_ns, sent_ns FROM requests WHERE request_id = 10000")[0]
        assert chart.at is not None
        assert abs((app.screen.at_ns or 0) - (wall - mono + STEADY + int(chart.at * S))) <= 1


async def test_the_strip_lies_under_the_chart_as_its_axis_says() -> None:
    strip = Injections()
    async with Stage(strip).run_test(size=(106, 1)):
        strip.place(100.0, 6)
        strip.show((Span(10.0, 19.5, 30.0, 1), Span(50.0, None, None, 2)))
        cells = strip.plain()[6:]
        assert cells[10] == "1"
        assert cells[11:20] == "▬" * 9
        assert cells[20:31] == "─" * 11
        assert cells[50:] == "2" + "▬" * 49, "one that still waits reaches to the end"
