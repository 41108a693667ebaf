"""Result files of the tools as rows: what READ's parsers found of each request, on the clock of the client's node.

The tool's own figures go beside ours as manifest variables `client.<attempt>.<figure>`; defects that are known of a
tool, and where its figures are not ours, as events `client_flag`, whose first word becomes a flag of the attempt.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from runners.clients import loadgen
from runners.clients.base import Ask, AskError, ClientCommand
from runners.formats import jsontext
from runners.formats.base import Row
from runners.formats.client_result import Request as Found
from runners.formats.client_result import finite, whole
from runners.probes.base import Parsed, ProbeContext
from store.database import Store
from store.masking import mask_text
from store.queries import literal
from store.records import Attempt, LogEvent, Record, Request, Variable
from store.text import plain

MAX_TEXT: Final = 300
MAX_FILE: Final = 128 << 20  # bytes of a result file: some thousand requests of a thousand tokens
# Flags of READ that say nothing against the tool: n is shown everywhere, and a failed run is an outcome.
_NO_EVENT: Final = frozenset({"p99_of_fewer_than_100", "no_success", "too_few_successes"})
# What is true of every run of the tool, or of a figure that is not compared: told once, as an event.
_NO_FLAG: Final = ("not_strict_json", "failed_not_told", "peak_concurrency", "peak_below_average")


class RefusedError(ValueError):
    """A result file that is not read; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The clocks of the client's node when the job was started.

    wall_minus_mono_ns: CLOCK_REALTIME - CLOCK_MONOTONIC; wall_minus_owner_ns: its wall clock - the owner's.
    """

    wall_minus_mono_ns: int = 0
    wall_minus_owner_ns: int = 0

    @classmethod
    def of(cls, known: Mapping[str, Any]) -> Clock:
        """From what the store keeps of the job."""
        told = known.get("clock") or {}
        return cls(int(told.get("wall_minus_mono_ns") or 0), int(told.get("wall_minus_owner_ns") or 0))

    def mono(self, wall_ns: int) -> int:
        """The instant of a wall time of the node on its monotonic clock."""
        return wall_ns - self.wall_minus_mono_ns


# -- what every tool is asked


def refuse_secrets(ask: Ask) -> str:
    """The server's URL for a command line. Raises AskError when it holds credentials: every user of the node could
    read them in the list of processes."""
    if mask_text(ask.url) != ask.url:
        raise AskError(
            "the server's URL holds credentials, which would show in the node's list of processes; use "
            "client = loadgen, or give the key as OPENAI_API_KEY in [clients.NAME] env"
        )
    return ask.url


def refuse_unless(ask: Ask, client: str, *, prefix: bool = False) -> None:
    """Raise AskError for what only loadgen can do."""
    if ask.case.inject is not None:
        raise AskError(f"{client} cannot inject long prefills into a running load; use client = loadgen")
    if ask.case.prefix_share and not prefix:
        raise AskError(f"{client} is not driven with prefix_share; use client = loadgen or vllm_bench")


# -- rows


def sent_times(requests: Sequence[Found], concurrency: float | None, rate: float | None) -> list[float]:
    """Send times in s from the first one, rebuilt for a tool that tells none: request by request in its order, each
    when one of `concurrency` slots is free again (closed loop), or evenly at `rate` (open loop)."""
    if rate:
        return [n / rate for n in range(len(requests))]
    slots = [0.0] * (int(concurrency) if concurrency else len(requests))
    times = []
    for request in requests:
        at = heapq.heappop(slots)
        times.append(at)
        heapq.heappush(slots, at + (request.e2e_ms or 0) / 1000)
    return times


def request_row(
    found: Found, number: int, sent_ns: int, context: ProbeContext, known: Mapping[str, Any], kind: str = "load"
) -> Request:
    """One request; `found` is settled (a TTFT of 0 has made it a failure), `sent_ns` on the node's monotonic clock."""
    first = None if found.ttft_ms is None or not found.ok else sent_ns + round(found.ttft_ms * 1e6)
    last = None if found.e2e_ms is None or not found.ok else sent_ns + round(found.e2e_ms * 1e6)
    chunks = [round(at * 1e6) for at in accumulate(found.gaps_ms, initial=found.ttft_ms or 0.0)] if found.ok else []
    said = (found.error or "failed without a text").strip().splitlines() or ["failed without a text"]
    return Request(
        run_id=context.run_id or "",
        attempt_id=context.attempt_id or "",
        request_id=number,
        kind=kind,
        phase="warmup" if kind == "warmup" else "load",
        measured=kind == "load",
        status="ok" if found.ok else "failed",
        error=None if found.ok else "client",
        error_text=None if found.ok else plain(said[-1][:MAX_TEXT]),
        isl=whole(known.get("isl")),
        osl=whole(known.get("osl")),
        sent_ns=sent_ns,
        sent_wall_ns=sent_ns + Clock.of(known).wall_minus_mono_ns,
        first_ns=first,
        last_ns=last,
        end_ns=sent_ns + round((found.e2e_ms or 0) * 1e6),
        prompt_tokens=found.input_tokens if found.ok else None,
        output_tokens=found.output_tokens if found.ok else None,
        tokens_per_chunk=None if not found.ok else "counted" if len(chunks) == found.output_tokens else "assumed",
        chunk_ns=chunks or None,
        chunk_tokens=[1] * len(chunks) or None,
    )


def own_figures(row: Row, context: ProbeContext) -> Iterator[Variable]:
    """The tool's own figures of one run, as variables beside ours."""
    short = (context.attempt_id or "").rpartition(".")[2]
    own = {**row["own"], "duration_s": row["duration_s"]}
    for name, value in own.items():
        parts = {f"{name}.{part}": v for part, v in value.items()} if isinstance(value, dict) else {name: value}
        for key, figure in parts.items():
            yield Variable(
                run_id=context.run_id or "",
                life_id=context.life_id,
                name=f"client.{short}.{key}",
                value=None if figure is None else f"{figure:.10g}",
                node=context.node,
                source="reported",
                wall_ns=context.wall_ns,
            )


