"""What a client of the simulated engine sees: shapes, counts, errors, connections."""

import asyncio
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.runners.sim_helper import Farm, Sim, farm, stream

ISL, OSL = 40, 12


@pytest.fixture(scope="module", params=["vllm", "sglang"])
def sim(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sim]:
    for start in farm(tmp_path_factory.mktemp("sim")):
        yield start("--style", request.param, "--model", "tiny", "--context-length", "4096").ready()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Farm]:
    yield from farm(tmp_path)


async def ask(sim: Sim, path: str = "/v1/completions", **body: Any) -> Any:
    async with aiohttp.ClientSession() as session:
        return await stream(session, sim.url, path, **body)


async def test_a_stream_gives_one_token_a_chunk_then_usage_then_done(sim: Sim) -> None:
    answer = await ask(sim, prompt=list(range(ISL)), max_tokens=OSL, model="tiny")
    *tokens, last = answer.chunks
    assert answer.done
    assert len(tokens) == OSL
    assert all(c["object"] == "text_completion" and c["choices"][0]["text"] for c in tokens)
    assert [c["choices"][0]["finish_reason"] for c in tokens] == [None] * (OSL - 1) + ["length"]
    assert last["choices"] == []
    assert (last["usage"]["prompt_tokens"], last["usage"]["completion_tokens"]) == (ISL, OSL)
    assert len({c["id"] for c in answer.chunks}) == 1


async def test_continuous_usage_counts_up(sim: Sim) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    answer = await ask(sim, prompt=list(range(ISL)), max_tokens=OSL, stream_options=options)
    assert [c["usage"]["completion_tokens"] for c in answer.chunks] == [*range(1, OSL + 1), OSL]
    assert {c["usage"]["prompt_tokens"] for c in answer.chunks} == {ISL}


async def test_no_usage_unless_asked(sim: Sim) -> None:
    answer = await ask(sim, prompt="hi", max_tokens=3, stream_options=None)
    assert answer.done
    assert len(answer.chunks) == 3
    assert not any(c.get("usage") for c in answer.chunks)


async def test_a_chat_begins_with_a_chunk_that_has_a_role_and_no_content(sim: Sim) -> None:
    messages = [{"role": "user", "content": "x" * 80}]
    answer = await ask(sim, "/v1/chat/completions", messages=messages, max_tokens=4)
    deltas = [c["choices"][0]["delta"] for c in answer.chunks if c["choices"]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert len(deltas) == 5
    assert all(d["content"] and "role" not in d for d in deltas[1:])
    assert answer.usage["prompt_tokens"] == 20 + 7  # 80 bytes of text; four tokens a message, three for the reply
    assert answer.tokens == 4


def test_without_stream_the_whole_answer_comes_at_once(sim: Sim) -> None:
    body = {"prompt": "abcdefgh", "max_tokens": 5, "ignore_eos": True}
    status, answer = sim.post("/v1/completions", body)
    assert status == 200
    assert answer["choices"][0]["finish_reason"] == "length"
    assert len(answer["choices"][0]["text"].split()) == 5
    assert answer["usage"] == answer["usage"] | {"prompt_tokens": 2, "completion_tokens": 5, "total_tokens": 7}
    status, chat = sim.post(
        "/v1/chat/completions", {"messages": [{"role": "user", "content": "abcd"}], "max_tokens": 2}
    )
    assert (status, chat["choices"][0]["message"]["role"]) == (200, "assistant")


async def test_several_prompts_are_several_choices(sim: Sim) -> None:
    answer = await ask(sim, prompt=[[1, 2, 3], [4, 5, 6, 7]], max_tokens=6)
    texts = [c["choices"][0]["index"] for c in answer.chunks if c["choices"]]
    assert sorted(texts) == [0] * 6 + [1] * 6
    assert (answer.usage["prompt_tokens"], answer.tokens) == (7, 12)


def test_the_same_prompt_gives_the_same_text_and_ends_by_itself(sim: Sim) -> None:
    body = {"prompt": [5, 6, 7], "max_tokens": 4000}
    first, second = (sim.post("/v1/completions", body)[1] for _ in range(2))
    assert first["choices"] == second["choices"]
    assert first["choices"][0]["finish_reason"] == "stop"
    short = first["usage"]["completion_tokens"]
    more = sim.post("/v1/completions", {**body, "min_tokens": short + 40})[1]
    assert more["usage"]["completion_tokens"] == short + 40


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"{oops", 400, "JSON"),
        (b"[1]", 400, "object"),
        ({"prompt": ""}, 400, "empty"),
        ({"prompt": []}, 400, "prompt"),
        ({"prompt": [1, -2]}, 400, "range"),
        ({"prompt": [True]}, 400, "prompt"),
        ({"prompt": {"a": 1}}, 400, "prompt"),
        ({"prompt": "a", "max_tokens": 0}, 400, "max_tokens"),
        ({"prompt": "a", "max_tokens": "9"}, 400, "max_tokens"),
        ({"prompt": "a", "stream_options": 3}, 400, "stream_options"),
        ({"prompt": "a", "n": 2}, 400, "n > 1"),
        ({"prompt": [1] * 9000, "max_tokens": 1}, 400, "maximum context length is 4096|longer than the model"),
        ({"prompt": [1] * 4000, "max_tokens": 97}, 400, "maximum context length"),
    ],
)
def test_bad_requests_are_refused_in_the_style_of_the_engine(sim: Sim, body: Any, status: int, text: str) -> None:
    got, answer = sim.post("/v1/completions", body)
    assert got == status
    error = answer if answer.get("object") == "error" else answer["error"]
    assert error["code"] == status
    assert re.search(text, error["message"])


