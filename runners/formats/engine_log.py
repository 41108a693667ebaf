"""Whole log files: the chain of line parsers for each kind of log, and what a line alone cannot tell (the phase).

A server's log is a mix: NCCL lines, torch tracebacks and kernel messages stand between the engine's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import orjson

from runners.formats import nccl_errors, nccl_log, sglang_batches, sglang_log, torch_log, vllm_log
from runners.formats.base import Event, Item, Kind, Row, Texts, columns
from runners.formats.log_events import NAMES as LOG_EVENTS

LineParser = Callable[[str], Item | None]
ManyReader = Callable[[Sequence[str], Sequence[bytes]], list[str | None]]


_DIGITS: Final = b"0123456789"
_MAX_DULL: Final = 20_000
_MANY: Final = 1000  # lines looked at together
# Lines that quote what users and models wrote: nothing in them is the engine's own word.
_QUOTED = re.compile(r"\] (?:Received request |Added request |Aborted request|Generated response |Receive: |Finish: )")
_TOKENS_FLOW = re.compile(r'"generation_tps":(?!0(?:\.0)?[,}])')


def _no_row(_: str) -> None:
    """No fast way to a row."""


def _items(
    lines: Iterable[str],
    own: LineParser,
    mark: str = "\n",
    fast: Callable[[str], Row | None] = _no_row,
    many: ManyReader | None = None,
) -> Iterator[Item | Texts]:
    """Items of a log. Lines that differ only in digits from one that held nothing are passed over.

    mark, fast  lines with the mark in them may be figures lines, for which there is a fast way
    many        JSON of those figures lines that can be read together
    """
    in_service = False
    waits: list[Event] = []
    dull: set[bytes] = set()
    nccl = nccl_log.parse_line
    for chunk in _chunks(lines):
        shapes = shapes_of(chunk)
        texts = many(chunk, shapes) if many is not None else [None] * len(chunk)
        done = 0
        for at in [at for at, text in enumerate(texts) if text is None]:
            if at > done:
                yield _joined(texts[done:at], waits)
            done = at + 1
            shape = shapes[at]
            if shape in dull:
                continue
            line = chunk[at]
            item: Item | None = fast(line) if mark in line else None
            if item is None and ((" HTTP/1." in line and '" 200' in line) or _QUOTED.search(line, 0, 400)):
                continue
            if item is None and (
                "NCCL" in line or "NET/" in line or "NVSHMEM" in line or "nvshmem" in line or "Channel " in line
            ):
                item = nccl(line)
            if item is None:
                item = own(line)
            if item is None:
                if len(dull) < _MAX_DULL and "rrno" not in line:  # an errno's digits do matter
                    dull.add(shape)
                continue
            if isinstance(item, Event):
                if item.name == "ready":
                    in_service = True
                elif item.name == "shm_broadcast_wait":
                    item.detail["in_service"] = in_service
                    waits[:-15] = []
                    waits.append(item)
            elif waits and isinstance(item, dict) and item.get("generation_tps"):
                _resumed(waits)
            yield item
        if done < len(chunk):
            yield _joined(texts[done:], waits)


def _joined(run: Sequence[str | None], waits: list[Event]) -> Texts:
    """Rows as one item; tokens that flow end what waits."""
    text = ",".join(filter(None, run))
    if waits and _TOKENS_FLOW.search(text):
        _resumed(waits)
    return Texts(len(run), text)


def _chunks(lines: Iterable[str]) -> Iterator[list[str]]:
    source = iter(lines)
    while chunk := list(islice(source, _MANY)):
        yield chunk


def shapes_of(lines: Sequence[str]) -> list[bytes]:
    """The lines without their digits."""
    shapes = "\n".join(lines).encode("utf-8", "replace").translate(None, _DIGITS).split(b"\n")
    if len(shapes) == len(lines):
        return shapes
    return [line.encode("utf-8", "replace").translate(None, _DIGITS) for line in lines]  # lines with their ends


def _rows(items: Iterable[Item | Texts]) -> Iterator[Item]:
    """Items with every row as a row."""
    for item in items:
        if isinstance(item, Texts):
            yield from orjson.loads(f"[{item.text}]")
        else:
            yield item


def _resumed(waits: list[Event]) -> None:
    """Tokens flow again: it was a long pause (a profile being written), no hang."""
    for wait in waits:
        wait.detail["resumed"] = True
    waits.clear()


def parse_vllm(lines: Iterable[str]) -> Iterator[Item]:
    """A vLLM server log."""
    return _rows(_items(lines, vllm_log.parse_line, "throughput", vllm_log.fast_row))


def texts_sglang(lines: Iterable[str]) -> Iterator[Item | Texts]:
    """An SGLang server log, batch lines as JSON."""
    return _items(lines, sglang_log.parse_line, " batch", sglang_log.fast_row, sglang_batches.texts_of)


def parse_sglang(lines: Iterable[str]) -> Iterator[Item]:
    """An SGLang server log."""
    return _rows(texts_sglang(lines))


def parse_nccl(lines: Iterable[str]) -> Iterator[Item]:
    """A file of NCCL lines, with or without a program's own output between them."""

    def own(line: str) -> Item | None:
        return nccl_log.parse_line(line) or torch_log.parse_line(line)

    return _rows(_items(lines, own, " NCCL INFO Channel ", nccl_log.fast_row))


def parse_torch(lines: Iterable[str]) -> Iterator[Item]:
    """A PyTorch program's stderr."""
    return _rows(_items(lines, torch_log.parse_line))


