"""SGLang server log: prefill and decode batches (0.1 to 0.5.23), start-up stages, retractions.

Line: `[YYYY-MM-DD HH:MM:SS[ DPn][ TPn][ EPn][ PPn]] message`; 0.3 has the time only, 0.2 `[gpu=0]`. By default rank 0
of each DP group logs; with DP attention every DP rank logs its own share (sum them), pure TP says it once.
"""

from __future__ import annotations

import re
from typing import Final

from runners.formats import text as cells
from runners.formats.base import SKIP, Item, Row, Value
from runners.formats.log_events import event_of
from runners.formats.prefix import Prefix, global_rank, peel, ranks_of
from runners.formats.sglang_stages import TABLE
from runners.formats.text import clean
from runners.formats.torch_log import torch_header

_HEADER = re.compile(
    r"\[?((?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d+)?)((?: [A-Z]{2,4}\d+)*)\] ?|\[gpu(?:_id)?=(\d+)\] ?"
)
_HEAD = re.compile(r"(Prefill|Decode) batch(?: ?\[(\d+)\])?[.,:]? ?")
_OLD = re.compile(r"new fill batch\. |(?=#running-req: \d+, #token: )")

# key -> (column, divide by 100)
_KEYS: Final = {
    "#new-seq": "new_seqs",
    "#seq": "new_seqs",
    "#new-token": "new_tokens",
    "#cached-token": "cached_tokens",
    "#cached_token": "cached_tokens",
    "#replay-token": "replay_tokens",
    "#pending-token": "pending_tokens",
    "#running-req": "running",
    "#queue-req": "waiting",
    "#token": "kv_tokens",
    "#full token": "kv_tokens",
    "#swa token": "swa_tokens",
    "#gpu token": "kv_tokens",
    "token usage": "kv_usage",
    "full token usage": "kv_usage",
    "swa token usage": "swa_usage",
    "mamba num": "mamba_slots",
    "mamba usage": "mamba_usage",
    "cache hit rate": "prefix_hit_ratio",
    "gen throughput (token/s)": "generation_tps",
    "input throughput (token/s)": "prompt_tps",
    "accept len": "accept_length",
    "accept rate": "accept_rate",
    "cap len": "cap_length",
    "block accept len": "block_accept_length",
    "#retracted-req": "retracted",
    "#unbootstrapped-req": "unbootstrapped",
    "#prealloc-req": "prealloc",
    "#transfer-req": "transferring",
    "#inflight-req": "inflight",
    "est. prefill TFLOPS/s": "tflops",
    "est. read BW": "read_bandwidth",
}
_INTS: Final = frozenset(column for key, column in _KEYS.items() if key.startswith("#") or column in {"mamba_slots"})
_GRAPHS: Final = {"cuda graph", "cpu graph", "npu graph", "hip graph", "xpu graph", "musa graph"}


def _pairs(body: str, row: Row) -> Item:
    """The `key: value` list of a batch line."""
    extra: dict[str, Value] = {}
    for part in body.rstrip(", ").split(", "):
        key, colon, value = part.partition(": ")
        if not colon:
            return SKIP
        column = _KEYS.get(key)
        if column is not None:
            value = value.rstrip(",.")
            found = cells.number(value[:-1]) if value.endswith("%") else cells.number(value)
            if found is None:
                if column in _INTS or column in {"kv_usage", "generation_tps", "prompt_tps"}:
                    return SKIP
                extra[key] = value
                continue
            row[column] = round(found / 100, 6) if value.endswith("%") else found
        elif key in _GRAPHS:
            if value not in ("True", "False"):
                extra[key] = value
            else:
                row["graph"] = value == "True"
                row["graph_device"] = key.split(" ")[0]
        else:
            extra[key] = cells.cell(value)
    if "running" not in row or any(column in row and not isinstance(row[column], int) for column in _INTS):
        return SKIP
    if extra:
        row["extra"] = extra
    return row


def row_of(message: str, time: str | None, ranks: dict[str, int] | None, prefix: Prefix | None) -> Item | None:
    """A batch row from a message, SKIP when it is damaged, None when it is no batch line."""
    match = _HEAD.match(message)
    if match is not None:
        row: Row = {"record": match[1].lower(), "time": time}
        if match[2]:
            row["iteration"] = int(match[2][:18])
        body = message[match.end() :]
    else:
        old = _OLD.match(message)
        if old is None:
            return None
        row = {"record": "prefill" if old.end() else "decode", "time": time}
        body = message[old.end() :]
    item = _pairs(body, row)
    if isinstance(item, dict):
        for name in ("dp", "tp", "ep", "pp"):
            item[f"{name}_rank"] = ranks.get(name) if ranks else None
        if prefix is not None:
            item["process"], item["node"] = prefix.role, prefix.node
            item["received"] = prefix.received
    return item


def split_header(line: str) -> tuple[str | None, dict[str, int] | None, str]:
    """(time, ranks, message) of a line without launcher prefixes; the first two None when it has no header."""
    match = _HEADER.match(line)
    if match is None:
        return None, None, line
    if match[3]:
        return None, {"tp": int(match[3][:9])}, line[match.end() :]
    return match[1], ranks_of(match[2]) if match[2] else None, line[match.end() :]


def parse_line(line: str) -> Item | None:
    """One raw line -> a batch row, an event (stage, pressure or failure), SKIP for a damaged batch line, or None."""
    prefix, rest = peel(clean(line))
    time, ranks, message = split_header(rest)
    found = row_of(message, time, ranks, prefix)
    if found is not None:
        return found
    rank = global_rank(ranks)
    if time is None and ranks is None:
        time, rank, message = torch_header(message)
    event = TABLE.event_of(message, time, prefix, rank) or event_of(message, prefix, time, rank)
    if event is not None and ranks:
        event.detail["group_ranks"] = ranks
    return event


def sniff(head: str) -> int:
    """SGLang's batch lines, its bracketed header, or its own words."""
    if re.search(r"(?:Prefill|Decode) batch(?: ?\[\d+\])?[.,] ?#", head):
        return 93
    if re.search(r"^[^\n]{0,200}?\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: [A-Z]{2,3}\d+)+\] ", head, re.MULTILINE):
        return 90
    words = (
        "server_args=ServerArgs(", "server_args={", "Scheduler hit an exception", "#retracted_reqs", "ready to roll",
        "mem-fraction-static", "Load weight begin", "KV Cache is allocated. ", "new fill batch. ", "watchdog_timeout=",
    )  # fmt: skip
    return 80 if any(word in head for word in words) else 0
