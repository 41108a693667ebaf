"""SGLang's bench_serving: its command from a case, and its result file as rows.

Tried with 0.5.23. It tells no send times: they are rebuilt from its order and latencies, and the attempt says so. Its
warm-up sends the first prompt again and again; --flush-cache empties the server's prefix cache afterwards. Against
SGLang it talks to /generate, where the server counts every chunk's tokens (sglang-oai keeps the asked count when a
generation stops early).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from runners.clients import results
from runners.clients.base import DOCUMENT, Ask, ClientCommand, Module
from runners.clients.results import Clock, DocumentReader
from runners.formats.bench_serving import sglang_result
from runners.formats.client_result import finite, shaped
from runners.probes.base import ProbeContext, Reader
from store.records import Record

FILE: Final = "result.jsonl"
_FIELDS: Final = {
    **dict.fromkeys(("duration", "completed", "total_output_tokens", "request_throughput"), "number"),
    **dict.fromkeys(("ttfts", "itls", "input_lens", "output_lens", "errors"), "list"),
}
# The module was called sglang.bench_serving before; that name still answers in the versions tried.
_MODULE: Final = ("-m", "sglang.bench_serving")


class SglangBench(results.Tool):
    """See runners.clients.base.Client."""

    name = "sglang_bench"
    said = "sglang bench_serving"
    module: Module | None = Module("sglang", (*_MODULE, "--help"), ("0.5.23",))

    def command(self, ask: Ask) -> ClientCommand:
        results.refuse_unless(ask, self.name)
        case = ask.case
        backend = self._backend(ask)
        flush = ask.warmup > 0 and (ask.dep.engine == "sglang" or "--flush-cache" in ask.tool.flags)
        repeats = ask.warmup > 0 and not flush
        argv = [
            *_MODULE,
            *("--backend", backend, "--base-url", results.refuse_secrets(ask)),
            *("--model", ask.tokenizer, "--served-model-name", ask.model, "--tokenizer", ask.tokenizer),
            # 1.0 is a fixed length here, and the default 0.0 a length between 1 and the asked one
            *("--dataset-name", "random-ids", "--random-input-len", str(case.isl)),
            *("--random-output-len", str(case.osl), "--random-range-ratio", "1.0"),
            *(("--tokenize-prompt",) if backend == "sglang" else ()),
            *("--num-prompts", str(ask.requests + repeats), "--warmup-requests", str(ask.warmup)),
            *("--seed", str(ask.seed), *(("--flush-cache",) if flush else ())),
            *(() if case.ignore_eos else ("--disable-ignore-eos",)),
            *("--request-rate", "inf" if case.request_rate is None else f"{case.request_rate:g}"),
            *(("--max-concurrency", str(case.concurrency)) if case.request_rate is None else ()),
            *("--output-file", f"{ask.folder}/{FILE}", "--output-details", "--disable-tqdm"),
            *ask.tool.flags,
        ]
        known = {"isl": case.isl, "osl": case.osl, "rate": case.request_rate, "first_repeats": repeats}
        return ClientCommand(argv=argv, env=dict(ask.tool.env), files={FILE: DOCUMENT}, known=known)

    @staticmethod
    def _backend(ask: Ask) -> str:
        if ask.case.api == "chat":
            return "vllm-chat" if ask.dep.engine == "vllm" else "sglang-oai-chat"
        return {"sglang": "sglang", "vllm": "vllm"}.get(ask.dep.engine, "sglang-oai")

    def reader(self, stream: str, known: Mapping[str, Any]) -> Reader | None:
        if stream != FILE:
            return None
        return DocumentReader(self.name, lambda source, context: _rows(source, context, known))


def _rows(source: str, context: ProbeContext, known: Mapping[str, Any]) -> Iterator[Record]:
    found = results.the_object(source, context, _FIELDS)
    results.same_length(found, [*_FIELDS], context)
    result = sglang_result(found, strict="Infinity" not in source)
    row = shaped(result)  # settles the requests, too
    clock, duration = Clock.of(known), result.duration_s or 0.0
    times = results.sent_times(result.requests, result.concurrency, finite(known.get("rate")))
    end = clock.mono(context.wall_ns + clock.wall_minus_owner_ns)
    for number, (request, at) in enumerate(zip(result.requests, times, strict=True)):
        kind = "filler" if number == 0 and known.get("first_repeats") else "load"
        yield results.request_row(request, number, end - round((duration - at) * 1e9), context, known, kind)
    window = max((at + (r.e2e_ms or 0) / 1000 for r, at in zip(result.requests, times, strict=True)), default=0.0)
    yield results.event(context, "client_result", f"{found['completed']} completed, {len(times)} sent")
    yield from results.own_figures(row, context)
    rebuilt = f"times_rebuilt: no send times in the file; rebuilt {window:.4g} s, the tool's duration {duration:.4g} s"
    yield from results.flag_events([*row["flags"], rebuilt], context)
