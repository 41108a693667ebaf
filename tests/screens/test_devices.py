"""The device grid: who holds a GPU's memory, and many GPUs in little room."""

from __future__ import annotations

from typing import Any

import pytest

from screens.widgets.devices import Devices, holder, with_processes
from store.records import GpuProcess
from tests.screens.conftest import OpenApp, goto
from tests.screens.fake_session import session_of
from tests.screens.samples import NOW, OFFSETS, RUN, S
from tests.screens.test_figures import change
from tests.screens.test_widgets import Stage, gpu

GIB = 2**30


def held(pid: int, gib: float | None, **more: Any) -> dict[str, Any]:
    row = {"node": "node5", "gpu_uuid": "GPU-1", "pid": pid, "name": "/opt/bin/sglang::scheduler", "ours": True}
    return {**row, "mem_used_bytes": None if gib is None else int(gib * GIB), **more}


def test_the_largest_holder_is_named_with_how_many_more() -> None:
    gpus = [gpu("node5", 0, uuid="GPU-0"), gpu("node5", 1, uuid="GPU-1"), gpu("node7", 0, uuid=None)]
    joined = with_processes(gpus, [held(42, 71.25), held(43, 0.5), held(9, 1, gpu_uuid=None)])
    assert [holder(g)[0] for g in joined] == ["", "42 sglang::scheduler 71.2 GiB +1", ""]
    assert holder({"processes": [held(42, None)]})[0] == "42 sglang::scheduler", "what is not known is not shown"


def test_a_strangers_process_is_marked_in_words() -> None:
    joined = with_processes([gpu("node5", 1, uuid="GPU-1")], [held(42, 71), held(77, 3, ours=False)])
    text, role = holder(joined[0])
    assert "not ours" in text
    assert role == "warn"


@pytest.mark.parametrize(
    ("nodes", "each", "size"), [(2, 8, (80, 3)), (8, 8, (60, 9)), (2, 32, (80, 3)), (4, 16, (100, 6))]
)
async def test_one_line_a_node_still_shows_every_gpu(nodes: int, each: int, size: tuple[int, int]) -> None:
    panel = Devices("GPU")
    async with Stage(panel).run_test(size=size):
        slow = {"util_pct": 10.0}
        panel.show([gpu(f"n{n}", i, **(slow if i == 5 else {})) for n in range(nodes) for i in range(each)])
        lines = panel.plain().splitlines()[1:]
        assert len(lines) == nodes
        for entry in lines:
            bars = entry.split()[1]
            assert len(bars) == each
            assert [i for i, c in enumerate(bars) if c == "▁"] == [5]
            assert "▲ 5 at 10 %" in entry, "and says which lags"


async def test_many_gpus_of_a_node_stand_sixteen_in_a_row_where_they_fit() -> None:
    panel = Devices("GPU")
    async with Stage(panel).run_test(size=(110, 13)):
        panel.show([gpu(f"n{n}", i) for n in range(2) for i in range(32)])
        heads = [t for t in panel.plain().splitlines() if t.startswith("n")]
        assert [t.split()[1:] for t in heads] == [[str(i) for i in range(s, s + 16)] for s in (0, 16, 0, 16)]


async def test_the_live_grid_shows_the_newest_look_at_processes(open_app: OpenApp) -> None:
    app = open_app("live")
    change(app, "UPDATE gpu_samples SET uuid = node || '-' || gpu")
    looks = [
        GpuProcess(run_id=RUN, node="node5", wall_ns=NOW - back * S + OFFSETS["node5"], pid=pid, gpu_uuid="node5-3",
                   name="python3", mem_used_bytes=gib * GIB, ours=pid == 42)
        for back, pid, gib in ((20, 41, 9), (5, 42, 80), (5, 43, 2))
    ]  # fmt: skip
    session_of(app).store.write(looks, urgent=True).result()
    async with app.run_test(size=(200, 60)) as pilot:
        screen = await goto(pilot, "2")
        lines = screen.query_one(Devices).plain().splitlines()
        row = next(t for t in lines if t.strip().startswith("gpu3"))
        assert "not ours: 43 python3 2.0 GiB +1" in row, "the stranger is named, not the largest"
        assert not any("41 python3" in t for t in lines), "what was seen before is over"
