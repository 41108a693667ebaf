"""The plan screen: what is chosen and varied, what a start would do in the same words as the CLI, and how it starts."""

from __future__ import annotations

from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from runners.session import planned_without_store
from screens.dialogs import Ask, Pick, Questions, Reader
from screens.live import LiveScreen
from screens.plan import PlanScreen
from screens.search import SearchScreen
from screens.widgets.bars import TextPanel
from screens.widgets.table import Table
from tests.screens.conftest import OpenApp, goto, settled, until
from tests.screens.fake_session import StoreSession
from tests.screens.samples import RUN

SIZES = [(80, 24), (120, 36), (200, 60)]


async def opened(pilot: Pilot[int], *names: str) -> PlanScreen:
    screen = await goto(pilot, "4")
    assert isinstance(screen, PlanScreen)
    if names:
        screen.view.wanted = names
        await settled(pilot, screen)
    return screen


async def write(pilot: Pilot[int], screen: PlanScreen, field: str, text: str) -> None:
    """Enter on a field, a text, enter."""
    screen.query_one("#form", Table).select(field)
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(pilot.app.screen, Ask))
    pilot.app.screen.query_one(Input).value = text
    await pilot.press("enter")
    await until(pilot, lambda: pilot.app.screen is screen)
    await settled(pilot, screen)


async def start(pilot: Pilot[int], *answers: str) -> None:
    await pilot.press("s")
    await until(pilot, lambda: isinstance(pilot.app.screen, Questions))
    for field, answer in zip(pilot.app.screen.query(Input), answers, strict=False):
        field.value = answer
    await pilot.press("enter", "enter", "enter")
    await until(pilot, lambda: not isinstance(pilot.app.screen, Questions))


def said(screen: PlanScreen) -> str:
    """All of what will happen, also what does not fit."""
    return "\n".join(entry.text for entry in screen.query_one("#plan-sum", TextPanel).data or ())


def value_of(screen: PlanScreen, field: str) -> str:
    rows = screen.query_one("#form", Table).data or []
    return str(next(r["value"] for r in rows if r["field"] == field))


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("state", ["empty", "ready", "refused"])
def test_picture(snap_compare: Any, open_app: OpenApp, state: str, size: tuple[int, int]) -> None:
    app = open_app("empty" if state == "empty" else "live", configured=state != "empty")

    async def show(pilot: Pilot[int]) -> None:
        screen = await opened(pilot, *(() if state == "empty" else ("D2",)))
        if state == "refused":
            screen.draft.set("requests", "40")
            screen.refusal = "the owner refused: check: node5 disk: 0.4 GiB free. Next: make room"
        await settled(pilot, screen)

    assert snap_compare(app, terminal_size=size, run_before=show)


async def test_what_is_varied_is_ordered_as_a_case_of_its_own_and_shown_before(open_app: OpenApp) -> None:
    app = open_app("live")
    session = app.session
    assert isinstance(session, StoreSession)
    session.answer = {"ok": True, "run_id": RUN}
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await opened(pilot, "D2")
        assert value_of(screen, "concurrency") == "16, 32, 64"
        await write(pilot, screen, "requests", "40")
        await write(pilot, screen, "concurrency", "8, 24")
        screen.query_one("#form", Table).select("isl")
        await pilot.press("right")
        screen.query_one("#form", Table).select("repeats")
        await pilot.press("right")
        await settled(pilot, screen)
        panel = screen.query_one("#plan-steps", TextPanel)
        await until(pilot, lambda: "D2@isl=2048,requests=40-C8   repeat 2" in panel.plain())
        steps = panel.plain()
        assert "D2-C" not in steps, "the named case is not what is measured"
        await start(pilot, "longer prompts", "prefill bound", "TTFT doubles")
        await until(pilot, lambda: isinstance(app.screen, LiveScreen))
        order = {
            "what": ["D2"],
            "deployment": "tp16",
            "repeats": 2,
            "vary": {"isl": 2048, "requests": 40, "concurrency": [8, 24]},
            "changes": "longer prompts",
            "why": "prefill bound",
            "expects": "TTFT doubles",
        }
        assert session.orders == [("start_run", order)]


