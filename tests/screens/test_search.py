"""The search screen: its figures are those of the raw rows, its reasons those of the journal, its rings the answers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from console.app import TwinrailApp
from screens.dialogs import Reader
from screens.live import LiveScreen
from screens.search import SearchScreen
from screens.widgets.bars import TextPanel
from screens.widgets.frontier import Cloud, Frontier, Spot
from screens.widgets.table import Table
from screens.widgets.text import milli, num
from tests.screens.conftest import OpenApp, goto, settled
from tests.screens.fake_session import session_of
from tests.screens.search_scene import CLIMB, FINISHED, SEARCH, STOP
from tests.screens.test_figures import change, raw
from tests.screens.test_widgets import Stage

KEY = SearchScreen.KEY
SIZES = SMALL, MIDDLE, LARGE = (80, 24), (120, 40), (200, 60)
STATES = {"live": "search-climbing", "done": "search-finished", "lost": "search-lost", "error": "search-failed"}


PICTURES = [(state, size) for state in ("empty", "live", "lost", "error") for size in SIZES] + [("done", MIDDLE)]


@pytest.mark.parametrize(("state", "size"), PICTURES, ids=lambda v: v if isinstance(v, str) else f"{v[0]}x{v[1]}")
def test_picture(snap_compare: Any, open_app: OpenApp, state: str, size: tuple[int, int]) -> None:
    async def show(pilot: Pilot[int]) -> None:
        await goto(pilot, KEY)

    assert snap_compare(open_app(STATES.get(state, state)), terminal_size=size, run_before=show)


def rows_of(screen: SearchScreen) -> dict[str, list[str]]:
    """load -> the words of its row, head and cursor left out."""
    lines = screen.query_one("#points", Table).plain().splitlines()[2:]
    return {words[1]: words for words in (entry.replace("▸", " ").split() for entry in lines) if len(words) > 1}


async def opened(pilot: Pilot[int]) -> SearchScreen:
    screen = await goto(pilot, KEY)
    assert isinstance(screen, SearchScreen)
    return screen


async def test_a_row_shows_the_points_figures_over_all_its_repeats(open_app: OpenApp) -> None:
    app = open_app("search-finished")
    async with app.run_test(size=(200, 60)) as pilot:
        screen = await opened(pilot)

        def check() -> None:
            shown = rows_of(screen)
            for load, tps, spread in raw(
                app, f"SELECT concurrency, output_tps, spread_pct FROM points WHERE run_id = '{SEARCH}'"
            ):
                words = shown[str(load)]
                if tps is None:
                    assert "–" in words
                    continue
                requests = raw(
                    app,
                    "SELECT (first_ns - sent_ns) / 1e6, (last_ns - first_ns) / 1e6 / (output_tokens - 1), status "
                    f"FROM requests JOIN attempts USING (attempt_id) WHERE concurrency = {load} AND measured",
                )
                good = [r for r in requests if r[2] == "ok"]
                ttft, tpot = (float(np.quantile([r[i] for r in good], 0.95)) for i in (0, 1))
                within = sum(r[0] <= 2000 and r[1] <= 50 for r in good) / len(requests)
                assert [num(tps, 1), f"±{spread:.1f}%", milli(ttft), milli(tpot), num(100 * within, 1)] == [
                    w for w in words if w[0] in "±0123456789"
                ][2:7]

        check()
        before = rows_of(screen)["32"]
        change(
            app,
            "UPDATE requests SET first_ns = first_ns + 9000000000, last_ns = last_ns + 15000000000 "
            "WHERE request_id = 3 AND attempt_id IN (SELECT attempt_id FROM attempts WHERE concurrency = 32)",
        )
        change(app, "UPDATE points SET output_tps = 711.5 WHERE concurrency = 32")
        await pilot.press("r")
        await settled(pilot, screen)
        assert rows_of(screen)["32"] != before
        check()


async def test_the_point_at_work_is_on_top_with_its_progress(open_app: OpenApp) -> None:
    app = open_app("search-climbing")
    async with app.run_test(size=(200, 60)) as pilot:
        screen = await opened(pilot)
        top = screen.query_one("#points", Table).plain().splitlines()[2].replace("▸", " ").split()
        ended = raw(app, f"SELECT count(*) FROM requests WHERE attempt_id = '{SEARCH}-12' AND measured")[0][0]
        assert top[1:5] == ["80", "◐", "steady", f"{ended}/400"]
        assert "2/2" in top
        ticks = raw(app, "SELECT mono_ns, output_tokens FROM load_ticks ORDER BY mono_ns")[-11:]
        rate = (ticks[-1][1] - ticks[0][1]) / ((ticks[-1][0] - ticks[0][0]) / 1e9)
        assert abs(float(top[5]) - rate) < 1


async def test_reasons_and_answers_are_what_the_flow_wrote_down(open_app: OpenApp) -> None:
    app = open_app("search-finished")
    async with app.run_test(size=(200, 60)) as pilot:
        screen = await opened(pilot)
        text = screen.query_one("#why", TextPanel).plain()
        assert f"stopped by ✖ OOM  {STOP}" in text
        for name, head in (("max_within_slo", "(S)"), ("max_tps", "(T)"), ("max_successful", "(M)")):
            answer = FINISHED[name]
            entry = next(t for t in text.splitlines() if t.startswith(head))
            assert f"C {answer['concurrency']} " in entry
            assert f"bounded by {answer['bounded_by'].replace('_', ' ')} at C {answer['above']}" in entry
        spec = json.loads(raw(app, f"SELECT spec FROM runs WHERE run_id = '{SEARCH}'")[0][0])
        spec["verdict"]["detail"] = "at concurrency 80: something else entirely"
        change(app, f"UPDATE runs SET spec = '{json.dumps(spec)}' WHERE run_id = '{SEARCH}'")
        await pilot.press("r")
        await settled(pilot, screen)
        assert "something else entirely" in screen.query_one("#why", TextPanel).plain()


async def test_what_comes_next_and_what_it_costs(open_app: OpenApp) -> None:
    app = open_app("search-climbing")
    async with app.run_test(size=(200, 60)) as pilot:
        screen = await opened(pilot)
        text = screen.query_one("#why", TextPanel).plain()
        assert "C 80  repeat 2 of 2  steady" in text
        assert "the next rung of the climb" in text
        assert "a restart costs about 01:10 (median of 1)" in text
        assert "this point about 50 s more" in text, "a median attempt of 90 s, 40 s of it gone"


async def test_rings_stand_on_the_answers_and_nowhere_else(open_app: OpenApp) -> None:
    app = open_app("search-finished")
    async with app.run_test(size=(200, 60)) as pilot:
        screen = await opened(pilot)
        data = screen.query_one(Frontier).data
        assert data is not None
        assert {s.label: s.rings for s in data.spots if s.rings} == {"40": "S", "64": "T", "72": "M"}
        assert data.limits == ((50.0, "SLO 50"),)
        assert [s.y for s in data.spots] == sorted(
            (r[0] for r in raw(app, "SELECT output_tps FROM points WHERE output_tps IS NOT NULL")),
            key=[24.6, 371.2, 702.8, 796.0, 838.1, 866.4, 861.9].index,
        )


async def test_stepping_back_shows_the_search_as_it_was(open_app: OpenApp) -> None:
    app = open_app("search-finished")
    async with app.run_test(size=(200, 60)) as pilot:
        screen = await opened(pilot)
        await pilot.press("comma", "comma", "comma")
        await settled(pilot, screen)
        assert screen.snapshot is not None
        assert [p["load"] for p in screen.snapshot.points] == list(CLIMB)
        assert not any(p["rings"] for p in screen.snapshot.points), "the answers belong to the end"
        await pilot.press("e")
        await settled(pilot, screen)
        assert len(screen.snapshot.points) == 8


async def test_a_point_opens_to_read_and_its_attempt_to_replay(open_app: OpenApp) -> None:
    app = open_app("search-finished")
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        screen.query_one("#points", Table).select("point 4")
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, Reader)
        await pilot.press("escape", "l")
        await pilot.pause()
        assert isinstance(app.screen, LiveScreen)
        assert app.view.attempt_id == f"{SEARCH}-8"


async def test_s_starts_a_search_and_shows_it(open_app: OpenApp) -> None:
    app: TwinrailApp = open_app("empty")
    session_of(app).answer = {"ok": True, "run_id": SEARCH}
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        await pilot.press("s")
        await pilot.pause()
        app.screen.query_one(Input).value = "D2, max 64, repeats 2"
        await pilot.press("enter")
        await pilot.pause(0.1)
        assert session_of(app).orders == [("start_search", {"what": "D2", "max_concurrency": 64, "repeats": 2})]
        assert app.view.run_id == SEARCH


async def test_a_finished_search_goes_on_and_measures_a_point_again(open_app: OpenApp) -> None:
    app = open_app("search-finished")
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        for key, said in (("c", "refine 2, max 160"), ("a", "again"), ("c", "finer please")):
            screen.query_one("#points", Table).select("point 5")
            await pilot.press(key)
            await pilot.pause()
            app.screen.query_one(Input).value = said
            await pilot.press("enter")
            await pilot.pause(0.1)
        assert session_of(app).orders == [
            ("continue_search", {"run_id": SEARCH, "refine": 2, "max_concurrency": 160}),
            ("continue_search", {"run_id": SEARCH, "again": 64.0}),
        ]


@pytest.mark.parametrize("size", [(40, 8), (80, 12), (120, 30)])
async def test_the_frontier_puts_every_answer_where_its_figures_meet(size: tuple[int, int]) -> None:
    spots = [Spot(10.0 * i, 100.0 * i, str(i), "●", "ok", "T" if i == 3 else "") for i in range(1, 6)]
    panel = Frontier("t")
    async with Stage(panel).run_test(size=size):
        panel.show(Cloud(spots, "TPOT p95 ms", "tok/s"))
        rows = panel.plain().splitlines()
        at = {(x, y) for y, entry in enumerate(rows) for x, c in enumerate(entry) if c == "●"}
        assert len(at) == 5
        ordered = sorted(at)
        assert [y for _, y in ordered] == sorted((y for _, y in at), reverse=True), "more load, more tokens"
        x, y = ordered[2]
        assert rows[y][x - 1 : x + 2] == "(●)"


async def test_a_frontier_of_one_point_or_of_equal_points_is_drawn() -> None:
    panel = Frontier("t", empty="nothing yet")
    async with Stage(panel).run_test(size=(60, 12)):
        panel.show(Cloud([Spot(5.0, 0.0, "1", "●", "ok")], "x", "y"))
        assert "●" in panel.plain()
        panel.show(Cloud([Spot(5.0, 7.0, str(i), "●", "ok") for i in range(3)], "x", "y", ((500.0, "SLO"),)))
        assert "●" in panel.plain()
        panel.show(Cloud([], "x", "y"))
        assert "nothing yet" in panel.plain()
