"""A server's stdout and stderr: every line, what it means, and the figures of the scheduler's lines.

Each line is read by itself. LogLine.rank is the rank that the line names, else None (the node says the rest).
LogEvent.detail is the line's text for failures and pressure, and a JSON object for start-up stages (`start_stage`,
`ready`) and NCCL facts (`nccl_channel`, `nccl_hcas`, `nccl_init`, ...: the rows of runners.formats.nccl_log).

A flood is mostly one line over and over with other numbers in it. What a line without its numbers has been found to
mean nothing is not tried again, which makes such a line cost a few microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import orjson

from runners.formats import nccl_log, sglang_log, text, torch_log, vllm_log
from runners.formats.base import Event, Item, Row, Skip
from runners.formats.prefix import peel, ranks_of
from runners.probes.base import Parsed, ProbeContext
from runners.probes.logtime import wall_ns
from store.records import EngineSample, LogEvent, LogLine

_PARSED: Final = 8192  # characters of a line that are searched for meaning
_MEMO: Final = 8192
_DIGITS: Final = b"0123456789"
_ID = re.compile(rb"\b(?=[A-Za-z-]*[0-9])[0-9A-Za-z-]{8,}")  # request ids, addresses: words of 8 and more with a digit
_LEVEL = re.compile(
    r"(DEBUG|INFO|WARNING|ERROR|CRITICAL):? {1,5}|.{0,300}? (?:NCCL|RCCL|NVSHMEM) (INFO|WARN|TRACE|ERROR)"
)
_TORCH = re.compile(r"\[?([IWEFC])\d{3,4} \d\d:\d\d:\d\d")
_TORCH_LEVELS: Final = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL", "C": "CRITICAL"}
_HEAD_LENGTH: Final = 160
_Head = tuple[str | None, str | None, int | None]
_FATAL_REASONS: Final = frozenset({"OOM", "ENGINE_CRASH", "START_FAILED"})


class LogReader:
    name = "logs"

    def __init__(self) -> None:
        self._idle: set[bytes] = set()  # lines, without their numbers, that mean nothing

    def parse(self, data: bytes, context: ProbeContext, final: bool = False) -> Parsed:
        """Rows of all whole lines. A line of more than 64 KiB becomes pieces, each but the last marked truncated."""
        out = Parsed()
        at, size = 0, len(data)
        while at < size:
            end = data.find(b"\n", at, at + text.MAX_LINE)
            if end >= 0:
                self._line(data[at:end], context, context.offset + at, False, out)
                at = end + 1
            elif size - at >= text.MAX_LINE:
                cut = at + text.MAX_LINE
                self._line(data[at:cut], context, context.offset + at, True, out)
                at = cut
            elif final:
                self._line(data[at:], context, context.offset + at, False, out)
                at = size
            else:
                break
        out.consumed = at
        return out

    def _line(self, raw: bytes, context: ProbeContext, offset: int, truncated: bool, out: Parsed) -> None:
        line = text.clean(raw.decode("utf-8", "replace"))
        if not line:
            return
        level, time, rank = _head(line)
        wall = wall_ns(time, context.wall_ns, context.utc_offset_s) if time else None
        wall = context.wall_ns if wall is None else wall
        out.records.append(
            LogLine(
                run_id=context.run_id,
                job_id=context.job_id,
                node=context.node,
                rank=rank,
                stream=context.stream,
                offset=offset,
                wall_ns=wall,
                level=level,
                text=line,
                truncated=truncated,
            )
        )
        item = self._meaning(raw[:_PARSED], line[:_PARSED], context.engine)
        if item is None:
            return
        if isinstance(item, Skip):
            out.skipped += 1
        elif isinstance(item, Event):
            name, detail = item.name, _detail(item)
            out.records.append(_event(context, offset, wall, name, _severity(item), detail, item.rank))
        elif item.get("record") in _FIGURES:
            sample = _figures(item, context, wall)
            if sample is not None:
                out.records.append(sample)
        elif "tid" in item:
            facts = {k: v for k, v in item.items() if v is not None and v != []}
            detail = orjson.dumps(facts, default=str).decode()
            out.records.append(
                _event(context, offset, wall, f"nccl_{item['record']}", "info", detail, item.get("rank"))
            )

    def _meaning(self, raw: bytes, line: str, engine: str | None) -> Item | None:
        """What the line says, None for most lines."""
        if " HTTP/1." in line and '" 200' in line:
            return None
        if "NCCL" in line or "NET/" in line or "Channel " in line or "NVSHMEM" in line or "nvshmem" in line:
            item = nccl_log.parse_line(line)
            if item is not None:
                return item
        shape = raw.translate(None, _DIGITS)
        if shape in self._idle:
            return None
        general = _ID.sub(b"", raw).translate(None, _DIGITS)
        if general in self._idle:
            return None
        item = _parser(line, engine)(line)
        if item is None and "rrno" not in line:  # [Errno 98] means something, [Errno 2] does not
            if len(self._idle) > _MEMO:
                self._idle.clear()
            self._idle.update((shape, general))
        return item


def _parser(line: str, engine: str | None) -> Callable[[str], Item | None]:
    """The line parser of this engine; of an engine that may speak either way, by the look of the line."""
    if _TORCH.match(line):
        return torch_log.parse_line
    if engine == "sglang" or (engine != "vllm" and line.startswith("[")):
        return sglang_log.parse_line
    return vllm_log.parse_line


def _head(line: str) -> _Head:
    """(level, time, rank) that the line's prefixes and header state.

    Lines of one second share their head, which mostly ends at the first "] "; when that much says a time, it says all.
    """
    end = line.find("] ", 0, _HEAD_LENGTH)
    if end > 0:
        found = _head_alone(line[: end + 2])
        if found[1] is not None:
            return found
    return _head_of(line)


def _head_of(line: str) -> _Head:
    prefix, rest = peel(line)
    time = prefix.received if prefix else None
    rank = prefix.rank if prefix else None
    if rest.startswith("["):
        torch = _TORCH.match(rest)
        if torch:
            stated, named, _ = torch_log.torch_header(rest)
            return _TORCH_LEVELS[torch[1]], time or stated, rank if named is None else named
        stated, written, _ = sglang_log.split_header(rest)
        ranks = ranks_of(written) if written else None
        if ranks and "pp" not in ranks and rank is None:
            rank = ranks.get("tp")
        return None, time or stated, rank
    level, stated, _ = vllm_log.split_header(rest)
    if level is None:
        match = _LEVEL.match(rest)
        level = (match[1] or match[2]) if match else None
    return level, time or stated, rank


@lru_cache(maxsize=4096)
def _head_alone(head: str) -> _Head:
    return (None, None, None) if ".cpp:" in head else _head_of(head)  # torch names the rank after its head


def _severity(event: Event) -> str:
    """fatal: the line proves that the server (or its start) has failed. A lost packet on the wire ends NCCL's world."""
    role, reason = event.detail.get("role"), event.detail.get("reason")
    if reason in _FATAL_REASONS and role in ("cause", "echo"):
        return "fatal"
    if event.name == "rdma_completion_error" and role == "cause":
        return "fatal"
    return "info" if event.name in ("start_stage", "ready") else "warn"