async def test_the_screen_and_the_command_line_show_one_plan(open_app: OpenApp) -> None:
    app = open_app("empty")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await opened(pilot, "baseline")
        plan = planned_without_store(app.session.config, "start_run", what=["baseline"])
        assert screen.snapshot is not None
        assert screen.snapshot.plan is not None
        for key in ("attempts", "commands", "estimate_s", "server_starts"):
            assert screen.snapshot.plan[key] == plan[key]
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, Reader))
        assert isinstance(app.screen, Reader)
        text = "\n".join(entry.text for entry in app.screen._texts)
        assert "planned, not executed" in text
        assert all(c["text"].split("\n")[0] in text for c in plan["commands"])


async def test_a_refusal_stays_in_words_until_something_is_changed(open_app: OpenApp) -> None:
    app = open_app("live")
    assert isinstance(app.session, StoreSession)
    app.session.refusal = "check: node5 disk: 0.4 GiB free"
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot, "D2-C16")
        await start(pilot)
        await until(pilot, lambda: screen.refusal is not None)
        await settled(pilot, screen)
        assert app.screen is screen
        assert "not started: the owner refused: check: node5 disk: 0.4 GiB free" in said(screen)
        await pilot.press("right")
        await settled(pilot, screen)
        assert "not started" not in said(screen)


@pytest.mark.parametrize(
    ("field", "text", "told"),
    [
        ("isl", "many", "vary.isl"),
        ("requests", "0", "vary.requests"),
        ("repeats", "100000", "repeats"),
        ("budget", "soon", "is not a duration"),
        ("concurrency", "8, x", "vary.concurrency"),
    ],
)
async def test_what_cannot_be_is_told_at_once_and_not_started(
    open_app: OpenApp, field: str, text: str, told: str
) -> None:
    app = open_app("live")
    assert isinstance(app.session, StoreSession)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot, "D2")
        await write(pilot, screen, field, text)
        assert "cannot start" in said(screen)
        assert told in said(screen)
        await pilot.press("s")
        await pilot.pause()
        assert app.screen is screen
        assert app.session.orders == []
        await pilot.press("backspace")
        await settled(pilot, screen)
        assert "cannot start" not in said(screen), "taken back, it is as configured"


async def test_a_search_is_chosen_from_the_list_and_shows_its_climb(open_app: OpenApp) -> None:
    app = open_app("live")
    assert isinstance(app.session, StoreSession)
    app.session.answer = {"ok": True, "run_id": RUN}
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        await pilot.press("w")
        await until(pilot, lambda: isinstance(app.screen, Pick))
        app.screen.query_one(Table).select("search:D2")
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is screen)
        await write(pilot, screen, "max_concurrency", "48")
        assert "1 16 32 48" in said(screen)
        await start(pilot)
        await until(pilot, lambda: isinstance(app.screen, SearchScreen))
        assert app.session.orders == [
            ("start_search", {"what": "D2", "deployment": "tp16", "max_concurrency": 48}),
        ]


async def test_the_answers_are_asked_once_and_kept(open_app: OpenApp) -> None:
    app = open_app("live")
    assert isinstance(app.session, StoreSession)
    app.session.refusal = "busy"
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot, "D2-C16")
        await start(pilot, "more slots", "decode bound", "more tokens")
        await until(pilot, lambda: screen.refusal is not None)
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, Questions))
        assert [i.value for i in app.screen.query(Input)] == ["more slots", "decode bound", "more tokens"]


async def test_without_an_owner_the_plan_is_shown_and_only_its_start_refused(open_app: OpenApp) -> None:
    app = open_app("live")
    session = app.session
    assert isinstance(session, StoreSession)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        session.die()
        screen = await opened(pilot, "D2")
        await until(pilot, lambda: "ready: s starts it" in said(screen))
        await start(pilot)
        await until(pilot, lambda: screen.refusal is not None)
        await until(pilot, lambda: "not started: the owner does not answer" in said(screen))
        await pilot.press("O")
        await settled(pilot, screen)
        assert app.session.owner.alive
