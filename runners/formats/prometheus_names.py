"""Which exposition name means what, newest first (vLLM 0.8 to 0.33, SGLang 0.4 to 0.5.23), without engine prefix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Scalar:
    """A column filled from the first of `names` that the page has.

    how    "sum" or "max" over data-parallel ranks, engines and other labels (ranks of one engine: always maximum)
    where  labels that a series must carry
    positive_only  0 is how the engine says "not in use" (speculation off)
    """

    column: str
    names: tuple[str, ...]
    how: str = "sum"
    whole: bool = False
    where: tuple[tuple[str, str], ...] = ()
    positive_only: bool = False


def _count(column: str, *names: str, where: tuple[tuple[str, str], ...] = ()) -> Scalar:
    return Scalar(column, names, whole=True, where=where)


def _ratio(column: str, *names: str, positive_only: bool = False) -> Scalar:
    return Scalar(column, names, how="max", positive_only=positive_only)


_MODE_CACHE: Final = (("mode", "prefill_cache"),)
_MODE_COMPUTE: Final = (("mode", "prefill_compute"),)

SCALARS: Final = (
    _count("running", "num_requests_running", "num_running_reqs"),
    _count("waiting", "num_requests_waiting", "num_queue_reqs"),
    _count("swapped", "num_requests_swapped"),
    _ratio("kv_usage", "kv_cache_usage_perc", "gpu_cache_usage_perc", "token_usage"),
    _ratio("kv_usage_full", "full_token_usage"),
    _ratio("kv_usage_swa", "swa_token_usage"),
    _ratio("kv_usage_mamba", "mamba_usage"),
    _count("kv_used_tokens", "kv_used_tokens", "num_used_tokens"),
    _count("kv_evictable_tokens", "kv_evictable_tokens"),
    _count("kv_available_tokens", "kv_available_tokens"),
    _count("kv_total_tokens", "max_total_num_tokens"),
    _count("preemptions_total", "num_preemptions_total", "num_preemptions"),
    _count("retracted", "num_retracted_reqs"),
    _count("retractions_total", "num_retracted_requests_total"),
    _count("retracted_input_tokens_total", "num_retracted_input_tokens_total"),
    _count("retracted_output_tokens_total", "num_retracted_output_tokens_total"),
    _count("prompt_tokens_total", "prompt_tokens_total"),
    _count("generation_tokens_total", "generation_tokens_total"),
    _count("prefix_queries_total", "prefix_cache_queries_total", "prefix_cache_queries",
           "gpu_prefix_cache_queries_total", "gpu_prefix_cache_queries"),
    _count("prefix_hits_total", "prefix_cache_hits_total", "prefix_cache_hits",
           "gpu_prefix_cache_hits_total", "gpu_prefix_cache_hits"),
    _count("external_prefix_queries_total", "external_prefix_cache_queries_total"),
    _count("external_prefix_hits_total", "external_prefix_cache_hits_total"),
    _count("cached_tokens_total", "prompt_tokens_cached_total", "cached_tokens_total"),
    _count("prefill_computed_tokens_total", "realtime_tokens_total", where=_MODE_COMPUTE),
    _count("prefill_cached_tokens_total", "realtime_tokens_total", where=_MODE_CACHE),
    _ratio("prefix_hit_ratio", "cache_hit_rate"),
    Scalar("gen_tps", ("gen_throughput",)),
    _count("drafts_total", "spec_decode_num_drafts_total", "spec_decode_num_drafts"),
    _count("draft_tokens_total", "spec_decode_num_draft_tokens_total", "spec_decode_num_draft_tokens"),
    _count("accepted_tokens_total", "spec_decode_num_accepted_tokens_total", "spec_decode_num_accepted_tokens"),
    _count("spec_verify_calls_total", "spec_verify_calls_total"),
    _ratio("spec_accept_length", "spec_accept_length", positive_only=True),
    _ratio("spec_accept_rate", "spec_accept_rate", positive_only=True),
    _count("requests_finished_total", "request_success_total", "num_requests_total"),
    _count("requests_aborted_total", "num_aborted_requests_total"),
    _count("corrupted_total", "corrupted_requests_total", "corrupted_requests"),
    _count("admission_rejections_total", "admission_rejections_total"),
    Scalar("avg_queue_seconds", ("avg_request_queue_latency",), how="max"),
    Scalar("forward_seconds_total", ("forward_execution_seconds_total", "gpu_execution_seconds_total")),
    Scalar("scheduler_idle_seconds_total", ("scheduler_idle_seconds_total",)),
    Scalar("flops_per_gpu_total", ("estimated_flops_per_gpu_total",), how="max"),
    Scalar("graph_in_use", ("is_cuda_graph",), how="max", whole=True),
)  # fmt: skip

# column stem -> histogram names; `_sum` (seconds or tokens) and `_count` follow
HISTOGRAMS: Final[dict[str, tuple[str, ...]]] = {
    "ttft_seconds": ("time_to_first_token_seconds",),
    "itl_seconds": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
    "tpot_seconds": ("request_time_per_output_token_seconds",),
    "e2e_seconds": ("e2e_request_latency_seconds",),
    "queue_seconds": ("request_queue_time_seconds", "queue_time_seconds"),
    "prefill_seconds": ("request_prefill_time_seconds",),
    "decode_seconds": ("request_decode_time_seconds",),
    "inference_seconds": ("request_inference_time_seconds",),
    "iteration_tokens": ("iteration_tokens_total",),
    "request_preemptions": ("request_num_preemptions",),
}

# column -> (name, label): the values that hide behind a label
BY_LABEL: Final = {
    "accepted_per_position": ("spec_decode_num_accepted_tokens_per_pos_total", "position"),
    "finished_by_reason": ("request_success_total", "finished_reason"),
    "waiting_by_reason": ("num_requests_waiting_by_reason", "reason"),
    "prompt_tokens_by_source": ("prompt_tokens_by_source_total", "source"),
    "stage_seconds_sum": ("per_stage_req_latency_seconds_sum", "stage"),
    "stage_seconds_count": ("per_stage_req_latency_seconds_count", "stage"),
    "scheduler_seconds_by_stage": ("scheduler_stage_seconds_total", "category"),
    "graph_passes_by_mode": ("cuda_graph_passes_total", "mode"),
    "http_responses_by_status": ("http_responses_total", "status_code"),
}

MAPPED: Final = frozenset(
    [name for scalar in SCALARS for name in scalar.names]
    + [f"{name}_{part}" for names in HISTOGRAMS.values() for name in names for part in ("sum", "count")]
    + ["cache_config_info", *(name for name, _ in BY_LABEL.values())]
)

_NOTES: Final = {
    "kv_usage": "0..1, the fullest rank",
    "gen_tps": "gauge: keeps its last value when idle",
    "waiting": "includes deferred requests",
    "retracted": "gauge",
    "requests_finished_total": "every finish reason; SGLang: requests taken in",
    "prefix_queries_total": "in prefix_unit",
    "prefix_hits_total": "in prefix_unit",
    "spec_accept_length": "since the server's start, not of a case",
}


def _unit(column: str) -> str:
    if "seconds" in column:
        return "s" if not column.endswith("_count") else "-"
    if column.startswith("kv_usage") or column.endswith(("_ratio", "_rate")):
        return "ratio"
    if column.endswith("_tps"):
        return "tokens/s"
    return "tokens" if "tokens" in column and not column.endswith("_count") else "-"


ENGINE_COLUMNS: Final = "\n".join(
    [
        "engine text - vllm or sglang",
        "model text -",
        *(f"{s.column} {'int' if s.whole else 'float'} {_unit(s.column)} {_NOTES.get(s.column, '')}" for s in SCALARS),
        *(
            f"{stem}_{part} {'int' if part == 'count' else 'float'} {_unit(f'{stem}_{part}')} cumulative"
            for stem in HISTOGRAMS
            for part in ("sum", "count")
        ),
        "accepted_per_position map tokens position -> accepted draft tokens",
        "finished_by_reason map -",
        "waiting_by_reason map -",
        "prompt_tokens_by_source map tokens computed here, from this cache, from elsewhere",
        "stage_seconds_sum map s stage of a request -> seconds over all requests; cumulative",
        "stage_seconds_count map - stage of a request -> requests; cumulative",
        "scheduler_seconds_by_stage map s cumulative",
        "graph_passes_by_mode map - cumulative",
        "http_responses_by_status map - cumulative",
        "prefix_unit text - blocks (vLLM 0.8) or tokens",
        "unmapped list - engine metrics without a column here",
    ]
)
