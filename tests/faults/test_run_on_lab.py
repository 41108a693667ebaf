"""A run on two real sshd nodes while something breaks: it goes on, or ends typed, and leaves nothing running."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runners.session import Session, attached
from runners.spec import load_inventory
from tests.faults.watching import end_owner, until
from tests.lab.configure import inventory_text
from tests.lab.durability import Campaign
from tests.lab.fixture import Lab
from tests.lab.fixture import lab as lab

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("lab"), pytest.mark.timeout(300)]


@pytest.fixture
async def session(lab: Lab) -> AsyncIterator[Session]:
    work = lab.folder / "work"
    work.mkdir(exist_ok=True)
    path = work / "twinrail.toml"
    path.write_text(inventory_text(lab.folder), encoding="utf-8")
    async with attached(load_inventory(path), start=True) as found:
        yield found
    end_owner(found.config)


async def _steady_run(session: Session) -> str:
    run_id = str((await session.order("start_run", what=["D1"]))["run_id"])
    await until(session, run_id, lambda r: r["phase"] == "steady", 90)
    return run_id


def _running(lab: Lab, name: str) -> list[str]:
    lines = lab.inside(name, "ps -eo pid,args").splitlines()
    return [x for x in lines if "/srv/twinrail/" in x and "job_tail" not in x and "sh -c ps" not in x]


async def test_a_cut_link_ends_nothing_and_all_samples_arrive_afterwards(lab: Lab, session: Session) -> None:
    run_id = await _steady_run(session)
    lab.fault("node7", "cut")
    await asyncio.sleep(14)
    states = await session.rows("node_states_now")
    assert [(s["node"], s["state"]) for s in states if s["state"] != "up"] == [("node7", "lost")]
    lab.fault("node7", "heal")
    await until(session, run_id, lambda r: r["state"] == "done", 150)
    assert (await session.document(run_id))["outcome"] == "OK"
    gap = await session.sql(
        "select max(step) / 1e9 from (select wall_ns - lag(wall_ns) over (order by wall_ns) as step "
        f"from host_samples where run_id = '{run_id}' and node = 'node7')"
    )
    assert gap.rows[0][0] < 4  # one sample a second, also while nobody could hear the node
    assert _running(lab, "node5") == _running(lab, "node7") == []


async def test_a_node_that_dies_ends_the_attempt_typed(lab: Lab, session: Session) -> None:
    run_id = await _steady_run(session)
    lab.fault("node7", "crash")
    await until(session, run_id, lambda r: r["done"] == 1, 60)
    attempt = (await session.document(run_id))["cases"][0]["attempts"][0]
    assert attempt["outcome"] in ("ENGINE_CRASH", "NODE_LOST")
    assert "node7" in attempt["detail"]
    lab.fault("node7", "boot")
    await until(session, run_id, lambda r: r["state"] == "done", 120)
    assert _running(lab, "node5") == []


def test_kill_9_at_two_moments_loses_and_doubles_nothing(lab: Lab) -> None:
    """Two rounds of the campaign that tests/lab/durability.sh runs at length."""
    work = lab.folder / "work"
    work.mkdir(exist_ok=True)
    (work / "twinrail.toml").write_text(inventory_text(lab.folder, ("--log-flood", "1500")), encoding="utf-8")
    campaign = Campaign(lab.folder, seed=11)
    for moment in ("commit", "collect"):
        campaign.one(moment)
    campaign.stop_owner()
    assert campaign.audit() == (0, 0, 0)
    assert campaign.hits["commit"] == 1


def test_the_verbs_work_against_real_nodes(lab: Lab) -> None:
    work = lab.folder / "work"
    work.mkdir(exist_ok=True)
    (work / "twinrail.toml").write_text(inventory_text(lab.folder), encoding="utf-8")
    twinrail = str(Path(sys.executable).with_name("twinrail"))
    done = subprocess.run(
        [twinrail, "check", "--json", "--config", str(work / "twinrail.toml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    checks = json.loads(done.stdout)["checks"]
    assert {(c["node"], c["status"]) for c in checks if c["name"] == "ssh"} == {("node5", "pass"), ("node7", "pass")}
    assert all(c["fix"] for c in checks if c["status"] in ("warn", "fail"))
