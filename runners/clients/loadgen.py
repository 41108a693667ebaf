"""Our load client: what it is asked, and what its lines become in the store.

The lines are described at the head of runners/payload/loadgen.py. `sent` and `hello` lines make no rows: a request is
written once, when it has ended; what is in flight is in the ticks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from runners.clients.base import Ask, ClientCommand, Module
from runners.probes.base import Parsed, ProbeContext, Reader
from runners.spec import Case, Deployment
from store.database import Store
from store.masking import MASK, is_secret, mask_text
from store.queries import literal
from store.records import Attempt, LoadTick, LogEvent, Phase, Record, Request
from store.text import plain

MAX_LINE: Final = 16 << 20  # bytes; 128 Ki tokens take 2 MiB
MAX_CHUNKS: Final = 1 << 20
MAX_TEXT: Final = 300
_MAX_INT: Final = (1 << 63) - 1
_PHASES: Final = frozenset(("warmup", "ramp", "steady", "drain"))
_KINDS: Final = frozenset(("load", "warmup", "filler", "inject"))
_STATUSES: Final = frozenset(("ok", "failed", "timed_out", "cut"))

Line = Mapping[str, Any]


SCRIPT: Final = "loadgen.py"


class Loadgen:
    """See runners.clients.base.Client."""

    name = "loadgen"
    payloads: tuple[str, ...] = (SCRIPT,)
    module: Module | None = None

    def command(self, ask: Ask) -> ClientCommand:
        spec = self._spec(ask)
        argv = [ask.payloads[SCRIPT], "--spec", ask.input]
        return ClientCommand(argv=argv, put={ask.input: orjson.dumps(spec)}, known={"spec": masked(spec)})

    def planned(self, ask: Ask) -> tuple[list[str], str]:
        return [ask.payloads[SCRIPT], "--spec", "-"], orjson.dumps(masked(self._spec(ask))).decode()

    @staticmethod
    def _spec(ask: Ask) -> dict[str, Any]:
        return spec_of(ask.case, url=ask.url, model=ask.model, dep=ask.dep, seed=ask.seed)

    def reader(self, stream: str, known: Mapping[str, Any]) -> Reader | None:
        return LoadgenReader() if stream == "stdout" else None

    def flags_of(self, store: Store, attempt: Attempt) -> list[str]:
        return flags_of(store, attempt)

    def refusal_of(self, store: Store, attempt: Attempt) -> str | None:
        return None  # it says by its exit code how it went


def spec_of(case: Case, *, url: str, model: str, dep: Deployment, seed: int) -> dict[str, Any]:
    """The spec file of one attempt. `vocab` there is inclusive at both ends, `_s` are seconds."""
    open_loop = case.request_rate is not None
    spec: dict[str, Any] = {
        "url": url,
        "model": model,
        "api": case.api,
        "prompt": "text" if case.api == "chat" else case.prompt,
        "isl": case.isl,
        "osl": case.osl,
        "concurrency": None if open_loop else case.concurrency,
        "request_rate": case.request_rate,
        "requests": case.requests,
        "warmup": min(case.concurrency, 4) if case.warmup is None else case.warmup,
        "budget_s": case.budget,
        "deadline_s": case.deadline,
        "seed": seed,
        "ignore_eos": case.ignore_eos,
        "prefix_share": case.prefix_share,
        "filler": case.filler,
        "vocab": [dep.vocab[0], dep.vocab[1] - 1],
    }
    if case.inject is not None:
        inject = case.inject
        spec["inject"] = {"isl": inject.isl, "osl": inject.osl, "every_s": inject.every, "count": inject.count}
    return spec


def masked(spec: Mapping[str, Any]) -> dict[str, Any]:
    """`spec` as it may be shown: header values, secrets of the body and of the URL replaced."""
    shown = dict(spec, url=mask_text(str(spec["url"])))
    if "headers" in spec:
        shown["headers"] = dict.fromkeys(spec["headers"], MASK)
    if "extra" in spec:
        shown["extra"] = {key: MASK if is_secret(key) else value for key, value in spec["extra"].items()}
    return shown


def flags_of(store: Store, attempt: Attempt) -> list[str]:
    """Marks that an attempt's rows put on its result.

    client_saturated  the client said at its end that it was the bottleneck
    tokens_differ     counted tokens are more than 1 % off the asked ones
    tokens_unknown    requests that ended well without a usage count
    tokens_assumed    chunks were taken for one token each: per-token gaps and the steady window are estimates
    cache_warm        more than 1 % of the prompt tokens beyond the asked prefix came from a prefix cache
    """
    sums = store.query(f"""
        SELECT sum(prompt_tokens) AS prompt, sum(isl) FILTER (prompt_tokens IS NOT NULL) AS asked_in,
               sum(output_tokens) AS output, sum(osl) FILTER (output_tokens IS NOT NULL) AS asked_out,
               sum(cached_tokens) AS cached, count(*) FILTER (output_tokens IS NULL) AS uncounted,
               count(*) FILTER (tokens_per_chunk = 'assumed') AS assumed
        FROM requests
        WHERE attempt_id = {literal(attempt.attempt_id)} AND measured AND status = 'ok'
    """).dicts()[0]
    ended = store.query(f"""
        SELECT count(*) FROM log_events
        WHERE job_id = {literal(attempt.job_id)} AND name = 'client_saturated'
    """)
    share = Case.model_validate_json(attempt.case_spec).prefix_share if attempt.case_spec else 0.0
    flags = []
    if ended.rows[0][0]:
        flags.append("client_saturated")
    if _off(sums["prompt"], sums["asked_in"]) or _off(sums["output"], sums["asked_out"]):
        flags.append("tokens_differ")
    if sums["uncounted"]:
        flags.append("tokens_unknown")
    if sums["assumed"]:
        flags.append("tokens_assumed")
    if sums["prompt"] and (sums["cached"] or 0) > (share + 0.01) * sums["prompt"]:
        flags.append("cache_warm")
    return flags


def failures_of(store: Store, attempt_id: str) -> str:
    """What failed most often among an attempt's requests, in words; empty when none failed."""
    rows = store.query(f"""
        SELECT count(*) AS n, error, any_value(error_text) AS said FROM requests
        WHERE attempt_id = {literal(attempt_id)} AND status IN ('failed', 'timed_out')
        GROUP BY error ORDER BY n DESC, error LIMIT 1
    """).dicts()
    return "".join(f"; {r['n']} failed with {r['error'] or 'an unknown error'}: {r['said'] or ''}" for r in rows)


