"""vLLM server log: scheduler figures (V0 to 0.33), speculation, per-step lines, start-up stages.

Line: `[(Role pid=N) ]LEVEL MM-DD HH:MM:SS [file.py:line] message`; V0 has no bracket before the file. No year in the
time. Stats are averages over the interval (10 s by default); nothing is logged while idle in many versions.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from runners.formats import text as cells
from runners.formats.base import SKIP, Event, Item, Row, Value
from runners.formats.log_events import event_of
from runners.formats.prefix import Prefix, peel
from runners.formats.text import clean
from runners.formats.torch_log import torch_header
from runners.formats.vllm_stages import TABLE

_HEADER = re.compile(
    r"(DEBUG|INFO|WARNING|ERROR|CRITICAL) ((?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?) "
    r"\[?([\w./-]+\.(?:py|cc|cpp|cu)):(\d+)\] ?"
)
_ENGINE = re.compile(r"(?:Engine (\d+): |(\d+) Engines Aggregated: )?(?=Avg prompt throughput: )")
_SPLIT = re.compile(r", (?=[A-Z<])")
_KEYS: Final = {
    "Avg prompt throughput": ("prompt_tps", " tokens/s"),
    "Avg generation throughput": ("generation_tps", " tokens/s"),
    "Running": ("running", " reqs"),
    "Waiting": ("waiting", " reqs"),
    "Pending": ("waiting", " reqs"),
    "Swapped": ("swapped", " reqs"),
    "Deferred": ("deferred", " reqs"),
    "Preemptions": ("preemptions", ""),
    "Corrupted": ("corrupted", " reqs"),
    "Prefix cache hit rate": ("prefix_hit_ratio", "%"),
    "GPU prefix cache hit rate": ("prefix_hit_ratio", "%"),
    "External prefix cache hit rate": ("external_prefix_hit_ratio", "%"),
    "MM cache hit rate": ("mm_cache_hit_ratio", "%"),
}
_SPEC_KEYS: Final = {
    "Mean acceptance length": ("accept_length", ""),
    "Accepted throughput": ("accepted_tps", " tokens/s"),
    "Drafted throughput": ("drafted_tps", " tokens/s"),
    "Accepted": ("accepted_tokens", " tokens"),
    "Drafted": ("draft_tokens", " tokens"),
    "Avg Draft acceptance rate": ("accept_rate", "%"),
    "Draft acceptance rate": ("accept_rate", "%"),
}
_WHOLE: Final = frozenset({"running", "waiting", "swapped", "deferred", "preemptions", "corrupted"})
_ITERATION = re.compile(
    r"Iteration\((\d+)\): (\d+) context requests, (\d+) context tokens, (\d+) generation requests, "
    r"(\d+) generation tokens, iteration elapsed time: ([\d.]+) ms"
)
_MFU = re.compile(r"([\d.]+) TF/s/GPU(?: ([\d.]+) GB/s/GPU)?")


def _measure(value: str, suffix: str) -> int | float | None:
    """`57.9%` -> 0.579, `10 reqs` -> 10; None when the cell is damaged."""
    if suffix and not value.endswith(suffix):
        return None
    found = cells.number(value[: len(value) - len(suffix)] if suffix else value)
    if found is None or suffix != "%":
        return found
    return round(found / 100, 6)


_DAMAGED: Final = ("", None)
_EXTRA: Final = "extra "  # column prefix of a key that has none of its own
_KV: Final = "kv "  # and of a device's cache
_COLUMNS: Final = frozenset({column for column, _ in _KEYS.values()})


def _pair(part: str) -> tuple[str, Value]:
    """(column, value) of one `key: value`; column "" for a damaged cell."""
    key, colon, value = part.partition(": ")
    if not colon:
        return _DAMAGED
    known = _KEYS.get(key)
    if known:
        measured = _measure(value.rstrip("."), known[1])
        bad = measured is None or (known[0] in _WHOLE and not isinstance(measured, int))
        return _DAMAGED if bad else (known[0], measured)
    if key.endswith(" KV cache usage"):
        measured = _measure(value.rstrip("."), "%")
        return _DAMAGED if measured is None else (_KV + key[: -len(" KV cache usage")], measured)
    return _EXTRA + key, value


_PAIRS: Final = cells.Memo(_pair)  # "Running: 9 reqs" and its like come back by the thousand


def _scheduler(body: str, row: Row) -> Item:
    """The key: value list after `Engine 000: `."""
    found = dict(map(_PAIRS.__getitem__, _SPLIT.split(body) if "KV fetch" in body else body.split(", ")))
    if "" in found:
        return SKIP
    device = next((name for name in ("kv GPU", "kv CPU") if name in found), None)
    if device is not None:
        row["kv_usage"], row["kv_device"] = found.pop(device), device[3:]
    if not found.keys() <= _COLUMNS:
        for name in [name for name in found if name not in _COLUMNS]:
            value = found.pop(name)
            if name == "kv CPU":
                row["cpu_kv_usage"] = value
            elif name.startswith(_KV):
                row["kv_usage"], row["kv_device"] = value, name[len(_KV) :]
            elif name == "extra MFU":
                mfu = _MFU.match(value)
                row["tflops_per_gpu"] = cells.real(mfu[1]) if mfu else None
                row["gbytes_per_s_per_gpu"] = cells.real(mfu[2]) if mfu and mfu[2] else None
            else:
                row.setdefault("extra", {})[name[len(_EXTRA) :]] = value
    if not ("prompt_tps" in found and "generation_tps" in found and "running" in found):
        return SKIP
    row.update(found)
    return row


def _spec(body: str, row: Row) -> Item:
    for part in _SPLIT.split(body):
        key, colon, value = part.partition(": ")
        if key == "Per-position acceptance rate":
            rates = [cells.real(rate) for rate in value.rstrip(".").split(", ")]
            if None in rates:
                return SKIP
            row["accept_per_position"] = rates
            continue
        known = _SPEC_KEYS.get(key)
        if known and colon:
            measured = _measure(value.rstrip("."), known[1])
            if measured is None:
                return SKIP
            row[known[0]] = measured
    return row if "accept_length" in row else SKIP


def row_of(message: str, time: str | None, prefix: Prefix | None) -> Item | None:
    """A figures row from a message, SKIP when it is damaged, None when it is no figures line."""
    row: Row
    if "Avg prompt throughput: " in message:
        engine = _ENGINE.search(message)
        if engine is None:
            return SKIP
        row = {"record": "scheduler", "time": time, "engine": None}
        if engine[1]:
            row["engine"] = int(engine[1][:9])
        elif engine[2]:
            row["engines"] = int(engine[2][:9])
        item = _scheduler(message[engine.end() :], row)
    elif "SpecDecoding metrics: " in message:
        item = _spec(message.partition("SpecDecoding metrics: ")[2], {"record": "spec_decode", "time": time})
    elif message.startswith("Iteration("):
        match = _ITERATION.match(message)
        if match is None:
            return SKIP
        names = ("iteration", "context_requests", "context_tokens", "generation_requests", "generation_tokens")
        item = {"record": "iteration", "time": time, **{name: int(match[at + 1]) for at, name in enumerate(names)}}
        item["step_ms"] = cells.real(match[6])
    else:
        return None
    if prefix is not None and isinstance(item, dict):
        item["process"] = prefix.role
        item["pid"] = prefix.pid
        item["node"] = prefix.node
        item["received"] = prefix.received
    return item


def stage_of(message: str, time: str | None, prefix: Prefix | None) -> Event | None:
    """A `start_stage` (or `ready`) event, None when the message is of no stage."""
    return TABLE.event_of(message, time, prefix)


_FAST = re.compile(
    r"(?:\((\w+) pid=(\d{1,18})\) )?INFO (\d\d-\d\d \d\d:\d\d:\d\d) \[\w+\.py:\d+\] Engine (\d{1,9}): "
    r"(Avg prompt throughput: [ -~]+)\Z"
)


def fast_row(line: str) -> Row | None:
    """The row of a whole stats line of today's form; None for every other line, which `parse_line` then reads."""
    match = _FAST.match(line)
    if match is None:
        return None
    role, pid, time, engine, body = match.groups()
    row = _scheduler(body, {"record": "scheduler", "time": time, "engine": int(engine)})
    if not isinstance(row, dict):
        return None
    if role is not None and "_" not in role:  # a rank may hide in the role's name
        row.update(process=role, pid=int(pid), node=None, received=None)
    elif role is not None:
        return None
    return row


