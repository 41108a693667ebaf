"""The screens with a history: GPU, rails, engine, threads. What they look like, and what their keys do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from textual.pilot import Pilot

from screens.dialogs import Reader
from screens.history import History, HistoryScreen, Window
from screens.widgets.bars import TextPanel
from screens.widgets.chart import Chart
from screens.widgets.table import Table
from store.records import GpuProcess, NumaSample, RailSample, Record, ThreadSample
from tests.screens.conftest import OpenApp, goto, until
from tests.screens.fake_session import StoreSession
from tests.screens.samples import MONO, NOW, OFFSETS, RUN, S

KEYS = {"gpu": "g g", "rails": "g l", "engine": "g e", "threads": "g t"}


def more() -> Iterator[Record]:
    """What the shared scenes lack: threads by role, pages by node, GPU memory by process, pauses by direction."""
    roles = (
        ("scheduler", "sglang::schedul", 0.99),
        ("detokenizer", "sglang::detoken", 0.2),
        ("worker", "python3", 0.6),
    )
    for second in range(0, 90, 5):
        back = (89 - second) * S
        for i, (role, name, share) in enumerate(roles):
            yield ThreadSample(
                run_id=RUN,
                node="node5",
                wall_ns=NOW - back + OFFSETS["node5"],
                mono_ns=MONO - back,
                source="proc",
                pid=900 + i,
                tid=900 + i,
                name=name,
                process=f"{name}er_TP0",
                role=role,
                state="R",
                last_cpu=i,
                run_ns_total=int(second * S * share),
                wait_ns_total=int(second * S * 0.02),
                voluntary_switches_total=second * 10,
                involuntary_switches_total=second * (40 if i == 0 else 1),
                major_faults_total=0,
                minor_faults_total=5,
            )
    at: dict[str, Any] = {"run_id": RUN, "node": "node5", "wall_ns": NOW - 30 * S, "mono_ns": MONO - 30 * S}
    yield NumaSample(
        **at, source="numa_maps", numa=0, pid=900, pages_bytes=6 << 30, process="sglang::scheduler_TP0", cpus="0-31"
    )
    yield NumaSample(
        **at, source="numa_maps", numa=1, pid=900, pages_bytes=2 << 30, process="sglang::scheduler_TP0", cpus="0-31"
    )
    yield NumaSample(
        **at,
        source="numa_maps",
        numa=-1,
        pid=901,
        process="sglang::detokenizer",
        missing="numa_maps: Permission denied",
    )
    yield GpuProcess(**at, pid=900, gpu_uuid="GPU-a", name="sglang::scheduler_TP0", mem_used_bytes=80 << 30)
    yield GpuProcess(**at, pid=77, gpu_uuid="GPU-a", name="./burn", mem_used_bytes=1 << 30)
    for second in (10, 80):
        back = (89 - second) * S
        yield RailSample(
            run_id=RUN,
            node="node5",
            wall_ns=NOW - back + OFFSETS["node5"],
            mono_ns=MONO - back + 1000,
            source="sysfs and ethtool",
            device="mlx5_5",
            port=1,
            door="rdma",
            state="ACTIVE",
            rate_gbps=400.0,
            netdev="eth0",
            numa=0,
            pfc="configured",
            rx_pause_total=second * 100,
            tx_pause_total=7,
            retransmits_total=second,
            timeouts_total=0,
        )


def open_with_more(open_app: OpenApp, scene: str = "live") -> Any:
    app = open_app(scene)
    assert isinstance(app.session, StoreSession)
    app.session.store.write(list(more())).result()
    return app


PICTURES = [(name, "live", size) for name in KEYS for size in ((80, 24), (120, 40), (200, 60))]


@pytest.mark.parametrize(
    ("name", "scene", "size"), PICTURES, ids=lambda v: v if isinstance(v, str) else f"{v[0]}x{v[1]}"
)
def test_screen(snap_compare: Any, open_app: OpenApp, name: str, scene: str, size: tuple[int, int]) -> None:
    async def show(pilot: Pilot[int]) -> None:
        await goto(pilot, KEYS[name])

    assert snap_compare(open_with_more(open_app, scene), terminal_size=size, run_before=show)


@pytest.mark.parametrize("name", KEYS)
async def test_a_newcomer_is_told_what_to_do(open_app: OpenApp, name: str) -> None:
    app = open_app("empty")
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await goto(pilot, KEYS[name])
        assert isinstance(screen, HistoryScreen)
        assert "no run yet" in "".join(span[0] for span in screen.headline().left)


async def test_zoom_and_move_change_the_window_and_0_follows_again(open_app: OpenApp) -> None:
    app = open_with_more(open_app)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await goto(pilot, KEYS["engine"])
        assert isinstance(screen, HistoryScreen)

        def window() -> Window:
            snap = screen.snapshot
            assert isinstance(snap, History)
            return snap.window

        first = window()
        await pilot.press("plus")
        await until(pilot, lambda: window().t1 - window().t0 < first.t1 - first.t0)
        assert window().step_s <= first.step_s
        newest = window().t1
        await pilot.press("comma")
        await until(pilot, lambda: window().t1 < newest)
        assert screen.end_ns is not None
        await pilot.press("0")
        await until(pilot, lambda: screen.end_ns is None and window().t1 >= newest)
        names = {word for _, word in window().marks}
        assert "steady" in names


async def test_the_other_node_is_one_key_away(open_app: OpenApp) -> None:
    app = open_with_more(open_app)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await goto(pilot, KEYS["gpu"])
        assert screen.snapshot.node == "node5"
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: screen.snapshot.node == "node7")
        hot = next(r for r in screen.snapshot.rows["gpus"] if r["gpu"] == 4)
        assert hot["throttle"] == "hw_thermal_slowdown"


async def test_the_chart_is_of_the_gpu_under_the_cursor(open_app: OpenApp) -> None:
    app = open_with_more(open_app)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await goto(pilot, KEYS["gpu"])
        table = screen.query_one("#gpus", Table)
        table.focus()
        await pilot.press("down", "down")
        await until(pilot, lambda: {r["gpu"] for r in screen.snapshot.rows["one"]} == {2})
        assert "GPU 2" in screen.query_one("#gpu-util", Chart).title


async def test_enter_on_an_instant_shows_the_logs_around_it(open_app: OpenApp) -> None:
    app = open_with_more(open_app)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await goto(pilot, KEYS["engine"])
        chart = screen.query_one("#engine-tokens", Chart)
        chart.focus()
        await pilot.press("left", "left", "enter")
        await until(pilot, lambda: pilot.app.screen is not screen)
        assert getattr(pilot.app.screen, "at_ns", None) is not None


async def test_pauses_and_retransmissions_are_those_of_the_window(open_app: OpenApp) -> None:
    app = open_with_more(open_app)
    async with app.run_test(size=(200, 60)) as pilot:
        screen = await goto(pilot, KEYS["rails"])
        first = next(r for r in screen.snapshot.rows["ports"] if r["device"] == "mlx5_5")
        assert (first["rx_pauses"], first["tx_pauses"], first["retransmits"]) == (7000, 0, 70)
        assert first["netdev"] == "eth0"
        idle = next(r for r in screen.snapshot.rows["ports"] if r["device"] == "mlx5_3")
        assert idle["node_pct"] == pytest.approx(0.0)


async def test_threads_are_named_and_ranked_and_pages_that_may_not_be_read_say_why(open_app: OpenApp) -> None:
    app = open_with_more(open_app)
    async with app.run_test(size=(200, 60)) as pilot:
        screen = await goto(pilot, KEYS["threads"])
        threads = screen.snapshot.rows["threads"]
        named = [r for r in threads if r["role"] is not None]
        assert [r["role"] for r in named][:3] == ["scheduler", "worker", "detokenizer"]
        assert named[0]["core_pct"] == pytest.approx(99.0, abs=0.5)
        pages = {r["pid"]: r for r in screen.snapshot.rows["numa"]}
        assert pages[900]["away_pct"] == 25.0
        assert pages[901]["bytes"] is None
        assert "Permission denied" in pages[901]["missing"]


async def test_the_engine_says_what_it_has_no_metric_for(open_app: OpenApp) -> None:
    app = open_with_more(open_app)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await goto(pilot, KEYS["engine"])
        assert "running" in screen.query_one("#engine-now", TextPanel).plain()


def test_a_gap_breaks_the_curve() -> None:
    window = Window("r", True, 0, 100 * S, 1)
    rows: list[dict[str, Any]] = [{"at_ns": t * S, "v": 1.0} for t in (*range(10), *range(50, 60))]
    plot = window.plot(rows, (("v", "one", "v"),))
    assert plot is not None
    assert list(plot.series[0].ys).count(None) == 1


async def test_g_shows_how_the_store_grows_and_removes_nothing(open_app: OpenApp) -> None:
    app = open_with_more(open_app)
    async with app.run_test(size=(120, 40)) as pilot:
        await goto(pilot, KEYS["gpu"])
        await pilot.press("G")
        await until(pilot, lambda: isinstance(pilot.app.screen, Reader))
        await until(pilot, lambda: "gpu_samples" in pilot.app.screen.query_one(TextPanel).plain())
        assert "retention" in pilot.app.screen.query_one(TextPanel).plain()
