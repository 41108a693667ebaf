"""`vllm bench serve`: its command from a case, and its result file as rows.

Tried with 0.32.0: start_times are time.perf_counter(), which is CLOCK_MONOTONIC of the node; a version without them
gives latencies only, and the send times are rebuilt. Its warm-up sends the first prompt again and again, so that the
first measured request would be answered from the prefix cache: one more is asked for, and the first is not measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from runners.clients import results
from runners.clients.base import DOCUMENT, Ask, AskError, ClientCommand, Module
from runners.clients.results import Clock, DocumentReader
from runners.formats.bench_serving import vllm_result
from runners.formats.client_result import finite, shaped
from runners.probes.base import ProbeContext, Reader
from store.records import Record

FILE: Final = "result.json"
_PROGRAM: Final = ("-m", "vllm.entrypoints.cli.main", "bench", "serve")
_FIELDS: Final = {
    **dict.fromkeys(("duration", "completed", "total_output_tokens", "request_throughput"), "number"),
    **dict.fromkeys(("ttfts", "itls", "input_lens", "output_lens", "errors"), "list"),
    **dict.fromkeys(("start_times", "latencies"), "list?"),
}


class VllmBench(results.Tool):
    """See runners.clients.base.Client."""

    name = "vllm_bench"
    said = "vllm bench serve"
    module: Module | None = Module(
        "vllm", ("-m", "vllm.entrypoints.cli.main", "bench", "serve", "--help=all"), ("0.32.0",)
    )

    def command(self, ask: Ask) -> ClientCommand:
        results.refuse_unless(ask, self.name, prefix=True)
        case = ask.case
        chat = case.api == "chat"
        shared = round(case.prefix_share * case.isl)
        if shared >= case.isl:
            raise AskError("prefix_share leaves no token of its own to a prompt of this length")
        argv = [
            *_PROGRAM,
            *("--backend", "openai-chat" if chat else "openai"),
            *("--base-url", results.refuse_secrets(ask)),
            *("--endpoint", "/v1/chat/completions" if chat else "/v1/completions"),
            *("--model", ask.model, "--tokenizer", ask.tokenizer),
            *("--dataset-name", "random", "--random-input-len", str(case.isl - shared)),
            *("--random-output-len", str(case.osl), "--random-range-ratio", "0.0"),
            *(("--random-prefix-len", str(shared)) if shared else ()),
            *("--num-prompts", str(ask.requests + bool(ask.warmup)), "--num-warmups", str(ask.warmup)),
            *("--seed", str(ask.seed), "--temperature", "0"),
            *(("--ignore-eos",) if case.ignore_eos else ()),
            *("--request-rate", "inf" if case.request_rate is None else f"{case.request_rate:g}"),
            *(("--max-concurrency", str(case.concurrency)) if case.request_rate is None else ()),
            *("--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,95,99"),
            *("--save-result", "--save-detailed", "--result-dir", ask.folder, "--result-filename", FILE),
            "--disable-tqdm",
            *ask.tool.flags,
        ]
        known = {"isl": case.isl, "osl": case.osl, "first_repeats": bool(ask.warmup)}
        return ClientCommand(argv=argv, env=dict(ask.tool.env), files={FILE: DOCUMENT}, known=known)

    def reader(self, stream: str, known: Mapping[str, Any]) -> Reader | None:
        if stream != FILE:
            return None
        return DocumentReader(self.name, lambda source, context: _rows(source, context, known))


def _rows(source: str, context: ProbeContext, known: Mapping[str, Any]) -> Iterator[Record]:
    found = results.the_object(source, context, _FIELDS)
    results.same_length(found, [*_FIELDS], context)
    result = vllm_result(found)
    row = shaped(result)  # settles the requests, too
    requests, clock = result.requests, Clock.of(known)
    if all(request.sent_s for request in requests):
        sent = [round((request.sent_s or 0) * 1e9) for request in requests]
    else:
        rate = finite(found.get("request_rate"))
        times = results.sent_times(requests, result.concurrency, rate)
        end = clock.mono(context.wall_ns + clock.wall_minus_owner_ns)
        sent = [end - round(((result.duration_s or 0) - at) * 1e9) for at in times]
        row["flags"].append("times_rebuilt: the file tells no send times; ours follow its order and latencies")
    for number, (request, at) in enumerate(zip(requests, sent, strict=True)):
        kind = "filler" if number == 0 and known.get("first_repeats") else "load"
        yield results.request_row(request, number, at, context, known, kind)
    yield results.event(context, "client_result", f"{found['completed']} completed, {len(requests)} sent")
    yield from results.own_figures(row, context)
    yield from results.flag_events(row["flags"], context)
