"""Injected faults end or slow the simulated engine the way real ones do."""

import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runners.sim_helper import SIM, Farm, farm, load


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Farm]:
    yield from farm(tmp_path)


@pytest.mark.parametrize("style", ["vllm", "sglang"])
def test_a_crash_leaves_a_traceback_and_code_1(start: Farm, style: str) -> None:
    sim = start("--fault", "crash@0.3", "--style", style).ready()
    begin = time.monotonic()
    assert sim.wait() == 1
    assert time.monotonic() - begin < 1
    assert {"vllm": "EngineCore encountered a fatal error.", "sglang": "Scheduler hit an exception: Traceback"}[
        style
    ] in sim.log
    assert "RuntimeError: CUDA error" in sim.log
    assert "OutOfMemoryError" not in sim.log


async def test_oom_strikes_at_a_concurrency_and_only_there(start: Farm) -> None:
    sim = start("--fault", "oom@C=12", "--clock-scale", "10").ready()
    assert all(a.done for a in await load(sim.url, 11, 11, isl=8, osl=20))
    answers = await load(sim.url, 12, 12, isl=8, osl=400)
    assert sim.wait() == 1
    assert re.search(r"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.35 GiB", sim.log)
    errors = [c for a in answers for c in a.chunks if "error" in c]
    assert len(errors) == 12, "a dead engine says so inside the streams that it had begun"


async def test_a_fault_can_wait_for_a_number_of_requests(start: Farm) -> None:
    sim = start("--fault", "crash@req=5").ready()
    assert all(a.done for a in await load(sim.url, 1, 4, isl=8, osl=3))
    assert sim.process.poll() is None
    await load(sim.url, 1, 1, isl=8, osl=3)
    assert sim.wait() == 1


def test_a_hang_stops_tokens_but_not_http(start: Farm) -> None:
    sim = start("--fault", "hang@req=2").ready()
    asked = {"prompt": "a", "max_tokens": 3, "ignore_eos": True}
    assert sim.post("/v1/completions", asked)[0] == 200
    with pytest.raises(TimeoutError):
        urllib.request.urlopen(sim.url + "/v1/completions", b'{"prompt": "a", "max_tokens": 3}', timeout=1)
    assert sim.get("/health")[0] == 200
    assert sim.metric("vllm:generation_tokens_total") == 3
    sim.process.terminate()
    assert sim.wait(1) == 0


def test_a_worker_crash_takes_the_engine_with_it(start: Farm) -> None:
    rank0, rank1 = start.two("--fault", "worker-crash@0.3")
    rank0.ready()
    assert (rank1.wait(), rank0.wait()) == (1, 1)
    assert "WorkerProc hit an exception" in rank1.log
    assert "RuntimeError: CUDA error" in rank1.log
    assert "node rank 1" in rank0.log


def test_a_slow_start_comes_on_top(start: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINRAIL_SIM_FAULT", "slow-start=1.5")
    begin = time.monotonic()
    start().ready()
    assert 1.5 < time.monotonic() - begin < 4


@pytest.mark.parametrize(
    "spec",
    ["boom@3", "crash@", "crash@x=1", "crash", "slow-rank=1", "slow-start=-1", "oom@C=many", "worker-crash@req=2"],
)
def test_an_unknown_fault_is_bad_usage(spec: str) -> None:
    done = subprocess.run(
        [sys.executable, SIM, "--fault", spec], capture_output=True, text=True, timeout=10, check=False
    )
    assert done.returncode == 2
    assert "--fault" in done.stderr


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("--tp", "3", "--nnodes", "2"), "cannot be spread"),
        (("--tp", "16"), "16 ranks a node but 8 GPUs"),
        (("--node-rank", "1"), "--node-rank"),
        (("--clock-scale", "0"), "--clock-scale"),
        (("--kv-tokens", "3"), "no block"),
        (("--fault", "slow-rank=1:2"), "slow-rank"),
        (("--dist-init-addr", "host"), "HOST:PORT"),
    ],
)
def test_settings_that_cannot_work_are_bad_usage(args: tuple[str, ...], why: str) -> None:
    done = subprocess.run([sys.executable, SIM, *args], capture_output=True, text=True, timeout=10, check=False)
    assert (done.returncode, why in done.stderr) == (2, True)


def test_a_flood_of_lines_keeps_its_rate(start: Farm) -> None:
    sim = start("--log-flood", "2000").ready()
    first = sim.log.count("sim flood")
    time.sleep(1)
    assert 1600 < sim.log.count("sim flood") - first < 2400
    numbers = [int(n) for n in re.findall(r"sim flood (\d+) x+$", sim.log, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
