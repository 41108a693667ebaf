"""Tools that end in ugly ways, over the embedded lab: SSH, detached jobs, a simulated engine, a stand-in tool."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runners import owner_process
from runners.lab.control import start, stop
from runners.session import Session, attached, foreground
from runners.spec import load_inventory

pytestmark = [pytest.mark.xdist_group("clients"), pytest.mark.timeout(400)]
FAKE = Path(__file__).with_name("fake_tool.py")
SAMPLE = Path(__file__).parents[2] / "data" / "clients" / "vllm_bench.json"
SAMPLE_BYTES = len(json.dumps(json.loads(SAMPLE.read_text())))
WAYS = {"nothing": 1, "half": 2, "unknown": 3, "none": 4, "crash": 5, "waits": 6, "good": 8}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The lab's folder, and the text of a configuration whose benchmark clients are the stand-in."""
    folder = tmp_path_factory.mktemp("lab")
    tool = folder / "python"
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
    tool.chmod(0o755)
    text = start(folder)
    for client, python in (("vllm_bench", tool), ("sglang_bench", tool), ("aiperf", folder / "no-such-python")):
        text += f'\n[clients.{client}]\npython = "{python}"\n'
    for name, osl in WAYS.items():
        text += f"\n[cases.{name}]\nisl = 64\nosl = {osl}\nconcurrency = 2\nrequests = 5\nwarmup = 1\n"
        text += 'client = "vllm_bench"\n'
    for name, client in (("lacks", "sglang_bench"), ("absent", "aiperf")):
        text += f'\n[cases.{name}]\nisl = 64\nosl = 8\nclient = "{client}"\n'
    yield folder, text
    stop(folder)


def config(lab: tuple[Path, str], folder: Path) -> Path:
    """The configuration with a store of its own in `folder`."""
    path = folder / "twinrail.toml"
    path.write_text(lab[1])
    return path


async def until(session: Session, run_id: str, reached: Callable[[dict[str, Any]], bool], limit_s: float = 300) -> None:
    deadline = time.monotonic() + limit_s
    while not reached((await session.rows("run_progress", run_id))[0]):
        assert time.monotonic() < deadline, "not reached in time"
        await asyncio.sleep(0.2)


async def test_no_tool_is_believed_by_its_exit_code(lab: tuple[Path, str], tmp_path: Path) -> None:
    names = ["nothing", "half", "unknown", "none", "crash", "good", "lacks", "absent"]
    async with foreground(load_inventory(config(lab, tmp_path))) as session:
        run_id = str((await session.order("start_run", what=names, repeats=1))["run_id"])
        await until(session, run_id, lambda r: r["state"] == "done")
        document = await session.document(run_id)
        proof = await session.sql('select job_id, "offset", length, sha256, stream from batches')
        open_phases = await session.sql("select name from phases where name <> 'launch' and end_wall_ns is null")
        own = await session.sql("select name, value from variables where name like 'client.a6.%'")
    assert open_phases.rows == []
    ends = {c["case"].removesuffix("-C2").removesuffix("-C1"): c["attempts"][0] for c in document["cases"]}
    assert {name: a["outcome"] for name, a in ends.items()} == {**dict.fromkeys(names, "CLIENT_ERROR"), "good": "OK"}
    said = {name: a["detail"] for name, a in ends.items()}
    assert "exit code 0 but wrote no result file" in said["nothing"]
    assert "cut short or no JSON" in said["half"]
    assert "output version that is not known" in said["unknown"]
    assert "0.0% of the measured requests" in said["none"]
    assert "Bad Request" in said["none"]
    assert "exit code 1" in said["crash"]
    assert "the tool fell over" in said["crash"]
    assert "does not know --output-details" in said["lacks"]
    assert "no-such-python" in said["absent"]
    # The good one: figures of the file's own requests, no steady window, the bytes proven, its own word beside ours.
    good = ends["good"]
    assert good["all"]["requests"] == {"ok": 5, "failed": 0, "timed_out": 0, "cut": 0}
    assert good["duration_s"] is None
    assert "few_repeats" in good["flags"]
    assert "client_version_untried" not in good["flags"]
    (whole,) = [row for row in proof.rows if row[0].endswith(".a6.client") and row[4] == "result.json"]
    assert whole[1] == 0
    assert whole[2] == SAMPLE_BYTES
    assert len(whole[3]) == 64
    assert dict(own.rows)["client.a6.requests_ok"] == "6"  # with the unmeasured first
    kept = tmp_path / "results" / run_id / "requests"
    assert json.loads((kept / f"{run_id}.a6.client.result.json").read_text()) == json.loads(SAMPLE.read_text())
    assert "Serving Benchmark" in (kept / f"{run_id}.a6.client.stdout.txt").read_text()


async def test_a_killed_owner_is_followed_by_one_that_takes_the_running_tool_over(
    lab: tuple[Path, str], tmp_path: Path
) -> None:
    inventory = load_inventory(config(lab, tmp_path))
    jobs = lab[0] / "node5" / "home" / ".twinrail" / "jobs"
    async with attached(inventory, start=True) as session:
        try:
            run_id = str((await session.order("start_run", what=["waits"], repeats=1))["run_id"])
            folder = jobs / f"{run_id}.a1.client"
            deadline = time.monotonic() + 100
            while not (folder / "began").exists():
                assert time.monotonic() < deadline, "the tool did not begin"
                await asyncio.sleep(0.2)
            pid = (folder / "pid").read_text()
            owner = owner_process.find(inventory.store_path)
            assert owner is not None
            os.kill(owner.pid, signal.SIGKILL)
            await asyncio.sleep(0.5)
            await session.start_owner()
            (folder / "go").touch()
            await until(session, run_id, lambda r: r["state"] == "done")
            document = await session.document(run_id)
            rows = await session.sql("select count(*), count(distinct request_id) from requests")
        finally:
            if owner := owner_process.find(inventory.store_path):
                os.kill(owner.pid, signal.SIGTERM)
    (case,) = document["cases"]
    (attempt,) = case["attempts"]
    assert (attempt["outcome"], attempt["attempt_id"]) == ("OK", f"{run_id}.a1")  # not a repeat of it
    assert (folder / "pid").read_text() == pid
    assert attempt["all"]["requests"]["ok"] == 5
    assert rows.rows == [(6, 6)]
