"""Odd moments: a run stopped before its turn, nowhere to write, two owners at once, a changed configuration."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from runners import owner_process
from runners.lab.control import start, stop
from runners.session import Session, attached, reading
from runners.spec import Inventory, load_inventory
from store.database import Store
from tests.faults.watching import end_owner, until

TWINRAIL = str(Path(sys.executable).with_name("twinrail"))
LONG = "x" * 64  # the longest name that a configuration may use

pytestmark = [pytest.mark.xdist_group("demo"), pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inventory]:
    """The embedded lab, its second node and one case under names as long as they may be."""
    folder = tmp_path_factory.mktemp("lab")
    start(folder)
    config = folder / "twinrail.toml"
    text = config.read_text(encoding="utf-8").replace('"node7"', f'"{LONG}"')
    config.write_text(f"{text}\n[cases.{LONG}]\nisl = 64\nosl = 8\nbudget = '60s'\n", encoding="utf-8")
    yield load_inventory(config)
    end_owner(load_inventory(config))
    stop(folder)


@pytest.fixture
async def session(inventory: Inventory) -> AsyncIterator[Session]:
    async with attached(inventory, start=True) as found:
        yield found


async def test_a_run_that_is_stopped_before_its_turn_ends_at_once_and_harms_no_other(session: Session) -> None:
    first = (await session.order("start_run", what=["D2-C4"]))["run_id"]
    second = (await session.order("start_run", what=["D2-C8"]))["run_id"]
    await until(session, first, lambda r: r["phase"] is not None)
    await session.order("stop_run", run_id=second)
    assert (await session.document(second))["outcome"] == "CANCELLED"
    assert (await until(session, first, lambda r: True))["state"] != "done"
    assert (await until(session, first, lambda r: r["state"] == "done"))["outcome"] == "OK"


async def test_the_longest_names_make_a_run_like_any_other(session: Session) -> None:
    run_id = (await session.order("start_run", what=[LONG]))["run_id"]
    assert (await until(session, run_id, lambda r: r["state"] == "done"))["outcome"] == "OK"
    nodes = await session.sql(f"select distinct node from cpu_samples where run_id = '{run_id}' order by node")
    assert nodes.rows == [("node5",), (LONG,)]


async def test_results_that_cannot_be_written_hold_a_run_up_until_they_can(
    inventory: Inventory, session: Session
) -> None:
    if inventory.results_path.exists():  # another test's runs
        inventory.results_path.rename(inventory.results_path.with_name("aside"))
    inventory.results_path.write_text("in the way", encoding="utf-8")
    run_id = (await session.order("start_run", what=["D1"]))["run_id"]
    held = await until(session, run_id, lambda r: "[waiting]" in (r["detail"] or ""))
    assert str(inventory.results_path / run_id) in held["detail"]
    inventory.results_path.unlink()
    done = await until(session, run_id, lambda r: r["state"] == "done", 60)
    assert (done["outcome"], done["detail"]) == ("OK", None)
    assert (inventory.results_path / run_id / "summary.csv").exists()


async def test_two_owners_started_at_once_become_one(inventory: Inventory, session: Session) -> None:
    end_owner(inventory)
    both = await asyncio.gather(*(asyncio.to_thread(owner_process.start, inventory) for _ in range(2)))
    assert both[0] == both[1]


async def test_an_owner_waits_for_a_reader_to_close_the_store(inventory: Inventory, session: Session) -> None:
    end_owner(inventory)
    with Store.open(inventory.store_path):
        starting = asyncio.create_task(asyncio.to_thread(owner_process.start, inventory))
        asking = asyncio.create_task(_runs(inventory))
        await asyncio.sleep(2)
        assert not starting.done()
    assert (await starting).pid
    await asking


async def _runs(inventory: Inventory) -> list[dict[str, Any]]:
    async with reading(inventory) as found:
        return await found.rows("runs_list")


async def test_a_second_interrupt_leaves_at_once_though_the_owner_is_frozen(
    inventory: Inventory, session: Session
) -> None:
    watcher = await asyncio.create_subprocess_exec(
        *(TWINRAIL, "run", "D2-C4", "--config", str(inventory.path)),
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    assert watcher.stderr is not None
    run_id = (await watcher.stderr.readline()).split()[1].rstrip(b":").decode()
    owner = owner_process.find(inventory.store_path)
    assert owner is not None
    os.kill(owner.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(1)
        watcher.send_signal(signal.SIGINT)
        await asyncio.sleep(0.5)
        watcher.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(watcher.wait(), 3) == 3
    finally:
        os.kill(owner.pid, signal.SIGCONT)
    assert b"twinrail resume" in await watcher.stderr.read()
    assert (await until(session, run_id, lambda r: r["state"] == "done"))["outcome"] in ("OK", "CANCELLED")


async def test_a_run_whose_deployment_left_the_configuration_is_ended_and_its_servers_with_it(
    inventory: Inventory, session: Session
) -> None:
    run_id = (await session.order("start_run", what=["D2-C8"], repeats=20))["run_id"]
    await until(session, run_id, lambda r: r["phase"] == "steady")
    end_owner(inventory, signal.SIGKILL)
    assert inventory.path is not None
    before = inventory.path.read_text(encoding="utf-8")
    renamed = before.replace("[deployments.sim]", "[deployments.other]").replace('deployment = "sim"', "")
    inventory.path.write_text(renamed.split("[plans.tour]")[0], encoding="utf-8")
    try:
        async with attached(load_inventory(inventory.path), start=True) as found:
            done = await until(found, run_id, lambda r: r["state"] == "done")
            assert done["outcome"] == "START_FAILED"
            assert "'sim'" in done["detail"]
            assert {a["outcome"] for c in (await found.document(run_id))["cases"] for a in c["attempts"]} <= {
                "OK",
                "START_FAILED",
            }
            left = f"select count(*) from jobs where run_id = '{run_id}' and state in ('starting', 'running')"
            deadline = time.monotonic() + 90
            while (await found.sql(left)).rows != [(0,)]:
                assert time.monotonic() < deadline
                await asyncio.sleep(1)
    finally:
        inventory.path.write_text(before, encoding="utf-8")
