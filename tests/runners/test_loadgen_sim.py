"""loadgen against the simulated engine: two processes that must agree on what happened."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.runners.loadgen_rig import SCRIPT, Output, run, spec
from tests.runners.recompute import windows

SIM = SCRIPT.with_name("sim.py")


@contextlib.asynccontextmanager
async def sim(*arguments: str) -> AsyncIterator[str]:
    """URL of a simulated engine that is ready, twenty times as fast as what it simulates."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(SIM), "--host", "127.0.0.1", "--port", str(port), "--load-s", "0", "--clock-scale", "20", *arguments]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(20), aiohttp.ClientSession() as session:
            while True:
                with contextlib.suppress(aiohttp.ClientConnectionError):
                    async with session.get(f"{url}/health") as answer:
                        if answer.status == 200:
                            break
                await asyncio.sleep(0.05)
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):  # it may have crashed as asked
            process.terminate()
        await process.wait()


async def metric(url: str, name: str) -> float:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as answer:
        families = text_string_to_metric_families(await answer.text())
        return sum(sample.value for family in families for sample in family.samples if sample.name == name)


def of_sim(url: str, **changes: Any) -> dict[str, Any]:
    return spec(url, **{"model": "sim-model", "isl": 200, "osl": 20, "concurrency": 4, "requests": 24, **changes})


def counted(output: Output, side: str) -> int:
    return sum(done["usage"][side] for done in output.of("done", status="ok"))


async def test_both_sides_count_the_same_tokens_and_no_prompt_hits_a_cache() -> None:
    async with sim() as url:
        output = await run(of_sim(url, filler=False))
        assert output.end["reason"] == "completed"
        assert output.end["tokens"]["prompt"] == {"requests": 24, "asked": 4800, "counted": 4800, "different": 0}
        assert await metric(url, "vllm:generation_tokens_total") == counted(output, "completion")
        assert await metric(url, "vllm:prompt_tokens_total") == counted(output, "prompt")
        assert await metric(url, "vllm:prefix_cache_hits_total") == 0


async def test_a_shared_prefix_hits_the_cache() -> None:
    async with sim() as url:
        output = await run(of_sim(url, filler=False, prefix_share=0.5))
        assert await metric(url, "vllm:prefix_cache_hits_total") >= 24 * 96
    assert output.end["measured"]["ok"] == 24


async def test_steady_obeys_littles_law() -> None:
    async with sim() as url:
        output = await run(of_sim(url, requests=40))
    steady = windows(output.lines)["steady"]
    assert steady is not None
    assert steady["request_rate"] * steady["e2e_ms"]["mean"] / 1e3 == pytest.approx(4, rel=0.15)


@pytest.mark.parametrize(("style", "interval"), [("vllm", 1), ("sglang", 1), ("sglang", 5)])
@pytest.mark.parametrize("api", ["completions", "chat"])
async def test_styles_routes_and_bundles_give_full_counts(style: str, interval: int, api: str) -> None:
    async with sim("--style", style, "--stream-interval", str(interval)) as url:
        prompt = "text" if api == "chat" else "ids"
        output = await run(of_sim(url, api=api, prompt=prompt, requests=6, filler=False))
    assert output.end["measured"]["ok"] == 6
    for done in output.load:
        assert sum(done["chunk_tokens"]) == done["usage"]["completion"] == 20
        assert done["tokens_per_chunk"] == "counted"
        assert len(done["chunk_ns"]) <= 20 / interval + 2


async def test_a_crash_of_the_server_ends_the_load_typed() -> None:
    async with sim("--fault", "crash@req=12") as url:
        output = await run(of_sim(url, requests=1000, max_failures=8))
    assert output.end["reason"] == "failing"
    assert output.status == 1
    assert output.end["measured"]["ok"] > 0
    assert {done["error"] for done in output.of("done", status="failed")} <= {
        *("reset", "connect", "stream_error"),
        "http_5xx",  # what a dying engine answers to a request that has just come in
    }


async def test_a_hang_of_the_server_is_timed_out() -> None:
    async with sim("--fault", "hang@req=6") as url:
        output = await run(of_sim(url, requests=1000, deadline_s=1, max_failures=4))
    assert output.end["reason"] == "failing"
    assert output.end["measured"]["timed_out"] >= 4
