"""/metrics and log lines of the simulated engine: real names and shapes, and the figures that clients counted."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.runners.sim_helper import Farm, farm, load

ISL, OSL, REQUESTS = 50, 20, 12


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Farm]:
    yield from farm(tmp_path)


async def test_vllm_counters_equal_what_the_clients_counted(start: Farm) -> None:
    sim = start("--style", "vllm", "--model", 'a"b').ready()
    answers = await load(sim.url, 4, REQUESTS, ISL, OSL)
    text = sim.get("/metrics")[1]
    samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("vllm:"):
                assert sample.labels["model_name"] == 'a"b'
                assert sample.labels["engine"] == "0"
                samples[sample.name, sample.labels.get("finished_reason"), sample.labels.get("le")] = sample.value

    def of(name: str, reason: str | None = None, le: str | None = None) -> float:
        return samples["vllm:" + name, reason, le]

    assert of("prompt_tokens_total") == sum(a.usage["prompt_tokens"] for a in answers) == REQUESTS * ISL
    assert of("generation_tokens_total") == sum(a.tokens for a in answers) == REQUESTS * OSL
    assert of("request_success_total", "length") == REQUESTS
    for histogram in (
        "time_to_first_token_seconds",
        "e2e_request_latency_seconds",
        "request_queue_time_seconds",
        "request_prefill_time_seconds",
        "request_decode_time_seconds",
        "request_inference_time_seconds",
        "request_time_per_output_token_seconds",
        "request_prompt_tokens",
        "request_generation_tokens",
    ):
        assert of(histogram + "_count") == of(histogram + "_bucket", None, "+Inf") == REQUESTS
    assert of("inter_token_latency_seconds_count") == REQUESTS * (OSL - 1)
    assert of("request_generation_tokens_sum") == REQUESTS * OSL
    assert of("iteration_tokens_total_sum") == REQUESTS * (ISL + OSL - 1), "each token is computed once"
    ttft = sum(a.times[0] - a.sent for a in answers)
    assert 0.001 * REQUESTS < of("time_to_first_token_seconds_sum") < ttft
    assert of("e2e_request_latency_seconds_sum") < sum(a.end - a.sent for a in answers)
    assert (of("num_requests_running"), of("num_requests_waiting"), of("kv_cache_usage_perc")) == (0, 0, 0)
    assert (of("num_preemptions_total"), of("prefix_cache_hits_total")) == (0, 0)
    assert 'num_gpu_blocks="25000"' in text


def test_vllm_series_are_there_at_zero_before_any_request(start: Farm) -> None:
    text = start().ready().get("/metrics")[1]
    names = {s.name for f in text_string_to_metric_families(text) for s in f.samples}
    counters = ("num_preemptions", "prompt_tokens", "generation_tokens", "prefix_cache_queries")
    times = ("time_to_first_token", "inter_token_latency", "e2e_request_latency", "request_queue_time")
    wanted = {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "iteration_tokens_total_count"}
    wanted |= {f"{name}_total" for name in counters} | {f"{name}_seconds_count" for name in times}
    assert {"vllm:" + n for n in wanted} <= names
    assert "twinrail_sim_info" in names


async def test_sglang_counters_equal_what_the_clients_counted(start: Farm) -> None:
    sim = start("--style", "sglang").ready()
    await load(sim.url, 4, REQUESTS, ISL, OSL)
    sim.post("/v1/completions", {"prompt": [1] * 5, "max_tokens": 2, "ignore_eos": True})
    streamed = {"is_streaming": "true", "engine_type": "unified", "model_name": "sim-model"}
    assert sim.metric("sglang:prompt_tokens_total", **streamed) == REQUESTS * ISL
    assert sim.metric("sglang:generation_tokens_total", **streamed) == REQUESTS * OSL
    assert sim.metric("sglang:generation_tokens_total", is_streaming="false") == 2
    assert sim.metric("sglang:num_requests_total") == REQUESTS + 1
    assert sim.metric("sglang:time_to_first_token_seconds_count", **streamed) == REQUESTS
    assert sim.metric("sglang:inter_token_latency_seconds_count") == REQUESTS * (OSL - 1) + 1
    assert sim.metric("sglang:e2e_request_latency_seconds_bucket", le="+Inf", **streamed) == REQUESTS
    assert sim.metric("sglang:queue_time_seconds_count", tp_rank="0") == REQUESTS + 1
    assert sim.metric("sglang:realtime_tokens_total", mode="prefill_compute") == REQUESTS * ISL + 5
    assert sim.metric("sglang:num_running_reqs", tp_rank="0", pp_rank="0") == 0
    assert sim.metric("sglang:max_total_num_tokens") == 400000
    used, free = sim.metric("sglang:kv_used_tokens"), sim.metric("sglang:kv_available_tokens")
    assert used + free + sim.metric("sglang:kv_evictable_tokens") == 400000


async def test_vllm_logs_its_averages_while_busy_and_once_after(start: Farm) -> None:
    sim = start("--log-stats-interval", "0.3", "--clock-scale", "5").ready()
    answers = await load(sim.url, 3, 9, ISL, 60)
    await asyncio.sleep(0.8)
    line = re.compile(
        r"^\(APIServer pid=\d+\) INFO \d\d-\d\d \d\d:\d\d:\d\d \[loggers.py:271\] Engine 000: "
        r"Avg prompt throughput: ([\d.]+) tokens/s, Avg generation throughput: ([\d.]+) tokens/s, "
        r"Running: (\d+) reqs, Waiting: (\d+) reqs, "
        r"GPU KV cache usage: ([\d.]+)%, Prefix cache hit rate: ([\d.]+)%$",
        re.MULTILINE,
    )
    found = line.findall(sim.log)
    assert len(found) >= 3
    assert "3" in {running for _, _, running, *_ in found}
    assert found[-1][:4] == ("0.0", "0.0", "0", "0")
    assert len([f for f in found if f[:4] == ("0.0", "0.0", "0", "0")]) == 1
    told = sum(float(generated) * 0.3 for _, generated, *_ in found)
    assert told == pytest.approx(sum(a.tokens for a in answers), rel=0.1)


async def test_sglang_logs_its_batches(start: Farm) -> None:
    sim = start("--style", "sglang", "--tp", "2", "--decode-log-interval", "10").ready()
    await load(sim.url, 3, 3, ISL, 60)
    stamp = r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d TP0\] "
    prefill = re.findall(
        stamp + r"Prefill batch, #new-seq: (\d+), #new-token: (\d+), #cached-token: 0, "
        r"token usage: 0.00, #running-req: \d+, #queue-req: \d+, #pending-token: \d+, "
        r"cuda graph: False, input throughput \(token/s\): [\d.]+$",
        sim.log,
        re.MULTILINE,
    )
    assert sum(int(tokens) for _, tokens in prefill) == 3 * ISL
    decode = re.findall(
        stamp + r"Decode batch, #running-req: (\d+), #token: (\d+), token usage: [\d.]+, cuda graph: True, "
        r"gen throughput \(token/s\): ([\d.]+), #queue-req: \d+$",
        sim.log,
        re.MULTILINE,
    )
    assert len(decode) >= 5
    assert {running for running, _, _ in decode[1:-1]} == {"3"}
    assert re.search(r"TP1\] Load weight end", sim.log)
    assert "The server is fired up and ready to roll!" in sim.log
