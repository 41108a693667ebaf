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
_OWN_HEADER = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_HEAD = re.compile(r"(Prefill|Decode) batch(?: ?\[(\d+)\])?[.,:]? ?")
_OLD = re.compile(r"new fill batch\. |(?=#running-req: \d+, #token: )")

# key -> (column, divide by 100)
KEYS: Final = {
    "#new-seq": "new_seqs",
    "#seq": "new_seqs",
    "#new_token": "new_tokens",
    "#running_req": "running",
    "#remaining_req": "waiting",
    "tree_cache_hit_rate": "prefix_hit_ratio",
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
_INTS: Final = frozenset(column for key, column in KEYS.items() if key.startswith("#") or column in {"mamba_slots"})
GRAPHS: Final = {"cuda graph", "cpu graph", "npu graph", "hip graph", "xpu graph", "musa graph"}


_NEEDED: Final = frozenset({"kv_usage", "generation_tps", "prompt_tps"})
_DAMAGED: Final = ("", None)
_EXTRA: Final = "extra "  # column prefix of a key that has none of its own
_COLUMNS: Final = frozenset({*KEYS.values(), "graph"})


def _pair(part: str) -> tuple[str, Value]:
    """(column, value) of one `key: value`; column "" for a damaged cell."""
    key, colon, value = part.partition(": ")
    if not colon:
        return _DAMAGED
    column = KEYS.get(key)
    if column is not None:
        value = value.rstrip(",.")
        percent = value.endswith("%")
        found = cells.number(value[:-1] if percent else value)
        if found is None:
            return _DAMAGED if column in _INTS or column in _NEEDED else (_EXTRA + key, value)
        if column in _INTS and not isinstance(found, int):
            return _DAMAGED
        return column, round(found / 100, 6) if percent else found
    if key in GRAPHS and value in ("True", "False"):
        return "graph", (value == "True", key.split(" ")[0])
    return _EXTRA + key, cells.cell(value)


_PAIRS: Final = cells.Memo(_pair)  # "#running-req: 12" and its like come back by the thousand


def _pairs(body: str) -> Row | None:
    """The columns of a batch line's `key: value` list; None when a cell is damaged."""
    row: Row = dict(map(_PAIRS.__getitem__, body.rstrip(", ").split(", ")))
    if "graph" in row:
        row["graph"], row["graph_device"] = row["graph"]
    if not row.keys() <= _COLUMNS_AND_DEVICE:
        if "" in row:
            return None
        row["extra"] = {name.removeprefix(_EXTRA): row.pop(name) for name in list(row) if name.startswith(_EXTRA)}
    return row if "running" in row else None


_COLUMNS_AND_DEVICE: Final = _COLUMNS | {"graph_device"}


def _rank_columns(text: str) -> tuple[str, Row]:
    """` DP0 TP3` -> the four rank columns (as a pair, for the memo)."""
    ranks = ranks_of(text) or {}
    return "", {f"{name}_rank": ranks.get(name) for name in ("dp", "tp", "ep", "pp")}


_RANK_COLUMNS: Final = cells.Memo(_rank_columns)


def row_of(message: str, time: str | None, ranks: str, prefix: Prefix | None) -> Item | None:
    """A batch row from a message, SKIP when it is damaged, None when it is no batch line. `ranks`: ` DP0 TP3`."""
    match = _HEAD.match(message)
    if match is not None:
        record, iteration, body = match[1].lower(), match[2], message[match.end() :]
    else:
        old = _OLD.match(message)
        if old is None:
            return None
        record, iteration, body = "prefill" if old.end() else "decode", None, message[old.end() :]
        if old.end():  # 0.1 puts full stops between the cells
            body = re.sub(r"\. ?(?=#|tree)|\.\Z", ", ", body)
    found = _pairs(body)
    if found is None:
        return SKIP
    row: Row = {"record": record, "time": time, **_RANK_COLUMNS[ranks][1], **found}
    if iteration:
        row["iteration"] = int(iteration[:18])
    if prefix is not None:
        row["process"], row["node"], row["received"] = prefix.role, prefix.node, prefix.received
    return row


_FAST = re.compile(
    r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)((?: [A-Z]{2,4}\d+)*)\] (?:(Prefill)|Decode) batch[.,] ([ -~]+)\Z"
)


def fast_row(line: str) -> Row | None:
    """The row of a whole batch line of today's form; None for every other line, which `parse_line` then reads."""
    match = _FAST.match(line)
    if match is None:
        return None
    time, ranks, prefill, body = match.groups()
    found = _pairs(body)
    if found is None:
        return None
    row: Row = {"record": "prefill" if prefill else "decode", "time": time}
    row.update(_RANK_COLUMNS[ranks][1])
    row.update(found)
    return row


def split_header(line: str) -> tuple[str | None, str, str]:
    """(time, ranks as written, message) of a line without launcher prefixes; time None when it has no header."""
    match = _HEADER.match(line)
    if match is None:
        return None, "", line
    if match[3]:
        return None, f" TP{match[3]}", line[match.end() :]
    return match[1], match[2] or "", line[match.end() :]


def parse_line(line: str) -> Item | None:
    """One raw line -> a batch row, an event (stage, pressure or failure), SKIP for a damaged batch line, or None."""
    line = clean(line)[: cells.MATCHED]
    # Its own header is the commonest start of a line: no launcher's prefix then.
    prefix, rest = (None, line) if _OWN_HEADER.match(line) else peel(line)
    time, written, message = split_header(rest)
    found = row_of(message, time, written, prefix)
    if found is not None:
        return found
    ranks = ranks_of(written) if written else None
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
    if head.lstrip().startswith("{"):  # the JSON of /server_info holds the same words
        return 0
    if any(word in head for word in words):
        return 80
    plain = re.search(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] (?:INFO: |[A-Z])", head, re.MULTILINE)
    if plain:
        return 55
    return (
        35
        if re.search(r'^INFO: +\S+ - "\w+ /(?:generate|get_server_info|get_model_info|freeze_gc)\b', head, re.M)
        else 0
    )
