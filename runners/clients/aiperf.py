"""AIPerf: its command from a case, and its files as rows: profile_export.jsonl line by line while it grows, and
profile_export_aiperf.json, which says what it makes of them, at the end.

Tried with 0.13.0, result schema 1.4. Times are wall-clock ns of the node. Warm-up prompts are its own, not the first
ones again. On an interrupt it exits 0 with partial results, which its summary says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from runners.clients import results
from runners.clients.base import DOCUMENT, LINES, Ask, ClientCommand, Module
from runners.clients.results import Clock, DocumentReader, RefusedError
from runners.formats import jsontext
from runners.formats.aiperf import request_of, summary_row
from runners.formats.client_result import Result, shaped, whole
from runners.probes.base import Parsed, ProbeContext, Reader
from store.records import Record, Request

RECORDS: Final = "profile_export.jsonl"
SUMMARY: Final = "profile_export_aiperf.json"
_FIELDS: Final = {"schema_version": "text", "aiperf_version": "text"}
_SCHEMA: Final = "1."  # 1.4 was tried; another first number is another format
MAX_LINE: Final = 4 << 20  # bytes; 128 Ki tokens take 2 MiB
_WARMUP_FROM: Final = 1 << 32  # numbers of warm-up requests begin here: both phases count from 0


class Aiperf(results.Tool):
    """See runners.clients.base.Client."""

    name = "aiperf"
    said = "aiperf"
    module: Module | None = Module("aiperf", ("-m", "aiperf", "profile", "--help"), ("0.13.0",))

    def command(self, ask: Ask) -> ClientCommand:
        results.refuse_unless(ask, self.name)
        case = ask.case
        load = ("--concurrency", str(case.concurrency))
        if case.request_rate is not None:
            load = ("--request-rate", f"{case.request_rate:g}")
        argv = [
            *("-m", "aiperf", "profile"),
            *("--model", ask.model, "--url", results.refuse_secrets(ask), "--tokenizer", ask.tokenizer),
            *("--endpoint-type", case.api, "--streaming"),
            *("--isl", str(case.isl), "--isl-stddev", "0", "--osl", str(case.osl), "--osl-stddev", "0"),
            *(("--extra-inputs", "ignore_eos:true") if case.ignore_eos else ()),
            *("--extra-inputs", "temperature:0", "--use-server-token-count"),
            *load,
            *("--request-count", str(ask.requests)),
            *(("--warmup-request-count", str(ask.warmup)) if ask.warmup else ()),
            *("--random-seed", str(ask.seed)),
            *("--output-artifact-dir", ask.folder, "--export-level", "records", "--ui", "none"),
            "--no-server-metrics",  # our probe asks the server already; a second scraper costs it time
            *ask.tool.flags,
        ]
        known = {"isl": case.isl, "osl": case.osl}
        return ClientCommand(argv=argv, env=dict(ask.tool.env), files={RECORDS: LINES, SUMMARY: DOCUMENT}, known=known)

    def reader(self, stream: str, known: Mapping[str, Any]) -> Reader | None:
        if stream == RECORDS:
            return RecordsReader(known)
        return DocumentReader(self.name, _summary) if stream == SUMMARY else None


class RecordsReader:
    """Rows of profile_export.jsonl."""

    name = "aiperf"

    def __init__(self, known: Mapping[str, Any]) -> None:
        self._known = known

    def parse(self, data: bytes, context: ProbeContext, final: bool = False) -> Parsed:
        """Rows of the whole lines in `data`; a line that is none of it, or is too long, is skipped."""
        out = Parsed()
        while out.consumed < len(data):
            end = data.find(b"\n", out.consumed)
            if end < 0 and not final:
                if out.consumed == 0 and len(data) >= MAX_LINE:
                    out.consumed, out.skipped = len(data), 1
                break
            end = len(data) if end < 0 else end + 1
            line = data[out.consumed : end]
            out.consumed = end
            row = self._row(jsontext.loads(line.decode("utf-8", "replace")), context)
            if row is not None:
                out.records.append(row)
            else:
                out.skipped += bool(line.strip())
        return out

    def _row(self, value: Any, context: ProbeContext) -> Request | None:
        meta = value.get("metadata") if isinstance(value, dict) else None
        if not isinstance(meta, dict) or not isinstance(meta.get("request_start_ns"), int):
            return None
        number = meta.get("session_num")
        if type(number) is not int or not 0 <= number < _WARMUP_FROM:
            return None
        found = request_of(value)
        shaped(Result("aiperf", requests=[found]))  # settles it
        warmup = meta.get("benchmark_phase") == "warmup"
        row = results.request_row(
            found,
            number + (_WARMUP_FROM if warmup else 0),
            Clock.of(self._known).mono(meta["request_start_ns"]),
            context,
            self._known,
            "warmup" if warmup else "load",
        )
        cached = (value.get("metrics") or {}).get("usage_prompt_cache_read_tokens")
        return replace(row, cached_tokens=whole(cached.get("value"))) if isinstance(cached, dict) else row


def _summary(source: str, context: ProbeContext) -> Iterator[Record]:
    found = results.the_object(source, context, _FIELDS)
    if not found["schema_version"].startswith(_SCHEMA):
        raise RefusedError(
            f"{context.stream} has the schema {found['schema_version']} (aiperf {found['aiperf_version']}), "
            f"which is not known here ({_SCHEMA}x is)"
        )
    if found.get("was_cancelled"):
        raise RefusedError("the run was cut short (was_cancelled), though the tool exits 0")
    row = summary_row(found)
    told = f"schema {found['schema_version']}, {row['requests_ok']} ok, {row['requests_failed'] or 0} failed"
    yield results.event(context, "client_result", told)
    yield from results.own_figures(row, context)
    flags = [flag for flag in row["flags"] if not flag.startswith("no_per_request_data")]  # they are in the other file
    yield from results.flag_events(flags, context)
