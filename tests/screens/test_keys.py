"""What keys do: start a run, stop it, pause, hold an instant, page the logs, find everything from the keyboard."""

from __future__ import annotations

import re

import pytest
from textual.widgets import Input

from console.app import PLACES, TwinrailApp
from screens.base import ConsoleScreen, bottom_bar
from screens.control import RunControl
from screens.data import Place
from screens.dialogs import Pick, Reader
from screens.help import HelpScreen
from screens.jump import instant
from screens.live import LiveScreen
from screens.plan import PlanScreen
from screens.widgets.bars import Bar, TextPanel
from screens.widgets.chart import Chart
from screens.widgets.findings import Findings
from screens.widgets.logview import LogView
from screens.widgets.requests import Requests
from screens.widgets.table import Table
from screens.widgets.text import width_of
from store.records import LogLine, NodeState, Order
from tests.screens.conftest import OpenApp, goto, settled, until
from tests.screens.fake_session import StoreSession
from tests.screens.samples import NOW, OFFSETS, RUN, S


def session_of(app: TwinrailApp) -> StoreSession:
    assert isinstance(app.session, StoreSession)
    return app.session


async def test_enter_on_a_case_shows_on_the_plan_screen_what_a_start_will_do(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "1")
        screen.query_one("#cases", Table).select("D2-C16")
        await pilot.press("enter")
        plan = await goto(pilot, "4")
        assert isinstance(plan, PlanScreen)
        assert (plan.draft.kind, plan.draft.names) == ("case", ("D2-C16",))
        assert session_of(app).orders == [], "nothing starts before s"


async def test_several_marked_cases_become_one_run(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "1")
        screen.query_one("#cases", Table).select("P1-C1")
        await pilot.press("x", "x", "enter")
        plan = await goto(pilot, "4")
        assert isinstance(plan, PlanScreen)
        assert plan.draft.names == ("P1-C1", "P2-C1")


async def test_a_running_run_stops_only_when_the_word_is_written(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(120, 36)) as pilot:
        await goto(pilot, "2")
        await pilot.press("x")
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        assert session_of(app).orders == []
        await pilot.press("x")
        await pilot.pause()
        app.screen.query_one(Input).value = "stop"
        await pilot.press("enter")
        await pilot.pause(0.1)
        assert session_of(app).orders == [("stop_run", {"run_id": RUN})]


