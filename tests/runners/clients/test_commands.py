"""What each tool is asked, word by word; the options were checked against their own --help (versions: `tried`)."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from runners.clients import CLIENTS, client_of
from runners.clients.base import Ask, AskError
from runners.flows.order_of_work import check_client
from runners.spec import Case, ClientTool, ConfigError, Deployment

DEP = Deployment(name="d", engine="vllm", model="/models/m", nodes=["n"])


def ask(client: str, dep: Deployment = DEP, tool: ClientTool | None = None, url: str = "", **case: Any) -> list[str]:
    """The command of a D2-like case, without its interpreter."""
    asked = Case.model_validate({"name": "x", "isl": 1024, "osl": 256, "concurrency": 16, **case})
    return (
        CLIENTS[client]
        .command(
            Ask(
                case=asked,
                url=url or "http://127.0.0.1:8000",
                model="served",
                dep=dep,
                seed=7,
                folder="/r/jobs/a1.client",
                tool=tool or ClientTool(),
            )
        )
        .argv
    )


def test_vllm_bench() -> None:
    assert shlex.join(ask("vllm_bench", requests=100, warmup=4)) == (
        "-m vllm.entrypoints.cli.main bench serve --backend openai --base-url http://127.0.0.1:8000 "
        "--endpoint /v1/completions --model served --tokenizer /models/m --dataset-name random "
        "--random-input-len 1024 --random-output-len 256 --random-range-ratio 0.0 --num-prompts 101 --num-warmups 4 "
        "--seed 7 --temperature 0 --ignore-eos --request-rate inf --max-concurrency 16 "
        "--percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 50,90,95,99 --save-result --save-detailed "
        "--result-dir /r/jobs/a1.client --result-filename result.json --disable-tqdm"
    )


def test_sglang_bench() -> None:
    sglang = DEP.model_copy(update={"engine": "sglang"})
    assert shlex.join(ask("sglang_bench", sglang, requests=100, warmup=4)) == (
        "-m sglang.bench_serving --backend sglang --base-url http://127.0.0.1:8000 --model /models/m "
        "--served-model-name served --tokenizer /models/m --dataset-name random-ids --random-input-len 1024 "
        "--random-output-len 256 --random-range-ratio 1.0 --tokenize-prompt --num-prompts 100 --warmup-requests 4 "
        "--seed 7 --flush-cache --request-rate inf --max-concurrency 16 "
        "--output-file /r/jobs/a1.client/result.jsonl --output-details --disable-tqdm"
    )


def test_aiperf() -> None:
    assert shlex.join(ask("aiperf", requests=100, warmup=4)) == (
        "-m aiperf profile --model served --url http://127.0.0.1:8000 --tokenizer /models/m "
        "--endpoint-type completions --streaming --isl 1024 --isl-stddev 0 --osl 256 --osl-stddev 0 "
        "--extra-inputs ignore_eos:true --extra-inputs temperature:0 --use-server-token-count --concurrency 16 "
        "--request-count 100 --warmup-request-count 4 --random-seed 7 --output-artifact-dir /r/jobs/a1.client "
        "--export-level records --ui none --no-server-metrics"
    )


@pytest.mark.parametrize("client", ["vllm_bench", "sglang_bench", "aiperf"])
def test_an_open_loop_has_a_rate_and_no_concurrency(client: str) -> None:
    words = ask(client, request_rate=2.5, budget=900)
    assert words[words.index("--request-rate") + 1] == "2.5"
    assert not {"--max-concurrency", "--concurrency"} & set(words)
    # a minute of it, and the first prompt of those whose warm-up sends it again
    count = {"vllm_bench": "151", "sglang_bench": "151", "aiperf": "150"}[client]
    assert count in words


@pytest.mark.parametrize("client", ["vllm_bench", "sglang_bench", "aiperf"])
def test_eos_may_end_a_generation_where_the_case_says_so(client: str) -> None:
    free, held = ask(client, ignore_eos=False), ask(client)
    word = {"vllm_bench": "--ignore-eos", "sglang_bench": "--disable-ignore-eos", "aiperf": "ignore_eos:true"}[client]
    assert (word in free) != (word in held)
    assert (word in free) == (client == "sglang_bench")


@pytest.mark.parametrize("client", ["vllm_bench", "sglang_bench", "aiperf"])
def test_chat_goes_to_the_chat_route(client: str) -> None:
    assert any("chat" in word for word in ask(client, api="chat"))


def test_half_of_a_prompt_may_be_shared_with_vllms_client_only() -> None:
    words = ask("vllm_bench", prefix_share=0.5)
    assert words[words.index("--random-prefix-len") + 1] == words[words.index("--random-input-len") + 1] == "512"
    for other in ("sglang_bench", "aiperf"):
        with pytest.raises(AskError, match="prefix_share"):
            ask(other, prefix_share=0.5)


def test_without_a_warm_up_nothing_is_sent_twice() -> None:
    assert "--num-prompts 80 --num-warmups 0" in shlex.join(ask("vllm_bench", warmup=0))
    assert "--flush-cache" not in ask("sglang_bench", DEP.model_copy(update={"engine": "sglang"}), warmup=0)
    assert "--warmup-request-count" not in ask("aiperf", warmup=0)


def test_a_server_that_is_no_sglang_is_asked_on_its_own_route_and_its_cache_is_left_alone() -> None:
    words = ask("sglang_bench", requests=10)
    assert words[words.index("--backend") + 1] == "vllm"
    assert "--flush-cache" not in words
    assert words[words.index("--num-prompts") + 1] == "11"  # the first was the warm-up's: it is not measured


def test_the_operators_own_flags_come_last_and_win() -> None:
    tool = ClientTool(flags=["--backend=vllm"], tokenizer="/tok")
    words = ask("vllm_bench", tool=tool)
    assert words[-1] == "--backend=vllm"
    assert words[words.index("--tokenizer") + 1] == "/tok"


@pytest.mark.parametrize("client", ["vllm_bench", "sglang_bench", "aiperf"])
def test_credentials_never_stand_on_a_command_line(client: str) -> None:
    with pytest.raises(AskError, match="credentials"):
        ask(client, url="http://joe:hunter2@127.0.0.1:8000")


def test_a_client_is_a_file_and_a_line_of_the_registry() -> None:
    assert list(CLIENTS) == ["loadgen", "vllm_bench", "sglang_bench", "aiperf"]
    with pytest.raises(ConfigError, match="Did you mean 'aiperf'"):
        client_of("aiprf")
    for client in CLIENTS:
        check_client(Case(name="x", isl=8, osl=4, client=client))