def _off(counted: int | None, asked: int | None) -> bool:
    return bool(counted is not None and asked and abs(counted - asked) > 0.01 * asked)


class LoadgenReader:
    """Rows of the client's standard output."""

    name = "loadgen"

    def parse(self, data: bytes, context: ProbeContext, final: bool = False) -> Parsed:
        """Rows of the whole lines in `data`; a line that is none of ours, or not as it should be, is skipped."""
        out = Parsed()
        while out.consumed < len(data):
            start = out.consumed
            end = data.find(b"\n", start, start + MAX_LINE)
            if end < 0:
                if len(data) - start < MAX_LINE and not final:
                    break
                out.consumed = min(len(data), start + MAX_LINE)
                out.skipped += 1
                continue
            out.consumed = end + 1
            try:
                out.records += _rows(orjson.loads(data[start:end]), context, context.offset + start)
            except (ValueError, KeyError, TypeError):
                out.skipped += bool(data[start:end].strip())
        return out


def _rows(line: Line, context: ProbeContext, offset: int) -> list[Record]:
    """The rows of one line. ValueError, KeyError or TypeError if it is not as described."""
    kind = line["t"]
    if kind in ("hello", "sent"):
        return []
    if kind == "done":
        return [_request(line, context)]
    if kind == "tick":
        return [_tick(line, context)]
    if kind == "phase":
        return [_phase(line, context)]
    if kind == "end":
        return _end(line, context, offset)
    raise ValueError("no line of the load client")