async def test_a_run_is_paused_skipped_retried_and_aborted_from_any_screen(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await goto(pilot, "8")

        async def control(*keys: str) -> None:
            await pilot.press("C")
            await until(pilot, lambda: isinstance(app.screen, RunControl))
            await pilot.press(*keys)
            await pilot.pause()

        await control("p")
        await control("s")
        assert isinstance(app.screen, Pick)
        await pilot.press("enter")
        await control("r")
        await pilot.press("enter")
        await control("a")
        await pilot.press("enter")
        await control("a")
        app.screen.query_one(Input).value = "abort"
        await pilot.press("enter")
        await until(pilot, lambda: len(session_of(app).orders) == 4)
        await settled(pilot, screen)
        assert session_of(app).orders == [
            ("pause_run", {"run_id": RUN}),
            ("skip_attempt", {"run_id": RUN, "attempt_id": f"{RUN}-2"}),
            ("retry_attempt", {"run_id": RUN, "attempt_id": f"{RUN}-1"}),
            ("stop_run", {"run_id": RUN}),
        ], "the abort whose word was not written is no order"


async def test_a_paused_run_says_so_and_goes_on(open_app: OpenApp) -> None:
    app = open_app("live")
    paused = Order(
        order_id="o1", wall_ns=NOW, who="night shift", kind="pause_run", params="{}", state="accepted", run_id=RUN
    )
    session_of(app).store.write([paused], urgent=True).result()
    async with app.run_test(size=(80, 24)) as pilot:
        home = await goto(pilot, "1")
        assert "paused by night shift" in home.query_one("#now", TextPanel).plain()
        await goto(pilot, "2")
        assert "paused by night shift" in app.screen.query_one("#notice", Bar).plain(), "on every screen"
        await pilot.press("C")
        await until(pilot, lambda: isinstance(app.screen, RunControl))
        await pilot.press("p")
        await until(pilot, lambda: bool(session_of(app).orders))
        assert session_of(app).orders == [("resume", {"run_id": RUN})]


async def test_pause_holds_the_picture_and_space_lets_go(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "2")
        await pilot.press("space")
        seen = screen.ticks
        await pilot.pause(1.3)
        assert screen.ticks == seen
        await pilot.press("space")
        await settled(pilot, screen)
        assert screen.ticks > seen


async def test_hidden_screens_ask_nothing(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(120, 36)) as pilot:
        live = await goto(pilot, "2")
        await goto(pilot, "8")
        asked = live.feed.asked
        await pilot.pause(1.3)
        assert live.feed.asked == asked


async def test_answers_are_kept_until_their_tables_change(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(120, 36)) as pilot:
        runs = await goto(pilot, "8")
        asked = runs.feed.asked
        await settled(pilot, runs)
        assert runs.feed.asked == asked


async def test_every_panel_shows_the_instant_that_is_held(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "2")
        assert isinstance(screen, LiveScreen)
        await pilot.press("comma", "comma")
        await settled(pilot, screen)
        snap = screen.snapshot
        assert snap is not None
        assert screen.at_ns == snap.now_ns <= NOW + OFFSETS["node5"] - 10 * S
        assert all(r["at_ns"] <= snap.now_ns for r in (*snap.gpus, *snap.rails, *snap.logs))
        assert not any(g["stale"] for g in snap.gpus)
        await pilot.press("e")
        await settled(pilot, screen)
        assert screen.at_ns is None


async def test_a_past_attempt_replays_to_its_end(open_app: OpenApp) -> None:
    app = open_app("error")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "2")
        assert isinstance(screen, LiveScreen)
        await pilot.press("p")
        await settled(pilot, screen)
        assert screen.snapshot is not None
        assert screen.at_ns is not None
        assert screen.speed == 1
        begin = screen.snapshot.begin_ns
        assert begin is not None
        assert begin <= screen.at_ns <= begin + 5 * S
        screen.speed = 10_000
        await settled(pilot, screen)
        assert screen.at_ns is None, "the end of the attempt ends the replay"


async def test_brackets_step_through_attempts(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "2")
        await pilot.press("left_square_bracket")
        await settled(pilot, screen)
        assert screen.snapshot.attempt["attempt_id"] == f"{RUN}-1"
        assert "TPOT SLO EXCEEDED" in "".join(t for t, _ in screen.headline().left)


async def test_w_changes_the_window_of_the_percentiles(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "2")
        panel = screen.query_one(Requests)
        panel.focus()
        assert panel.data is not None
        steady = panel.data.counts["ok"]
        await pilot.press("w")
        await settled(pilot, screen)
        assert panel.data.window == "all"
        assert panel.data.counts["ok"] > steady


async def test_the_chart_cursor_holds_the_instant_it_points_at(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "2")
        assert isinstance(screen, LiveScreen)
        chart = screen.query_one("#tpot", Chart)
        chart.focus()
        await pilot.press(*["left"] * 8, "enter")
        await settled(pilot, screen)
        assert chart.at is not None
        assert screen.snapshot is not None
        assert screen.snapshot.begin_ns is not None
        assert screen.at_ns == screen.snapshot.begin_ns + int(chart.at * S)


