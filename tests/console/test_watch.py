"""`watch` and `restart`: what an operator sees of nodes and servers without a run, and what gives way to a run."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from runners import owner_process
from runners.lab.control import start, stop
from runners.session import Session, attached, foreground
from runners.spec import Inventory, load_inventory
from store.errors import StoreError
from tests.faults.watching import end_owner
from tests.runners.sim_helper import Farm

TWINRAIL = str(Path(sys.executable).with_name("twinrail"))
pytestmark = [pytest.mark.xdist_group("demo"), pytest.mark.timeout(240)]
UP = "select life_id from lives where state = 'ready' order by started_wall_ns desc"


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
    end_owner(inventory)


async def until(session: Session, sql: str, limit_s: float = 90) -> list[tuple[Any, ...]]:
    """The rows of a query once there are some."""
    deadline = time.monotonic() + limit_s
    while not (rows := (await session.sql(sql)).rows):
        assert time.monotonic() < deadline, f"no row within {limit_s} s: {sql}"
        await asyncio.sleep(0.3)
    return rows


def verb(inventory: Inventory, *args: str) -> subprocess.CompletedProcess[str]:
    argv = [TWINRAIL, *args, "--config", str(inventory.path)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)


def samples_of(run_id: str, table: str, more: str = "true") -> str:
    return f"select node, count(*) from {table} where run_id = '{run_id}' and {more} group by node order by node"


async def test_a_watch_sees_nodes_and_servers_survives_its_owner_and_gives_way_to_a_run(
    inventory: Inventory, session: Session
) -> None:
    up = await asyncio.to_thread(verb, inventory, "up", "sim", "--json")
    assert up.returncode == 0, up.stderr
    first = json.loads(up.stdout)["life"]["life_id"]
    run_id = (await session.order("start_watch"))["run_id"]
    await until(session, f"select 1 from engine_samples where run_id = '{run_id}' and life_id = '{first}' limit 1")
    with pytest.raises(StoreError, match="is on there and has probes of its own"):
        await session.order("start_watch", deployment="sim")

    with pytest.raises(StoreError, match="no attempts to pause"):
        await session.order("pause_run", run_id=run_id)

    # a server that comes up on the way is looked at from then on, the old one no longer
    again = await asyncio.to_thread(verb, inventory, "restart", "sim", "--json")
    assert again.returncode == 0, again.stderr
    second = json.loads(again.stdout)["life"]["life_id"]
    assert second != first
    await until(session, f"select 1 from engine_samples where run_id = '{run_id}' and life_id = '{second}' limit 1")
    mine = f"from jobs where run_id = '{run_id}' and kind = 'probe.engine'"
    await until(session, f"{mine} and life_id = '{first}' and state = 'exited'")

    # the owner dies: probes go on, and the next owner reads on where the last one stopped
    owner = owner_process.find(inventory.store_path)
    assert owner is not None
    os.kill(owner.pid, signal.SIGKILL)
    await asyncio.sleep(1.0)
    killed_ns = time.time_ns()
    await session.start_owner()
    await until(session, f"select 1 from engine_samples where run_id = '{run_id}' and wall_ns > {killed_ns} limit 1")
    doubled = "select node, wall_ns, gpu from gpu_samples group by all having count(*) > 1"
    assert (await session.sql(doubled)).rows == []

    # the server's own lines are the watch's too, though another order started it
    logs = await session.rows("live_logs", run_id, 0, time.time_ns())
    assert {(r["node"], r["kind"]) for r in logs} >= {("node5", "server"), ("node7", "server")}

    # a run takes the nodes: the watch ends, its probes first
    case = (await session.order("start_run", what=["D1"]))["run_id"]
    (why,) = (await until(session, f"select detail from runs where run_id = '{run_id}' and state = 'done'"))[0]
    assert why == f"run {case} began, with probes of its own"
    assert (await session.sql(f"from jobs where run_id = '{run_id}' and state <> 'exited'")).rows == []
    await until(session, f"from runs where run_id = '{case}' and state = 'running'")
    for order in ("restart", "down"):
        with pytest.raises(StoreError, match=f"run {case} uses sim: stop the run first"):
            await session.order(order, deployment="sim")
    with pytest.raises(StoreError, match=f"run {case} is on there"):
        await session.order("start_watch")
    await session.order("stop_run", run_id=case)
    await until(session, f"from runs where run_id = '{case}' and state = 'done'")
    assert (await session.sql(UP)).rows == [(second,)]  # it was up before the run, and stays up after it
    down = await asyncio.to_thread(verb, inventory, "down", "sim", "--json")
    assert (down.returncode, json.loads(down.stdout)["life"]["state"]) == (0, "gone")

    document = await session.document(run_id)
    assert (document["outcome"], [h["node"] for h in document["hosts"]]) == ("OK", ["node5", "node7"])
    assert len(document["gpus"]) == 16
    assert [e["life_id"] for e in document["engine"]] == [first, second]
    (known,) = (await session.sql(f"select max(util_pct) from gpu_samples where run_id = '{run_id}'")).rows[0]
    assert max(g["util_max_pct"] for g in document["gpus"]) == known
    kept = json.loads((inventory.results_path / run_id / "watch.json").read_bytes())
    assert kept["gpus"] == document["gpus"]
    assert 0 < kept["seconds"] <= document["seconds"]


async def test_ctrl_c_ends_a_watch_with_its_document(inventory: Inventory, session: Session) -> None:
    argv = [TWINRAIL, "watch", "--config", str(inventory.path), "--json"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdout=pipe, stderr=pipe)
    await until(session, "select 1 from gpu_samples g join runs r using (run_id) where r.state = 'running' limit 1")
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(60):
        said, _ = await process.communicate()
    document = json.loads(said)
    assert (process.returncode, document["outcome"], document["detail"]) == (0, "OK", "ended by the operator")
    assert {g["node"] for g in document["gpus"]} <= {"node5", "node7"}
    assert document["gpus"]
    jobs = json.loads((await asyncio.to_thread(verb, inventory, "jobs", "--json")).stdout)["jobs"]
    assert {j["state"] for j in jobs} == {"exited"}


async def test_somebody_elses_server_is_looked_at_and_asked_for_no_token(tmp_path: Path) -> None:
    farm = Farm(tmp_path)
    sim = farm().ready()
    path = tmp_path / "twinrail.toml"
    path.write_text(
        f'[[nodes]]\nname = "here"\nhost = "local"\nroot = "{tmp_path}/node"\npython = "{sys.executable}"\n'
        f'devices = {{ vendor = "none", count = 0 }}\nenv = {{ TWINRAIL_LOCK_ROOT = "{tmp_path}/lock" }}\n'
        f'[deployments.other]\nengine = "external"\nurl = "{sim.url}"\nnodes = ["here"]\n',
        encoding="utf-8",
    )
    try:
        async with foreground(load_inventory(path)) as session:
            run_id = (await session.order("start_watch", deployment="other"))["run_id"]
            await until(session, f"select 1 from engine_samples where run_id = '{run_id}' limit 1")
            await session.order("stop_run", run_id=run_id)
            await until(session, f"from runs where run_id = '{run_id}' and state = 'done'")
            lives = (await session.sql("select deployment, state, external, outcome from lives")).rows
        assert lives == [("other", "gone", True, "OK")]
        assert sim.metric("vllm:generation_tokens_total") == 0
        assert sim.process.poll() is None
    finally:
        farm.close()


def test_nothing_to_watch_is_bad_usage_and_a_dead_node_is_said(tmp_path: Path) -> None:
    path = tmp_path / "twinrail.toml"
    path.write_text('[project]\nname = "t"\n', encoding="utf-8")
    wrong = subprocess.run([TWINRAIL, "watch", "--config", str(path)], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "twinrail init" in wrong.stderr
    path.write_text('[[nodes]]\nname = "far"\nhost = "127.0.0.1"\nport = 9\nssh_config = "/dev/null"\n', "utf-8")
    argv = [TWINRAIL, "watch", "--config", str(path), "--for", "3s", "--foreground", "--json"]
    dead = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert dead.returncode == 3
    assert "no node was reached: far" in json.loads(dead.stdout)["detail"]
