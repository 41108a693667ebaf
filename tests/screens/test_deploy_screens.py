"""The screens of the preflight, of start-ups and of the manifest, at three sizes and empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from console.app import TwinrailApp
from screens.check import CheckScreen
from screens.manifest import ManifestScreen
from screens.startup import StartupScreen
from store.database import Store
from store.records import Gate, Job, Life, LogEvent, LogLine, Run, Variable
from tests.screens import scene
from tests.screens.conftest import goto, until
from tests.screens.fake_session import StoreSession
from tests.screens.samples import NOW, S

SIZES = ((80, 24), (120, 36), (200, 60))
KEYS = {"check": CheckScreen.KEY, "startup": StartupScreen.KEY, "manifest": ManifestScreen.KEY}
HOSTILE = "\x1b[31mred\x07 [bold]x[/bold]"


def gates() -> list[Gate]:
    def gate(node: str | None, name: str, status: str, detail: str, fix: str = "", ago: int = 90) -> Gate:
        return Gate(
            run_id="check-1", node=node, name=name, status=status, detail=detail, fix=fix or None, wall_ns=NOW - ago * S
        )

    return [
        *(gate(n, "ssh", "pass", f"192.0.2.{n[-1]} as ops, folder /srv/twinrail") for n in ("node5", "node7")),
        *(gate(n, "gpu", "pass", "8 GPUs (RTX PRO 6000), 0 with more than 1 GiB in use") for n in ("node5", "node7")),
        gate(
            "node5", "ports", "fail", f"30000 is held by pid 812 of bob ({HOSTILE})", "sudo kill 812; or another port ="
        ),
        gate(
            "node7", "rails", "fail", "eth3=mlx5_3: no such HCA; there: mlx5_0", "load the driver, or correct rails ="
        ),
        gate("node7", "acs", "unknown", "only root may read it: sudo lspci -vvv | grep ACSCtl", "as root: lspci -vvv"),
        gate(None, "rails_same", "warn", "MTU of eth3: node5 9000, node7 1500", "one MTU on a rail"),
        gate(None, "model_same", "not_applicable", "no model folder asked for"),
    ]


def starts() -> list[Any]:
    """An old life that came up in 70 s, and one that hangs in NCCL init for want of rank 3."""
    rows: list[Any] = []
    for life, began, ready, ranks in (("L1", 4000, 70, (0, 1, 2, 3)), ("L2", 120, None, (0, 1, 2))):
        at = NOW - began * S
        rows.append(
            Life(
                life_id=life,
                run_id="r1",
                deployment="tp16",
                engine="sglang",
                state="starting" if ready is None else "gone",
                outcome=None if ready is None else "OK",
                started_wall_ns=at,
                ready_wall_ns=None if ready is None else at + ready * S,
                detail=HOSTILE if ready is None else None,
            )
        )
        for number, node in enumerate(("node5", "node7")):
            job = f"{life}.r{number}"
            rows.append(
                Job(job_id=job, life_id=life, node=node, kind="server", folder="/", rank=number, started_wall_ns=at)
            )
            rows.append(
                LogLine(
                    run_id="r1", job_id=job, node=node, offset=0, wall_ns=at, text=f"NCCL INFO last words {HOSTILE}"
                )
            )
            for rank in (r for r in ranks if r // 2 == number):
                for n, phase in enumerate(("START", "COMPLETE") if ready else ("START",)):
                    detail = f'{{"phase": "{phase}", "rank": {rank}, "nranks": 4, "gpu": {rank % 2}}}'
                    rows.append(
                        LogEvent(
                            run_id="r1",
                            job_id=job,
                            node=node,
                            rank=rank,
                            offset=n,
                            wall_ns=at + (10 + 4 * n) * S,
                            name="nccl_init",
                            detail=detail,
                        )
                    )
    return rows


def variables() -> list[Variable]:
    values = [
        ("gpu.driver", "580.105.08", "node5", "reported"),
        ("gpu.driver", "580.105.08", "node7", "reported"),
        ("deployment.flags", "--mem-fraction-static 0.9", None, "asked"),
        ("env.HF_TOKEN", "***", None, "asked"),
        ("server.attention_backend", HOSTILE, "node5", "reported"),
        ("host.load", "1.0", "node5", "measured"),
    ]
    rows = [Variable(run_id="r1", name=n, value=v, node=w, source=s, wall_ns=NOW) for n, v, w, s in values]
    other = [
        ("gpu.driver", "570.1", "node7", "reported"),
        ("deployment.flags", "", None, "asked"),
        ("host.load", "2", "node5", "x"),
    ]
    rows += [Variable(run_id="r0", name=n, value=v, node=w, source=s, wall_ns=NOW) for n, v, w, s in other]
    return rows


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Path]:
    made: dict[bool, Path] = {}

    def get(filled: bool) -> Path:
        if filled not in made:
            made[filled] = tmp_path_factory.mktemp("deploy") / "s.duckdb"
            with Store.open(made[filled]) as store:
                if filled:
                    runs = [Run(run_id=r, kind="run", created_wall_ns=NOW - n * S) for n, r in enumerate(("r1", "r0"))]
                    store.write([*runs, *gates(), *starts(), *variables()]).result()
        return made[filled]

    return get


@pytest.fixture
def open_deploy(stores: Callable[[bool], Path]) -> Iterator[Callable[[bool], TwinrailApp]]:
    opened: list[Store] = []

    def make(filled: bool) -> TwinrailApp:
        opened.append(Store.open(stores(filled)))
        return TwinrailApp(StoreSession(opened[-1], scene.config(), simulated=False), now=lambda: NOW)

    yield make
    for store in opened:
        store.close()


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("name", KEYS)
def test_picture(
    snap_compare: Any, open_deploy: Callable[[bool], TwinrailApp], name: str, size: tuple[int, int]
) -> None:
    async def show(pilot: Pilot[int]) -> None:
        await goto(pilot, KEYS[name])

    assert snap_compare(open_deploy(True), terminal_size=size, run_before=show)


@pytest.mark.parametrize("name", KEYS)
def test_empty_says_what_to_do(snap_compare: Any, open_deploy: Callable[[bool], TwinrailApp], name: str) -> None:
    async def show(pilot: Pilot[int]) -> None:
        await goto(pilot, KEYS[name])

    assert snap_compare(open_deploy(False), terminal_size=SIZES[0], run_before=show)


async def test_what_differs_from_another_run_is_shown_and_noise_comes_last(
    open_deploy: Callable[[bool], TwinrailApp],
) -> None:
    app = open_deploy(True)
    async with app.run_test(size=SIZES[1]) as pilot:
        screen = await goto(pilot, KEYS["manifest"])
        assert isinstance(screen, ManifestScreen)
        await pilot.press("d")
        await until(pilot, lambda: app.screen is not screen)
        await pilot.press(*"r0", "enter")
        await until(pilot, lambda: screen.snapshot.other == "r0")
        shown = [(r["name"], r["node"], r["a"], r["b"], r["kind"]) for r in screen.snapshot.rows]
        assert shown[0] == ("deployment.flags", None, "--mem-fraction-static 0.9", "", "asked")
        assert ("gpu.driver", "node7", "580.105.08", "570.1", "found") in shown
        assert shown[-1] == ("host.load", "node5", "1.0", "2", "noise")
        assert ("gpu.driver", "node5", "580.105.08", None, "found") in shown  # only here


async def test_c_orders_a_check(open_deploy: Callable[[bool], TwinrailApp]) -> None:
    app = open_deploy(True)
    async with app.run_test(size=SIZES[0]) as pilot:
        await goto(pilot, KEYS["check"])
        await pilot.press("c")
        session = app.session
        assert isinstance(session, StoreSession)
        await until(pilot, lambda: ("check", {}) in [(k, p) for k, p in session.orders])
        await pilot.press("a")
        await until(pilot, lambda: len(app.screen.snapshot.rows) == 4)  # type: ignore[attr-defined] # a ConsoleScreen's
