"""The grid of a plan's run: a cell a repeat, and a spread that is the one of the raw tokens."""

from __future__ import annotations

import random
import statistics
from typing import Any

import pytest
from textual.pilot import Pilot

from console.app import TwinrailApp
from screens.widgets.table import Table
from screens.widgets.text import num
from store.records import Attempt, Record
from tests.screens import scene
from tests.screens.conftest import OpenApp, goto, settled
from tests.screens.fake_session import session_of
from tests.screens.samples import NOW, OFFSETS, RUN, S, requests
from tests.screens.test_figures import change, raw

ENDS = {"P1-C1": (100.0, 101.0, 99.0), "D1-C1": (100.0, 100.5, None), "D2-C32": (100.0, 118.0, 84.0)}


def plan_run() -> list[Record]:
    """Three cases, three repeats each, as long as ENDS says; a repeat without a length ran out of memory."""
    rng = random.Random(5)
    rows: list[Record] = [scene.run_at_hand(state="running"), scene.life(state="ready")]
    ordinal = 0
    for repeat in (1, 2, 3):
        for case, spans in ENDS.items():
            ordinal += 1
            span, end = spans[repeat - 1], NOW - (2000 - 200 * ordinal) * S
            name = f"{RUN}-{ordinal}"
            rows.append(
                Attempt(
                    attempt_id=name,
                    run_id=RUN,
                    ordinal=ordinal,
                    repeat=repeat,
                    case_name=case,
                    isl=1024,
                    osl=1 if case.startswith("P") else 64,
                    concurrency=1,
                    life_id="life-1",
                    node="node5",
                    state="done",
                    outcome="OOM" if span is None else "OK",
                    started_wall_ns=end - 120 * S,
                    ended_wall_ns=end,
                )
            )
            if span is not None:
                rows += requests(RUN, name, 20, end + OFFSETS["node5"], span, 64, rng)
    rows.append(Attempt(attempt_id=f"{RUN}-10", run_id=RUN, ordinal=10, repeat=4, case_name="D2-C32", isl=1024, osl=64))
    return rows


async def grid_of(app: TwinrailApp, pilot: Pilot[int]) -> tuple[Any, Table]:
    session_of(app).store.write(plan_run(), urgent=True).result()
    screen = await goto(pilot, "g r")
    await pilot.press("v")
    for _ in range(5):  # figures of a few attempts come with each tick
        await settled(pilot, screen)
    return screen, screen.query_one("#grid", Table)


def tokens_a_second(app: TwinrailApp, attempt: str, kind: str) -> float:
    """From the first measured request sent to the last ended: all tokens that came."""
    rows = raw(
        app,
        "SELECT sent_ns, coalesce(end_ns, last_ns, sent_ns), first_ns, prompt_tokens, chunk_tokens FROM requests "
        f"WHERE attempt_id = '{attempt}'",
    )
    seconds: float = (max(r[1] for r in rows) - min(r[0] for r in rows)) / 1e9
    came = [r[3] for r in rows if r[2] is not None] if kind == "input" else [sum(r[4]) for r in rows if r[4]]
    tokens: int = sum(came)
    return tokens / seconds


async def test_spread_and_cells_are_those_of_the_raw_tokens(open_app: OpenApp) -> None:
    app = open_app("empty")
    async with app.run_test(size=(160, 36)) as pilot:
        screen, table = await grid_of(app, pilot)

        def check() -> None:
            lines = {t.replace("▸", " ").split()[0]: t for t in table.plain().splitlines()[2:]}
            for case, spans in ENDS.items():
                kind = "input" if case.startswith("P") else "output"
                attempts = [f"{RUN}-{1 + list(ENDS).index(case) + 3 * n}" for n, s in enumerate(spans) if s is not None]
                rates = [tokens_a_second(app, a, kind) for a in attempts]
                cv = 100 * statistics.stdev(rates) / statistics.fmean(rates)
                words = lines[case].replace("▸", " ").split()
                assert words[2:4] == [num(statistics.fmean(rates), 1), num(cv, 1)]
                assert ("▲ unstable" in lines[case]) is (cv > 3)
                assert [w for w in words[5:] if w[0].isdigit()][: len(rates)] == [num(r, 1) for r in rates]

        check()
        before = table.plain()
        assert "▲ unstable" in before
        assert "✖" in before, "the repeat that ran out of memory"
        assert "○" in before, "the repeat that is still planned"
        change(app, f"UPDATE requests SET end_ns = end_ns + {30 * S} WHERE attempt_id = '{RUN}-4' AND request_id = 19")
        await pilot.press("r")
        for _ in range(5):
            await settled(pilot, screen)
        assert table.plain() != before
        check()


async def test_enter_on_a_case_leads_to_its_attempts(open_app: OpenApp) -> None:
    app = open_app("empty")
    async with app.run_test(size=(120, 36)) as pilot:
        screen, table = await grid_of(app, pilot)
        table.select("D2-C32")
        await pilot.press("enter")
        await pilot.pause()
        attempts = screen.query_one("#attempts", Table)
        assert attempts.display
        assert attempts.row is not None
        assert attempts.row["attempt_id"] == f"{RUN}-3"


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)], ids=lambda s: f"{s[0]}x{s[1]}")
def test_picture(snap_compare: Any, open_app: OpenApp, size: tuple[int, int]) -> None:
    app = open_app("empty")

    async def show(pilot: Pilot[int]) -> None:
        await grid_of(app, pilot)

    assert snap_compare(app, terminal_size=size, run_before=show)
