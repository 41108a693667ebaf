"""The compare screen: verdict, intervals and differences of the pair that the operator names."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
from textual.pilot import Pilot

from screens.compare import CompareScreen
from screens.widgets.bars import TextPanel
from screens.widgets.table import Table
from tests.screens.conftest import OpenApp, goto, settled, until
from tests.screens.test_figures import change, raw

STATES = {"empty": "empty", "verdict": "compared", "crashed": "crashed"}
SIZES = [(80, 24), (120, 40), (200, 60)]
TPS = """
    SELECT sum(output_tokens) / ((max(end_ns) - min(sent_ns)) / 1e9)
    FROM requests r JOIN attempts a USING (attempt_id) WHERE a.case_name LIKE '%={side}'
    GROUP BY attempt_id, a.repeat ORDER BY a.repeat
"""


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("state", STATES)
def test_picture(snap_compare: Any, open_app: OpenApp, state: str, size: tuple[int, int]) -> None:
    async def show(pilot: Pilot[int]) -> None:
        await goto(pilot, CompareScreen.KEY)

    assert snap_compare(open_app(STATES[state]), terminal_size=size, run_before=show)


async def test_both_sides_and_the_effect_are_those_of_the_raw_requests(open_app: OpenApp) -> None:
    app = open_app("compared")
    async with app.run_test(size=(200, 60)) as pilot:
        screen = await goto(pilot, CompareScreen.KEY)

        def check() -> None:
            words = screen.query_one("#metrics", Table).plain().splitlines()[2].replace("▸", " ").split()
            a, b = ([float(tps) for (tps,) in raw(app, TPS.format(side=side))] for side in "ab")
            assert words[:2] == ["*", "output_tps"]
            means = [statistics.fmean(side) for side in (a, b)]
            assert [float(w) for w in words[3:5]] == [pytest.approx(m, abs=0.05) for m in means]
            ratio = statistics.geometric_mean([y / x for x, y in zip(a, b, strict=True)])
            assert float(words[5]) == pytest.approx(100 * (ratio - 1), abs=0.06)

        check()
        assert "IMPROVE" in screen.query_one("#judgement", TextPanel).plain()
        change(app, "UPDATE requests SET end_ns = end_ns * 2, last_ns = last_ns * 2 WHERE attempt_id LIKE '%.a3' ")
        screen._known = (None, None, None)  # type: ignore[attr-defined]  # the pair was measured anew
        await settled(pilot, screen)
        check()


async def test_two_runs_are_marked_and_compared_and_an_undeclared_difference_is_shown(open_app: OpenApp) -> None:
    app = open_app("compared")
    async with app.run_test(size=(200, 60)) as pilot:
        screen = await goto(pilot, CompareScreen.KEY)
        table = screen.query_one("#sides", Table)
        for run_id, key in (("20261001-090000-first", "a"), ("20261001-091500-second", "b")):
            await pilot.press("home")
            for _ in range(4):
                if table.row is not None and table.row["run_id"] == run_id:
                    break
                await pilot.press("down")
            await pilot.press(key)
        await until(pilot, lambda: "CONFOUNDED" in screen.query_one("#judgement", TextPanel).plain())
        await until(pilot, lambda: "host.kernel" in screen.query_one("#changes", Table).plain())
        assert "undeclared" in screen.query_one("#changes", Table).plain()
        await pilot.press("x")
        await until(pilot, lambda: "second" in "".join(t for t, _ in screen.headline().left))


async def test_nothing_chosen_says_what_to_press(open_app: OpenApp) -> None:
    app = open_app("empty")
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await goto(pilot, CompareScreen.KEY)
        assert "press a, another and press b" in screen.query_one("#judgement", TextPanel).plain()
