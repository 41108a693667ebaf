"""The log view: nodes side by side by run clock, paging through any number of lines, and what stands around a hit."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.pilot import Pilot
from textual.widgets import Input

from screens.live_data import LOG_SPANS_S
from screens.widgets.logview import BUFFER, LogView
from store.records import LogLine
from tests.screens.conftest import OpenApp, goto, settled
from tests.screens.fake_session import session_of
from tests.screens.samples import NOW, OFFSETS, RUN, S
from tests.screens.test_widgets import Stage

MIDDLE = (120, 40)


def row(node: str, at: int, **more: Any) -> dict[str, Any]:
    found = {
        "node": node,
        "at_ns": at * S,
        "at_byte": at,
        "rank": 0,
        "kind": "server",
        "severity": 20,
        "truncated": False,
    }
    return {**found, "text": f"{node} said {at}", **more}


def columns(view: LogView) -> list[tuple[str, str]]:
    """The two halves of every line below the heads."""
    halves = (entry.text.split("│") for entry in view._lines[2:])
    return [(left.strip(), right.strip()) for left, right in halves]


async def test_side_by_side_each_node_has_its_column_in_order_of_the_run_clock() -> None:
    view = LogView()
    view.nodes = ("node5", "node7")
    async with Stage(view).run_test(size=(100, 8)) as pilot:
        view.show([row("node5", 1), row("node7", 2), row("node5", 3), row("node5", 4), row("node7", 5)])
        view.focus()
        await pilot.press("b")
        assert [tuple(h.partition("said ")[2] for h in pair) for pair in columns(view)] == [
            ("1", ""),
            ("3", "2"),
            ("4", "5"),
        ]


@given(st.lists(st.sampled_from(["node5", "node7"]), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_nothing_stands_above_what_was_said_before_it(nodes: list[str]) -> None:
    view = LogView()
    view.nodes = ("node5", "node7")
    lines = view._side_by_side([row(n, i) for i, n in enumerate(nodes, 1)], 120, 100)
    said = [[int(h.split()[-1]) for h in entry.text.split("│") if h.strip()] for entry in lines[1:]]
    assert sorted(itertools.chain(*said)) == list(range(1, len(nodes) + 1)), "every line once"
    assert all(max(above) < min(below) for above, below in itertools.pairwise(said))


async def test_a_narrow_panel_says_that_two_columns_do_not_fit() -> None:
    view = LogView()
    view.nodes = ("node5", "node7")
    async with Stage(view).run_test(size=(60, 8)) as pilot:
        view.show([row("node5", 1), row("node7", 2)])
        view.focus()
        await pilot.press("b")
        assert not view.apart
        assert "node5 said 1" in view.plain()


async def test_copied_lines_are_whole_and_name_their_node() -> None:
    view = LogView()
    view.nodes = ("node5", "node7")
    async with Stage(view).run_test(size=(80, 8)) as pilot:
        long = "x" * 500
        view.show([row("node5", 1), row("node7", 2, text=long)])
        view.focus()
        for _ in range(2):
            assert view.plain().splitlines()[-1].endswith(f"node7 TP0 {long}")
            assert len(view.plain().splitlines()) == 2
            await pilot.press("b")


def write(app: Any, lines: list[LogLine]) -> None:
    session_of(app).store.write(lines, urgent=True).result()


def log_line(node: str, offset: int, wall_ns: int, text: str) -> LogLine:
    return LogLine(run_id=RUN, job_id=f"job-server-{node}", node=node, offset=offset, wall_ns=wall_ns, text=text)


async def logs_of(pilot: Pilot[int]) -> tuple[Any, LogView]:
    screen = await goto(pilot, "2")
    view = screen.query_one(LogView)
    view.focus()
    return screen, view


async def test_paging_reaches_every_line_of_many_that_came_at_once(open_app: OpenApp) -> None:
    """A batch without times of its own has one arrival time; there is no way past it by time alone."""
    app = open_app("live")
    n, at = 2 * BUFFER + 50, NOW - 10 * S + OFFSETS["node5"]
    write(app, [log_line("node5", 500_000 + i, at, f"batch {i}") for i in range(n)])
    async with app.run_test(size=(120, 120)) as pilot:
        screen, view = await logs_of(pilot)
        await pilot.press("z")
        await pilot.pause()
        seen: set[int] = set()

        def look() -> None:
            seen.update(int(t.rpartition(" ")[2]) for t in view.plain().splitlines() if " batch " in t)

        async def press(key: str, until: int) -> None:
            for _ in range(600):
                look()
                if until in seen:
                    return
                before = view.query_state
                await pilot.press(key)
                if view.query_state != before:
                    await settled(pilot, screen)
            raise AssertionError(f"batch {until} was not reached; {len(seen)} were")

        await press("pageup", 0)
        assert seen == set(range(n)), "going up shows every line"
        seen.clear()
        await press("pagedown", n - 1)
        assert len(seen) == n, "and so does going down"


async def test_a_talkative_node_does_not_push_the_other_out_side_by_side(open_app: OpenApp) -> None:
    app = open_app("live")
    write(app, [log_line("node5", 500_000 + i, NOW + OFFSETS["node5"] - i, f"flood {i}") for i in range(3 * BUFFER)])
    async with app.run_test(size=MIDDLE) as pilot:
        screen, view = await logs_of(pilot)
        await settled(pilot, screen)
        assert view.data
        assert {r["node"] for r in view.data} == {"node5"}
        await pilot.press("b")
        await settled(pilot, screen)
        assert {r["node"] for r in view.data} == {"node5", "node7"}
        assert "node7  nothing since 12:13:19" in view._lines[1].text


async def test_of_a_flood_only_its_last_seconds_are_looked_at(open_app: OpenApp) -> None:
    app = open_app("live")
    write(
        app, [log_line("node5", 500_000 + i, NOW + OFFSETS["node5"] - S + i, f"flood {i}") for i in range(3 * BUFFER)]
    )
    async with app.run_test(size=MIDDLE) as pilot:
        screen, view = await logs_of(pilot)
        asked: list[int] = []
        rows = session_of(app).rows

        async def watched(name: str, *args: Any) -> list[dict[str, Any]]:
            if name == "live_logs":
                asked.append((args[2] - args[1]) // S)
            return await rows(name, *args)

        session_of(app).rows = watched  # type: ignore[method-assign]  # watches what is asked of the store
        await settled(pilot, screen)
        assert set(asked) == {LOG_SPANS_S[0]}
        assert "flood" in view.plain()
        session_of(app).store.connection.cursor().execute("DELETE FROM log_lines WHERE text LIKE 'flood%'")
        asked.clear()
        await settled(pilot, screen)
        assert LOG_SPANS_S[1] in asked, "the flood is over"
        assert view.data
        assert len(view.data) > 40


async def test_enter_leaves_the_search_and_shows_what_stands_around_the_hit(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=MIDDLE) as pilot:
        screen, view = await logs_of(pilot)
        await pilot.press("slash")
        await pilot.pause()
        app.screen.query_one(Input).value = "almost full"
        await pilot.press("enter")
        await settled(pilot, screen)
        hit = (view.data or [])[-1]
        await pilot.press("enter")
        await settled(pilot, screen)
        texts = [entry.text for entry in view._lines[1:]]
        at = next(i for i, t in enumerate(texts) if "almost full" in t)
        assert 0 < at < len(texts) - 1, "lines before it and after it"
        assert any(s == ("almost full", "found") for s in view._lines[1 + at].spans)
        assert hit["at_ns"] == view.query_state.around_ns


@pytest.mark.parametrize("keys", ["", "b"])
async def test_level_and_search_hold_in_both_layouts(open_app: OpenApp, keys: str) -> None:
    app = open_app("live")
    async with app.run_test(size=MIDDLE) as pilot:
        screen, view = await logs_of(pilot)
        await pilot.press(*keys, "l", "l")
        await settled(pilot, screen)
        assert view.data
        assert {r["level"] for r in view.data} == {"WARNING", "ERROR"}
        view.search("retracting")
        await settled(pilot, screen)
        assert {r["level"] for r in view.data} == {"WARNING"}
        assert view.apart is bool(keys)
