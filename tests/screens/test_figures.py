"""The figures on the screens are those of the raw rows, worked out here by other means, also after a row changes."""

from __future__ import annotations

import itertools
import re
import statistics
from typing import Any

import numpy as np

from console.app import TwinrailApp
from screens.live import LiveScreen
from screens.widgets.devices import Devices
from screens.widgets.engine import Engine
from screens.widgets.panel import Panel
from screens.widgets.rails import Rails
from screens.widgets.requests import Requests
from screens.widgets.table import Table
from screens.widgets.text import milli, num
from tests.screens.conftest import OpenApp, goto, settled
from tests.screens.fake_session import StoreSession
from tests.screens.samples import NOW, OFFSETS, RUN, S

ATTEMPT = f"{RUN}-2"


def raw(app: TwinrailApp, sql: str) -> list[tuple[Any, ...]]:
    assert isinstance(app.session, StoreSession)
    return app.session.store.query(sql).rows


def change(app: TwinrailApp, sql: str) -> None:
    assert isinstance(app.session, StoreSession)
    app.session.store.connection.cursor().execute(sql)


def steady_requests(app: TwinrailApp) -> list[dict[str, Any]]:
    names = ("sent_ns", "first_ns", "last_ns", "output_tokens", "chunk_ns")
    rows = raw(
        app,
        f"SELECT {', '.join(names)} FROM requests "
        f"WHERE attempt_id = '{ATTEMPT}' AND phase = 'steady' AND measured AND status = 'ok'",
    )
    return [dict(zip(names, r, strict=True)) for r in rows]


def expected_line(name: str, values: list[float]) -> list[str]:
    """n, p50, p95 and p99 as the table writes them."""
    few = "*" if len(values) < 100 else ""
    p50, p95, p99 = (float(np.quantile(values, q)) for q in (0.5, 0.95, 0.99))
    count = f"{len(values) / 1000:.1f}k" if len(values) >= 1000 else str(len(values))
    return [*name.split(), count, milli(p50), milli(p95), milli(p99) + few]


def shown_line(panel: Panel[Any], name: str) -> list[str]:
    text = next(t for t in panel.plain().splitlines() if t.startswith(name))
    return text.split()[:6]


async def test_percentiles_are_those_of_the_requests(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "2")
        panel = screen.query_one(Requests)

        def check() -> None:
            rows = steady_requests(app)
            ttft = [(r["first_ns"] - r["sent_ns"]) / 1e6 for r in rows]
            tpot = [(r["last_ns"] - r["first_ns"]) / 1e6 / (r["output_tokens"] - 1) for r in rows]
            gaps = [float(g) / 1e6 for r in rows for g in np.diff(r["chunk_ns"])]
            e2e = [(r["last_ns"] - r["sent_ns"]) / 1e6 for r in rows]
            for name, values in (("TTFT ms", ttft), ("TPOT ms", tpot), ("ITL  ms", gaps), ("E2E  ms", e2e)):
                assert shown_line(panel, name) == expected_line(name, values)

        check()
        before = panel.plain()
        change(
            app,
            f"UPDATE requests SET first_ns = first_ns + {5 * S}, last_ns = last_ns + {20 * S} "
            f"WHERE attempt_id = '{ATTEMPT}' AND request_id = 20",
        )
        await pilot.press("r")
        await settled(pilot, screen)
        assert panel.plain() != before
        check()


async def test_counts_tell_how_requests_ended(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "2")
        found = dict(
            raw(
                app,
                f"SELECT status, count(*) FROM requests WHERE attempt_id = '{ATTEMPT}' AND phase = 'steady' GROUP BY 1",
            )
        )
        text = screen.query_one(Requests).plain()
        assert f"ok {found['ok']} fail {found['failed']} late {found['timed_out']}" in text


async def test_output_rate_is_the_mean_of_the_last_ten_seconds(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "2")
        ticks = raw(
            app, f"SELECT mono_ns, output_tokens FROM load_ticks WHERE attempt_id = '{ATTEMPT}' ORDER BY mono_ns"
        )
        last = ticks[-11:]
        rates = [(b[1] - a[1]) / ((b[0] - a[0]) / 1e9) for a, b in itertools.pairwise(last)]
        assert f"out {num(statistics.fmean(rates))} tok/s" in screen.query_one(Requests).plain()


async def test_gpu_grid_shows_the_newest_sample(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "2")
        panel = screen.query_one(Devices)

        def check() -> None:
            for node in OFFSETS:
                rows = raw(
                    app,
                    f"SELECT util_pct, power_w FROM gpu_samples WHERE node = '{node}' "
                    f"QUALIFY row_number() OVER (PARTITION BY gpu ORDER BY wall_ns DESC) = 1 ORDER BY gpu",
                )
                lines = panel.plain().splitlines()
                at = next(i for i, t in enumerate(lines) if t.startswith(node))
                assert re.findall(r"\d+", lines[at + 1]) == [f"{r[0]:.0f}" for r in rows]
                assert re.findall(r"\d+", lines[at + 3]) == [f"{r[1]:.0f}" for r in rows]

        check()
        change(
            app,
            "UPDATE gpu_samples SET util_pct = 12 "
            f"WHERE node = 'node5' AND gpu = 3 AND wall_ns = {NOW + OFFSETS['node5']}",
        )
        await settled(pilot, screen)
        check()
        assert "12▲" in panel.plain(), "a GPU far below its peers is marked"


