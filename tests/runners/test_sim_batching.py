"""That the simulated engine batches as a real one: throughput, queueing, preemption, conservation."""

import asyncio
import random
import re
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.runners.sim_helper import Answer, Farm, farm, load, metric, stream


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Farm]:
    yield from farm(tmp_path)


def rate(answers: list[Answer]) -> float:
    """Output tokens per second of wall time."""
    return sum(a.tokens for a in answers) / (max(a.end for a in answers) - min(a.sent for a in answers))


async def test_throughput_rises_with_concurrency_but_less_than_in_proportion(start: Farm) -> None:
    sim = start("--clock-scale", "4").ready()
    rates = [rate(await load(sim.url, c, 2 * c, isl=32, osl=32)) for c in (1, 8, 32)]
    assert rates[0] * 3 < rates[1] < rates[0] * 8
    assert rates[1] * 1.5 < rates[2] < rates[1] * 4


async def test_steps_last_what_the_model_says_though_sleeps_oversleep(start: Farm) -> None:
    """20.25 simulated ms a step at ten times the speed: about 2 ms, which asyncio alone sleeps half a ms too long."""
    cost = ("--step-base-ms", "20", "--ms-per-seq", "0.25", "--ms-per-mtoken-context", "0")
    sim = start(*cost, "--clock-scale", "10").ready()
    answer = (await load(sim.url, 1, 1, isl=8, osl=600))[0]
    assert (answer.times[-2] - answer.times[0]) / 599 * 1e3 == pytest.approx(2.025, rel=0.12)


async def test_a_long_prefill_is_chunked_and_disturbs_decodes(start: Farm) -> None:
    """In mixed steps decode goes on, slower; prefill first holds it up altogether."""
    gaps = {}
    for schedule in ("mixed", "prefill-first"):
        sim = start("--clock-scale", "5", "--schedule", schedule).ready()
        async with aiohttp.ClientSession() as session:
            decode = asyncio.create_task(stream(session, sim.url, prompt=[1] * 16, max_tokens=150))
            await asyncio.sleep(0.15)
            long = await stream(session, sim.url, prompt=list(range(16384)), max_tokens=1)
            answer = await decode
        assert long.usage["prompt_tokens"] == 16384
        gaps[schedule] = max(b - a for a, b in zip(answer.times, answer.times[1:], strict=False))
        quiet = statistics.median(b - a for a, b in zip(answer.times, answer.times[1:], strict=False))
        assert gaps[schedule] > 3 * quiet
        assert sim.metric("vllm:iteration_tokens_total_bucket", le="2048.0") == sim.metric(
            "vllm:iteration_tokens_total_count"
        )
    assert gaps["prefill-first"] > 2 * gaps["mixed"]


async def test_littles_law(start: Farm) -> None:
    """Requests in the server, as it counts them itself, are the arrival rate times the latency that clients see."""
    sim = start("--clock-scale", "4", "--max-running", "8").ready()
    rng, answers, inside = random.Random(3), list[Answer](), list[float]()

    async def one(session: aiohttp.ClientSession, number: int) -> None:
        answers.append(await stream(session, sim.url, prompt=[number] * 20, max_tokens=rng.randint(10, 120)))

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        tasks, due = [], time.monotonic()
        for number in range(110):
            due += rng.expovariate(22)  # a little above what eight slots serve at once: there is a queue
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            tasks.append(asyncio.create_task(one(session, number)))
            if number >= 30:
                async with session.get(sim.url + "/metrics") as response:
                    text = await response.text()
                counts = re.findall(r"^vllm:num_requests_(?:running|waiting)\{.*\} (\S+)$", text, re.MULTILINE)
                inside.append(sum(map(float, counts)))
        end = time.monotonic()
        await asyncio.gather(*tasks)
    window = sorted(answers, key=lambda a: a.sent)[30:]
    begin = window[0].sent
    served = statistics.mean(inside)
    seen = sum(max(0.0, min(a.end, end) - max(a.sent, begin)) for a in answers) / (end - begin)
    rate_times_latency = len(window) / (end - begin) * statistics.mean(a.end - a.sent for a in window)
    assert served > 6
    assert seen == pytest.approx(served, rel=0.2)
    assert rate_times_latency == pytest.approx(served, rel=0.25)


@pytest.mark.parametrize("style", ["vllm", "sglang"])
async def test_out_of_blocks_requests_are_preempted_and_still_end_exactly(start: Farm, style: str) -> None:
    sim = start("--kv-tokens", "1600", "--no-prefix-cache", "--style", style).ready()
    answers = await load(sim.url, 24, 48, isl=100, osl=120)
    assert [a.tokens for a in answers] == [120] * 48
    assert all(a.done and len(a.chunks) == 121 for a in answers)
    names = {
        "vllm": ("num_preemptions_total", "kv_cache_usage_perc"),
        "sglang": ("num_retracted_requests_total", "token_usage"),
    }
    preempted, usage = names[style]
    assert sim.metric(f"{style}:{preempted}") > 5
    assert sim.metric(f"{style}:{usage}") == 0
    assert ("KV cache pool is full. Retract requests." in sim.log) == (style == "sglang")


async def test_more_requests_than_slots_wait_and_all_are_served(start: Farm) -> None:
    sim = start("--max-running", "64", "--clock-scale", "5").ready()
    task = asyncio.create_task(load(sim.url, 512, 512, isl=16, osl=48))
    waited = 0.0
    while not task.done():
        _, text = await asyncio.to_thread(sim.get, "/metrics")
        waited = max(waited, metric(text, "vllm:num_requests_waiting"))
        assert metric(text, "vllm:num_requests_running") <= 64
    answers = await task
    assert waited > 50
    assert [a.tokens for a in answers] == [48] * 512
    assert sim.metric("vllm:generation_tokens_total") == 512 * 48
