"""GuideLLM report.json, genai-bench, inference-perf and InferenceX results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from runners.formats import jsontext
from runners.formats.base import SKIP, Event, Item, Kind, Row
from runners.formats.client_result import COLUMNS, Request, Result, finite, own_metric, shaped, whole


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _guidellm_metric(metrics: dict[str, Any], name: str, factor: float = 1) -> dict[str, float]:
    part = _dict(_dict(metrics.get(name)).get("successful"))
    found = own_metric(part, {"mean": "mean", "p50": "median"}, factor)
    found |= own_metric(_dict(part.get("percentiles")), {"p90": "p90", "p95": "p95", "p99": "p99"}, factor)
    count = whole(part.get("count"))
    return {"n": count, **found} if count is not None and found else found


def _guidellm_request(item: dict[str, Any], ok: bool) -> Request:
    times = _dict(_dict(item.get("info")).get("timings"))
    sent, first = finite(times.get("request_start")), finite(times.get("first_token_iteration"))
    last = finite(times.get("last_token_iteration"))
    tokens_in, tokens_out = _dict(item.get("input_metrics")), _dict(item.get("output_metrics"))
    first = first if first is not None else finite(times.get("first_iteration"))
    prompt = whole(item.get("prompt_tokens"))
    output = whole(item.get("output_tokens"))
    return Request(
        ok=ok,
        input_tokens=prompt if prompt is not None else whole(tokens_in.get("text_tokens")),
        output_tokens=output if output is not None else whole(tokens_out.get("text_tokens")),
        ttft_ms=None if None in (sent, first) else (first - sent) * 1000,  # type: ignore[operator]  # None excluded
        e2e_ms=None if None in (sent, last) else (last - sent) * 1000,  # type: ignore[operator]  # None excluded
        sent_s=sent,
        error=None if ok else str(_dict(item.get("info")).get("error") or "failed")[:400],
    )


def guidellm_row(benchmark: dict[str, Any]) -> Row:
    """One benchmark of a report. GuideLLM's own TPOT includes the first token; its percentiles pick a sample."""
    config, metrics = _dict(benchmark.get("config") or benchmark.get("args")), _dict(benchmark.get("metrics"))
    made = _dict(_dict(benchmark.get("run_stats")).get("requests_made"))  # until 0.3
    strategy, totals = _dict(config.get("strategy")), _dict(metrics.get("request_totals")) or made
    kept = _dict(benchmark.get("requests"))
    requests = [_guidellm_request(item, True) for item in map(_dict, _list(kept.get("successful")))]
    requests += [_guidellm_request(item, False) for item in map(_dict, _list(kept.get("errored")))]
    ok = whole(totals.get("successful"))
    flags = [
        "percentiles_pick_a_sample: the client's percentiles are not interpolated",
        "own_tpot_includes_first_token: time_per_output_token_ms counts the first token",
    ]
    if ok is not None and sum(item.ok for item in requests) != ok:
        flags.append(f"requests_cut: {sum(item.ok for item in requests)} of {ok} successful requests are in the file")
        requests = []
    rates = {name: _dict(_dict(metrics.get(key)).get("successful")) for name, key in (
        ("output_tps", "output_tokens_per_second"), ("input_tps", "prompt_tokens_per_second"),
        ("total_tps", "tokens_per_second"), ("request_rate", "requests_per_second"))}  # fmt: skip
    own: dict[str, Any] = {name: finite(value.get("mean")) for name, value in rates.items()}
    own |= {
        "ttft_ms": _guidellm_metric(metrics, "time_to_first_token_ms"),
        "itl_ms": _guidellm_metric(metrics, "inter_token_latency_ms"),
        "tpot_with_first_token_ms": _guidellm_metric(metrics, "time_per_output_token_ms"),
        "e2e_ms": _guidellm_metric(metrics, "request_latency", 1000),
        "slo_attainment": metrics.get("slo_attainment"),
    }
    tokens = {
        name: _dict(_dict(metrics.get(key)).get("successful")).get("total_sum")
        for name, key in (("input", "prompt_token_count"), ("output", "output_token_count"))
    }
    result = Result(
        "guidellm",
        model=_dict(config.get("backend")).get("model"),
        concurrency=finite(strategy.get("streams", strategy.get("max_concurrency"))),
        asked_rate=finite(strategy.get("rate")),
        duration_s=finite(benchmark.get("duration")),
        requests=requests,
        own=own,
        flags=flags,
        ok=ok,
        failed=whole(totals.get("errored")),
        input_tokens=whole(tokens["input"]),
        output_tokens=whole(tokens["output"]),
        extra={"strategy": strategy.get("type_"), "incomplete": whole(totals.get("incomplete"))},
    )
    return shaped(result)