def test_the_longest_request_that_fits_is_accepted(sim: Sim) -> None:
    status, answer = sim.post("/v1/completions", {"prompt": [1] * 4000, "max_tokens": 96, "ignore_eos": True})
    assert (status, answer["usage"]["total_tokens"]) == (200, 4096)


def test_other_routes(sim: Sim) -> None:
    info = json.loads(sim.get("/server_info")[1])
    assert info["simulated"] is True
    assert "sim" in info["version"]
    assert not any("ms" in key for key in info), "the cost model is for the tuner to find out"
    assert json.loads(sim.get("/v1/models")[1])["data"][0] == json.loads(sim.get("/v1/models")[1])["data"][0] | {
        "id": "tiny",
        "max_model_len": 4096,
    }
    assert sim.get("/nothing")[0] == 404
    assert sim.get("/v1/completions")[0] == 405
    assert sim.get("/version")[0] == (200 if info["style"] == "vllm" else 404)
    model = sim.post("/v1/completions", {"model": "other", "prompt": "a"})[0]
    assert model == (404 if info["style"] == "vllm" else 200)
    first = sim.log.splitlines()[0]
    assert "SIMULATED" in first
    assert '"GET /nothing HTTP/1.1" 404 Not Found' in sim.log


def exchange(sim: Sim, data: bytes, count: int) -> bytes:
    """Send raw bytes on one connection and read until `count` final status lines have been answered."""
    with socket.create_connection(("127.0.0.1", sim.port), timeout=5) as sock:
        sock.sendall(data)
        seen = b""
        while len(re.findall(rb"HTTP/1.1 [2-5]\d\d ", seen)) < count or not seen.endswith((b"}", b"\r\n\r\n")):
            part = sock.recv(65536)
            if not part:
                break
            seen += part
        return seen


