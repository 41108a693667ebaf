"""What the engine says of itself: /metrics, fetched on the node by runners/payload/scrape.py."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from runners.formats import prometheus
from runners.formats.base import Event, Skip
from runners.probes.base import Frame, Parsed, ProbeContext, event, parse_frames
from runners.spec import Node
from store.records import EngineSample, Record

_SCRAPE: Final = Path(__file__).parent.parent / "payload" / "scrape.py"

# column of the record -> column of the metrics row, where they differ
_COLUMNS: Final = {
    "running": "running",
    "waiting": "waiting",
    "kv_usage": "kv_usage",
    "kv_tokens_total": "kv_total_tokens",
    "prompt_tokens_total": "prompt_tokens_total",
    "generation_tokens_total": "generation_tokens_total",
    "prefix_queries_total": "prefix_queries_total",
    "prefix_hits_total": "prefix_hits_total",
    "requests_total": "requests_finished_total",
    "ttft_sum_s": "ttft_seconds_sum",
    "ttft_count": "ttft_seconds_count",
    "itl_sum_s": "itl_seconds_sum",
    "itl_count": "itl_seconds_count",
    "e2e_sum_s": "e2e_seconds_sum",
    "e2e_count": "e2e_seconds_count",
    "queue_sum_s": "queue_seconds_sum",
    "queue_count": "queue_seconds_count",
    "spec_drafts_total": "drafts_total",
    "spec_draft_tokens_total": "draft_tokens_total",
    "spec_accepted_tokens_total": "accepted_tokens_total",
    "gen_throughput": "gen_tps",
    "kv_used_tokens": "kv_used_tokens",
    "retracted": "retracted",
    "computed_tokens_total": "prefill_computed_tokens_total",
    "cached_tokens_total": "cached_tokens_total",
    "prefill_sum_s": "prefill_seconds_sum",
    "prefill_count": "prefill_seconds_count",
    "decode_sum_s": "decode_seconds_sum",
    "decode_count": "decode_seconds_count",
    "inference_sum_s": "inference_seconds_sum",
    "inference_count": "inference_seconds_count",
    "step_tokens_sum": "iteration_tokens_sum",
    "step_count": "iteration_tokens_count",
    "aborted_total": "requests_aborted_total",
    "spec_accept_length": "spec_accept_length",
    "prefix_unit": "prefix_unit",
}


@cache
def _source() -> str:
    return _SCRAPE.read_text(encoding="utf-8")


class EngineProbe:
    name = "engine"
    needs_server = True

    def argv(self, node: Node, interval_s: float = 1.0, url: str | None = None) -> list[str]:
        """The script travels inside the command, so that it also runs within the engine's container.

        Raises:
            ValueError: no url.
        """
        if not url:
            raise ValueError("the engine probe needs the server's url")
        return [node.python, "-u", "-c", _source(), url, f"{interval_s:g}"]

    def parse(self, data: bytes, context: ProbeContext, final: bool = False) -> Parsed:
        return parse_frames(data, context, final, _rows)


def _rows(frame: Frame, context: ProbeContext) -> tuple[list[Record], int]:
    if frame.kind == "down":
        why = frame.text().strip()[:300]
        return [event(frame, context, "source_unavailable", "warn", f"/metrics: {why}")], 0
    if frame.kind != "metrics":
        return [], 1
    records: list[Record] = []
    bad = 0
    for item in prometheus.parse(frame.text().splitlines()):
        if isinstance(item, Event):
            records.append(event(frame, context, item.name, "warn", str(item.detail.get("reason", ""))))
        elif isinstance(item, Skip):
            bad += 1
        else:
            records.append(_sample(item, frame, context))
    return records, bad


def _sample(row: dict[str, Any], frame: Frame, context: ProbeContext) -> EngineSample:
    """Preemptions are a counter in vLLM; SGLang calls them retractions."""
    values = {column: row.get(name) for column, name in _COLUMNS.items()}
    preemptions = row.get("preemptions_total")
    return EngineSample(
        run_id=context.run_id,
        node=context.node,
        wall_ns=frame.wall_ns,
        mono_ns=frame.mono_ns,
        source="metrics",
        life_id=context.life_id,
        engine=row["engine"] if context.engine in (None, "external") else context.engine,
        preemptions_total=row.get("retractions_total") if preemptions is None else preemptions,
        missing=" ".join(sorted(column for column, value in values.items() if value is None)) or None,
        **values,
    )
