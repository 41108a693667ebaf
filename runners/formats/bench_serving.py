"""Result files of `vllm bench serve` (one JSON object, or one a line) and SGLang's bench_serving (JSON Lines).

The two are cousins: per-request arrays in seconds, failed requests keep their slot. vLLM tells `failed`; SGLang does
not, counts configured input tokens, and writes a bare `Infinity`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from runners.formats import jsontext, text
from runners.formats.base import SKIP, Item, Kind, Row
from runners.formats.client_result import COLUMNS, Request, Result, finite, own_metric, shaped, whole

_NAMES: Final = {"ttft_ms": "ttft", "tpot_ms": "tpot", "itl_ms": "itl"}


def _array(source: dict[str, Any], name: str) -> list[Any]:
    value = source.get(name)
    return value if isinstance(value, list) else []


def _ms(value: Any) -> float | None:
    number = finite(value)
    return None if number is None else number * 1000


def _requests(source: dict[str, Any]) -> list[Request]:
    """Per-request records of the detailed form; empty for a summary."""
    ttfts, itls = _array(source, "ttfts"), _array(source, "itls")
    inputs, outputs, errors = (_array(source, name) for name in ("input_lens", "output_lens", "errors"))
    latencies, starts = _array(source, "latencies"), _array(source, "start_times")
    if not ttfts:
        return []
    found = []
    for at, ttft in enumerate(ttfts):
        gaps = itls[at] if at < len(itls) and isinstance(itls[at], list) else []
        gaps_ms = [value * 1000 for value in map(finite, gaps) if value is not None]
        error = errors[at] if at < len(errors) else ""
        tokens = whole(outputs[at]) if at < len(outputs) else None
        first = _ms(ttft)
        latency = _ms(latencies[at]) if at < len(latencies) else None
        if latency is None and first is not None:
            latency = first + sum(gaps_ms)
        found.append(
            Request(
                ok=not error and tokens != 0,
                input_tokens=whole(inputs[at]) if at < len(inputs) else None,
                output_tokens=tokens,
                ttft_ms=first,
                e2e_ms=latency,
                gaps_ms=gaps_ms,
                sent_s=finite(starts[at]) if at < len(starts) else None,
                error=str(error) if error else None,
            )
        )
    return found


def _own(source: dict[str, Any], e2e: str) -> dict[str, Any]:
    own: dict[str, Any] = {
        "requests_ok": whole(source.get("completed")),
        "requests_failed": whole(source.get("failed")),
        "input_tokens": whole(source.get("total_input_tokens")),
        "output_tokens": whole(source.get("total_output_tokens")),
        "input_tps": finite(source.get("input_throughput")),
        "output_tps": finite(source.get("output_throughput")),
        "total_tps": finite(source.get("total_token_throughput", source.get("total_throughput"))),
        "request_rate": finite(source.get("request_throughput")),
        "goodput": finite(source.get("request_goodput", source.get("request_goodput:"))),  # so spelt until 0.10
        "peak_output_tps": finite(source.get("max_output_tokens_per_s")),
        "peak_concurrency": finite(source.get("max_concurrent_requests")),
        "accept_length": finite(source.get("accept_length", source.get("spec_decode_acceptance_length"))),
        "accept_rate_pct": finite(source.get("spec_decode_acceptance_rate")),
    }
    for column, short in {**_NAMES, "e2e_ms": e2e}.items():
        keys = {"mean": f"mean_{short}_ms", "p50": f"median_{short}_ms", "std": f"std_{short}_ms",
                "p90": f"p90_{short}_ms", "p95": f"p95_{short}_ms", "p99": f"p99_{short}_ms"}  # fmt: skip
        own[column] = own_metric(source, keys)
    return own


def _model(source: dict[str, Any]) -> str | None:
    server = source.get("server_info")
    found = source.get("model_id") or (server.get("model_path") if isinstance(server, dict) else None)
    return found if isinstance(found, str) else None


def _result(source: dict[str, Any], client: str, e2e: str) -> Result:
    requests = _requests(source)
    rate = source.get("request_rate")
    result = Result(
        client,
        model=_model(source),
        concurrency=finite(source.get("max_concurrency")),
        asked_rate=finite(rate),
        duration_s=finite(source.get("duration")),
        requests=requests,
        own=_own(source, e2e),
        ok=whole(source.get("completed")),
        failed=whole(source.get("failed")),
        input_tokens=whole(source.get("total_input_tokens")),
        output_tokens=whole(source.get("total_output_tokens")),
    )
    own = result.own
    peak, limit = own["peak_concurrency"], result.concurrency
    if peak is not None and limit is not None and peak > limit:
        result.flags.append(f"peak_concurrency: {peak:g} at a limit of {limit:g} comes from one-second buckets")
    peak_tps, mean_tps = own["peak_output_tps"], own["output_tps"]
    if peak_tps is not None and mean_tps is not None and peak_tps < mean_tps:
        result.flags.append(f"peak_below_average: peak output {peak_tps:g} tokens/s is below the average {mean_tps:g}")
    return result


def vllm_result(source: dict[str, Any]) -> Result:
    """One result of vllm bench serve, before the shaping."""
    result = _result(source, "vllm_bench", "e2el")
    known = {"date", "backend", "label", "num_prompts", "burstiness", "endpoint_type", "run_number", "tokenizer_id"}
    result.extra = {key: source[key] for key in known if source.get(key) is not None}
    if "run_number" in source:  # only a sweep writes it, and a sweep does not check that its own server answers
        result.flags.append("server_not_verified: a stale server on the port would have answered unnoticed")
    # --metadata keys and the swept variables of a sweep stand flat beside the rest, as text or numbers
    result.extra["metadata"] = {
        key: value
        for key, value in source.items()
        if key not in known and key not in _VLLM_KEYS and not _is_figure(key) and isinstance(value, str | int | float)
    }
    return result


def vllm_row(source: dict[str, Any]) -> Row:
    """One result of vllm bench serve."""
    return shaped(vllm_result(source))


_VLLM_KEYS: Final = frozenset(
    {
        "model_id", "request_rate", "max_concurrency", "duration", "completed", "failed", "total_input_tokens",
        "total_output_tokens", "request_throughput", "request_goodput", "output_throughput", "total_token_throughput",
        "max_output_tokens_per_s", "max_concurrent_requests", "rtfx", "request_goodput:",
    }
)  # fmt: skip


def _is_figure(key: str) -> bool:
    return key.endswith("_ms") or key.startswith("spec_decode_")


def sglang_result(source: dict[str, Any], strict: bool) -> Result:
    """One result of SGLang's bench_serving, before the shaping. `strict`: the file held strict JSON."""
    result = _result(source, "sglang_bench", "e2e_latency")
    if not strict:
        result.flags.append("not_strict_json: a bare Infinity or NaN stands in the file (read as unlimited)")
    if result.requests and result.failed is None:
        result.flags.append("failed_not_told: the client tells no failed count; ours is counted from the errors")
    counted = sum(item.input_tokens or 0 for item in result.requests if item.ok)
    told = result.own["input_tokens"]
    if result.requests and told is not None and counted and told != counted:
        result.flags.append(
            f"input_tokens_configured: the client reports {told} (configured), its own list sums to {counted}"
        )
    if result.own["accept_length"] is not None:
        result.flags.append("accept_length_since_server_start: of DP rank 0, accumulated, not of this run")
    result.flags.append("duration_includes_server_info: the clock stops after stop_profile and /server_info")
    known = ("tag", "backend", "dataset_name", "random_input_len", "random_output_len", "random_range_ratio",
             "concurrency", "total_output_tokens_retokenized", "goodput_slos_ms", "slo_attainment")  # fmt: skip
    result.extra = {key: source[key] for key in known if source.get(key) is not None}
    return result