_COMMON: Final = """
    record        text -    which columns the row fills
    time          text -    the line's own time as written
    received      text -    the collector's time (docker -t)
    node          text -
    process       text -    process role, e.g. EngineCore_DP0
    pid           int  -
"""
_NCCL: Final = """
    tid           int  -
    gpu           int  -    device index in the process
    channel       int  -    record channel
    from_rank     int  -
    to_rank       int  -
    from_device   text -    device number, or bus id in old versions
    to_device     text -
    direction     text -    send or receive, null for local transports
    transport     text -    NET, P2P, SHM
    network       text -    IB, Socket, a plugin's name
    net_index     int  -    index of the network device; beyond the listed HCAs = fused
    proxy_rank    int  -
    gdrdma        bool -    false = through host memory
    via           text -
    merged        map  -    record hcas: index of a device -> the HCAs it is made of
    hcas          list -    record hcas: {index, hca, port, link}
    oob           text -
    relaxed       bool -    relaxed ordering
    netdevs       list -    record sockets
    phase         text -    record init: START, COMPLETE, DESTROY, ABORT
    comm          text -
    comm_id       text -
    rank          int  -
    nranks        int  -
    cuda_device   int  -
    nvml_device   int  -
    bus_id        text -
    nodes         int  -    record comm
    local_ranks   int  -
    enabled       bool -    record gdr; record dmabuf: the GPU offers it, no proof of use
    method        text -
    hca           text -
    parts         int  -    record virtual_device: HCAs fused into one
    fused         bool -
    net_devices   int  -
    coll_channels int  -
    p2p_channels  int  -
    name          text -    record env
    value         text -
    version       text -
    repeated      int  -    ranks for which Ray printed this line once
"""
_VLLM: Final = """
    engine        int   -
    engines       int   -        aggregated line of several engines
    prompt_tps    float tokens/s average of the interval; cached tokens excluded from 0.23 on
    generation_tps float tokens/s
    running       int   -
    waiting       int   -        includes deferred
    deferred      int   -
    swapped       int   -
    preemptions   int   -
    corrupted     int   -
    kv_usage      float ratio    0..1
    kv_device     text  -
    cpu_kv_usage  float ratio
    prefix_hit_ratio float ratio
    external_prefix_hit_ratio float ratio
    mm_cache_hit_ratio float ratio
    tflops_per_gpu float TF/s
    gbytes_per_s_per_gpu float GB/s
    accept_length float tokens   record spec_decode
    accepted_tps  float tokens/s
    drafted_tps   float tokens/s
    accepted_tokens int tokens
    draft_tokens  int   tokens
    accept_rate   float ratio
    accept_per_position list ratio
    iteration     int   -        record iteration
    context_requests int -
    context_tokens int  tokens
    generation_requests int -
    generation_tokens int tokens
    step_ms       float ms
    extra         map   -
"""
_SGLANG: Final = """
    running       int   -        record prefill or decode
    waiting       int   -
    new_seqs      int   -
    new_tokens    int   tokens
    cached_tokens int   tokens
    pending_tokens int  tokens
    replay_tokens int   tokens
    kv_tokens     int   tokens
    kv_usage      float ratio    0..1, two digits: 0.00 is not idle
    swa_tokens    int   tokens
    swa_usage     float ratio
    mamba_usage   float ratio
    prefix_hit_ratio float ratio
    prompt_tps    float tokens/s
    generation_tps float tokens/s too low on the first line after a pause
    accept_length float tokens
    accept_rate   float ratio
    mamba_slots   int   -
    cap_length    float tokens
    block_accept_length float tokens
    retracted     int   -        requests put back for want of KV space
    unbootstrapped int  -        disaggregated prefill: requests that wait for their decode side
    inflight      int   -        disaggregated prefill: KV transfers under way
    prealloc      int   -        disaggregated decode: requests with KV space set aside
    transferring  int   -        disaggregated decode: KV transfers under way
    tflops        float TF/s     estimate of the engine
    read_bandwidth float GB/s    estimate of the engine
    graph         bool  -        this batch ran as a captured graph
    graph_device  text  -
    iteration     int   -
    dp_rank       int   -
    tp_rank       int   -
    ep_rank       int   -
    pp_rank       int   -
    extra         map   -
"""
_EVENTS: Final = ("start_stage", "ready", *LOG_EVENTS, *nccl_errors.NAMES)

_ACCESS: Final = b'" 200 OK'  # uvicorn's `"GET /health HTTP/1.1" 200 OK'
KIND_VLLM: Final = Kind(
    "vllm_log",
    "vLLM server log",
    columns(_COMMON + _VLLM + _NCCL),
    vllm_log.sniff,
    parse_vllm,
    _EVENTS,
    noise=_ACCESS,
)
KIND_SGLANG: Final = Kind(
    "sglang_log",
    "SGLang server log",
    columns(_COMMON + _SGLANG + _NCCL),
    sglang_log.sniff,
    parse_sglang,
    _EVENTS,
    noise=_ACCESS,
    texts=texts_sglang,
)
KIND_NCCL: Final = Kind(
    "nccl_log",
    "NCCL, RCCL or NVSHMEM debug log",
    columns(_COMMON + _NCCL),
    nccl_log.sniff,
    parse_nccl,
    (*LOG_EVENTS, *nccl_errors.NAMES),
)
KIND_TORCH: Final = Kind(
    "torch_log", "PyTorch stderr (c10d, tracebacks)", columns(_COMMON), torch_log.sniff, parse_torch, LOG_EVENTS
)
