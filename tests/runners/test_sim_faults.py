"""Injected faults end or slow the simulated engine the way real ones do."""

import asyncio
import itertools
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runners.sim_helper import SIM, Answer, Farm, farm, load, metric


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


def children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def title(pid: int) -> bytes:
    """Command line of a process; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_a_host_bound_engine_fills_a_core_while_the_gpus_wait(start: Farm, tmp_path: Path) -> None:
    plain = start("--state-dir", str(tmp_path), "--clock-scale", "5").ready()
    quick = itl(await load(plain.url, 4, 8, isl=16, osl=100))
    plain.process.terminate()
    plain.wait()
    bound = start("--fault", "host-bound=60", "--style", "sglang", "--state-dir", str(tmp_path), "--clock-scale", "5")
    bound.ready()
    (scheduler,) = children(bound.process.pid)
    assert title(scheduler).rstrip(b"\0") == b"sglang::scheduler_TP0"
    idle = cpu_s(scheduler)
    assert idle < 1
    begin, utils = time.monotonic(), set()
    loading = asyncio.ensure_future(load(bound.url, 4, 16, isl=16, osl=100))
    while not loading.done():
        await asyncio.sleep(0.2)
        gpus = json.loads((tmp_path / "gpu_load").read_text())["gpus"]
        utils.add(gpus["0"]["util"])
    share = (cpu_s(scheduler) - idle) / (time.monotonic() - begin)
    assert share > 0.1  # a whole core, where the machine has one to give
    assert itl(await loading) > 2 * quick
    assert max(utils) > 1.5 * min(u for u in utils if u)  # a saw, blunter where other load holds the engine up
    bound.process.terminate()
    bound.wait()
    for _ in range(100):  # it ends with the engine
        if not title(scheduler):
            return
        await asyncio.sleep(0.1)
    pytest.fail("the scheduler process outlives its engine")


async def test_a_prefill_storm_makes_others_wait_and_holds_their_decodes_up(start: Farm) -> None:
    """3 prompts of 8192 tokens in chunks of 2048: 12 steps of some 120 simulated ms in which nobody decodes."""
    sim = start("--fault", "prefill-storm=0.6:3:8192", "--style", "sglang", "--clock-scale", "5").ready()
    await asyncio.sleep(1.5)
    assert "Prefill batch" not in sim.log, "it storms only while somebody decodes"
    waiting = 0.0
    loading = asyncio.ensure_future(load(sim.url, 4, 24, isl=16, osl=100))
    while not loading.done():
        await asyncio.sleep(0.1)
        text = (await asyncio.to_thread(sim.get, "/metrics"))[1]
        waiting = max(waiting, metric(text, "sglang:num_queue_reqs"))
    gaps = [b - a for x in await loading for a, b in itertools.pairwise(x.times)]
    assert waiting >= 1
    assert max(gaps) > 10 * sorted(gaps)[len(gaps) // 2]
    chunks = [int(n) for n in re.findall(r"Prefill batch, .*#new-token: (\d+)", sim.log)]
    assert chunks.count(2048) >= 12
    computed = metric(sim.get("/metrics")[1], "sglang:realtime_tokens_total", mode="prefill_compute")
    assert computed == sum(chunks)


def itl(answers: list[Answer]) -> float:
    """Mean seconds between tokens."""
    gaps = [(a.times[-1] - a.times[0]) / (len(a.times) - 1) for a in answers if len(a.times) > 1]
    return sum(gaps) / len(gaps)
