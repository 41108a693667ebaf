"""AIPerf artefacts: profile_export_aiperf.json, profile_export.jsonl, search_history.json, server metrics export.

Its `inter_token_latency` is a per-request mean, i.e. our TPOT; `inter_chunk_latency` are all gaps. Warm-up records
stand in the JSONL and are told by `benchmark_phase`. Times are wall-clock ns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from runners.formats import jsontext
from runners.formats.base import SKIP, Event, Item, Kind, Row, columns
from runners.formats.client_result import COLUMNS, Request, Result, finite, shaped, whole

_OWN: Final = {
    "ttft_ms": "time_to_first_token",
    "tpot_ms": "inter_token_latency",
    "itl_ms": "inter_chunk_latency",
    "e2e_ms": "request_latency",
}
_PARTS: Final = {"n": "count", "mean": "avg", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}


def _avg(source: dict[str, Any], name: str) -> float | None:
    metric = source.get(name)
    return finite(metric.get("avg")) if isinstance(metric, dict) else None


def _metric(source: dict[str, Any], name: str) -> dict[str, float]:
    metric = source.get(name)
    if not isinstance(metric, dict):
        return {}
    factor = 1000 if metric.get("unit") in ("s", "sec", "seconds") else 1
    found = {part: finite(metric.get(key)) for part, key in _PARTS.items()}
    return {part: value * (factor if part != "n" else 1) for part, value in found.items() if value is not None}


def _concurrency(source: dict[str, Any]) -> float | None:
    config = source.get("input_config")
    if not isinstance(config, dict):
        return None
    phases = config.get("phases")
    loadgen = config.get("loadgen") if isinstance(config.get("loadgen"), dict) else config  # 0.2 and genai-perf
    if not isinstance(phases, list) and isinstance(loadgen, dict):
        return finite(loadgen.get("concurrency"))
    for phase in phases if isinstance(phases, list) else []:
        if isinstance(phase, dict) and phase.get("name") != "warmup" and finite(phase.get("concurrency")) is not None:
            return finite(phase["concurrency"])
    return None


def _model(source: dict[str, Any]) -> str | None:
    config = source.get("input_config") if isinstance(source.get("input_config"), dict) else {}
    endpoint = config.get("endpoint") if isinstance(config, dict) else None
    older = endpoint.get("model_names") if isinstance(endpoint, dict) else config.get("model") if config else None
    models = (config or {}).get("models") or older
    items = models.get("items") if isinstance(models, dict) else models
    first = items[0] if isinstance(items, list) and items else None
    name = first.get("name") if isinstance(first, dict) else first
    return name if isinstance(name, str) else None


def summary_row(source: dict[str, Any]) -> Row:
    """One profile_export_aiperf.json: summaries only, so ours stay null."""
    good, done = _avg(source, "request_count"), _avg(source, "completed_request_count")
    failed = _avg(source, "error_request_count")
    if failed is None and done is not None and good is not None:
        failed = done - good
    own: dict[str, Any] = {column: _metric(source, name) for column, name in _OWN.items()}
    own |= {
        "input_tokens": whole(_avg(source, "total_isl")),
        "output_tokens": whole(_avg(source, "total_osl")),
        "input_tps": _avg(source, "input_token_throughput"),
        "output_tps": _avg(source, "output_token_throughput"),
        "total_tps": _avg(source, "total_token_throughput"),
        "request_rate": _avg(source, "request_throughput"),
        "goodput": _avg(source, "goodput"),
        "error_rate_pct": _avg(source, "request_error_rate"),
    }
    config = source.get("input_config")
    result = Result(
        "genai_perf" if isinstance(config, dict) and "service_kind" in config else "aiperf",
        model=_model(source),
        concurrency=_concurrency(source),
        duration_s=_avg(source, "benchmark_duration"),
        own=own,
        ok=whole(good),
        failed=whole(failed),
        input_tokens=own["input_tokens"],
        output_tokens=own["output_tokens"],
    )
    if source.get("was_cancelled"):
        result.flags.append("cancelled: the run was interrupted; the client exits 0 all the same")
    if source.get("is_complete") is False:
        result.flags.append(f"incomplete: {str(source.get('incomplete_reason'))[:120]}")
    if (_avg(source, "osl_mismatch_count") or 0) > 0:
        result.flags.append("output_length_mismatch: requests ended before or after the asked length")
    told, counted = _avg(source, "total_usage_completion_tokens"), _avg(source, "total_osl")
    if told is not None and counted is not None and told != counted:
        result.flags.append(f"tokens_by_own_tokenizer: {counted:g} output tokens, the server counted {told:g}")
    result.extra = {"aiperf_version": source.get("aiperf_version"), "start_time": source.get("start_time"),
                    "warmup_requests": _avg(source.get("warmup_metrics") or {}, "request_count")
                    if isinstance(source.get("warmup_metrics"), dict) else None}  # fmt: skip
    return shaped(result)


def parse_summary(lines: Iterable[str]) -> Iterator[Item]:
    """profile_export_aiperf.json: one row; errors of the run as events."""
    loaded = jsontext.document(lines)
    if not isinstance(loaded, dict):
        yield SKIP
        return
    yield summary_row(loaded)
    for error in loaded.get("error_summary") or []:
        if isinstance(error, dict):
            yield Event("client_warning", detail={"line": str(error)[:400]})


def _value(metrics: Any, name: str) -> Any:
    metric = metrics.get(name) if isinstance(metrics, dict) else None
    if not isinstance(metric, dict):
        return None
    value = metric.get("value")
    number = finite(value)
    if metric.get("unit") in ("s", "sec", "seconds") and number is not None:
        return number * 1000
    return value


def request_of(record: dict[str, Any]) -> Request:
    """One record of profile_export.jsonl; `sent_s` is the wall clock."""
    metrics, meta = record.get("metrics"), record["metadata"]
    gaps = _value(metrics, "inter_chunk_latency")
    start = finite(meta.get("request_start_ns"))
    tokens = _value(metrics, "usage_completion_tokens")
    prompt = _value(metrics, "usage_prompt_tokens")
    error = record.get("error")
    return Request(
        ok=not error and not meta.get("was_cancelled"),
        input_tokens=whole(prompt if prompt is not None else _value(metrics, "input_sequence_length")),
        output_tokens=whole(tokens if tokens is not None else _value(metrics, "output_sequence_length")),
        ttft_ms=finite(_value(metrics, "time_to_first_token")),
        e2e_ms=finite(_value(metrics, "request_latency")),
        gaps_ms=[gap for gap in map(finite, gaps) if gap is not None] if isinstance(gaps, list) else [],
        sent_s=None if start is None else start / 1e9,
        error=str(error.get("message", error)) if isinstance(error, dict) else str(error) if error else None,
    )


def parse_records(lines: Iterable[str]) -> Iterator[Item]:
    """profile_export.jsonl: one row over the measured requests; warm-up records are counted, not measured."""
    requests: list[Request] = []
    warm = 0
    for value in jsontext.objects(lines):
        if not isinstance(value, dict) or not isinstance(value.get("metadata"), dict):
            yield SKIP
            continue
        if value["metadata"].get("benchmark_phase") == "warmup":
            warm += 1
        else:
            requests.append(request_of(value))
    if requests:
        result = Result("aiperf", requests=requests, extra={"warmup_requests": warm})
        yield shaped(result)


def parse_search(lines: Iterable[str]) -> Iterator[Item]:
    """search_history.json: one row per iteration; an event when the file contradicts itself."""
    loaded = jsontext.document(lines)
    iterations = loaded.get("iterations") if isinstance(loaded, dict) else None
    if not isinstance(loaded, dict) or not isinstance(iterations, list):
        yield SKIP
        return
    for item in iterations:
        if not isinstance(item, dict):
            yield SKIP
            continue
        values = item.get("variation_values")
        yield {
            "iteration": whole(item.get("iteration_idx")),
            "values": values if isinstance(values, dict) else {},
            "objectives": item.get("objective_values"),
            "feasible": item.get("feasible") if isinstance(item.get("feasible"), bool) else None,
        }
    yield from _contradiction(loaded)


def _contradiction(loaded: dict[str, Any]) -> Iterator[Event]:
    boundary = loaded.get("boundary_summary")
    feasible = boundary.get("feasible_max") if isinstance(boundary, dict) else None
    limit = finite(feasible.get("value")) if isinstance(feasible, dict) else None
    for trial in loaded.get("best_trials") or []:
        values = trial.get("variation_values") if isinstance(trial, dict) else None
        for name, value in values.items() if isinstance(values, dict) else ():
            best = finite(value)
            if limit is not None and best is not None and best > limit:
                detail = {
                    "line": f"best trial {name}={best:g}, largest feasible value {limit:g}: the file contradicts itself"
                }
                yield Event("client_warning", detail=detail)


def parse_server_metrics(lines: Iterable[str]) -> Iterator[Item]:
    """server_metrics_export.json: one row per series, and an event with the part of the load its edges may miss."""
    loaded = jsontext.document(lines)
    metrics = loaded.get("metrics") if isinstance(loaded, dict) else None
    if not isinstance(metrics, dict):
        yield SKIP
        return
    for name, metric in metrics.items():
        series = metric.get("series") if isinstance(metric, dict) else None
        for item in series if isinstance(series, list) else []:
            if not isinstance(item, dict):
                yield SKIP
                continue
            stats = item.get("stats")
            stats = stats if isinstance(stats, dict) else item
            yield {
                "metric": name,
                "type": metric.get("type"),
                "unit": metric.get("unit"),
                "labels": item.get("labels") if isinstance(item.get("labels"), dict) else {},
                "stats": {key: value for key, value in stats.items() if finite(value) is not None},
            }
    yield from _edges(_dict(loaded.get("summary")))


def _edges(summary: dict[str, Any]) -> Iterator[Event]:
    """The first scrape falls up to one interval after the load began: what came before it is not in the deltas."""
    phase = _dict(_dict(summary.get("phase_time_ranges")).get("profiling"))
    start, end = finite(phase.get("start_ns")), finite(phase.get("end_ns"))
    for source in map(_dict, _dict(summary.get("endpoint_info")).values()):
        interval = finite(source.get("avg_update_interval_ms"))
        if start is None or end is None or end <= start or interval is None:
            continue
        share = interval * 1e6 / (end - start)
        if share > EDGE_SHARE:
            missed = f"up to {min(share, 1):.0%} of the load at its edges"
            yield Event(
                "client_warning", detail={"line": f"server_window: scrapes every {interval:.0f} ms miss {missed}"}
            )


EDGE_SHARE: Final = 0.01


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def parse_sweep(lines: Iterable[str]) -> Iterator[Item]:
    """profile_export_aiperf_sweep.json: one row per combination of the swept values."""
    loaded = jsontext.document(lines)
    combinations = loaded.get("per_combination_metrics") if isinstance(loaded, dict) else None
    for item in combinations if isinstance(combinations, list) else [None]:
        if not isinstance(item, dict) or not isinstance(item.get("metrics"), dict):
            yield SKIP
            continue
        stats = {name: value for name, value in item["metrics"].items() if isinstance(value, dict)}
        yield {"values": item.get("parameters"), "metrics": stats}


def _sniff_sweep(head: str) -> int:
    return 96 if '"aggregation_type"' in head and '"sweep"' in head else 0


def _sniff_summary(head: str) -> int:
    if '"aiperf_version"' in head and ('"request_throughput"' in head or '"request_latency"' in head):
        return 96
    older = ('"time_to_first_token"', '"request_throughput"', '"unit"', '"avg"')  # 0.2 and genai-perf name no version
    return 85 if head.lstrip().startswith("{") and all(word in head for word in older) else 0


def _sniff_records(head: str) -> int:
    return 96 if '"benchmark_phase"' in head and '"request_start_ns"' in head else 0


def _sniff_search(head: str) -> int:
    return 95 if '"iteration_idx"' in head and '"variation_values"' in head else 0


def _sniff_server(head: str) -> int:
    return 97 if '"aiperf_version"' in head and '"endpoints_configured"' in head else 0


KIND_SUMMARY: Final = Kind(
    "aiperf",
    "AIPerf profile_export_aiperf.json (also of genai-perf)",
    COLUMNS,
    _sniff_summary,
    parse_summary,
    ("client_warning",),
    long_lines=True,
)
KIND_RECORDS: Final = Kind(
    "aiperf_records", "AIPerf profile_export.jsonl", COLUMNS, _sniff_records, parse_records, long_lines=True
)
KIND_SEARCH: Final = Kind(
    "aiperf_search",
    "AIPerf search_history.json",
    columns("iteration int -\nvalues map - varied settings\nobjectives list -\nfeasible bool -"),
    _sniff_search,
    parse_search,
    ("client_warning",),
    long_lines=True,
)
KIND_SWEEP: Final = Kind(
    "aiperf_sweep",
    "AIPerf profile_export_aiperf_sweep.json",
    columns("values map - swept settings\nmetrics map - as written"),
    _sniff_sweep,
    parse_sweep,
    long_lines=True,
)
KIND_SERVER: Final = Kind(
    "aiperf_server_metrics",
    "AIPerf server_metrics_export.json",
    columns("metric text -\ntype text -\nunit text -\nlabels map -\nstats map -"),
    _sniff_server,
    parse_server_metrics,
    ("client_warning",),
    long_lines=True,
)