def _request(line: Line, context: ProbeContext) -> Request:
    usage = dict(line["usage"] or {})
    chunks, tokens = line["chunk_ns"], line["chunk_tokens"]
    if len(chunks) != len(tokens) or len(chunks) > MAX_CHUNKS:
        raise ValueError("chunk_ns and chunk_tokens")
    for number in (*chunks, *tokens):
        _whole(number)
    return Request(
        run_id=context.run_id or "",
        attempt_id=context.attempt_id or "",
        request_id=_whole(line["id"]),
        kind=_one_of(line["kind"], _KINDS),
        phase=_one_of(line["phase"], _PHASES),
        measured=_truth(line["measured"]),
        status=_one_of(line["status"], _STATUSES),
        error=_text(line["error"]),
        error_text=_text(line["error_text"]),
        http_status=_known(line["http"]),
        isl=_whole(line["isl"]),
        osl=_whole(line["osl"]),
        scheduled_ns=_whole(line["scheduled_ns"]),
        sent_ns=_whole(line["sent_ns"]),
        sent_wall_ns=_whole(line["sent_wall_ns"]),
        first_ns=_known(line["first_ns"]),
        last_ns=_known(line["last_ns"]),
        end_ns=_whole(line["end_ns"]),
        prompt_tokens=_known(usage.get("prompt")),
        output_tokens=_known(usage.get("completion")),
        cached_tokens=_known(usage.get("cached")),
        reasoning_tokens=_known(usage.get("reasoning")),
        finish_reason=_text(line["finish_reason"]),
        tokens_per_chunk=_text(line["tokens_per_chunk"]),
        chunk_ns=chunks,
        chunk_tokens=tokens,
    )


def _tick(line: Line, context: ProbeContext) -> LoadTick:
    return LoadTick(
        run_id=context.run_id or "",
        attempt_id=context.attempt_id or "",
        node=context.node,
        wall_ns=_whole(line["wall_ns"]),
        mono_ns=_whole(line["mono_ns"]),
        in_flight=_whole(line["in_flight"]),
        sent=_whole(line["sent"]),
        done=_whole(line["done"]),
        failed=_whole(line["failed"]),
        input_tokens=_whole(line["input_tokens"]),
        output_tokens=_whole(line["output_tokens"]),
        loop_lag_ms=float(line["loop_lag_ms"]),
        cpu_pct=float(line["cpu"]) * 100,
        saturated=_truth(line["saturated"]),
    )


def _phase(line: Line, context: ProbeContext) -> Phase:
    return Phase(
        attempt_id=context.attempt_id or "",
        run_id=context.run_id or "",
        name=_one_of(line["name"], _PHASES),
        node=context.node,
        start_wall_ns=_whole(line["wall_ns"]),
        start_mono_ns=_whole(line["mono_ns"]),
    )


def _end(line: Line, context: ProbeContext, offset: int) -> list[Record]:
    told = {"client_end": str(line["reason"])}
    if _truth(line["saturated"]["value"]):
        told["client_saturated"] = "; ".join(map(str, line["saturated"]["reasons"]))
    return [
        LogEvent(
            run_id=context.run_id,
            job_id=context.job_id,
            node=context.node,
            stream=context.stream,
            offset=offset,
            wall_ns=_whole(line["wall_ns"]),
            name=name,
            severity="info" if name == "client_end" else "warn",
            detail=_text(detail),
        )
        for name, detail in told.items()
    ]


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_INT:
        raise ValueError("no whole number")
    return value


def _known(value: object) -> int | None:
    return None if value is None else _whole(value)


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError("no truth value")
    return value


def _one_of(value: object, allowed: frozenset[str]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise ValueError("unknown word")
    return value


def _text(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError("no text")
    return plain(value[:MAX_TEXT])
