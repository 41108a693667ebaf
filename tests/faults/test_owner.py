"""The owner and its watchers: what each may lose, and what must go on without it."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from runners import owner_process
from runners.lab.control import start, stop
from runners.session import Session, attached
from runners.spec import Inventory, load_inventory
from store.database import Store
from store.errors import OwnerGone, StoreError

TWINRAIL = str(Path(sys.executable).with_name("twinrail"))
pytestmark = [pytest.mark.xdist_group("demo"), pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inventory]:
    folder = tmp_path_factory.mktemp("lab")
    start(folder)
    yield load_inventory(folder / "twinrail.toml")
    stop(folder)


@pytest.fixture
async def session(inventory: Inventory) -> AsyncIterator[Session]:
    async with attached(inventory, start=True) as found:
        yield found
    owner = owner_process.find(inventory.store_path)
    if owner:
        os.kill(owner.pid, signal.SIGTERM)
        while owner_process.find(inventory.store_path):  # noqa: ASYNC110 - another process; there is nothing to await
            await asyncio.sleep(0.1)


async def _until(session: Session, run_id: str, reached: Callable[[dict[str, object]], bool], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        try:
            rows = await session.rows("run_progress", run_id)
            if reached(rows[0]):
                return
        except OwnerGone:
            await session.start_owner()
        await asyncio.sleep(0.2)
    pytest.fail(f"not reached within {limit_s} s")


async def test_a_run_goes_on_when_its_watcher_is_killed(inventory: Inventory, session: Session) -> None:
    watcher = await asyncio.create_subprocess_exec(
        *(TWINRAIL, "run", "D2-C4", "--config", str(inventory.path)),
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    assert watcher.stderr is not None
    run_id = (await watcher.stderr.readline()).split()[1].rstrip(b":").decode()
    await _until(session, run_id, lambda r: r["phase"] in ("warmup", "ramp", "steady"), 90)
    watcher.kill()
    await watcher.wait()
    await _until(session, run_id, lambda r: r["state"] == "done", 120)
    assert (await session.document(run_id))["outcome"] == "OK"


async def test_a_killed_owner_is_reported_and_a_new_one_finishes_the_run(
    inventory: Inventory, session: Session
) -> None:
    run_id = (await session.order("start_run", what=["D2-C4"]))["run_id"]
    await _until(session, run_id, lambda r: r["phase"] in ("warmup", "ramp", "steady"), 90)
    owner = owner_process.find(inventory.store_path)
    assert owner is not None
    os.kill(owner.pid, signal.SIGKILL)
    await asyncio.sleep(0.5)
    with pytest.raises(OwnerGone, match="does not answer"):
        await session.rows("runs_list")
    assert [session.owner.alive] == [False]
    await session.start_owner()
    assert [session.owner.alive] == [True]
    await _until(session, run_id, lambda r: r["state"] == "done", 120)
    document = await session.document(run_id)
    assert document["outcome"] == "OK"
    assert [len(c["attempts"]) for c in document["cases"]] == [1]


async def test_stopping_a_run_ends_it_typed_and_leaves_no_server(inventory: Inventory, session: Session) -> None:
    run_id = (await session.order("start_run", what=["D2-C8"], repeats=20))["run_id"]
    await _until(session, run_id, lambda r: r["phase"] in ("ramp", "steady"), 90)
    await session.order("stop_run", run_id=run_id)
    await _until(session, run_id, lambda r: r["state"] == "done", 90)
    outcomes = [a["outcome"] for c in (await session.document(run_id))["cases"] for a in c["attempts"]]
    assert set(outcomes) <= {"OK", "CANCELLED"}
    assert outcomes[-1] == "CANCELLED"
    left = await session.sql(f"select count(*) from jobs where run_id = '{run_id}' and state = 'running'")
    assert left.rows == [(0,)]


async def test_a_server_that_was_brought_up_serves_a_run_and_is_taken_down(session: Session) -> None:
    await session.order("up", deployment="sim")
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        rows = await session.rows("deployment_life", "sim")
        if rows and rows[0]["state"] == "ready":
            break
        await asyncio.sleep(0.2)
    life = rows[0]["life_id"]
    run_id = (await session.order("start_run", what=["D1"], keep=True))["run_id"]
    await _until(session, run_id, lambda r: r["state"] == "done", 120)
    document = await session.document(run_id)
    assert {a["life"] for c in document["cases"] for a in c["attempts"]} == {life}
    assert (await session.rows("deployment_life", "sim"))[0]["state"] == "ready"
    await session.order("down", deployment="sim")
    while (await session.rows("deployment_life", "sim"))[0]["state"] != "gone":
        assert time.monotonic() < deadline + 180
        await asyncio.sleep(0.2)


async def test_orders_are_kept_with_who_and_refusals_with_why(session: Session) -> None:
    with pytest.raises(StoreError, match="is not on"):
        await session.order("stop_run", run_id="nothing")
    with pytest.raises(StoreError, match="not an order"):
        await session.order("format_disk")
    rows = (await session.sql("select who, kind, state, detail from orders order by wall_ns desc limit 2")).rows
    assert {r[2] for r in rows} == {"refused"}
    assert all(r[3] for r in rows)


async def test_the_store_has_one_owner(inventory: Inventory, session: Session) -> None:
    assert session.owner.alive
    with pytest.raises(StoreError, match="in use by process"):
        Store.open(inventory.store_path)
