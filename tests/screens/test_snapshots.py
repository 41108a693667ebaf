"""What every screen looks like: sizes x states, on a stopped clock. A changed picture is a changed product."""

from __future__ import annotations

from typing import Any

import pytest
from textual.pilot import Pilot

from console.app import PLACES
from screens.control import RunControl
from tests.screens.conftest import OpenApp, goto, until

KEYS = {p.name: p.key for p in PLACES if p.name != "profile"}
SIZES = SMALL, MIDDLE, LARGE = (80, 24), (120, 36), (200, 60)

PICTURES = [
    *(
        (name, state, size)
        for name in ("home", "live")
        for state in ("live", "error")
        for size in (SMALL, MIDDLE, LARGE)
    ),
    *((name, "lost", size) for name in ("home", "live") for size in (SMALL, MIDDLE)),
    *((name, "empty", SMALL) for name in KEYS),
    *((name, "live", size) for name in ("node", "run") for size in (SMALL, MIDDLE)),
    ("run", "error", MIDDLE),
    ("node", "lost", MIDDLE),
    ("runs", "live", MIDDLE),
    ("jobs", "live", MIDDLE),
]


@pytest.mark.parametrize(
    ("name", "state", "size"), PICTURES, ids=lambda v: v if isinstance(v, str) else f"{v[0]}x{v[1]}"
)
def test_screen(snap_compare: Any, open_app: OpenApp, name: str, state: str, size: tuple[int, int]) -> None:
    async def show(pilot: Pilot[int]) -> None:
        await goto(pilot, KEYS[name])

    assert snap_compare(open_app(state), terminal_size=size, run_before=show)


def test_newcomer_sees_three_lines(snap_compare: Any, open_app: OpenApp) -> None:
    async def show(pilot: Pilot[int]) -> None:
        await goto(pilot, "1")

    assert snap_compare(open_app("empty", configured=False), terminal_size=SMALL, run_before=show)


def test_owner_gone(snap_compare: Any, open_app: OpenApp) -> None:
    app = open_app("live")

    async def show(pilot: Pilot[int]) -> None:
        screen = await goto(pilot, "2")
        app.session.owner.alive, app.session.owner.detail = False, "the owner at 127.0.0.1 does not answer"
        screen.show()
        await pilot.pause()

    assert snap_compare(app, terminal_size=SMALL, run_before=show)


def test_control_of_a_run(snap_compare: Any, open_app: OpenApp) -> None:
    async def show(pilot: Pilot[int]) -> None:
        await goto(pilot, "1")
        await pilot.press("C")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunControl))
        await pilot.pause()

    assert snap_compare(open_app("live"), terminal_size=SMALL, run_before=show)


def test_help(snap_compare: Any, open_app: OpenApp) -> None:
    async def show(pilot: Pilot[int]) -> None:
        await goto(pilot, "2")
        await pilot.press("question_mark")
        await pilot.pause()

    assert snap_compare(open_app("live"), terminal_size=MIDDLE, run_before=show)


def test_places(snap_compare: Any, open_app: OpenApp) -> None:
    async def show(pilot: Pilot[int]) -> None:
        await goto(pilot, "2")
        await pilot.press("g")
        await pilot.pause()

    assert snap_compare(open_app("live"), terminal_size=SMALL, run_before=show)


def test_light_theme(snap_compare: Any, open_app: OpenApp) -> None:
    async def show(pilot: Pilot[int]) -> None:
        await goto(pilot, "2")
        await pilot.press("T")
        await pilot.pause()

    assert snap_compare(open_app("live"), terminal_size=MIDDLE, run_before=show)
