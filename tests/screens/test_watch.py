"""The live screen over a watch: no attempt, so the engine's own curves stand where the load client's would."""

from __future__ import annotations

import pytest

from screens.live import LiveScreen
from screens.live_watch import alone, engine_plots
from screens.widgets.chart import Chart
from screens.widgets.devices import Devices
from screens.widgets.logview import LogView
from screens.widgets.requests import Requests
from tests.screens.conftest import OpenApp, goto
from tests.screens.fake_session import StoreSession
from tests.screens.samples import NOW, RUN, S

MADE_A_WATCH = (
    f"DELETE FROM attempts WHERE run_id = '{RUN}'",
    f"DELETE FROM phases WHERE run_id = '{RUN}'",
    f"UPDATE runs SET kind = 'watch', plan = NULL WHERE run_id = '{RUN}'",
)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_a_watch_shows_nodes_servers_and_logs_and_no_empty_table(
    open_app: OpenApp, size: tuple[int, int]
) -> None:
    app = open_app("live")
    assert isinstance(app.session, StoreSession)
    store = app.session.store
    for sql in MADE_A_WATCH:
        store.connection.cursor().execute(sql)
    async with app.run_test(size=size) as pilot:
        screen = await goto(pilot, "2")
        assert isinstance(screen, LiveScreen)
        snap = screen.snapshot
        assert snap is not None
        assert alone(snap)
        assert not screen.query_one(Requests).display
        assert "node7" in screen.query_one(Devices).plain()
        assert screen.query_one(LogView).display
        (_, queue), (title, rates) = engine_plots(snap)
        assert queue is not None
        assert rates is not None
        totals = store.query(
            "select generation_tokens_total, wall_ns from engine_samples "
            f"where run_id = '{RUN}' and source = 'metrics' and wall_ns <= {NOW} order by wall_ns desc limit 2"
        ).rows
        (newest, t1), (before, t0) = totals
        decode = next(s for s in rates.series if s.name == "decode")
        assert decode.ys[-1] == pytest.approx((newest - before) * S / (t1 - t0))
        assert decode.xs[-1] == 0
        if size[0] >= 120:
            chart = screen.query_one("#tps", Chart)
            assert chart.display
            assert (chart.title, chart.data) == (title, rates)


async def test_the_palette_of_home_restarts_a_server_and_starts_a_watch(open_app: OpenApp) -> None:
    app = open_app("live")
    assert isinstance(app.session, StoreSession)
    async with app.run_test(size=(120, 40)) as pilot:
        home = await goto(pilot, "1")
        commands = {c.title: c for c in home.commands()}
        up = [title.removeprefix("down: ") for title in commands if title.startswith("down: ")]
        assert up
        commands[f"restart: {up[0]}"].run()
        commands["watch"].run()
        await pilot.pause(0.2)
    assert ("restart", {"deployment": up[0]}) in app.session.orders
    assert [params for kind, params in app.session.orders if kind == "start_watch"] == [{"seconds": 3600.0}]
