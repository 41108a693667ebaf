"""What counts as a token, a first token, a whole generation, and how each way to fail is named."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.runners.loadgen_rig import Stream, against, chat, completion, counts, run, serving, spec

NO_FILLER: dict[str, Any] = {"filler": False, "requests": 1, "max_failures": 1}


async def test_a_whole_generation_has_a_time_and_a_count_for_every_chunk() -> None:
    async def behave(stream: Stream) -> None:
        await stream.answer()

    output = await against(behave, **NO_FILLER)
    (done,) = output.load
    assert done["status"] == "ok"
    assert done["chunk_tokens"] == [1, 1, 1, 1]
    assert done["tokens_per_chunk"] == "counted"
    assert done["chunk_ns"] == sorted(done["chunk_ns"])
    assert done["first_ns"] == done["sent_ns"] + done["chunk_ns"][0]
    assert done["sent_ns"] < done["first_ns"] < done["last_ns"] <= done["end_ns"]
    assert done["usage"] == {"prompt": 8, "completion": 4, "cached": None, "reasoning": None}
    assert done["finish_reason"] == "length"
    assert output.end["usage_mode"] == "continuous"


async def test_a_role_only_chunk_is_not_the_first_token() -> None:
    async def behave(stream: Stream) -> None:
        await stream.begin()
        await stream.event({**chat({"role": "assistant", "content": ""}), "usage": counts(8, 0)})
        await asyncio.sleep(0.2)
        await stream.event({**chat({"content": "a"}), "usage": counts(8, 1)})
        await stream.event({**chat({"content": "b"}, "stop"), "usage": counts(8, 2)})
        await stream.end(counts(8, 2))

    (done,) = (await against(behave, api="chat", prompt="text", **NO_FILLER)).load
    assert done["chunk_tokens"] == [1, 1]
    assert done["chunk_ns"][0] > 200_000_000


async def test_reasoning_text_is_generated_content() -> None:
    async def behave(stream: Stream) -> None:
        await stream.begin()
        await stream.event(chat({"role": "assistant", "content": "", "reasoning_content": None}))
        await stream.event(chat({"reasoning_content": "hm"}))
        await asyncio.sleep(0.5)
        await stream.event(chat({"content": "so"}, "stop"))
        await stream.end(counts(8, 2, completion_tokens_details={"reasoning_tokens": 1}))

    (done,) = (await against(behave, api="chat", prompt="text", **NO_FILLER)).load
    assert len(done["chunk_ns"]) == 2
    assert done["chunk_ns"][1] - done["chunk_ns"][0] > 250_000_000
    assert done["usage"]["reasoning"] == 1


async def test_withheld_text_counts_when_the_usage_grows() -> None:
    """An incomplete UTF-8 character is held back by the server, but its token was made."""

    async def behave(stream: Stream) -> None:
        await stream.begin()
        await stream.event({**completion(""), "usage": counts(8, 0)})
        await stream.event({**completion(""), "usage": counts(8, 1)})
        await asyncio.sleep(0.5)
        await stream.event({**completion("é", "stop"), "usage": counts(8, 2)})
        await stream.end(counts(8, 2))

    (done,) = (await against(behave, **NO_FILLER)).load
    assert done["chunk_tokens"] == [1, 1]
    assert done["chunk_ns"][1] - done["chunk_ns"][0] > 250_000_000


async def test_token_ids_count_when_there_is_no_usage() -> None:
    async def behave(stream: Stream) -> None:
        await stream.begin()
        await stream.event(completion("", token_ids=[5, 6]))
        await stream.event(completion("ab", "stop", token_ids=[7]))
        await stream.end(counts(8, 3))

    (done,) = (await against(behave, **NO_FILLER)).load
    assert done["chunk_tokens"] == [2, 1]
    assert done["tokens_per_chunk"] == "counted"


async def test_bundled_tokens_are_counted_by_chunk() -> None:
    async def behave(stream: Stream) -> None:
        await stream.begin()
        for total in (1, 5, 9):
            await stream.event({**completion("abcd", "length" if total == 9 else None), "usage": counts(8, total)})
            await asyncio.sleep(0.01)
        await stream.end(counts(8, 9))

    (done,) = (await against(behave, osl=9, **NO_FILLER)).load
    assert done["chunk_tokens"] == [1, 4, 4]
    assert done["usage"]["completion"] == 9


async def test_without_running_usage_one_token_a_chunk_is_said_to_be_assumed() -> None:
    async def behave(stream: Stream) -> None:
        await stream.begin()
        await stream.event(completion("ab"))
        await stream.event(completion("cd"))
        # the total comes with an empty last chunk: no token arrived there
        await stream.event({**completion("", "length"), "usage": counts(8, 4)})
        await stream.end()

    (done,) = (await against(behave, **NO_FILLER)).load
    assert done["chunk_tokens"] == [1, 1]
    assert done["tokens_per_chunk"] == "assumed"
    assert done["usage"]["completion"] == 4


async def test_a_server_that_sends_no_usage_leaves_it_unknown() -> None:
    async def behave(stream: Stream) -> None:
        await stream.begin()
        await stream.tokens(4, usage=False)
        await stream.end()

    output = await against(behave, **NO_FILLER)
    (done,) = output.load
    assert (done["status"], done["usage"]) == ("ok", None)
    assert output.end["tokens"]["completion"]["requests"] == 0


async def test_the_cached_part_of_a_prompt_is_kept() -> None:
    async def behave(stream: Stream) -> None:
        await stream.begin()
        await stream.tokens(4)
        await stream.end(counts(8, 4, prompt_tokens_details={"cached_tokens": 5}))

    (done,) = (await against(behave, **NO_FILLER)).load
    assert done["usage"]["cached"] == 5


async def test_fewer_tokens_than_asked_are_shown() -> None:
    async def behave(stream: Stream) -> None:
        await stream.answer(3)

    output = await against(behave, filler=False, requests=2)
    assert output.end["tokens"]["completion"] == {"requests": 2, "asked": 8, "counted": 6, "different": 2}
    assert output.end["tokens"]["prompt"]["different"] == 0
    assert "completion tokens are not as asked" in output.stderr


async def error_in_stream(stream: Stream) -> None:
    await stream.begin()
    await stream.tokens(2)
    await stream.event({"error": {"message": "EngineCore \x1b[31mdied", "code": 500}})
    await stream.end()


async def error_event(stream: Stream) -> None:
    await stream.begin()
    await stream.raw(b'event: error\ndata: {"message": "overloaded"}\n\n')
    await stream.end()


async def error_json(stream: Stream) -> None:
    await stream.refuse(200, '{"object": "error", "error": {"message": "no"}}')


async def aborted(stream: Stream) -> None:
    await stream.begin()
    await stream.event({**completion("a", "abort"), "usage": counts(8, 1)})
    await stream.end()


async def garbage(stream: Stream) -> None:
    await stream.begin()
    await stream.tokens(2)
    await stream.event("{not json \x07")
    await stream.end()


async def wrong_shape(stream: Stream) -> None:
    await stream.begin()
    await stream.event("[1, 2]")
    await stream.end()


async def deep(stream: Stream) -> None:
    await stream.begin()
    await stream.event("[" * 100_000)
    await stream.end()


async def no_stream(stream: Stream) -> None:
    await stream.refuse(200, '{"choices": [{"text": "all at once"}]}')


async def empty(stream: Stream) -> None:
    await stream.begin()
    await stream.event(completion("", "stop"))
    await stream.end(counts(8, 0))


async def nothing(stream: Stream) -> None:
    await stream.begin()
    await stream.close()


async def half(stream: Stream) -> None:
    await stream.begin()
    await stream.event({**completion("a"), "usage": counts(8, 1)})
    await stream.close()


async def cut_off(stream: Stream) -> None:
    await stream.begin()
    await stream.event({**completion("a"), "usage": counts(8, 1)})
    await asyncio.sleep(0.05)
    stream.drop()


async def hung_up(stream: Stream) -> None:
    stream.drop()


async def too_many(stream: Stream) -> None:
    await stream.refuse(429, '{"error": "slow down"}')


async def broken(stream: Stream) -> None:
    await stream.refuse(500, "oh \x1b]0;no")


@pytest.mark.parametrize(
    ("behave", "error", "http"),
    [
        (error_in_stream, "stream_error", 200),
        (error_event, "stream_error", 200),
        (error_json, "stream_error", 200),
        (aborted, "stream_error", 200),
        (garbage, "bad_json", 200),
        (wrong_shape, "bad_json", 200),
        (deep, "bad_json", 200),
        (no_stream, "bad_json", 200),
        (empty, "no_tokens", 200),
        (nothing, "incomplete", 200),
        (half, "incomplete", 200),
        (cut_off, "reset", 200),
        (hung_up, "reset", None),
        (too_many, "http_4xx", 429),
        (broken, "http_5xx", 500),
    ],
)
async def test_each_way_to_fail_has_its_name(behave: Any, error: str, http: int | None) -> None:
    output = await against(behave, **NO_FILLER)
    (done,) = output.load
    assert (done["status"], done["error"], done["http"]) == ("failed", error, http)
    assert len(done["error_text"]) <= 300
    assert done["error_text"].isprintable()
    assert output.end["errors"][error] == 2  # the warm-up request failed in the same way
    assert output.status == (1 if output.end["reason"] == "failing" else 0)


async def test_a_failed_stream_keeps_the_tokens_that_came() -> None:
    (done,) = (await against(error_in_stream, **NO_FILLER)).load
    assert done["chunk_tokens"] == [1, 1]
    assert "died" in done["error_text"]


async def test_no_server_is_a_connect_error_and_ends_the_load_soon() -> None:
    output = await run(spec("http://127.0.0.1:9", max_failures=3))
    assert {done["error"] for done in output.of("done")} == {"connect"}
    assert output.end["reason"] == "failing"
    assert output.status == 1


async def test_a_request_over_its_deadline_is_timed_out_not_failed() -> None:
    async def behave(stream: Stream) -> None:
        await stream.begin()
        await stream.event({**completion("a"), "usage": counts(8, 1)})
        await asyncio.sleep(3)

    output = await against(behave, deadline_s=0.2, **NO_FILLER)
    (done,) = output.load
    assert (done["status"], done["error"]) == ("timed_out", "timeout")
    assert done["chunk_tokens"] == [1]
    assert 0.2e9 <= done["end_ns"] - done["sent_ns"] < 2.5e9


async def test_a_finished_stream_whose_transfer_hangs_is_still_whole() -> None:
    async def behave(stream: Stream) -> None:
        await stream.begin()
        await stream.tokens(4)
        await stream.event("[DONE]")
        await asyncio.sleep(2.5)

    (done,) = (await against(behave, **NO_FILLER)).load
    assert done["status"] == "ok"
    assert done["end_ns"] - done["last_ns"] < 500_000_000


@pytest.mark.parametrize(("word", "mode"), [("continuous_usage_stats", "final"), ("stream_options", "none")])
async def test_a_server_that_refuses_usage_options_is_asked_for_less(word: str, mode: str) -> None:
    async def behave(stream: Stream) -> None:
        if word in str(stream.body):
            await stream.refuse(400, f'{{"message": "extra field not permitted: {word}"}}')
        else:
            await stream.begin()
            await stream.tokens(4, usage=False)
            await stream.end(counts(8, 4) if mode == "final" else None)

    output = await against(behave, requests=3)
    assert output.end["usage_mode"] == mode
    assert {done["status"] for done in output.load} == {"ok"}
    assert {done["tokens_per_chunk"] for done in output.load} == {"assumed"}
    assert (
        f'HTTP 400 when asked for usage at level 2: {{"message": "extra field not permitted: {word}"}}' in output.stderr
    )


async def test_a_server_that_refuses_everything_is_not_asked_for_less() -> None:
    async with serving(too_many_bad) as (url, seen):
        output = await run(spec(url, max_failures=2))
        assert output.end["usage_mode"] == "continuous"
        assert "continuous_usage_stats" in str(seen[-1].body)


async def too_many_bad(stream: Stream) -> None:
    await stream.refuse(400, '{"message": "prompt too long"}')
