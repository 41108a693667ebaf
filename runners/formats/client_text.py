"""What clients print or stream: the result tables of vllm bench serve and SGLang, sweep and other CSVs, SSE streams."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from runners.formats import jsontext, text
from runners.formats.base import SKIP, Event, Item, Kind, Row, columns
from runners.formats.bench_serving import vllm_row
from runners.formats.client_result import COLUMNS, Result, shaped, whole

_TITLE = re.compile(r"=+ ?Serving Benchmark Result ?=+")
_LINE = re.compile(r"([A-Z][\w ().%/,:+-]*?):\s+(\S.*)\Z")
_PARTS: Final = {"Mean": "mean", "Median": "p50", "P50": "p50", "P90": "p90", "P95": "p95", "P99": "p99"}
_NOT_SET: Final = frozenset({"not set", "inf", "None", "N/A"})
_METRIC = re.compile(r"(Mean|Median|P50|P90|P95|P99) (TTFT|TPOT|ITL|E2EL|E2E Latency) \(ms\)\Z")
_COLUMNS: Final = {"TTFT": "ttft_ms", "TPOT": "tpot_ms", "ITL": "itl_ms", "E2EL": "e2e_ms", "E2E Latency": "e2e_ms"}
_FIGURES: Final = {
    "successful requests": "ok",
    "failed requests": "failed",
    "benchmark duration (s)": "duration",
    "total input tokens": "input",
    "total generated tokens": "output",
    "total generated tokens (retokenized)": "retokenized",
    "maximum request concurrency": "concurrency",
    "max request concurrency": "concurrency",
    "request throughput (req/s)": "request_rate",
    "request goodput (req/s)": "goodput",
    "input token throughput (tok/s)": "input_tps",
    "output token throughput (tok/s)": "output_tps",
    "total token throughput (tok/s)": "total_tps",
    "peak output token throughput (tok/s)": "peak_output_tps",
    "peak concurrent requests": "peak_concurrency",
}


def _table_row(found: dict[str, Any], metrics: dict[str, dict[str, float]]) -> Row:
    names = ("request_rate", "goodput", "input_tps", "output_tps", "total_tps", "peak_output_tps", "peak_concurrency")
    result = Result(
        "sglang_bench" if "retokenized" in found else "vllm_bench",
        rounded=True,
        concurrency=found.get("concurrency"),
        duration_s=found.get("duration"),
        own={**{name: found.get(name) for name in names}, **metrics},
        ok=whole(found.get("ok")),
        failed=whole(found.get("failed")),  # no such line in older versions: unknown, not 0
        input_tokens=whole(found.get("input")),
        output_tokens=whole(found.get("output")),
    )
    peak, limit = found.get("peak_concurrency"), found.get("concurrency")
    if peak is not None and limit is not None and peak > limit:
        result.flags.append(f"peak_concurrency: {peak:g} at a limit of {limit:g} comes from one-second buckets")
    if found.get("peak_output_tps") is not None and (found.get("output_tps") or 0) > found["peak_output_tps"]:
        result.flags.append("peak_below_average: the peak output rate is below the average")
    return shaped(result)


def parse_table(lines: Iterable[str]) -> Iterator[Item]:
    """One row per printed table, also of a table that was cut."""
    found: dict[str, Any] | None = None
    metrics: dict[str, dict[str, float]] = {}
    for line in text.cleaned(lines):
        bare = line.strip()
        if _TITLE.search(bare):
            if found:
                yield _table_row(found, metrics)
            found, metrics = {}, {}
            continue
        match = _LINE.match(bare) if found is not None else None
        if match is None or found is None:
            continue
        name, value = match[1].strip(), text.number(match[2].split()[0])
        metric = _METRIC.match(name)
        if metric and value is not None:
            metrics.setdefault(_COLUMNS[metric[2]], {})[_PARTS[metric[1]]] = float(value)
        elif name.lower() in _FIGURES:
            if value is None and match[2] not in _NOT_SET:
                yield SKIP
            elif value is not None:
                found[_FIGURES[name.lower()]] = value
    if found:
        yield _table_row(found, metrics)


def parse_sweep(lines: Iterable[str]) -> Iterator[Item]:
    """summary.csv of `vllm bench sweep`: one row per run. The sweep does not check that its own server answered."""
    header: list[str] | None = None
    for line in text.cleaned(lines):
        cells = _csv_cells(line)
        if header is None:
            header = cells
        elif cells and len(cells) == len(header):
            source = {name: _csv_value(cell) for name, cell in zip(header, cells, strict=True) if name}
            yield vllm_row({"run_number": None, **{key: value for key, value in source.items() if value is not None}})
        elif line:
            yield SKIP


def _csv_cells(line: str) -> list[str]:
    """Cells of one line: read alone, since a quote that a cut left open would swallow the lines after it."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _csv_value(cell: str) -> Any:
    if cell[:1] in "[{" and cell:
        return jsontext.loads(cell)
    value = text.number(cell)
    return value if value is not None else cell or None