async def test_the_scatter_of_a_run_leads_to_that_instant_on_the_live_screen(open_app: OpenApp) -> None:
    app = open_app("error")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "g r")
        screen.query_one("#attempts", Table).select(f"{RUN}-2")
        await settled(pilot, screen)
        chart = screen.query_one("#scatter", Chart)
        chart.focus()
        await pilot.press(*["left"] * 8, "enter")
        await pilot.pause()
        assert isinstance(app.screen, LiveScreen)
        await settled(pilot, app.screen)
        assert chart.at is not None
        first = (
            session_of(app)
            .store.query(f"SELECT min(sent_wall_ns) FROM requests WHERE attempt_id = '{app.view.attempt_id}'")
            .rows[0][0]
        )
        assert app.screen.at_ns == first + int(chart.at * S)
        assert app.screen.snapshot is not None
        assert app.screen.snapshot.attempt["attempt_id"] == screen.snapshot.chosen
        assert app.screen.snapshot.logs
        assert all(r["at_ns"] <= app.screen.at_ns for r in app.screen.snapshot.logs)


async def test_a_finding_opens_with_its_next_step(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "2")
        screen.query_one(Findings).focus()
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, Reader)


async def test_logs_hold_their_place_while_new_lines_come(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "2")
        logs = screen.query_one(LogView)
        logs.focus()
        await pilot.press("pageup")
        held = logs.plain().splitlines()[1:]
        late = [
            LogLine(
                run_id=RUN, job_id="job-server-node5", node="node5", offset=90_000 + i, wall_ns=NOW, text=f"late {i}"
            )
            for i in range(50)
        ]
        session_of(app).store.write(late, urgent=True).result()
        await settled(pilot, screen)
        assert logs.plain().splitlines()[1:] == held
        assert not logs.following
        await pilot.press("f")
        await settled(pilot, screen)
        assert "late 49" in logs.plain()


async def test_logs_search_level_and_node(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "2")
        logs = screen.query_one(LogView)
        await pilot.press("slash")
        await pilot.pause()
        app.screen.query_one(Input).value = "ALMOST FULL"
        await pilot.press("enter")
        await settled(pilot, screen)
        assert logs.data
        assert all("almost full" in r["text"] for r in logs.data)
        await pilot.press("escape")
        await pilot.press("l", "l", "l")
        await settled(pilot, screen)
        assert [r["level"] for r in logs.data] == ["ERROR"]
        await pilot.press("l", "s")
        await settled(pilot, screen)
        assert {r["node"] for r in logs.data} == {"node5"}


async def test_a_dead_owner_is_told_and_a_new_one_offered(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "2")
        app.session.owner.alive, app.session.owner.detail = False, "killed"
        screen.show()
        await pilot.pause()
        assert screen.query_one("#notice").display
        await pilot.press("O")
        await settled(pilot, screen)
        assert app.session.owner.alive
        assert not screen.query_one("#notice").display


async def test_home_offers_a_new_owner_in_words_when_the_owner_has_ended_by_itself(open_app: OpenApp) -> None:
    app = open_app("live")
    states = [NodeState(node=n, state="closed", detail=f"{n}: this link was closed.", wall_ns=NOW) for n in OFFSETS]
    session_of(app).store.write(states, urgent=True).result()
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "1")
        assert "link was closed" not in screen.query_one("#nodes", Table).plain()
        app.session.owner.alive = False
        screen.show()
        assert "press O: a new owner" in screen.query_one("#now", TextPanel).plain()
        await pilot.press("O")
        await settled(pilot, screen)
        assert "press O" not in screen.query_one("#now", TextPanel).plain()


async def test_maximise_gives_a_panel_the_room_and_takes_it_back(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "2")
        logs = screen.query_one(LogView)
        logs.focus()
        before = logs.size.height
        await pilot.press("z")
        await pilot.pause()
        assert logs.size.height > 25
        await pilot.press("z")
        await pilot.pause()
        assert logs.size.height == before