def _detail(event: Event) -> str:
    if event.name in ("start_stage", "ready"):
        return orjson.dumps({k: v for k, v in event.detail.items() if v is not None}, default=str).decode()
    return str(event.detail.get("line", ""))


def _event(
    context: ProbeContext, offset: int, wall: int, name: str, severity: str, detail: str, rank: int | None
) -> LogEvent:
    return LogEvent(
        run_id=context.run_id,
        job_id=context.job_id,
        node=context.node,
        rank=rank,
        stream=context.stream,
        offset=offset,
        wall_ns=wall,
        name=name,
        severity=severity,
        detail=detail or None,
    )


_FIGURES: Final = frozenset({"scheduler", "prefill", "decode"})


def _figures(row: Row, context: ProbeContext, wall: int) -> EngineSample | None:
    """A scheduler line as a sample. With plain TP every rank that logs says the same: rank 0 speaks."""
    dp: Any = row.get("dp_rank") if "dp_rank" in row else row.get("engine")
    if dp is None and row.get("tp_rank") not in (None, 0):
        return None
    return EngineSample(
        run_id=context.run_id,
        node=context.node,
        wall_ns=wall,
        source="log",
        life_id=context.life_id,
        engine=context.engine,
        dp_rank=dp,
        running=row.get("running"),
        waiting=row.get("waiting"),
        kv_usage=row.get("kv_usage"),
        gen_throughput=row.get("generation_tps"),
    )
