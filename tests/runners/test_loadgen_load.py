"""Phases, slots, limits, ends: when loadgen sends what, and that a server can count it."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.runners.loadgen_rig import Output, Stream, against, finish, run, serving, spec, start


async def well(stream: Stream) -> None:
    await stream.answer()


async def slow(stream: Stream) -> None:
    await stream.begin()
    await stream.tokens(stream.body["max_tokens"], pause=0.05)
    await stream.end()


def phases(output: Output) -> dict[str, int]:
    return {line["name"]: line["mono_ns"] for line in output.of("phase")}


async def test_the_load_passes_through_its_phases_in_order() -> None:
    output = await against(well, concurrency=3, requests=9, warmup=2)
    assert list(phases(output)) == ["warmup", "ramp", "steady", "drain"]
    assert output.lines[0]["t"] == "hello"
    assert output.lines[-1]["t"] == "end"
    assert output.end["reason"] == "completed"
    assert output.status == 0
    assert len(output.of("sent", kind="warmup")) == 2


async def test_steady_begins_when_all_slots_are_busy_and_as_many_requests_ended_well() -> None:
    output = await against(well, concurrency=3, requests=9)
    steady = phases(output)["steady"]
    before = [done for done in output.load if done["end_ns"] <= steady]
    flying = [done for done in output.load if done["sent_ns"] < steady < done["end_ns"]]
    assert len(before) >= 3
    assert len(flying) == 2  # the third slot sends at that moment


async def test_a_request_belongs_to_the_phase_in_which_it_was_sent() -> None:
    output = await against(well, concurrency=3, requests=9, warmup=1)
    starts = phases(output)
    order = list(starts.values())
    for sent in output.of("sent"):
        begun = starts[sent["phase"]]
        later = [start for start in order if start > begun]
        assert begun <= sent["sent_ns"] < min(later, default=2**63)


async def test_the_limit_counts_requests_sent_in_steady_and_filler_keeps_the_load_up() -> None:
    output = await against(well, concurrency=3, requests=9, warmup=1)
    assert len([sent for sent in output.of("sent", measured=True) if sent["phase"] == "steady"]) == 9
    last_end = max(done["end_ns"] for done in output.load)
    assert {sent["kind"] for sent in output.of("sent", measured=True)} == {"load"}
    # all slots are busy, but for the moments between one request and the next
    changes = sorted(
        [(done["sent_ns"], 1) for done in output.of("done") if done["kind"] != "warmup"]
        + [(done["end_ns"], -1) for done in output.of("done") if done["kind"] != "warmup"]
    )
    busy, area, before = 0, 0, 0
    steady = phases(output)["steady"]
    for moment, change in changes:
        area += busy * max(0, min(moment, last_end) - max(before, steady))
        busy, before = busy + change, moment
        assert busy <= 3
    assert area / (last_end - steady) > 2.5
    assert output.of("done", kind="filler")
    assert phases(output)["drain"] >= last_end


async def test_filler_cut_at_the_end_is_neither_failed_nor_measured() -> None:
    async def uneven(stream: Stream) -> None:
        await stream.begin()
        await stream.tokens(4, pause=0.01 + 0.004 * (stream.number % 5))
        await stream.end()

    output = await against(uneven, concurrency=4, requests=8)
    cut = output.of("done", status="cut")
    assert cut
    assert {(done["kind"], done["error"]) for done in cut} == {("filler", None)}
    assert output.end["measured"]["failed"] == output.end["measured"]["cut"] == 0


async def test_without_filler_the_count_is_that_of_other_clients() -> None:
    output = await against(well, concurrency=3, requests=8, filler=False)
    assert len(output.load) == 8
    assert not output.of("done", kind="filler")
    assert list(phases(output)) == ["warmup", "ramp", "drain"]
    assert output.end["measured"] == {"sent": 8, "ok": 8, "failed": 0, "timed_out": 0, "cut": 0}


async def test_the_default_count_follows_the_concurrency() -> None:
    output = await against(well, concurrency=1, requests=None)
    assert output.one("hello")["limit"] == 20
    assert len([sent for sent in output.of("sent", measured=True) if sent["phase"] == "steady"]) == 20


async def test_the_budget_ends_the_load_and_cuts_what_is_left() -> None:
    async def endless(stream: Stream) -> None:
        await stream.begin()
        await stream.tokens(10_000, pause=0.02)

    output = await against(endless, concurrency=2, budget_s=1, grace_s=0.2, warmup=0, osl=10_000)
    assert output.end["reason"] == "budget"
    assert output.status == 0
    assert {done["status"] for done in output.of("done")} == {"cut"}
    assert all(len(done["chunk_ns"]) > 5 for done in output.of("done"))


async def test_open_loop_arrivals_follow_the_rate_not_the_server() -> None:
    output = await against(slow, concurrency=None, request_rate=40, requests=20, arrival="constant")
    scheduled = [sent["scheduled_ns"] for sent in output.of("sent", kind="load")]
    gaps = [b - a for a, b in itertools.pairwise(scheduled)]
    assert {round(gap / 1e6) for gap in gaps} == {25}
    late = [sent["sent_ns"] - sent["scheduled_ns"] for sent in output.of("sent", kind="load")]
    assert min(late) >= 0
    assert sorted(late)[10] < 150_000_000  # a generation takes 200 ms: nobody waited for it
    assert list(phases(output)) == ["warmup", "steady", "drain"]


async def test_poisson_arrivals_repeat_with_the_seed() -> None:
    def gaps(output: Output) -> list[int]:
        scheduled = [sent["scheduled_ns"] for sent in output.of("sent", kind="load")]
        return [round((b - a) / 1e3) for a, b in itertools.pairwise(scheduled)]

    changes: dict[str, Any] = {"concurrency": None, "request_rate": 100, "requests": 10, "filler": False}
    one, same, other = [gaps(await against(well, seed=seed, **changes)) for seed in (1, 1, 2)]
    assert one == same
    assert one != other
    assert len(set(one)) > 5


async def test_a_cap_holds_arrivals_back_and_their_schedule_shows_it() -> None:
    output = await against(slow, concurrency=1, request_rate=50, requests=5, filler=False)
    load = sorted(output.load, key=lambda done: done["sent_ns"])
    for earlier, later in itertools.pairwise(load):
        assert later["sent_ns"] >= earlier["end_ns"]
    assert load[-1]["sent_ns"] - load[-1]["scheduled_ns"] > 100_000_000


async def test_long_prefills_are_injected_on_the_same_clock_and_labelled() -> None:
    inject = {"isl": 64, "osl": 1, "every_s": 0.2, "count": 3, "start_s": 0.1, "after_s": 0.2}
    output = await against(well, concurrency=2, requests=4, inject=inject)
    injected = output.of("done", kind="inject")
    assert [(done["isl"], done["osl"], done["measured"], done["status"]) for done in injected] == [
        (64, 1, False, "ok")
    ] * 3
    assert [done["usage"]["prompt"] for done in injected] == [64] * 3
    scheduled = sorted(done["scheduled_ns"] for done in injected)
    assert scheduled[1] - scheduled[0] == scheduled[2] - scheduled[1] == 200_000_000
    assert scheduled[0] - phases(output)["steady"] == 100_000_000
    # measured load goes on before, during and after
    assert max(done["sent_ns"] for done in output.load) > max(done["end_ns"] for done in injected) + 150_000_000


@pytest.fixture
async def crowd() -> AsyncIterator[tuple[Output, list[Stream]]]:
    async with serving(well) as (url, seen):
        yield await run(spec(url, isl=40, concurrency=4, requests=20, warmup=3, vocab=[500, 9000], seed=5)), seen


async def test_prompts_are_unique_of_the_asked_length_and_within_the_vocabulary(
    crowd: tuple[Output, list[Stream]],
) -> None:
    prompts = [stream.body["prompt"] for stream in crowd[1]]
    assert {len(prompt) for prompt in prompts} == {40}
    assert all(500 <= token <= 9000 for prompt in prompts for token in prompt)
    assert len({tuple(prompt[:16]) for prompt in prompts}) == len(prompts)  # no shared first block
    assert crowd[0].end["tokens"]["prompt"]["different"] == 0


async def test_the_same_seed_gives_the_same_prompts_and_another_seed_others() -> None:
    async def prompts(seed: int) -> list[list[int]]:
        async with serving(well) as (url, seen):
            await run(spec(url, isl=40, seed=seed, filler=False, requests=4))
            return [stream.body["prompt"] for stream in seen]

    one, same, other = await prompts(1), await prompts(1), await prompts(2)
    assert one == same
    assert not {tuple(prompt[:16]) for prompt in one} & {tuple(prompt[:16]) for prompt in other}


async def test_the_shared_prefix_has_the_asked_share() -> None:
    async with serving(well) as (url, seen):
        await run(spec(url, isl=64, prefix_share=0.5, requests=4))
        prompts = [stream.body["prompt"] for stream in seen]
    assert len({tuple(prompt[:32]) for prompt in prompts}) == 1
    assert len({tuple(prompt[32:48]) for prompt in prompts}) == len(prompts)


async def test_text_prompts_are_scaled_to_the_tokens_that_the_server_counts() -> None:
    async def two_tokens_a_word(stream: Stream) -> None:
        words = len(stream.body["messages"][0]["content"].split())
        await stream.begin()
        await stream.tokens(4, usage=False)
        await stream.end({"prompt_tokens": 2 * words, "completion_tokens": 4})

    output = await against(two_tokens_a_word, api="chat", prompt="text", isl=100, requests=3, filler=False)
    assert {done["usage"]["prompt"] for done in output.load} == {100}


async def test_what_is_asked_reaches_the_server_and_secrets_stay_out_of_the_lines() -> None:
    async with serving(well) as (url, seen):
        output = await run(
            spec(
                url + "/v1?api_key=hunter3",
                api_key_env="LOADGEN_TEST_KEY",
                headers={"X-Token": "hunter4"},
                extra={"top_p": 0.5, "min_tokens": 4, "api_key": "hunter5"},
                osl=7,
                filler=False,
            ),
            env={"LOADGEN_TEST_KEY": "hunter1"},
        )
    last = seen[-1]
    assert (last.body["max_tokens"], last.body["ignore_eos"], last.body["temperature"]) == (7, True, 0.0)
    assert (last.body["top_p"], last.body["min_tokens"]) == (0.5, 4)
    assert "Bearer hunter1" in last.headers
    assert "hunter4" in last.headers
    assert b"hunter" not in output.raw
    assert "hunter" not in output.stderr
    assert output.one("hello")["spec"]["extra"]["min_tokens"] == 4


async def test_credentials_in_the_url_are_used_and_not_shown() -> None:
    async with serving(well) as (url, seen):
        output = await run(spec(url.replace("http://", "http://joe:hunter2@"), filler=False))
    assert "Authorization: Basic am9lOmh1bnRlcjI=" in seen[-1].headers
    assert b"hunter" not in output.raw
    assert output.end["measured"]["ok"] == 2


async def test_a_secret_echoed_by_the_server_is_masked() -> None:
    async def echo(stream: Stream) -> None:
        await stream.refuse(401, "bad key hunter1")

    async with serving(echo) as (url, _):
        output = await run(
            spec(url, api_key_env="LOADGEN_TEST_KEY", max_failures=1), env={"LOADGEN_TEST_KEY": "hunter1"}
        )
    assert b"hunter1" not in output.raw
    assert output.of("done")[0]["error_text"] == "bad key ***"
    assert "hunter1" not in output.stderr


async def begun(process: asyncio.subprocess.Process, count: int) -> bytes:
    assert process.stdout is not None
    got = b""
    while got.count(b'"t":"done"') < count:
        got += await process.stdout.readline()
    return got


async def test_sigterm_ends_the_load_with_a_line_for_every_request() -> None:
    async with serving(slow) as (url, _):
        process = await start(spec(url, concurrency=3, requests=1000, osl=10))
        before = await begun(process, 5)
        process.send_signal(signal.SIGTERM)
        output = await finish(process, before)
    assert output.status == 0
    assert output.end["reason"] == "stopped"
    sent, done = output.of("sent"), output.of("done")
    assert sorted(line["id"] for line in sent) == sorted(line["id"] for line in done)
    assert 1 <= len([line for line in done if line["status"] == "cut"]) <= 3
    assert output.end["measured"]["failed"] == 0


async def test_a_stop_file_ends_the_load(tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    async with serving(slow) as (url, _):
        process = await start(spec(url, concurrency=1, requests=1000, stop_file=str(stop)))
        before = await begun(process, 2)
        stop.touch()
        output = await finish(process, before)
    assert output.end["reason"] == "stopped"


async def test_a_server_that_dies_ends_the_load_typed() -> None:
    async def dies(stream: Stream) -> None:
        if stream.number < 5:
            await stream.answer()
        else:
            stream.drop()

    output = await against(dies, requests=1000, max_failures=3)
    assert output.end["reason"] == "failing"
    assert output.end["measured"]["ok"] == 4
    assert output.end["measured"]["failed"] == 3


async def test_a_few_failures_do_not_end_the_load() -> None:
    async def flaky(stream: Stream) -> None:
        if stream.number % 3 == 2:
            await stream.refuse(503, "busy")
        else:
            await stream.answer()

    output = await against(flaky, concurrency=2, requests=12)
    assert output.end["reason"] == "completed"
    assert output.end["measured"]["failed"] > 2
    assert output.end["errors"] == {"http_5xx": output.end["errors"]["http_5xx"]}


async def test_lines_reach_a_reader_while_the_load_runs_and_ticks_come_each_second() -> None:
    async with serving(slow) as (url, _):
        process = await start(spec(url, concurrency=2, requests=1000, budget_s=3, osl=10, lag_limit_ms=1e6))
        assert process.stdout is not None
        loop = asyncio.get_running_loop()
        got, moments = [], []
        while line := await process.stdout.readline():
            got.append(json.loads(line))
            moments.append(loop.time())
        await process.wait()
    # the clock is the same on this machine, so a line's age can be told
    ages = [moment - line["end_ns"] / 1e9 for line, moment in zip(got, moments, strict=True) if line["t"] == "done"]
    assert sorted(ages)[len(ages) // 2] < 0.5
    ticks = [line for line in got if line["t"] == "tick"]
    assert len(ticks) >= 2
    assert ticks[-1]["in_flight"] == 2
    assert ticks[-1]["output_tokens"] > ticks[0]["output_tokens"]
    assert {type(tick[key]) for tick in ticks for key in ("loop_lag_ms", "cpu")} == {float}
    assert got[-1]["saturated"]["value"] is False


async def test_a_saturated_client_says_so() -> None:
    async def flood(stream: Stream) -> None:
        await stream.begin()
        for _ in range(400):
            await stream.raw(b'data: {"choices":[{"text":"x"}]}\n\n' * 200)
        await stream.event({"choices": [{"text": "", "finish_reason": "length"}]})
        await stream.end()

    output = await against(flood, concurrency=8, requests=1000, budget_s=2.5, lag_limit_ms=5)
    assert output.end["saturated"]["value"] is True
    assert output.end["saturated"]["reasons"]
    assert any(tick["saturated"] for tick in output.of("tick"))
    assert "the client itself was saturated" in output.stderr
    assert output.end["coalesced"] > 0


async def test_the_client_stays_on_the_cores_that_it_was_given() -> None:
    core = max(os.sched_getaffinity(0))
    output = await against(well, cpus=[core], filler=False)
    assert output.one("hello")["cpus"] == [core]


async def test_a_reader_that_goes_away_ends_the_load_with_a_reason() -> None:
    async with serving(slow) as (url, _):
        process = await start(spec(url, requests=1000, budget_s=30))
        await begun(process, 1)
        process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]  # no public way to stop reading
        assert process.stderr is not None
        complaint = await asyncio.wait_for(process.stderr.read(), 20)
        assert await process.wait() == 1
    assert json.loads(complaint)["error"] == "output_failed"


async def test_a_dead_connection_is_not_taken_from_the_pool() -> None:
    """Servers close idle connections after some seconds; an arrival after that must not fail."""

    async def closing(stream: Stream) -> None:
        await stream.answer()
        stream.hang_up()

    output = await against(closing, requests=6, filler=False)
    assert output.end["measured"]["ok"] == 6