@pytest.mark.parametrize("key", [p.key for p in PLACES])
async def test_help_of_every_screen_lists_its_keys(open_app: OpenApp, key: str) -> None:
    app = open_app("live")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, key)
        await pilot.press("question_mark")
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)
        text = "\n".join(entry.text for entry in app.screen._lines)
        for binding in type(screen).BINDINGS:
            assert getattr(binding, "description", "") in text
        await pilot.press("escape")


@pytest.mark.parametrize("place", PLACES, ids=lambda p: p.name)
async def test_every_place_has_a_key_that_leads_there(open_app: OpenApp, place: Place) -> None:
    app = open_app("live")
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await goto(pilot, place.key)
        assert place.name == screen.PLACE
        bar = screen.query_one("#bottom", Bar).plain()
        assert (place.key in bar) == place.key.isdigit()


async def test_g_lists_all_places_and_the_next_key_goes_there(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("g")
        await pilot.pause()
        listed = app.screen.query_one(TextPanel).plain()
        for p in PLACES:
            assert f"{p.key:5}{p.name}" in listed, "all of them, also in a small terminal"
            assert p.about[:15] in listed
        await pilot.press("8")
        await pilot.pause()
        assert isinstance(app.screen, ConsoleScreen)
        assert app.screen.PLACE == "runs"
        await pilot.press("g", "escape")
        await pilot.pause()
        assert app.screen.PLACE == "runs", "escape stays"


def test_keys_of_places_are_one_digit_or_one_letter_behind_the_leader_and_nobody_shares() -> None:
    for p in PLACES:
        assert re.fullmatch(r"[0-9]|g [a-z]", p.key), p
    assert len({p.key for p in PLACES}) == len(PLACES) == len({p.name for p in PLACES})


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_the_bar_holds_ten_places_at_any_width(width: int) -> None:
    names = ["home", "live", "node", "plan", "search", "compare", "profile", "runs", "export", "jobs"]
    ends = bottom_bar([Place(str(n % 10), name, "") for n, name in enumerate(names, 1)], "live", width)
    assert width_of(ends.left) + width_of(ends.right) <= width
    text = "".join(t for t, _ in ends.left)
    assert all(f"{n % 10}" in text and name[:4] in text for n, name in enumerate(names, 1))


async def test_palette_offers_what_makes_sense_here(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(120, 36)) as pilot:
        await goto(pilot, "2")
        assert isinstance(app.screen, ConsoleScreen)
        live = {c.title for c in app.screen.commands()}
        assert "run: stop" in live
        await goto(pilot, "1")
        assert isinstance(app.screen, ConsoleScreen)
        home = {c.title for c in app.screen.commands()}
        assert {"start: baseline", "down: tp16", "up: tp8pp2"} <= home
        await pilot.press("ctrl+p")
        await pilot.pause()
        assert app.screen is not None


def test_times_to_jump_to() -> None:
    begin = 1_785_500_000 * S  # 12:13:20 UTC
    assert instant("+90", begin + 500 * S, begin) == begin + 90 * S
    assert instant("12:13:50", begin + 500 * S, begin) == begin + 30 * S
    assert instant("12:13:50", begin) == begin + 30 * S
    for nonsense in ("", "later", "25:00:00", "12", "+x", "1:2:3:4", "+1e400"):
        assert instant(nonsense, begin) is None


async def test_a_nodes_log_is_searched_and_shown_around_a_time(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "3")
        logs = screen.query_one(LogView)
        await pilot.press("t")
        await pilot.pause()
        app.screen.query_one(Input).value = "12:12:50"
        await pilot.press("enter")
        await settled(pilot, screen)
        times = [r["at_ns"] for r in logs._view]
        assert times[0] < NOW - 30 * S < times[-1], "lines on both sides of that time"
        await pilot.press("slash")
        await pilot.pause()
        app.screen.query_one(Input).value = "retracting"
        await pilot.press("enter", "f")
        await settled(pilot, screen)
        assert logs.data == [r for r in logs.data or [] if "retracting" in r["text"]]