def test_one_connection_serves_many_requests_even_pipelined(sim: Sim) -> None:
    body = json.dumps({"prompt": "a", "max_tokens": 2, "ignore_eos": True}).encode()
    post = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    get = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
    seen = exchange(sim, post + get + post, 3)
    assert len(re.findall(rb"HTTP/1.1 200 OK", seen)) >= 2
    assert seen.count(b'"completion_tokens":2') == 2


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"POST /v1/completions HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"GET /" + b"x" * 70000, 431),
    ],
)
def test_requests_that_are_not_http_are_refused_and_the_connection_closed(sim: Sim, data: bytes, status: int) -> None:
    assert b"HTTP/1.1 %d " % status in exchange(sim, data, 99)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8), st.lists, max_leaves=6
)
KEYS = [
    "prompt",
    "messages",
    "max_tokens",
    "min_tokens",
    "stream",
    "stream_options",
    "n",
    "model",
    "ignore_eos",
    "max_completion_tokens",
    "rid",
]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(["/v1/completions", "/v1/chat/completions", "/abort_request"]),
    body=st.dictionaries(st.sampled_from(KEYS), JUNK) | JUNK,
    cut=st.integers(0, 9),
)
def test_nothing_that_a_client_sends_raises_inside(sim: Sim, path: str, body: Any, cut: int) -> None:
    data = json.dumps(body).encode()[cut // 6 :]
    with socket.create_connection(("127.0.0.1", sim.port), timeout=10) as sock:
        sock.sendall(
            b"POST %b HTTP/1.1\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (path.encode(), len(data), data)
        )
        assert re.match(rb"HTTP/1.1 (200|400|404) ", sock.recv(65536))
    assert "Traceback" not in sim.log


def test_a_large_body_is_told_to_continue(sim: Sim) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nContent-Length: 13\r\nExpect: 100-continue\r\n\r\n"
    with socket.create_connection(("127.0.0.1", sim.port), timeout=5) as sock:
        sock.sendall(head)
        assert sock.recv(100).startswith(b"HTTP/1.1 100 Continue")
        sock.sendall(b'{"prompt": 1}')
        assert sock.recv(100).startswith(b"HTTP/1.1 400")


async def test_tokens_can_be_bundled(start: Farm) -> None:
    sim = start("--stream-interval", "5").ready()
    options = {"include_usage": True, "continuous_usage_stats": True}
    answer = await ask(sim, prompt="x", max_tokens=13, stream_options=options)
    assert [c["usage"]["completion_tokens"] for c in answer.chunks] == [1, 6, 11, 13, 13]


async def test_a_client_that_leaves_frees_its_slot_and_its_blocks(start: Farm) -> None:
    sim = start("--no-prefix-cache").ready()
    async with aiohttp.ClientSession() as session:
        asked = {"prompt": [1] * 100, "max_tokens": 90000, "ignore_eos": True, "stream": True}
        async with session.post(sim.url + "/v1/completions", json=asked) as response:
            await response.content.readline()
            assert sim.metric("vllm:num_requests_running") == 1
            assert sim.metric("vllm:kv_cache_usage_perc") > 0
    await asyncio.sleep(0.3)
    assert sim.metric("vllm:num_requests_running") == 0
    assert sim.metric("vllm:kv_cache_usage_perc") == 0
    assert sim.metric("vllm:request_success_total", finished_reason="abort") == 1


async def test_a_request_can_be_aborted_by_name(start: Farm) -> None:
    sim = start("--style", "sglang").ready()
    async with aiohttp.ClientSession() as session:
        asked = {"prompt": "a", "max_tokens": 90000, "ignore_eos": True, "stream": True}
        async with session.post(sim.url + "/v1/completions", json=asked) as response:
            rid = json.loads((await response.content.readline())[6:])["id"]
            assert sim.post("/abort_request", {"rid": "other"})[0] == 200
            assert sim.metric("sglang:num_running_reqs") == 1
            assert sim.post("/abort_request", {"rid": rid})[0] == 200
            rest = [line async for line in response.content if line.strip()]
            assert json.loads(rest[-2][6:])["choices"][0]["finish_reason"] == "abort"
            assert rest[-1] == b"data: [DONE]\n"
            assert sim.metric("sglang:num_running_reqs") == 0


async def test_prefix_hits_are_counted_and_told(start: Farm) -> None:
    sim = start().ready()
    prompt = list(range(100))
    assert (await ask(sim, prompt=prompt, max_tokens=2)).usage["prompt_tokens_details"]["cached_tokens"] == 0
    assert (await ask(sim, prompt=prompt, max_tokens=2)).usage["prompt_tokens_details"]["cached_tokens"] == 96
    half = prompt[:50] + [9] * 50
    assert (await ask(sim, prompt=half, max_tokens=2)).usage["prompt_tokens_details"]["cached_tokens"] == 48
    assert sim.metric("vllm:prefix_cache_queries_total") == 300
    assert sim.metric("vllm:prefix_cache_hits_total") == 144
    assert sim.post("/reset_prefix_cache", {})[0] == 200
    assert (await ask(sim, prompt=prompt, max_tokens=2)).usage["prompt_tokens_details"]["cached_tokens"] == 0


async def test_a_cache_in_use_is_not_flushed(start: Farm) -> None:
    sim = start().ready()
    async with aiohttp.ClientSession() as session:
        asked = {"prompt": "a", "max_tokens": 90000, "ignore_eos": True, "stream": True}
        async with session.post(sim.url + "/v1/completions", json=asked) as response:
            await response.content.readline()
            assert sim.post("/flush_cache", {})[0] == 400


def test_a_port_in_use_ends_the_start(start: Farm) -> None:
    first = start().ready()
    second = start(port=first.port)
    assert second.wait() == 1
    where = f"('127.0.0.1', {first.port})"
    assert f"[Errno 98] error while attempting to bind on address {where}: address already in use" in second.log


def test_a_rendezvous_port_in_use_ends_the_start_too(start: Farm) -> None:
    taken = start().ready()
    second = start("--tp", "2", "--nnodes", "2", "--dist-init-addr", f"127.0.0.1:{taken.port}")
    assert second.wait() == 1
    assert re.search(r"\[Errno 98\] error while attempting to bind on address .*: .*address already in use", second.log)
