"""Client results: our definitions from per-request data, the client's own figures beside them, defects flagged."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from runners.formats.base import collect
from runners.formats.bench_serving import parse_sglang, parse_vllm
from runners.formats.client_result import Request, Result, percentile, shaped
from runners.formats.client_text import parse_sse
from tests.runners.formats.samples import parsed, text


def row(name: str) -> dict[str, Any]:
    (found,) = parsed(name).rows
    return found


def flags(found: dict[str, Any]) -> set[str]:
    return {flag.partition(":")[0] for flag in found["flags"]}


def test_percentiles_are_linear() -> None:
    rng = random.Random(3)
    for count in (1, 2, 3, 10, 99):
        values = sorted(rng.random() for _ in range(count))
        for share in (0.0, 0.5, 0.95, 0.99, 1.0):
            assert percentile(values, share) == pytest.approx(float(np.percentile(values, share * 100)))


def test_vllm_detailed_result_agrees_with_the_client() -> None:
    found = row("vllm-bench/c8-detailed.json")
    assert (found["requests_ok"], found["requests_failed"], found["output_tokens"]) == (24, 0, 1536)
    for metric in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
        for part in ("mean", "p50", "p95", "p99"):
            assert found[metric][part] == pytest.approx(found["own"][metric][part], rel=1e-6)
    assert found["window_s"] == pytest.approx(2.2526582759)
    assert flags(found) == {"peak_concurrency", "p99_of_fewer_than_100"}
    assert found["extra"]["metadata"] == {"case_id": "D2", "tp": "16"}


def test_a_killed_server_leaves_survivors_only() -> None:
    found = row("vllm-bench/killed-midrun.json")
    assert (found["requests_ok"], found["requests_failed"]) == (12, 48)
    assert {"too_few_successes", "rate_over_survivors"} <= flags(found)
    assert sum(found["errors"].values()) == 48


def test_all_requests_failed_gives_no_zero_latencies() -> None:
    found = row("vllm-bench/overlong.json")
    assert found["requests_ok"] == 0
    assert found["ttft_ms"] is None
    assert found["output_tps"] is None
    assert found["own"]["ttft_ms"]["p50"] == 0.0
    assert "no_success" in flags(found)


def test_sglang_input_tokens_are_configured_not_counted() -> None:
    found = row("sglang-bench/random-ids-c8.jsonl")
    assert (found["input_tokens"], found["own"]["input_tokens"]) == (13502, 12288)
    assert {"input_tokens_configured", "not_strict_json", "failed_not_told", "differs"} <= flags(found)
    assert found["asked_request_rate"] is None


def test_sglang_failures_are_counted_from_the_errors() -> None:
    found = row("sglang-bench/real-two-failed.jsonl")
    assert (found["requests_ok"], found["requests_failed"]) == (30, 2)
    assert found["errors"] == {"IndexError: list index out of range": 2}
    assert found["ttft_ms"]["n"] == 30
    assert "too_few_successes" in flags(found)


def test_a_ttft_of_zero_is_a_failure_not_a_sample() -> None:
    source = {"duration": 1.0, "ttfts": [0.0, 0.5], "itls": [[], [0.1]], "output_lens": [3, 2], "input_lens": [1, 1],
              "errors": ["", ""], "completed": 2}  # fmt: skip
    (found,) = collect(parse_vllm([json.dumps(source)])).rows
    assert (found["requests_ok"], found["requests_failed"]) == (1, 1)
    assert found["ttft_ms"] == {"n": 1, "mean": 500.0, "p50": 500.0, "p95": 500.0, "p99": 500.0}
    assert "ttft_zero" in flags(found)


def test_prefill_only_cases_have_no_tpot() -> None:
    found = shaped(Result("x", requests=[Request(True, 1024, 1, 80.0, 80.0, sent_s=0.0)]))
    assert found["tpot_ms"] is None
    assert found["ttft_ms"]["p50"] == 80.0


def test_several_tokens_in_a_chunk_keep_tpot_right_and_label_itl() -> None:
    # 9 tokens in 3 chunks, 40 ms apart: TPOT is per token, ITL per chunk
    found = shaped(Result("x", requests=[Request(True, 10, 9, 100.0, 180.0, (40.0, 40.0), 0.0)]))
    assert found["tpot_ms"]["mean"] == pytest.approx(10.0)
    assert found["itl_ms"]["mean"] == 40.0
    assert "itl_per_chunk" in flags(found)


def test_a_summary_without_requests_has_only_the_clients_figures() -> None:
    found = row("vllm-bench/c8-rate20-summary.json")
    assert found["ttft_ms"] is None
    assert found["own"]["ttft_ms"]["mean"] > 0
    assert "no_per_request_data" in flags(found)
    assert found["asked_request_rate"] == 20.0


def test_append_mode_and_damaged_lines() -> None:
    line = json.dumps(json.loads(text("vllm-bench/c8-rate20-summary.json")))
    result = collect(parse_vllm([line, line, line[:100]]))
    assert (len(result.rows), result.skipped) == (2, 1)
    result = collect(parse_sglang([text("sglang-bench/random-ids-c8.jsonl").strip(), "{"]))
    assert (len(result.rows), result.skipped) == (1, 1)


def test_sweep_summary_says_that_the_server_was_not_verified() -> None:
    rows = parsed("vllm-bench/sweep-summary.csv").rows
    assert len(rows) == 8
    assert all("server_not_verified" in flags(found) for found in rows)
    assert rows[0]["concurrency"] == 2


def test_printed_tables() -> None:
    found = row("vllm-bench/c8-stdout.txt")
    assert found["own"]["output_tps"] == 681.69
    assert found["own"]["ttft_ms"] == {"mean": 56.75, "p50": 56.85, "p95": 73.6, "p99": 75.92}
    assert found["output_tps"] is None
    old = row("vllm-bench/serve-1-success-of-100.txt")
    assert (old["requests_ok"], old["requests_failed"]) == (1, None)
    assert row("vllm-bench/serve-result-0.11-failed-line.txt")["requests_failed"] == 0
    assert row("sglang-bench/c8-stdout.txt")["client"] == "sglang_bench"


def test_genai_bench_divides_kept_tokens_by_the_whole_duration() -> None:
    found = row("genai-bench/d256-c2.json")
    assert found["output_tps"] == pytest.approx(81.57, abs=0.01)
    assert found["own"]["output_tps"] == pytest.approx(71.97, abs=0.01)
    assert {"warmup_ratio_bias", "differs"} <= flags(found)


def test_guidellm() -> None:
    found = row("guidellm/report.json")
    assert (found["requests_ok"], found["output_tokens"], found["concurrency"]) == (16, 512, 4.0)
    assert {"percentiles_pick_a_sample", "own_tpot_includes_first_token"} <= flags(found)
    assert found["tpot_ms"]["mean"] < found["own"]["tpot_with_first_token_ms"]["mean"]
    assert [event.name for event in parsed("guidellm/report.json").events] in ([], ["client_warning"])


def test_aiperf() -> None:
    found = row("aiperf/profile_export_aiperf.json")
    assert (found["model"], found["concurrency"], found["requests_ok"]) == ("mock/tiny-12k", 8.0, 48)
    assert found["own"]["tpot_ms"]["p50"] == pytest.approx(8.654, abs=1e-3)
    records = row("aiperf/profile_export.jsonl")
    assert records["extra"]["warmup_requests"] == 4
    assert records["requests_ok"] == 8
    (event,) = parsed("aiperf/search_history.json").events
    assert "contradicts itself" in event.detail["line"]


def test_inference_perf_and_inferencex() -> None:
    found = row("inference-perf/stage-3-lifecycle.json")
    assert (found["requests_ok"], found["own"]["ttft_ms"]["p95"]) == (3149, pytest.approx(65.6396, abs=1e-3))
    prometheus = row("inference-perf/stage-3-prometheus.json")
    assert prometheus["requests_ok"] == 6411
    assert "prometheus_window" in flags(prometheus)
    infx = row("inferencex/conc4.json")
    assert infx["own"]["ttft_ms"]["p50"] == pytest.approx(264.9997, abs=1e-3)
    assert infx["requests_failed"] is None


def test_an_error_inside_a_stream_is_a_failed_request() -> None:
    found = row("vllm-bench/stream-error-inband.sse")
    assert (found["ok"], found["errors"], found["done"]) == (False, 1, True)
    good = [
        'data: {"choices":[{"delta":{"role":"assistant"}}]}',
        'data: {"choices":[{"delta":{"reasoning_content":"a"}}]}',
        'data: {"choices":[{"delta":{"content":"b"}}]}',
        'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}',
        "data: [DONE]",
    ]
    (stream,) = collect(parse_sse(good)).rows
    assert (stream["ok"], stream["content_chunks"], stream["output_tokens"]) == (True, 2, 2)