async def test_a_missing_counter_is_a_dash_and_never_zero(open_app: OpenApp) -> None:
    app = open_app("live")
    change(app, "UPDATE gpu_samples SET power_w = NULL WHERE gpu = 2")
    change(app, "UPDATE rail_samples SET tx_bytes = NULL, rx_bytes = NULL WHERE node = 'node7' AND device = 'mlx5_3'")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "2")
        watts = [t for t in screen.query_one(Devices).plain().splitlines() if t.startswith("W ")]
        assert all(t.split()[3] == "–" for t in watts)
        rail = next(t for t in screen.query_one(Rails).plain().splitlines() if t.startswith("node7 mlx5_3"))
        assert "–" in rail
        assert "no counter" in rail


async def test_rail_rates_are_deltas_over_the_nodes_own_clock(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(200, 60)) as pilot:
        screen = await goto(pilot, "2")
        (late, early) = raw(
            app,
            "SELECT tx_bytes, rx_bytes, mono_ns FROM rail_samples "
            "WHERE node = 'node5' AND device = 'mlx5_0' ORDER BY wall_ns DESC LIMIT 2",
        )
        seconds = (late[2] - early[2]) / 1e9
        tx, rx = ((late[i] - early[i]) / seconds / 1e9 for i in (0, 1))
        row = next(t for t in screen.query_one(Rails).plain().splitlines() if t.startswith("node5 mlx5_0"))
        assert re.findall(r"[tr]x +([\d.]+)", row) == [f"{tx:.1f}", f"{rx:.1f}"]


async def test_a_counter_that_was_reset_gives_no_rate(open_app: OpenApp) -> None:
    app = open_app("live")
    change(
        app,
        "UPDATE rail_samples SET tx_bytes = 5 "
        f"WHERE node = 'node5' AND device = 'mlx5_0' AND wall_ns = {NOW + OFFSETS['node5']}",
    )
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "2")
        row = next(t for t in screen.query_one(Rails).plain().splitlines() if t.startswith("node5 mlx5_0"))
        assert re.search(r"tx +–", row)


async def test_engine_rates_come_from_its_counters(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "2")
        (late, early) = raw(
            app, "SELECT generation_tokens_total, wall_ns FROM engine_samples ORDER BY wall_ns DESC LIMIT 2"
        )
        rate = (late[0] - early[0]) / ((late[1] - early[1]) / 1e9)
        assert f"decode {rate:5.0f} tok/s" in screen.query_one(Engine).plain()


async def test_run_screen_rates_count_tokens_that_arrived_in_the_window(open_app: OpenApp) -> None:
    app = open_app("live")
    async with app.run_test(size=(200, 60)) as pilot:
        screen = await goto(pilot, "g r")
        w0 = raw(app, f"SELECT start_mono_ns FROM phases WHERE attempt_id = '{RUN}-1' AND name = 'steady'")[0][0]
        w1 = raw(app, f"SELECT max(end_ns) FROM requests WHERE attempt_id = '{RUN}-1' AND measured")[0][0]
        requests = raw(
            app,
            "SELECT sent_ns, first_ns, prompt_tokens, chunk_ns, chunk_tokens FROM requests "
            f"WHERE attempt_id = '{RUN}-1'",
        )
        out = sum(
            tokens
            for sent, _, _, chunks, counts in requests
            for at, tokens in zip(chunks or [], counts or [], strict=True)
            if w0 <= sent + at <= w1
        )
        prompts = sum(p for _, first, p, _, _ in requests if first is not None and w0 <= first <= w1)
        seconds = (w1 - w0) / 1e9
        row = screen.query_one("#attempts", Table).plain().splitlines()[2]
        assert f"{prompts / seconds:.1f}" in row
        assert f"{out / seconds:.1f}" in row


async def test_another_nodes_clock_is_brought_to_the_runs(open_app: OpenApp) -> None:
    """node7 runs an hour ahead: its samples are still the newest ones, and its log lines stay in order."""
    app = open_app("live")
    hour = 3600 * S
    for table in ("gpu_samples", "rail_samples", "log_lines"):
        change(app, f"UPDATE {table} SET wall_ns = wall_ns + {hour} WHERE node = 'node7'")
    change(app, f"UPDATE clock_offsets SET offset_ns = offset_ns + {hour} WHERE node = 'node7'")
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await goto(pilot, "2")
        assert isinstance(screen, LiveScreen)
        assert screen.snapshot is not None
        assert {g["node"] for g in screen.snapshot.gpus if not g["stale"]} == {"node5", "node7"}
        times = [r["at_ns"] for r in screen.snapshot.logs]
        assert times == sorted(times)
        assert {r["node"] for r in screen.snapshot.logs[-10:]} == {"node5", "node7"}