def _objects(lines: Iterable[str]) -> Iterator[tuple[Any, bool]]:
    """(value, strict) of one document over many lines, or of JSON Lines."""
    whole_text = text.document(lines)
    if whole_text is None:
        yield None, True
        return
    value = jsontext.loads(whole_text)
    if value is not None:
        yield value, "Infinity" not in whole_text and "NaN" not in whole_text
        return
    found = [line.strip(" \t,[]") for line in whole_text.splitlines()]  # also a list with one object a line
    if whole_text.lstrip().startswith(("[", "{\n", "{\r")) and not any(map(_is_result, found)):
        yield jsontext.salvage(whole_text), True
        return
    for line in filter(None, found):
        yield jsontext.loads(line), "Infinity" not in line and "NaN" not in line


def _is_result(line: str) -> bool:
    """A whole result on one line: a damaged first line must not make JSON Lines a broken document."""
    return line.startswith("{") and '"duration"' in line and isinstance(jsontext.loads(line), dict)


def parse_vllm(lines: Iterable[str]) -> Iterator[Item]:
    """One row per run: an object, a list (summary.json of a sweep), or an object a line (append mode)."""
    for value, _ in _objects(lines):
        for source in value if isinstance(value, list) else [value]:
            yield vllm_row(source) if isinstance(source, dict) and "duration" in source else SKIP


def parse_sglang(lines: Iterable[str]) -> Iterator[Item]:
    """One row per run; the file is always appended to."""
    for value, strict in _objects(lines):
        yield shaped(sglang_result(value, strict)) if isinstance(value, dict) and "duration" in value else SKIP


def sniff_vllm(head: str) -> int:
    """Keys that only vLLM's client writes."""
    ours = '"tokenizer_id"' in head and ('"endpoint_type"' in head or '"backend"' in head)  # before 0.10 no endpoint
    return 95 if ours and '"num_prompts"' in head else 0


def sniff_sglang(head: str) -> int:
    """Keys that only SGLang's client writes."""
    if '"total_output_tokens_retokenized"' in head or '"random_range_ratio"' in head:
        return 95
    return 90 if '"dataset_name"' in head and '"max_concurrency"' in head and '"server_info"' in head else 0


KIND_VLLM: Final = Kind(
    "vllm_bench", "vllm bench serve result (also summary.json of a sweep)", COLUMNS, sniff_vllm, parse_vllm,
    long_lines=True,
)  # fmt: skip
KIND_SGLANG: Final = Kind(
    "sglang_bench", "sglang bench_serving result", COLUMNS, sniff_sglang, parse_sglang, long_lines=True
)