def parse_aiperf_csv(lines: Iterable[str]) -> Iterator[Item]:
    """profile_export_aiperf.csv: one row per metric."""
    header: list[str] | None = None
    for line in text.cleaned(lines):
        cells = next(csv.reader([line]), [])
        if cells[:1] == ["Metric"]:
            header = cells
        elif not cells:
            header = None
        elif header and len(cells) <= len(header):
            name = re.match(r"(.*?)(?: \(([^()]*)\))?\Z", cells[0])
            values = {key: text.number(cell) for key, cell in zip(header[1:], cells[1:], strict=False)}
            yield {"metric": name[1] if name else cells[0], "unit": name[2] if name else None, "stats": values}
        else:
            yield SKIP


def parse_sse(lines: Iterable[str]) -> Iterator[Item]:
    """A captured event stream: one row with its counts; an error inside it is a failed request, whatever HTTP said."""
    chunks = content = errors = 0
    done = False
    usage: Any = None
    for line in text.cleaned(lines):
        if not line.startswith("data:"):
            if line and not line.startswith((":", "event:", "id:", "retry:")):
                yield SKIP
            continue
        body = line[5:].strip()
        if body == "[DONE]":
            done = True
            continue
        value = jsontext.loads(body)
        if not isinstance(value, dict):
            yield SKIP
            continue
        chunks += 1
        if value.get("error") is not None:
            errors += 1
            error = value["error"] if isinstance(value["error"], dict) else {"message": value["error"]}
            yield Event(
                "stream_error", detail={"line": text.shown(str(error.get("message"))), "code": error.get("code")}
            )
            continue
        usage = value.get("usage") or usage
        choices = value.get("choices")
        first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        delta = first.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        content += bool(first.get("text") or delta.get("content") or delta.get("reasoning_content"))
    tokens = usage if isinstance(usage, dict) else {}
    if chunks or done:
        yield {
            "ok": not errors and content > 0,
            "chunks": chunks,
            "content_chunks": content,
            "errors": errors,
            "done": done,
            "input_tokens": whole(tokens.get("prompt_tokens")),
            "output_tokens": whole(tokens.get("completion_tokens")),
        }


_FRAME = re.compile(r"\[<0>\] (\w+)\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[(\w+)\])?")
_PS = re.compile(r"\s*(\d+)\s+(\d+)\s+([A-Z]\S*)\s+(\S.*\d{4})\s+(\S.*)\Z")


def parse_stack(lines: Iterable[str]) -> Iterator[Item]:
    """ps and /proc/<pid>/stack of a process that kill -9 cannot end: one row; the event names the module."""
    process: Row = {"pid": None, "ppid": None, "state": None, "command": None}
    frames: list[str] = []
    modules: list[str] = []
    for line in text.cleaned(lines):
        if match := _FRAME.match(line.strip()):
            frames.append(match[1])
            if match[2] and match[2] not in modules:
                modules.append(match[2])
        elif match := _PS.match(line):
            process = {"pid": int(match[1][:18]), "ppid": int(match[2][:18]), "state": match[3], "command": match[5]}
        elif line.strip() and "PID" not in line:
            yield SKIP
    if frames:
        yield {**process, "frames": frames, "modules": modules}
        yield Event("stuck_process", detail={"pid": process["pid"], "module": modules[0] if modules else None,
                                             "line": frames[0], "fix": "needs a reboot"})  # fmt: skip


def _sniff_table(head: str) -> int:
    return 93 if _TITLE.search(head) else 0


def _sniff_sweep(head: str) -> int:
    first = head.split("\n", 1)[0]
    return 94 if ",endpoint_type," in first and "max_concurrency" in first else 0


def _sniff_aiperf_csv(head: str) -> int:
    return 95 if head.lstrip("\ufeff").startswith("Metric,avg,min,max") else 0


def _sniff_sse(head: str) -> int:
    return 85 if re.search(r"^data: ?(?:\{|\[DONE\])", head, re.MULTILINE) else 0


def _sniff_stack(head: str) -> int:
    return 92 if re.search(r"^\[<0>\] \w+\+0x", head, re.MULTILINE) else 0


KIND_TABLE: Final = Kind(
    "bench_serving_text", "printed table of vllm bench serve or SGLang's client", COLUMNS, _sniff_table, parse_table
)
KIND_SWEEP: Final = Kind(
    "vllm_bench_sweep", "vllm bench sweep summary.csv", COLUMNS, _sniff_sweep, parse_sweep, long_lines=True
)
KIND_AIPERF_CSV: Final = Kind(
    "aiperf_csv",
    "AIPerf profile_export_aiperf.csv",
    columns("metric text -\nunit text -\nstats map - avg, min, max, percentiles"),
    _sniff_aiperf_csv,
    parse_aiperf_csv,
)
KIND_SSE: Final = Kind(
    "sse_stream",
    "captured event stream of one request",
    columns(
        "ok bool - content came and no error stood in the stream\nchunks int -\ncontent_chunks int -\nerrors int -\n"
        "done bool -\ninput_tokens int tokens\noutput_tokens int tokens"
    ),
    _sniff_sse,
    parse_sse,
    ("stream_error",),
)
KIND_STACK: Final = Kind(
    "proc_stack",
    "ps and /proc/<pid>/stack of a stuck process",
    columns("pid int -\nppid int -\nstate text -\ncommand text -\nframes list -\nmodules list -"),
    _sniff_stack,
    parse_stack,
    ("stuck_process",),
)