def parse_guidellm(lines: Iterable[str]) -> Iterator[Item]:
    """report.json: one row per benchmark; the client's own warnings as events."""
    loaded = jsontext.document(lines)
    benchmarks = _list(_dict(loaded).get("benchmarks"))
    if not benchmarks:
        yield SKIP
    for benchmark in benchmarks:
        if not isinstance(benchmark, dict):
            yield SKIP
            continue
        yield guidellm_row(benchmark)
        for warning in map(_dict, _list(benchmark.get("warnings"))):
            detail = {
                "code": warning.get("code"),
                "observed": finite(warning.get("observed")),
                "threshold": finite(warning.get("threshold")),
                "line": str(warning.get("message"))[:400],
            }
            yield Event("client_warning", detail=detail)


_GENAI: Final = {"ttft_ms": "ttft", "tpot_ms": "tpot", "e2e_ms": "e2e_latency"}


def genai_row(loaded: dict[str, Any]) -> Row:
    """One genai-bench result. Its throughput divides kept tokens by the whole duration."""
    total, individual = _dict(loaded.get("aggregated_metrics")), _list(loaded.get("individual_request_metrics"))
    factor = 1 if loaded.get("_time_unit") == "ms" else 1000

    def ms(value: Any) -> float | None:
        number = finite(value)
        return None if number is None else number * factor

    requests = [
        Request(
            ok=item.get("error_code") in (None, 200),
            input_tokens=whole(item.get("num_input_tokens")),
            output_tokens=whole(item.get("num_output_tokens")),
            ttft_ms=ms(item.get("ttft")),
            e2e_ms=ms(item.get("e2e_latency")),
            error=str(item["error_message"]) if item.get("error_message") else None,
        )
        for item in map(_dict, individual)
    ]
    stats = _dict(total.get("stats"))
    keys = {"mean": "mean", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
    own: dict[str, Any] = {name: own_metric(_dict(stats.get(key)), keys, factor) for name, key in _GENAI.items()}
    own |= {
        "input_tps": finite(total.get("mean_input_throughput_tokens_per_s")),
        "output_tps": finite(total.get("mean_output_throughput_tokens_per_s")),
        "total_tps": finite(total.get("mean_total_tokens_throughput_tokens_per_s")),
        "request_rate": finite(total.get("requests_per_second")),
    }
    kept = finite(_dict(stats.get("num_output_tokens")).get("sum"))
    duration = finite(total.get("run_duration"))
    flags = []
    everything = sum(item.output_tokens or 0 for item in requests)
    if kept is not None and everything and kept < everything:
        flags.append(
            f"warmup_ratio_bias: tokens of {kept:g} of {everything:g} are divided by the duration of all requests"
        )
    speed = finite(_dict(stats.get("output_inference_speed")).get("max"))
    if speed is not None and speed > 100_000:
        flags.append(f"impossible_speed: output_inference_speed {speed:g} tokens/s")
    result = Result(
        "genai_bench",
        concurrency=finite(total.get("num_concurrency")),
        duration_s=duration,
        requests=requests,
        own=own,
        flags=flags,
        ok=whole(total.get("num_completed_requests")),
        failed=whole(total.get("num_error_requests")),
        extra={"scenario": total.get("scenario")},
    )
    return shaped(result)


def parse_genai(lines: Iterable[str]) -> Iterator[Item]:
    """One row per result file."""
    loaded = jsontext.document(lines)
    yield genai_row(loaded) if isinstance(loaded, dict) and "aggregated_metrics" in loaded else SKIP


def perf_row(loaded: dict[str, Any]) -> Row:
    """One stage of inference-perf (lifecycle metrics; seconds)."""
    good, failures = _dict(loaded.get("successes")), _dict(loaded.get("failures"))
    latency, rates, load = _dict(good.get("latency")), _dict(good.get("throughput")), _dict(loaded.get("load_summary"))
    keys = {"mean": "mean", "p50": "median", "p90": "p90", "p95": "p95", "p99": "p99"}
    names = {"ttft_ms": "time_to_first_token", "tpot_ms": "time_per_output_token", "itl_ms": "inter_token_latency",
             "e2e_ms": "request_latency"}  # fmt: skip
    flat = latency or good  # the Prometheus report has no `latency` level
    own: dict[str, Any] = {name: own_metric(_dict(flat.get(key)), keys, 1000) for name, key in names.items()}
    own |= {
        "input_tps": finite(rates.get("input_tokens_per_sec")),
        "output_tps": finite(rates.get("output_tokens_per_sec")),
        "total_tps": finite(rates.get("total_tokens_per_sec")),
        "request_rate": finite(rates.get("requests_per_sec", good.get("rate"))),
        "achieved_request_rate": finite(load.get("achieved_rate")),
    }
    result = Result(
        "inference_perf",
        asked_rate=finite(load.get("requested_rate")),
        duration_s=finite(load.get("send_duration")),
        own=own,
        ok=whole(good.get("count")),
        failed=whole(failures.get("count")),
    )
    if not latency:
        result.flags.append(
            "prometheus_window: counts come from the server's counters over a window that may hold other load"
        )
    result.extra = {"offered": whole(load.get("count"))}
    return shaped(result)


def parse_perf(lines: Iterable[str]) -> Iterator[Item]:
    """stage_N_lifecycle_metrics.json or stage_N_prometheus_metrics.json: one row."""
    loaded = jsontext.document(lines)
    yield perf_row(loaded) if isinstance(loaded, dict) and "successes" in loaded else SKIP


def inferencex_row(source: dict[str, Any]) -> Row:
    """One InferenceX result; latencies in seconds without a suffix in the names."""
    keys = {"mean": "mean", "p50": "median", "p90": "p90", "p95": "p95", "p99": "p99", "std": "std"}
    own: dict[str, Any] = {
        name: own_metric(source, {part: f"{word}_{short}" for part, word in keys.items()}, 1000)
        for name, short in (("ttft_ms", "ttft"), ("tpot_ms", "tpot"), ("itl_ms", "itl"), ("e2e_ms", "e2el"))
    }
    own |= {
        "input_tps": finite(source.get("input_throughput")),
        "output_tps": finite(source.get("output_throughput")),
        "request_rate": finite(source.get("request_throughput")),
        "goodput": finite(source.get("request_goodput")),
        "output_tps_per_gpu": finite(source.get("output_tput_per_gpu")),
        "input_tps_per_gpu": finite(source.get("input_tput_per_gpu")),
    }
    result = Result(
        "inferencex",
        model=source.get("model_id") or source.get("model"),
        concurrency=finite(source.get("max_concurrency", source.get("conc"))),
        asked_rate=finite(source.get("request_rate")),
        duration_s=finite(source.get("duration")),
        own=own,
        ok=whole(source.get("completed")),
        failed=None,
        input_tokens=whole(source.get("total_input_tokens")),
        output_tokens=whole(source.get("total_output_tokens")),
        flags=["failed_not_told: the result holds no count of failed requests"],
    )
    known = ("date", "num_prompts", "hw", "framework", "precision", "tp", "ep", "dp_attention", "isl", "osl")
    result.extra = {key: source[key] for key in known if source.get(key) is not None}
    return shaped(result)


def parse_inferencex(lines: Iterable[str]) -> Iterator[Item]:
    """agg_*.json: one row per object (a list gives several)."""
    loaded = jsontext.document(lines)
    for source in loaded if isinstance(loaded, list) else [loaded]:
        yield inferencex_row(source) if isinstance(source, dict) and "median_ttft" in source else SKIP


def _sniff_guidellm(head: str) -> int:
    if not head.lstrip().startswith("{"):
        return 0
    return 95 if '"benchmarks"' in head and ('"guidellm' in head or '"scheduler_metrics"' in head or
                                              '"generative_benchmark"' in head) else 0  # fmt: skip


def _sniff_genai(head: str) -> int:
    return 95 if '"aggregated_metrics"' in head and '"mean_output_throughput_tokens_per_s"' in head else 0


def _sniff_perf(head: str) -> int:
    return (
        95
        if '"successes"' in head and ('"load_summary"' in head or '"normalized_time_per_output_token"' in head)
        else 0
    )


def _sniff_inferencex(head: str) -> int:
    return 90 if '"median_ttft"' in head and '"median_ttft_ms"' not in head else 0


KIND_GUIDELLM: Final = Kind(
    "guidellm", "GuideLLM report.json", COLUMNS, _sniff_guidellm, parse_guidellm, ("client_warning",), long_lines=True
)
KIND_GENAI: Final = Kind("genai_bench", "genai-bench result", COLUMNS, _sniff_genai, parse_genai, long_lines=True)
KIND_PERF: Final = Kind(
    "inference_perf", "inference-perf stage metrics", COLUMNS, _sniff_perf, parse_perf, long_lines=True
)
KIND_INFERENCEX: Final = Kind(
    "inferencex", "InferenceX agg_*.json", COLUMNS, _sniff_inferencex, parse_inferencex, long_lines=True
)