def flag_events(flags: Iterable[str], context: ProbeContext) -> Iterator[LogEvent]:
    """Known defects and differences, in READ's words."""
    for flag in flags:
        if flag.partition(":")[0] not in _NO_EVENT:
            yield event(context, "client_flag", flag, "warn")


def event(context: ProbeContext, name: str, detail: str, severity: str = "info") -> LogEvent:
    """What a result file says of itself, at its start."""
    return LogEvent(
        run_id=context.run_id,
        job_id=context.job_id,
        node=context.node,
        stream=context.stream,
        offset=context.offset,
        wall_ns=context.wall_ns,
        name=name,
        severity=severity,
        detail=plain(detail[:MAX_TEXT]),
    )


# -- reading


Rows = Callable[[str, ProbeContext], Iterable[Record]]


class DocumentReader:
    """A result file that only means something as a whole: read in one piece once its writer has ended.

    `rows` makes the rows of the whole text and raises RefusedError, which becomes an event `client_result_refused`.
    """

    def __init__(self, name: str, rows: Rows) -> None:
        self.name = name
        self._rows = rows

    def parse(self, data: bytes, context: ProbeContext, final: bool = False) -> Parsed:
        """All rows at once, or one event that says why there are none."""
        if context.offset:  # the rest of one that was refused as too large
            return Parsed(consumed=len(data))
        if not final and len(data) < MAX_FILE:
            return Parsed()
        out = Parsed(consumed=len(data))
        why = "" if final else f"{context.stream} is larger than {MAX_FILE >> 20} MiB; ask for fewer requests"
        if not why:
            try:
                out.records += self._rows(data.decode("utf-8", "replace"), context)
            except RefusedError as e:
                why = str(e)
        if why:
            out.records = [event(context, "client_result_refused", why, "warn")]
            out.skipped = 1
        return out


def the_object(source: str, context: ProbeContext, fields: Mapping[str, str]) -> dict[str, Any]:
    """The one JSON object of a result file, its fields as expected (`number`, `list`, or either with `?`: may lack).

    Raises:
        RefusedError: cut short, no JSON, several results, or fields that no version known to us writes.
    """
    found = jsontext.loads(source)
    if not isinstance(found, dict):
        lines = [line for line in source.splitlines() if line.strip()]
        if len(lines) > 1 and all(isinstance(jsontext.loads(line), dict) for line in lines):
            raise RefusedError(f"{context.stream} holds {len(lines)} results where one was asked for")
        raise RefusedError(f"{context.stream} is cut short or no JSON ({len(source)} characters)")
    kinds: dict[str, type | tuple[type, ...]] = {"number": (int, float), "list": list, "text": str}
    wrong = [
        name
        for name, kind in fields.items()
        if not (name not in found and kind.endswith("?")) and not isinstance(found.get(name), kinds[kind.rstrip("?")])
    ]
    if wrong:
        raise RefusedError(
            f"{context.stream} has an output version that is not known here (missing or of another kind: "
            f"{', '.join(wrong)}); nothing of it is taken over. Use client = loadgen, or a version of the tool that "
            "`twinrail read --kinds` names"
        )
    return found


def same_length(found: Mapping[str, Any], names: Iterable[str], context: ProbeContext) -> None:
    """Raise RefusedError unless the lists that are there have one length."""
    lengths = {name: len(found[name]) for name in names if isinstance(found.get(name), list)}
    if len(set(lengths.values())) > 1:
        raise RefusedError(f"{context.stream} contradicts itself: lists of different length {lengths}")


# -- judging


class Tool(ABC):
    """What all tools beside loadgen share of runners.clients.base.Client; `said`: how the tool is called in words."""

    payloads: tuple[str, ...] = ()
    said: str

    @abstractmethod
    def command(self, ask: Ask) -> ClientCommand:
        """See Client."""

    def planned(self, ask: Ask) -> tuple[list[str], str]:
        return self.command(ask).argv, ""

    def flags_of(self, store: Store, attempt: Attempt) -> list[str]:
        return flags_of(store, attempt)

    def refusal_of(self, store: Store, attempt: Attempt) -> str | None:
        return refusal_of(store, attempt, self.said)


def flags_of(store: Store, attempt: Attempt) -> list[str]:
    """What the counts of an attempt's requests show, and the first words of its `client_flag` events that bear on a
    comparison."""
    rows = store.query(
        f"select distinct split_part(detail, ':', 1) as flag from log_events "
        f"where job_id = {literal(attempt.job_id)} and name = 'client_flag' "
        f"and flag not in {literal(_NO_FLAG)} order by flag"
    ).rows
    told = [f"client_{row[0]}" if row[0] == "differs" else str(row[0]) for row in rows]
    return loadgen.flags_of(store, attempt) + told


def refusal_of(store: Store, attempt: Attempt, tool: str) -> str | None:
    """Why the tool's word is not taken: its file was refused, or is not there."""
    rows = store.query(
        f"select name, detail from log_events where job_id = {literal(attempt.job_id)} "
        "and name in ('client_result', 'client_result_refused') order by name desc"
    ).rows
    if not rows:
        return f"{tool} ended with exit code 0 but wrote no result file"
    return f"{tool}: {rows[0][1]}" if rows[0][0] == "client_result_refused" else None


def numbers(values: Iterable[Any]) -> list[float | None]:
    """Finite numbers; None for anything else."""
    return [finite(value) for value in values]