def split_header(line: str) -> tuple[str | None, str | None, str]:
    """(level, time, message) of a line without launcher prefixes; the first two None when it has no header."""
    match = _HEADER.match(line)
    if match is None:
        return None, None, line
    return match[1], match[2], line[match.end() :]


def parse_line(line: str) -> Item | None:
    """One raw line -> a figures row, an event (stage or failure), SKIP for a damaged figures line, or None."""
    line = clean(line)[: cells.MATCHED]
    prefix, rest = (None, line) if line.startswith("INFO ") else peel(line)
    _, time, message = split_header(rest)
    if time is None:
        time, own_rank, message = torch_header(message)
        if own_rank is not None:
            prefix = replace(prefix or Prefix(), rank=own_rank)
    found = row_of(message, time, prefix) or stage_of(message, time, prefix)
    return found or event_of(message, prefix, time)


def sniff(head: str) -> int:
    """vLLM's header or its stats line."""
    if re.search(r"Avg prompt throughput: [\d.]+ tokens/s, Avg generation", head):
        return 92
    if re.search(r"\b(?:INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[?[\w./-]+\.py:\d+\]", head):
        return 88
    if re.search(r"^\((?:APIServer|EngineCore|Worker|VllmWorker)[\w-]* pid=\d+\) ", head, re.MULTILINE):
        return 80
    strong = ("GPU KV cache size: ", "shared memory broadcast block", "EngineCore encountered", "Starting vLLM")
    if any(word in head for word in strong):
        return 70
    # uvicorn's own lines and nothing else: either engine may have written them; vLLM logs them without a header
    return 30 if re.search(r'^INFO:  {4,8}\S+ - "(?:GET|POST) \S+ HTTP/1\.\d" \d{3}', head, re.MULTILINE) else 0
