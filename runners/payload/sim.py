#!/usr/bin/env python3
"""sim: a simulated LLM inference engine in one file of standard library, for Python 3.9 and later.

It speaks as vLLM or SGLang do (OpenAI-compatible HTTP, /metrics, log lines, NCCL transport lines) and serves from a model
of cost: no GPU, no weights. Batching, KV blocks, prefix cache, preemption and the exchange between nodes are real;
only the time that a step takes is computed (and slept). Everything printed, served and counted is in wall seconds.

Rank 0 serves HTTP and drives; a process with --node-rank N > 0 is a node of workers that joins it at --dist-init-addr and
has to answer every engine step. A string prompt counts as one token per four bytes of UTF-8, rounded up.

Faults (--fault or TWINRAIL_SIM_FAULT, comma list): crash@W, oom@W, hang@W, worker-crash@W, slow-rank=R:FACTOR, slow-start=S
where W is seconds since ready (`8.5`), an accepted request (`req=20`) or a number of running requests (`C=48`).
"""

from __future__ import annotations

import argparse
import asyncio
import bisect
import collections
import contextlib
import itertools
import json
import math
import os
import random
import re
import signal
import socket
import sys
import time
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, Optional, Tuple, Union

VERSION = "1.0.0+sim"
GIB = float(1 << 30)
BUS_IDS = ("16", "27", "38", "5a", "98", "a8", "b8", "d8")
HIDDEN, LAYERS = 7168, 61  # of the simulated model: what one token weighs on the wire
GPU_MIB, WEIGHT_SHARE, POOL_SHARE = 97887, 0.62, 0.91  # device memory; used by weights; used once the KV pool stands
MAX_DEBT_S = 0.2  # how far the engine may lie behind its simulated clock and still catch up
EXCHANGE_GRACE_S = 0.002  # an exchange with a node up to this long is part of --comm-ms
MAX_HEAD, MAX_BODY, MAX_BUFFERED = 64 << 10, 64 << 20, 16 << 20  # bytes: request head, request body, unsent response
CRASHED = 1

Labels = Tuple[Tuple[str, str], ...]


# ---------------------------------------------------------------------------------------------------------------- logs


class Log:
    """Lines as the engine of that style writes them, one write each. A reader that went away mutes it, nothing more."""

    def __init__(self, style: str, world: int = 1) -> None:
        self.style = style
        self.ranked = world > 1
        self.muted = False

    def raw(self, text: str) -> None:
        if self.muted:
            return
        try:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
        except (OSError, ValueError):
            self.muted = True

    def line(self, role: str, source: str, message: str, level: str = "INFO", rank: Optional[int] = None) -> None:
        """vLLM: `(Role pid=N) LEVEL MM-DD HH:MM:SS [file.py:line] msg`; SGLang: `[date time TPn] msg`."""
        now = time.localtime()
        for part in message.split("\n"):
            if self.style == "vllm":
                name = role if rank is None else f"{role}_TP{rank}"
                pid = os.getpid() + (0 if rank is None else rank)
                self.raw(f"({name} pid={pid}) {level} {time.strftime('%m-%d %H:%M:%S', now)} [{source}] {part}")
            else:
                tag = f" TP{rank or 0}" if self.ranked and role != "APIServer" else ""
                self.raw(f"[{time.strftime('%Y-%m-%d %H:%M:%S', now)}{tag}] {part}")

    def api(self, source: str, message: str, level: str = "INFO") -> None:
        self.line("APIServer", source, message, level)

    def core(self, source: str, message: str, level: str = "INFO") -> None:
        self.line("EngineCore", source, message, level)

    def uvicorn(self, message: str) -> None:
        if self.style == "vllm":
            self.raw(f"INFO:     {message}")
        else:
            self.line("APIServer", "", f"INFO:     {message}")


class NcclLog:
    """NCCL's own lines: to stdout, or to NCCL_DEBUG_FILE (%h host, %p pid) as the library does."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.on = os.environ.get("NCCL_DEBUG", "INFO").upper() in ("INFO", "TRACE")
        self.target = os.environ.get("NCCL_DEBUG_FILE", "")

    def write(self, host: str, pid: int, lines: Iterable[str]) -> None:
        if not self.on:
            return
        text = "\n".join(lines)
        if self.target and text:
            path = self.target.replace("%h", host).replace("%p", str(pid))
            try:
                with open(path, "a", encoding="utf-8") as out:
                    out.write(text + "\n")
                return
            except OSError as error:
                self.log.raw(f"sim: cannot write {path}: {error.strerror}; NCCL lines go here")
                self.target = ""
        if text:
            self.log.raw(text)


class Node:
    """Who this process is: host, address, its ranks in the world of tp*pp, its rails."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.rank: int = args.node_rank
        self.nodes: int = args.nnodes
        self.world: int = args.tp * args.pp
        self.local = self.world // self.nodes
        self.host = socket.gethostname().split(".")[0]
        self.address = "127.0.0.1"
        self.hcas: List[str] = [h for h in args.hca.split(",") if h]
        self.net: str = args.nccl_net
        self.comm_id = "0x0"

    def pid(self, gpu: int) -> int:
        return os.getpid() + gpu

    def head(self, gpu: int) -> str:
        pid = self.pid(gpu)
        return f"{self.host}:{pid}:{pid + 64} [{gpu}] NCCL INFO "

    def init_lines(self, gpu: int, complete: bool) -> Iterator[str]:
        """What one rank prints while the world communicator is made (or once it is)."""
        head, rank = self.head(gpu), self.rank * self.local + gpu
        end = f"rank {rank} nranks {self.world} cudaDev {gpu} nvmlDev {gpu} busId {BUS_IDS[gpu % 8]}000 commId {self.comm_id}"
        comm = f"ncclCommInitRank comm 0x{0x55D0_0000_0000 + os.getpid() * 4096 + gpu * 64:x}"
        if complete:
            yield f"{head}comm 0x{0x55D0_0000_0000 + gpu * 64:x} rank {rank} nRanks {self.world} nNodes {self.nodes} " \
                  f"localRanks {self.local} localRank {gpu} MNNVL 0"  # fmt: skip
            yield f"{head}{comm} {end} - Init COMPLETE"
            return
        yield f"{head}Bootstrap: Using eth0:{self.address}<0>"
        if rank == 0:
            yield "NCCL version 2.27.7+cuda13.0"
        if self.net == "socket":
            yield f"{head}NET/IB : No device found."
            yield f"{head}NET/Socket : Using [0]eth0:{self.address}<0>"
            yield f"{head}Using network Socket"
        else:
            using = " ".join(f"[{i}]{hca}:1/RoCE" for i, hca in enumerate(self.hcas))
            yield f"{head}NCCL_IB_HCA set to {','.join(self.hcas)}"
            yield f"{head}NET/IB : Using {using} [RO]; OOB eth0:{self.address}<0>"
            yield f"{head}Using network IB"
            if self.net == "ib":
                yield f"{head}DMA-BUF is available on GPU device {gpu}"
                for i in range(len(self.hcas)):
                    yield f"{head}GPU Direct RDMA Enabled for GPU {gpu} / HCA {i} (distance 4 <= 5), read 1 mode Default"
        yield f"{head}{comm} {end} - Init START"

    def channel_lines(self, gpu: int) -> Iterator[str]:
        """The rings' edges that this GPU holds: two channels a rail, each crossing the nodes at the GPU near that rail."""
        head, base, rails = self.head(gpu), self.rank * self.local, max(1, len(self.hcas))
        for channel in range(2 * rails):
            rail = channel % rails
            border = (rail * self.local // rails) % self.local
            if self.local > 1 and (gpu + 1) % self.local != border:
                to = (gpu + 1) % self.local
                yield f"{head}Channel {channel:02d}/0 : {base + gpu}[{gpu}] -> {base + to}[{to}] via P2P/CUMEM"
            if self.nodes > 1 and gpu == border:
                via = {"socket": "NET/Socket/0", "ib": f"NET/IB/{rail}/GDRDMA"}.get(self.net, f"NET/IB/{rail}")
                before = (self.rank - 1) % self.nodes * self.local + border
                after = (self.rank + 1) % self.nodes * self.local + border
                yield f"{head}Channel {channel:02d}/0 : {before}[{border}] -> {base + gpu}[{gpu}] [receive] via {via}"
                yield f"{head}Channel {channel:02d}/0 : {base + gpu}[{gpu}] -> {after}[{border}] [send] via {via}"
        yield f"{head}Connected all rings, use ring PXN 0 GDR {int(self.net == 'ib')}"


# -------------------------------------------------------------------------------------------------------------- faults


class When:
    """A trigger: `8.5` seconds since ready, `req=20` accepted requests, `C=48` running requests."""

    def __init__(self, text: str) -> None:
        match = re.fullmatch(r"(?:(req|C)=)?(\d+(?:\.\d+)?)", text)
        if match is None:
            raise ValueError(f"bad trigger {text!r}: SECONDS, req=N or C=N")
        self.kind = match.group(1) or "time"
        self.value = float(match.group(2))

    def met(self, seconds: float, requests: int, running: int) -> bool:
        return {"time": seconds, "req": requests, "C": running}[self.kind] >= self.value


class Faults:
    """What shall go wrong, from the --fault text."""

    NAMES = ("crash", "oom", "hang", "worker-crash")

    def __init__(self, spec: str) -> None:
        self.when: Dict[str, When] = {}
        self.slow: Dict[int, float] = {}
        self.slow_start = 0.0
        for item in filter(None, (part.strip() for part in spec.split(","))):
            name, sep, rest = item.partition("@")
            if sep and name in self.NAMES:
                self.when[name] = When(rest)
            elif re.fullmatch(r"slow-rank=\d+:\d+(\.\d+)?", item):
                rank, factor = item[len("slow-rank=") :].split(":")
                self.slow[int(rank)] = float(factor)
            elif re.fullmatch(r"slow-start=\d+(\.\d+)?", item):
                self.slow_start = float(item.partition("=")[2])
            else:
                raise ValueError(f"bad fault {item!r}")

    def due(self, name: str, seconds: float, requests: int = 0, running: int = 0) -> bool:
        when = self.when.get(name)
        if when is None or not when.met(seconds, requests, running):
            return False
        del self.when[name]
        return True


# ----------------------------------------------------------------------------------------------- requests and KV blocks


class Request:
    """One sequence. tokens = prompt + generated; computed = how many of them have KV."""

    __slots__ = (
        "blocks", "cached", "computed", "decoding", "eos_at", "first", "hashes", "key", "last", "max_tokens", "out",
        "preemptions", "prompt", "published", "rid", "scheduled", "sink", "state", "stream", "tokens", "waiting_since",
    )  # fmt: skip

    def __init__(self, rid: str, tokens: List[int], max_tokens: int, eos_at: int, stream: bool, sink: Sink) -> None:
        self.rid, self.tokens, self.max_tokens, self.eos_at = rid, tokens, max_tokens, eos_at
        self.stream, self.sink = stream, sink
        self.prompt = len(tokens)
        self.key = hash(tuple(tokens)) & 0x7FFFFFFF  # the generated text depends on the prompt alone
        self.computed = self.out = self.published = self.preemptions = 0
        self.cached = -1  # tokens found in the prefix cache at first admission
        self.decoding = False
        self.state = "new"  # waiting, running, done
        self.blocks: List[int] = []
        self.hashes: List[int] = []
        self.waiting_since = time.monotonic()
        self.scheduled = self.first = self.last = 0.0


Sink = Callable[[Request, str, Optional[str]], None]  # request, text of the new token, finish reason or None


class BlockPool:
    """KV blocks with reference counts. A block with no reference keeps its content, findable by the hash of its prefix,
    until it is the least recently used of the free ones and is handed out again."""

    def __init__(self, blocks: int, size: int, caching: bool) -> None:
        self.total, self.size, self.caching = blocks, size, caching
        self.refs = [0] * blocks
        self.hash_of: List[Optional[int]] = [None] * blocks
        self.by_hash: Dict[int, int] = {}
        self.free: collections.OrderedDict[int, None] = collections.OrderedDict((b, None) for b in range(blocks))

    @property
    def used(self) -> int:
        return self.total - len(self.free)

    def allocate(self, count: int) -> Optional[List[int]]:
        """`count` fresh blocks with one reference each, or None and nothing changed."""
        if count > len(self.free):
            return None
        out = []
        for _ in range(count):
            block = self.free.popitem(last=False)[0]
            old = self.hash_of[block]
            if old is not None:
                del self.by_hash[old]
                self.hash_of[block] = None
            self.refs[block] = 1
            out.append(block)
        return out

    def acquire(self, blocks: List[int]) -> None:
        for block in blocks:
            if self.refs[block] == 0:
                del self.free[block]
            self.refs[block] += 1

    def release(self, blocks: List[int]) -> None:
        """Give references back; the tail of a sequence is to be evicted before its head."""
        for block in reversed(blocks):
            self.refs[block] -= 1
            if self.refs[block] == 0:
                self.free[block] = None
                if self.hash_of[block] is None:
                    self.free.move_to_end(block, last=False)  # holds nothing worth keeping

    def publish(self, block: int, digest: int) -> None:
        """Make a full block findable. The first block of that content stays the one that is found."""
        if self.caching and self.hash_of[block] is None and digest not in self.by_hash:
            self.by_hash[digest] = block
            self.hash_of[block] = digest

    def match(self, hashes: List[int]) -> List[int]:
        """The blocks of the longest cached prefix."""
        out = []
        for digest in hashes:
            block = self.by_hash.get(digest)
            if block is None:
                break
            out.append(block)
        return out

    def reset(self) -> bool:
        """Forget all cached content; refused while blocks are in use."""
        if self.used:
            return False
        self.by_hash.clear()
        self.hash_of = [None] * self.total
        return True


class Batch:
    """The work of one engine step: which request computes how many tokens."""

    def __init__(self) -> None:
        self.items: List[Tuple[Request, int]] = []
        self.tokens = self.prefill_tokens = self.prefill_seqs = self.decode_seqs = 0
        self.context = self.pairs = 0  # tokens attended to by decodes; query-key pairs of prefill
        self.new_seqs = self.cached = self.preempted = 0

    def add(self, req: Request, count: int) -> None:
        self.items.append((req, count))
        self.tokens += count
        if req.decoding:
            self.decode_seqs += 1
            self.context += req.computed
        else:
            self.prefill_seqs += 1
            self.prefill_tokens += count
            self.pairs += count * (req.computed + count // 2)


class Scheduler:
    """Continuous batching with chunked prefill: up to `chunk` tokens a step, the running ones first, oldest first. Out of
    blocks, the youngest running request loses its KV and is computed again later. `prefill_first` (SGLang's habit) keeps
    prefill and decode in steps of their own; otherwise they mix, as in vLLM."""

    def __init__(self, pool: BlockPool, max_running: int, chunk: int, prefill_first: bool) -> None:
        self.pool, self.max_running, self.chunk, self.prefill_first = pool, max_running, chunk, prefill_first
        self.running: List[Request] = []
        self.waiting: Deque[Request] = collections.deque()

    def submit(self, req: Request) -> None:
        req.state = "waiting"
        self.waiting.append(req)

    def drop(self, req: Request) -> None:
        """Take a request out wherever it is and free its blocks."""
        if req.state == "running":
            self.running.remove(req)
        elif req.state == "waiting":
            self.waiting.remove(req)
        req.state = "done"
        self._free(req)

    def schedule(self) -> Batch:
        batch = Batch()
        if not self.prefill_first:
            self._advance(batch, (True, False))
            self._admit(batch)
            return batch
        self._advance(batch, (False,))
        self._admit(batch)
        if not batch.items:
            self._advance(batch, (True,))
        return batch

    def complete(self, batch: Batch) -> List[Request]:
        """Book a finished step; the requests that reached their next token, which `append` then gives them."""
        out = []
        for req, count in batch.items:
            if req.state != "running":
                continue  # aborted while the step ran
            req.computed += count
            if self.pool.caching:
                full = req.computed // self.pool.size
                self._hash(req, full)
                for i in range(req.published, full):
                    self.pool.publish(req.blocks[i], req.hashes[i])
                req.published = full
            if req.computed == len(req.tokens):
                req.decoding = True
                out.append(req)
        return out

    def append(self, req: Request, token: int) -> Optional[str]:
        """Add a generated token; the finish reason when it was the last one."""
        req.tokens.append(token)
        req.out += 1
        reason = "length" if req.out >= req.max_tokens else "stop" if req.out >= req.eos_at else None
        if reason:
            self.drop(req)
        return reason

    def _advance(self, batch: Batch, kinds: Tuple[bool, ...]) -> None:
        i = 0
        while i < len(self.running) and batch.tokens < self.chunk:
            req = self.running[i]
            if req.decoding not in kinds:
                i += 1
                continue
            count = min(len(req.tokens) - req.computed, self.chunk - batch.tokens)
            while not self._grow(req, req.computed + count):
                victim = self.running.pop()
                self._preempt(victim)
                batch.preempted += 1
                if victim is req:
                    return
            batch.add(req, count)
            i += 1

    def _admit(self, batch: Batch) -> None:
        pool = self.pool
        while (
            self.waiting and batch.tokens < self.chunk and len(self.running) < self.max_running and not batch.preempted
        ):
            req = self.waiting[0]
            hits: List[int] = []
            if pool.caching:
                self._hash(req, (len(req.tokens) - 1) // pool.size)  # the last token is always computed
                hits = pool.match(req.hashes[: (len(req.tokens) - 1) // pool.size])
            pool.acquire(hits)
            if -(-len(req.tokens) // pool.size) - len(hits) > len(pool.free):
                pool.release(hits)
                return  # the whole prompt has to fit
            self.waiting.popleft()
            self.running.append(req)
            req.state, req.blocks, req.published = "running", hits, len(hits)
            req.computed = len(hits) * pool.size
            if req.cached < 0:
                req.cached = req.computed
                batch.new_seqs += 1
            batch.cached += req.computed
            count = min(len(req.tokens) - req.computed, self.chunk - batch.tokens)
            self._grow(req, req.computed + count)
            batch.add(req, count)

    def _grow(self, req: Request, tokens: int) -> bool:
        need = -(-tokens // self.pool.size) - len(req.blocks)
        if need > 0:
            fresh = self.pool.allocate(need)
            if fresh is None:
                return False
            req.blocks.extend(fresh)
        return True

    def _preempt(self, req: Request) -> None:
        self._free(req)
        req.state, req.computed, req.decoding = "waiting", 0, False
        req.preemptions += 1
        self.waiting.appendleft(req)

    def _free(self, req: Request) -> None:
        self.pool.release(req.blocks)
        req.blocks, req.published = [], 0

    def _hash(self, req: Request, blocks: int) -> None:
        size = self.pool.size
        for i in range(len(req.hashes), blocks):
            before = req.hashes[-1] if i else 0
            req.hashes.append(hash((before, *req.tokens[i * size : (i + 1) * size])))


# ------------------------------------------------------------------------------------------------------------ step cost


class CostModel:
    """Simulated seconds of a step. Per step a base (weights, launches), per decoding sequence, per context token; prefill
    by token and by query-key pair; between nodes a latency and the tokens' bytes over the rails. TP across the nodes
    pays an all-reduce per layer; PP pays one hand-over and a bubble. Noise: log-normal per step, and a bias per life."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.base_ms, self.seq_ms = args.step_base_ms, args.ms_per_seq
        self.prefill_ms, self.pair_ms = args.ms_per_ktoken_prefill, args.ms_per_gpair_prefill
        self.context_ms, self.comm_ms = args.ms_per_mtoken_context, args.comm_ms
        self.noise: float = args.noise
        self.rng = random.Random(args.seed)
        self.bias = math.exp(self.rng.gauss(0.0, self.noise / 2))
        self.pp: int = args.pp
        self.nodes: int = args.nnodes
        self.spans = args.nnodes > 1 and args.tp > args.tp * args.pp // args.nnodes
        self.rail_bytes_s = 45e9 * max(1, len(args.hca.split(","))) if args.nccl_net != "socket" else 3e9
        per_layer = 2 * HIDDEN * 2 * LAYERS  # two all-reduces of bf16 activations
        self.token_bytes = 0 if args.nnodes == 1 else per_layer if self.spans else 2 * HIDDEN * (args.pp - 1)

    def step(self, batch: Batch) -> Tuple[float, float]:
        """(seconds, bytes that cross the nodes one way)."""
        ms = self.base_ms * (1 + 0.5 * (self.pp - 1)) + self.seq_ms * batch.decode_seqs
        ms += self.context_ms * batch.context / 1e6
        ms += self.prefill_ms * batch.prefill_tokens / 1e3 + self.pair_ms * batch.pairs / 1e9
        crossing = float(self.token_bytes * batch.tokens)
        if self.nodes > 1:
            ms += self.comm_ms * (1.0 if self.spans else 0.2) + crossing / self.rail_bytes_s * 1e3
        return ms / 1e3 * self.bias * math.exp(self.rng.gauss(0.0, self.noise)), crossing


# -------------------------------------------------------------------------------------------------------------- metrics


class Cell:
    """A counter or gauge value."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0


class Hist:
    """A histogram with cumulative exposition."""

    __slots__ = ("bounds", "count", "counts", "total")

    def __init__(self, bounds: Tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total, self.count = 0.0, 0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect.bisect_left(self.bounds, value)] += times
        self.total += value * times
        self.count += times


class Registry:
    """Prometheus text exposition (format 0.0.4)."""

    def __init__(self, created: bool) -> None:
        self.families: Dict[str, Tuple[str, str, Dict[Labels, Union[Cell, Hist]]]] = {}
        self.born = time.time() if created else None

    def _at(
        self, name: str, kind: str, about: str, labels: Dict[str, str], new: Callable[[], Union[Cell, Hist]]
    ) -> Any:
        series = self.families.setdefault(name, (kind, about, {}))[2]
        key = tuple(sorted(labels.items()))
        if key not in series:
            series[key] = new()
        return series[key]

    def cell(self, kind: str, name: str, about: str, labels: Dict[str, str]) -> Cell:
        cell: Cell = self._at(name, kind, about, labels, Cell)
        return cell

    def hist(self, name: str, about: str, bounds: Tuple[float, ...], labels: Dict[str, str]) -> Hist:
        hist: Hist = self._at(name, "histogram", about, labels, lambda: Hist(bounds))
        return hist

    def render(self) -> str:
        out: List[str] = []
        for name, (kind, about, series) in self.families.items():
            out += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
            for labels, value in series.items():
                if isinstance(value, Cell):
                    out.append(f"{name}{self._labels(labels)} {value.value!r}")
                    continue
                seen = itertools.accumulate(value.counts)
                bounds = [repr(b) for b in value.bounds] + ["+Inf"]
                out += [f"{name}_bucket{self._labels(labels, le)} {float(n)}" for le, n in zip(bounds, seen)]
                out += [f"{name}_count{self._labels(labels)} {float(value.count)}",
                        f"{name}_sum{self._labels(labels)} {value.total!r}"]  # fmt: skip
            if self.born is not None and kind in ("counter", "histogram"):
                base = re.sub("_total$", "", name) if kind == "counter" else name
                out += [f"# HELP {base}_created {about}", f"# TYPE {base}_created gauge"]
                out += [f"{base}_created{self._labels(labels)} {self.born!r}" for labels in series]
        return "\n".join(out) + "\n"

    @staticmethod
    def _labels(labels: Labels, le: str = "") -> str:
        pairs = sorted((*labels, ("le", le))) if le else labels
        quoted = [f'{k}="{v}"' for k, v in ((k, v.replace("\\", "\\\\").replace('"', '\\"')) for k, v in pairs)]
        return "{" + ",".join(quoted) + "}" if quoted else ""


V_TOKENS = (
    1.0,
    2.0,
    5.0,
    10.0,
    20.0,
    50.0,
    100.0,
    200.0,
    500.0,
    1000.0,
    2000.0,
    5000.0,
    10000.0,
    20000.0,
    50000.0,
    100000.0,
)
V_ITER = tuple(float(1 << n) for n in (0, *range(3, 15)))
V_REQUEST = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
             1920.0, 7680.0)  # fmt: skip
V_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
          640.0, 2560.0)  # fmt: skip
V_ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
S_TTFT = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0)
S_E2E = (*S_TTFT, 600.0, 1200.0, 1800.0, 2400.0)
S_ITL = (0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0,
         2.0, 4.0, 6.0, 8.0)  # fmt: skip
S_QUEUE = (0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 100.0, 200.0,
           500.0, 1000.0, 2000.0, 3000.0)  # fmt: skip


class Metrics:
    """What both engines count, under the names and labels of one of them. All times are wall seconds."""

    def __init__(self, args: argparse.Namespace, blocks: int) -> None:
        self.args, self.blocks = args, blocks
        self.vllm = args.style == "vllm"
        self.prefix = args.style + ":"
        self.registry = Registry(created=self.vllm)
        base = {"model_name": args.model}
        self.base = {**base, "engine": "0"} if self.vllm else {**base, "engine_type": "unified"}
        self.ranked = self.base if self.vllm else {**self.base, "tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}
        self.prompt_tokens = self.generated = self.queries = self.hits = self.preemptions = (
            0  # since start, for the logs
        )
        self.requests = 0
        info = {"version": VERSION, "style": args.style, "clock_scale": repr(args.clock_scale)}
        self.registry.cell("gauge", "twinrail_sim_info", "This server is simulated.", info).value = 1.0
        self.lag = self.registry.cell("counter", "twinrail_sim_lag_seconds_total",
                                      "Wall seconds by which this machine was too slow for the simulated clock.", {})  # fmt: skip
        if self.vllm:
            self._vllm(blocks)

    def counter(self, name: str, about: str = "", **labels: str) -> Cell:
        return self.registry.cell("counter", self.prefix + name + "_total", about or name, {**self.base, **labels})

    def gauge(self, name: str, value: float, about: str = "", **labels: str) -> None:
        self.registry.cell("gauge", self.prefix + name, about or name, {**self.ranked, **labels}).value = float(value)

    def hist(self, name: str, bounds: Tuple[float, ...], about: str = "", **labels: str) -> Hist:
        return self.registry.hist(self.prefix + name, about or name, bounds, {**self.base, **labels})

    def _vllm(self, blocks: int) -> None:
        """Series that exist from the start, so that a reader can tell zero from absent."""
        for name in ("num_preemptions", "prefix_cache_queries", "prefix_cache_hits", "prompt_tokens", "prompt_tokens_cached",
                     "generation_tokens", "external_prefix_cache_queries", "external_prefix_cache_hits"):  # fmt: skip
            self.counter(name)
        for source in ("local_compute", "local_cache_hit", "external_kv_transfer"):
            self.counter("prompt_tokens_by_source", source=source)
        for reason in ("stop", "length", "abort", "error", "repetition"):
            self.counter("request_success", "Count of successfully processed requests.", finished_reason=reason)
        args = self.args
        info = {"block_size": args.block_size, "num_gpu_blocks": blocks, "enable_prefix_caching": bool(args.prefix_cache),
                "kv_cache_size_tokens": blocks * args.block_size, "cache_dtype": "auto", "gpu_memory_utilization": 0.92}  # fmt: skip
        self.gauge(
            "cache_config_info", 1, "Information of the LLMEngine CacheConfig", **{k: str(v) for k, v in info.items()}
        )

    def admitted(self, req: Request) -> None:
        """First scheduling of a request."""
        self.queries += req.prompt if self.args.prefix_cache else 0
        self.hits += req.cached
        waited = req.scheduled - req.waiting_since
        if self.vllm:
            self.counter("prefix_cache_queries").value += req.prompt if self.args.prefix_cache else 0
            self.counter("prefix_cache_hits").value += req.cached
            self.hist("request_queue_time_seconds", V_REQUEST).observe(waited)
        else:
            self.counter("cached_tokens", cache_source="device").value += req.cached
            self.registry.hist("sglang:queue_time_seconds", "Time in the queue.", S_QUEUE, self.ranked).observe(waited)

    def step(self, batch: Batch, generated: int) -> None:
        self.preemptions += batch.preempted
        self.generated += generated
        if self.vllm:
            self.counter("generation_tokens").value += generated
            self.counter("num_preemptions").value += batch.preempted
            self.hist("iteration_tokens_total", V_ITER, "Histogram of number of tokens per engine_step.").observe(
                batch.tokens
            )
            return
        for mode, count in (("prefill_compute", batch.prefill_tokens), ("prefill_cache", batch.cached),
                            ("decode", batch.decode_seqs)):  # fmt: skip
            self.registry.cell("counter", "sglang:realtime_tokens_total", "Tokens by mode.", {**self.ranked, "mode": mode}
                               ).value += count  # fmt: skip
        self.registry.cell("counter", "sglang:num_retracted_requests_total", "Retracted requests.", self.ranked
                           ).value += batch.preempted  # fmt: skip

    def token(self, req: Request, now: float, itl: Hist) -> None:
        """A token came out; `itl` is fetched once per step by `itl_hist`."""
        if req.out == 1:
            self.prompt_tokens += req.prompt - req.cached
            if self.vllm:
                self.hist("time_to_first_token_seconds", V_TTFT).observe(now - req.waiting_since)
                self.counter("prompt_tokens").value += req.prompt
                self.counter("prompt_tokens_cached").value += req.cached
                self.counter("prompt_tokens_by_source", source="local_compute").value += req.prompt - req.cached
                self.counter("prompt_tokens_by_source", source="local_cache_hit").value += req.cached
            else:
                self.hist("time_to_first_token_seconds", S_TTFT, is_streaming=str(req.stream).lower()).observe(
                    now - req.waiting_since)  # fmt: skip
        else:
            itl.observe(now - req.last)

    def itl_hist(self) -> Hist:
        return self.hist("inter_token_latency_seconds", V_ITL if self.vllm else S_ITL)

    def finished(self, req: Request, reason: str) -> None:
        """reason: stop, length, abort or error."""
        e2e, decode = req.last - req.waiting_since, req.last - req.first
        if self.vllm:
            self.counter("request_success", finished_reason=reason).value += 1
            if reason in ("abort", "error"):
                return
            for name, value in (("e2e_request_latency_seconds", e2e), ("request_decode_time_seconds", decode),
                                ("request_prefill_time_seconds", req.first - req.scheduled),
                                ("request_inference_time_seconds", req.last - req.scheduled)):  # fmt: skip
                self.hist(name, V_REQUEST).observe(value)
            for name, value in (("request_prompt_tokens", req.prompt), ("request_generation_tokens", req.out),
                                ("request_params_max_tokens", req.max_tokens),
                                ("request_prefill_kv_computed_tokens", req.prompt - req.cached)):  # fmt: skip
                self.hist(name, V_TOKENS).observe(value)
            self.hist("request_num_preemptions", (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)).observe(req.preemptions)
            if req.out > 1:
                self.hist("request_time_per_output_token_seconds", V_ITL).observe(decode / (req.out - 1))
            return
        if reason in ("abort", "error"):
            self.counter("num_aborted_requests").value += 1
            return
        stream = {"is_streaming": str(req.stream).lower()}
        self.counter("prompt_tokens", "Number of prefill tokens processed.", **stream).value += req.prompt
        self.counter("generation_tokens", "Number of generation tokens processed.", **stream).value += req.out
        self.counter("num_requests", "Number of requests processed.", **stream).value += 1
        self.hist("e2e_request_latency_seconds", S_E2E, **stream).observe(e2e)
        if req.out > 1:
            self.hist("request_time_per_output_token_seconds", S_ITL, **stream).observe(decode / (req.out - 1))

    def http(self, method: str, path: str, status: int) -> None:
        if self.vllm:
            labels = {"handler": path, "method": method, "status": f"{status // 100}xx"}
            self.registry.cell("counter", "http_requests_total", "Total number of requests.", labels).value += 1
        else:
            labels = {"endpoint": path, "method": method}
            self.registry.cell("counter", "sglang:http_requests_total", "HTTP requests.", labels).value += 1
            labels["status_code"] = str(status)
            self.registry.cell("counter", "sglang:http_responses_total", "HTTP responses.", labels).value += 1

    def render(self, engine: Engine) -> str:
        scheduler, pool = engine.scheduler, engine.pool
        running, waiting, usage = len(scheduler.running), len(scheduler.waiting), pool.used / pool.total
        if self.vllm:
            self.gauge("num_requests_running", running, "Number of requests in model execution batches.")
            self.gauge("num_requests_waiting", waiting, "Number of requests waiting to be processed.")
            self.gauge("num_requests_waiting_by_reason", waiting, reason="capacity")
            self.gauge("num_requests_waiting_by_reason", 0, reason="deferred")
            self.gauge("kv_cache_usage_perc", usage, "KV-cache usage. 1 means 100 percent usage.")
            return self.registry.render()
        size = pool.size
        evictable = sum(1 for b in pool.free if pool.hash_of[b] is not None) * size
        for name, value in (
            ("num_running_reqs", running), ("num_queue_reqs", waiting), ("token_usage", usage), ("full_token_usage", usage),
            ("num_used_tokens", pool.used * size), ("kv_used_tokens", pool.used * size), ("kv_evictable_tokens", evictable),
            ("kv_available_tokens", len(pool.free) * size - evictable), ("max_total_num_tokens", pool.total * size),
            ("page_size", size), ("num_pages", pool.total), ("context_len", engine.max_len), ("is_cuda_graph", 1),
            ("gen_throughput", engine.stats.gen_tps), ("cache_hit_rate", engine.stats.hit_rate),
            ("num_retracted_reqs", engine.stats.retracted), ("num_paused_reqs", 0), ("spec_accept_length", 0),
        ):  # fmt: skip
            self.gauge(name, value)
        return self.registry.render()


# -------------------------------------------------------------------------------------------------------------- devices


class Devices:
    """What this node's simulated GPUs and rails do, written once a second for the lab's stand-ins of nvidia-smi and
    /sys/class/infiniband (files gpu_load and rdma_load; write and rename)."""

    def __init__(self, folder: str, node: Node, label: str) -> None:
        self.folder, self.node, self.label = folder, node, label
        self.busy = self.crossing = 0.0  # since the last write: wall seconds of work, bytes over the rails one way
        self.memory = 0.0  # share of device memory
        self.at = time.monotonic()

    def add(self, seconds: float, crossing: float) -> None:
        self.busy += seconds
        self.crossing += crossing

    def write(self) -> None:
        if not self.folder:
            return
        now = time.monotonic()
        span, self.at = max(1e-3, now - self.at), now
        util = round(min(99.0, 100.0 * self.busy / span), 1)
        rate = round(self.crossing / span / max(1, len(self.node.hcas)))
        self.busy = self.crossing = 0.0
        used = int(GPU_MIB * self.memory)
        procs = [
            {"pid": self.node.pid(g), "name": f"{self.label}_TP{g}", "gpu": g, "mib": used}
            for g in range(self.node.local)
        ]
        gpus = {str(g): {"util": util, "mem_used": used} for g in range(self.node.local)}
        over_ib = self.node.net != "socket" and self.node.nodes > 1
        rails = {hca: {"tx_bytes_per_s": rate, "rx_bytes_per_s": rate} for hca in self.node.hcas if over_ib}
        self._put("gpu_load", {"memory_total": GPU_MIB, "gpus": gpus, "procs": procs})
        self._put("rdma_load", rails)

    def idle(self) -> None:
        """The process ends: its memory and load go."""
        if self.folder:
            self._put("gpu_load", {"memory_total": GPU_MIB})
            self._put("rdma_load", {})

    def _put(self, name: str, value: Any) -> None:
        path = os.path.join(self.folder, name)
        try:
            with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as out:
                json.dump(value, out)
            os.replace(f"{path}.{os.getpid()}", path)
        except OSError:
            self.folder = ""  # not writable here: the devices stay as they are


# ---------------------------------------------------------------------------------------------------------- node process


class Process:
    """What every node has: its log, its ranks' start-up, its faults, its end."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.scale = args, float(args.clock_scale)
        self.node = Node(args)
        self.log = Log(args.style, self.node.world)
        self.nccl = NcclLog(self.log)
        self.faults: Faults = args.fault
        self.devices = Devices(
            args.state_dir, self.node, "VLLM::Worker" if args.style == "vllm" else "sglang::scheduler"
        )
        self.slow = self.faults.slow.get(self.node.rank, 1.0)
        self.ready_at = 0.0
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(self, code: int) -> None:
        if not self.done.done():
            self.done.set_result(code)

    async def pause(self, simulated_s: float) -> None:
        await asyncio.sleep(simulated_s / self.scale)

    def worker_line(self, source: str, message: str, level: str = "INFO", rank: int = -1) -> None:
        """From one rank, or (-1) from each of this node's ranks."""
        first = self.node.rank * self.node.local
        for r in range(first, first + self.node.local) if rank < 0 else (rank,):
            self.log.line("Worker", source, message, level, r)

    async def load(self) -> None:
        """Start-up between rendezvous and ready, on every node: communicator, weights, KV pool, graphs."""
        node, log, args = self.node, self.log, self.args
        vllm, total = args.style == "vllm", float(args.load_s)
        if vllm:
            self.worker_line("parallel_state.py:1906", f"world_size={node.world} backend=nccl")
        else:
            self.worker_line("", "Init torch distributed begin.")
        for gpu in range(node.local):
            self.nccl.write(node.host, node.pid(gpu), node.init_lines(gpu, complete=False))
        await self.pause(0.1 * total)
        for gpu in range(node.local):
            self.nccl.write(node.host, node.pid(gpu), node.init_lines(gpu, complete=True))
        if self.faults.slow_start:
            await asyncio.sleep(self.faults.slow_start)
        gib = GPU_MIB * WEIGHT_SHARE / 1024
        if not vllm:
            self.worker_line("", "Init torch distributed ends. mem usage=0.62 GB")
            self.worker_line("", f"Load weight begin. avail mem={GPU_MIB / 1024 - 0.62:.2f} GB")
        for step in range(1, 5):
            await self.pause(0.15 * total)
            self.devices.memory = WEIGHT_SHARE * step / 4
            shards = f"Loading safetensors checkpoint shards: {25 * step:3d}% Completed | {step * 4}/16"
            log.raw(f"{shards} [00:0{step}<00:0{4 - step},  3.5it/s]")
        if vllm:
            self.worker_line("default_loader.py:438", f"Loading weights took {0.6 * total:.2f} seconds")
            self.worker_line(
                "gpu_model_runner.py:5255", f"Model loading took {gib:.2f} GiB memory and {0.7 * total:.6f} seconds"
            )
        else:
            self.worker_line("", f"Load weight end. elapsed={0.6 * total:.2f} s, type=SimForCausalLM, dtype=torch.bfloat16, "
                                 f"avail mem={GPU_MIB / 1024 - gib:.2f} GB, mem usage={gib:.2f} GB.")  # fmt: skip
        self.devices.memory = POOL_SHARE
        pool = GPU_MIB / 1024 * (POOL_SHARE - WEIGHT_SHARE)
        tokens = args.kv_tokens // args.block_size * args.block_size
        if vllm:
            self.worker_line("gpu_worker.py:560", f"Available KV cache memory: {pool:.2f} GiB")
            if node.rank == 0:
                log.core("kv_cache_utils.py:2327", f"GPU KV cache size: {tokens:,} tokens, Maximum concurrency for "
                         f"{args.context_length:,} tokens per request: {tokens / args.context_length:.2f}x")  # fmt: skip
        else:
            self.worker_line(
                "", f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {tokens}, KV size: {pool:.2f} GB"
            )
            self.worker_line("", f"Memory pool end. avail mem={GPU_MIB / 1024 * (1 - POOL_SHARE):.2f} GB")
            self.worker_line("", "Capture cuda graph begin. This can take up to several minutes.")
        await self.pause(0.3 * total)
        # Channels connect with the first collectives, after the communicator is complete.
        for gpu in range(node.local):
            self.nccl.write(node.host, node.pid(gpu), node.channel_lines(gpu))
        if vllm:
            self.worker_line(
                "gpu_model_runner.py:6905",
                f"Graph capturing finished in {max(1, round(0.3 * total))} secs, took 2.51 GiB",
            )
        else:
            self.worker_line("", f"Capture cuda graph end. Time elapsed: {0.3 * total:.2f} s. mem usage=2.51 GB.")

    def traceback(self, error: str, rank: Optional[int] = None) -> None:
        """An exception of the engine loop in the style's own words."""
        frames = [("run_engine", 1021, "engine.run_busy_loop()"), ("step", 438, "self.model_executor.execute_model(batch)"),
                  ("forward", 215, "hidden = self.layers(hidden, positions)")]  # fmt: skip
        body = "\n".join(f'  File "/opt/sim/engine.py", line {n}, in {name}\n    {code}' for name, n, code in frames)
        text = f"Traceback (most recent call last):\n{body}\n{error}"
        if self.args.style == "vllm":
            head = "EngineCore encountered a fatal error." if rank is None else "WorkerProc hit an exception."
            source = "core.py:1032" if rank is None else "multiproc_executor.py:870"
            self.log.line("EngineCore" if rank is None else "Worker", source, f"{head}\n{text}", "ERROR", rank)
        else:
            self.log.line("EngineCore", "", f"Scheduler hit an exception: {text.splitlines()[0]}", "ERROR", rank)
            self.log.raw("\n".join(text.splitlines()[1:]))

    def lost(self, rank: int, host: str, address: str, port: int, why: str) -> str:
        """NCCL's and torch's lines about a peer that is gone; the error in one line. The peer is named."""
        ts, head = (
            time.strftime("%Y-%m-%d %H:%M:%S"),
            f"{self.node.host}:{self.node.pid(0)}:{self.node.pid(0) + 65} [0]",
        )
        if self.node.net == "socket" or not self.node.hcas:
            last = f"socketProgress: Connection closed by remote peer {host}<{port}>"
            where = "misc/socket.cc:915"
        else:
            last = (f"NET/IB : Got completion from peer {address}<{port}> with status=IBV_WC_RETRY_EXC_ERR(12) "
                    f"opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=129 req_type=Send hca {self.node.hcas[0]}")  # fmt: skip
            where = "transport/net_ib.cc:1862"
        self.log.raw(f"\n[{ts}] {head} {where} NCCL WARN {last}")
        error = (f"torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, remote process exited or there "
                 f"was a network error, NCCL version 2.27.7\nncclRemoteError: A call failed possibly due to a network error or "
                 f"a remote process exiting prematurely.\nLast error:\n{last}")  # fmt: skip
        self.traceback(error)
        self.log.raw(f"sim: node rank {rank} ({host}, {address}) is lost: {why}")
        return f"lost node rank {rank} ({host}): {why}"

    def oom(self) -> str:
        total = GPU_MIB / 1024
        return (f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.35 GiB. GPU 0 has a total capacity of "
                f"{total:.2f} GiB of which 1.70 GiB is free. Including non-PyTorch memory, this process has {total - 1.7:.2f} GiB "
                f"memory in use. Of the allocated memory {total - 9.5:.2f} GiB is allocated by PyTorch, and 7.10 GiB is reserved "
                f"by PyTorch but unallocated.")  # fmt: skip

    async def background(self) -> None:
        """Once a second the devices' load; in between the extra log lines that were asked for."""
        tick, number, owed, due = 0.05, 0, 0.0, time.monotonic()
        while True:
            due += tick
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if number % 20 == 0:
                self.devices.write()
            number += 1
            owed += self.args.log_flood * tick
            if owed >= 1:
                count, owed = int(owed), owed % 1
                self.flood(count)

    _flooded = 0

    def flood(self, count: int) -> None:
        stamp, pid = time.strftime("%m-%d %H:%M:%S"), os.getpid()
        first, self._flooded = self._flooded + 1, self._flooded + count
        self.log.raw("\n".join(f"(EngineCore pid={pid}) DEBUG {stamp} [flood.py:1] sim flood {n:09d} {'x' * 40}"
                               for n in range(first, first + count)))  # fmt: skip


async def send(writer: asyncio.StreamWriter, message: Dict[str, Any]) -> None:
    writer.write(json.dumps(message).encode() + b"\n")
    await writer.drain()


async def receive(reader: asyncio.StreamReader) -> Dict[str, Any]:
    """The next message; an empty one at the end of the connection or for anything that is not ours."""
    try:
        line = await reader.readline()
        message = json.loads(line) if line else {}
    except (OSError, ValueError):
        return {}
    return message if isinstance(message, dict) else {}


def tune(writer: asyncio.StreamWriter, watchdog_s: float) -> None:
    """Steps must not wait for Nagle; a peer that lost power while idle is noticed within about the watchdog's time."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    quarter = max(1, int(watchdog_s / 4))
    for name, value in (("TCP_KEEPIDLE", quarter), ("TCP_KEEPINTVL", quarter), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Worker(Process):
    """A node of worker ranks: joins rank 0, loads, then answers each step after its share of the step's time."""

    async def run(self) -> None:
        host, _, port = self.args.dist_init_addr.rpartition(":")
        self.worker_line("parallel_state.py:1906", f"rendezvous with tcp://{self.args.dist_init_addr}")
        deadline = time.monotonic() + self.args.rendezvous_timeout
        while True:
            try:
                reader, writer = await asyncio.wait_for(asyncio.open_connection(host.strip("[]"), int(port)), 5)
                break
            except (OSError, asyncio.TimeoutError) as error:
                if time.monotonic() > deadline:
                    self.log.raw(f"torch.distributed.DistNetworkError: The client socket has timed out after "
                                 f"{self.args.rendezvous_timeout:g}s while trying to connect to ({host}, {port}). {error}")  # fmt: skip
                    self.end(CRASHED)
                    return
                await asyncio.sleep(0.2)
        tune(writer, self.args.watchdog_timeout)
        self.writer = writer
        peer = writer.get_extra_info("peername")
        self.node.address = writer.get_extra_info("sockname")[0]
        await send(writer, {"t": "hello", "rank": self.node.rank, "host": self.node.host, "nodes": self.node.nodes,
                            "world": self.node.world})  # fmt: skip
        init = await receive(reader)
        if init.get("t") != "init":
            self.log.raw(
                f"sim: rank 0 at {self.args.dist_init_addr} refused this node: {init.get('why', 'connection closed')}"
            )
            self.end(CRASHED)
            return
        self.node.comm_id, self.scale = str(init["comm_id"]), float(init["scale"])
        loading = asyncio.ensure_future(self.load())
        message: Dict[str, Any] = {}
        while True:
            getting = asyncio.ensure_future(receive(reader))
            if not loading.done():
                await asyncio.wait({loading, getting}, return_when=asyncio.FIRST_COMPLETED)
                if loading.done():
                    await send(writer, {"t": "loaded"})
            message = await getting
            if message.get("t") == "ready":
                self.ready_at = time.monotonic()
            elif message.get("t") == "step":
                await self.step(writer, message)
            else:
                break
        if message.get("t") == "bye":
            self.end(0)
            return
        self.lost(0, str(init.get("host", "rank0")), str(peer[0]), int(peer[1]), "its process closed the connection")
        self.end(CRASHED)

    async def step(self, writer: asyncio.StreamWriter, message: Dict[str, Any]) -> None:
        start, share = time.monotonic(), float(message["share"])
        took = share * self.slow
        await asyncio.sleep(max(0.0, float(message["left"]) + took - share))
        self.devices.add(took, float(message["bytes"]))
        ack = {"t": "ack", "n": message["n"], "took": took, "held": time.monotonic() - start}
        try:
            await send(writer, ack)
        except OSError:
            return  # the reader will see the end of the connection

    async def watch_faults(self) -> None:
        while True:
            await asyncio.sleep(0.02)
            since = time.monotonic() - self.ready_at if self.ready_at else -1.0
            if self.node.rank == self.node.nodes - 1 and self.faults.due("worker-crash", since):
                self.traceback(
                    "RuntimeError: CUDA error: an illegal memory access was encountered",
                    self.node.rank * self.node.local,
                )
                self.end(CRASHED)

    def stop(self) -> None:
        """SIGTERM: say good-bye, so that rank 0 does not take it for a crash."""
        writer = getattr(self, "writer", None)
        if writer is not None:
            writer.write(b'{"t": "bye"}\n')
        asyncio.get_running_loop().call_later(0.05, self.end, 0)


class Peer:
    """Rank 0's end of the link to one node of workers."""

    def __init__(self, rank: int, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.rank, self.host, self.reader, self.writer = rank, host, reader, writer
        name = writer.get_extra_info("peername")
        self.address, self.port = str(name[0]), int(name[1])
        self.loaded = asyncio.get_running_loop().create_future()
        self.ack: Optional[asyncio.Future[Dict[str, Any]]] = None
        self.sent = 0.0


class LostError(Exception):
    """A node does not answer any more."""

    def __init__(self, peer: Peer, why: str) -> None:
        super().__init__(why)
        self.peer, self.why = peer, why


class RankLink:
    """Rank 0's side of the exchange with the other nodes."""

    def __init__(self, process: Engine) -> None:
        self.process, self.args = process, process.args
        self.peers: Dict[int, Peer] = {}
        self.joined = asyncio.Event()
        self.number = 0
        self.tasks: List[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Wait until every node has joined. Raises OSError when the address cannot be used, TimeoutError after a while."""
        if self.args.nnodes == 1:
            return
        host, _, port = self.args.dist_init_addr.rpartition(":")
        limit = 1 << 20
        try:
            server = await asyncio.start_server(self._accept, host.strip("[]"), int(port), limit=limit)
        except OSError as error:
            if error.errno is not None and "assign" not in str(error):
                raise
            server = await asyncio.start_server(self._accept, "0.0.0.0", int(port), limit=limit)
        self.server = server
        await asyncio.wait_for(self.joined.wait(), self.args.rendezvous_timeout)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            hello = await asyncio.wait_for(receive(reader), 10)
        except asyncio.TimeoutError:
            hello = {}
        rank, ours = int(hello.get("rank") or 0), (self.args.nnodes, self.args.tp * self.args.pp)
        why = ""
        if hello.get("t") != "hello" or not 0 < rank < self.args.nnodes:
            why = "not a node of this deployment"
        elif (hello.get("nodes"), hello.get("world")) != ours:
            why = f"rank 0 has {ours[0]} nodes and a world of {ours[1]}, this node {hello.get('nodes')} and {hello.get('world')}"
        elif rank in self.peers:
            why = f"node rank {rank} has joined already"
        if why:
            writer.write(json.dumps({"t": "no", "why": why}).encode() + b"\n")
            writer.close()
            return
        tune(writer, self.args.watchdog_timeout)
        name = re.sub(r"[^\w.-]", "_", str(hello.get("host")))[:64]
        peer = self.peers[rank] = Peer(rank, name, reader, writer)
        if self.process.node.address == "127.0.0.1":
            self.process.node.address = str(writer.get_extra_info("sockname")[0])
        self.process.log.core("parallel_state.py:1906", f"node rank {rank} joined: {name} ({peer.address}), "
                              f"{len(self.peers) + 1} of {self.args.nnodes} nodes")  # fmt: skip
        if len(self.peers) == self.args.nnodes - 1:
            self.joined.set()
        await self._listen(peer)

    async def _listen(self, peer: Peer) -> None:
        message: Dict[str, Any] = {}
        while True:
            message = await receive(peer.reader)
            if message.get("t") == "ack" and peer.ack is not None and not peer.ack.done():
                peer.ack.set_result({**message, "got": time.monotonic()})
            elif message.get("t") == "loaded" and not peer.loaded.done():
                peer.loaded.set_result(None)
            else:
                break
        if message.get("t") == "bye":
            await self.process.peer_left(peer)
        else:
            self.process.peer_lost(LostError(peer, "its process closed the connection"))

    def tell(self, message: Dict[str, Any]) -> None:
        line = json.dumps(message).encode() + b"\n"
        for peer in self.peers.values():
            peer.writer.write(line)

    async def loaded(self) -> None:
        for peer in self.peers.values():
            await peer.loaded

    def begin(self, share: float, left: float, crossing: float) -> None:
        """Send a step to every node: its length and what is left of it, in wall seconds."""
        self.number += 1
        for peer in self.peers.values():
            peer.ack = asyncio.get_running_loop().create_future()
            peer.sent = time.monotonic()
        if self.peers:
            self.tell({"t": "step", "n": self.number, "share": share, "left": left, "bytes": crossing})

    async def finish(self) -> Tuple[float, float]:
        """(longest time that a node says the step took, longest time that an exchange cost beyond the node's own work)."""
        took = exchange = 0.0
        for peer in self.peers.values():
            assert peer.ack is not None
            limit = self.args.watchdog_timeout + self.process.step_s
            try:
                ack = await asyncio.wait_for(peer.ack, max(0.01, peer.sent + limit - time.monotonic()))
            except asyncio.TimeoutError:
                raise LostError(peer, f"no answer for {self.args.watchdog_timeout:g} s") from None
            took = max(took, float(ack["took"]))
            exchange = max(exchange, float(ack["got"]) - peer.sent - float(ack["held"]))
        return took, exchange


# --------------------------------------------------------------------------------------------------------------- engine


class Stats:
    """Interval figures for the log lines."""

    def __init__(self) -> None:
        self.at = self.decode_at = self.prefill_at = time.monotonic()
        self.seen = (0, 0, 0, 0, 0)
        self.decode_steps = self.decode_tokens = self.retracted = 0
        self.gen_tps = self.hit_rate = 0.0


class Engine(Process):
    """Node rank 0: the queue, the step loop and everything that is told to the outside."""

    async def run(self) -> None:
        args, log = self.args, self.log
        self.requests = 0
        self.live: Dict[str, Generation] = {}
        self.wakeup = asyncio.Event()
        self.dead = ""
        self.step_s = self.due = 0.0  # the running step's wall length; where the simulated clock stands in wall time
        self.pool = BlockPool(args.kv_tokens // args.block_size, args.block_size, args.prefix_cache)
        self.max_len = min(args.context_length, self.pool.total * args.block_size)
        first = args.schedule == "prefill-first" or (args.schedule == "auto" and args.style == "sglang")
        self.scheduler = Scheduler(self.pool, args.max_running, args.chunk, first)
        self.model = CostModel(args)
        self.metrics = Metrics(args, self.pool.total)
        self.stats = Stats()
        self.link = RankLink(self)
        self.http = HttpServer(self)
        try:
            self.http.bind()
            log.api(
                "entry.py:140",
                f"sim engine v{VERSION} model={args.model} tp={args.tp} pp={args.pp} nnodes={args.nnodes}",
            )
            await self.link.open()
        except asyncio.TimeoutError:  # before OSError, of which it is one since Python 3.11
            log.raw(f"torch.distributed.DistStoreError: Timed out after {args.rendezvous_timeout:g} seconds waiting for clients. "
                    f"{len(self.link.peers) + 1}/{args.nnodes} clients joined.")  # fmt: skip
            self.end(CRASHED)
            return
        except OSError as error:
            log.api(
                "launcher.py:60",
                f"[Errno {error.errno}] error while attempting to bind on address: {error.strerror}",
                "ERROR",
            )
            self.end(CRASHED)
            return
        rng = random.Random(f"{args.seed} {os.getpid()} {time.time_ns()}")
        self.node.comm_id = f"0x{rng.getrandbits(64):016x}"
        self.link.tell({"t": "init", "comm_id": self.node.comm_id, "scale": self.scale, "host": self.node.host})
        await self.load()
        await self.link.loaded()
        if self.max_len < args.context_length:
            log.api("model.py:2152", f"context length lowered to {self.max_len}, the size of the KV cache", "WARNING")
        if args.style == "vllm":
            log.core(
                "core.py:402", f"init engine (profile, create kv cache, warmup model) took {0.3 * args.load_s:.2f} s"
            )
            log.api("entry.py:140", f"Starting vLLM server on http://{args.host}:{args.port}")
        else:
            log.line("EngineCore", "", f"max_total_num_tokens={self.pool.total * args.block_size}, chunked_prefill_size={args.chunk}, "
                     f"max_prefill_tokens=16384, max_running_requests={args.max_running}, context_len={self.max_len}, "
                     f"available_gpu_mem={GPU_MIB / 1024 * (1 - POOL_SHARE):.2f} GB")  # fmt: skip
        for text in (
            f"Started server process [{os.getpid()}]",
            "Waiting for application startup.",
            "Application startup complete.",
        ):
            log.uvicorn(text)
        await self.http.listen()
        if args.style == "sglang":
            log.uvicorn(f"Uvicorn running on http://{args.host}:{args.port} (Press CTRL+C to quit)")
            await self.pause(0.5)  # the warm-up request; /health says 503 until then
            log.api("", "The server is fired up and ready to roll!")
        self.link.tell({"t": "ready"})
        self.ready_at = self.stats.at = time.monotonic()
        await self.loop()

    # requests

    def submit(self, req: Request) -> None:
        self.requests += 1
        self.scheduler.submit(req)
        self.wakeup.set()

    def abort(self, req: Request) -> None:
        if req.state != "done":
            self.scheduler.drop(req)
            req.last = time.monotonic()
            self.metrics.finished(req, "abort")

    # the step loop

    async def loop(self) -> None:
        while not self.dead:
            batch = self.scheduler.schedule()
            if not batch.items:
                self.wakeup.clear()
                if self.scheduler.waiting:
                    raise AssertionError("requests wait although nothing runs")
                await self.wakeup.wait()
                self.due = time.monotonic()
                continue
            if self.faults.due("hang", time.monotonic() - self.ready_at, self.requests, len(self.scheduler.running)):
                await asyncio.Event().wait()
            now = time.monotonic()
            for req, _ in batch.items:
                if not req.scheduled:
                    req.scheduled = now
                    self.metrics.admitted(req)
            if batch.preempted and self.args.style == "sglang":
                self.stats.retracted = batch.preempted
                self.log.line("EngineCore", "", f"KV cache pool is full. Retract requests. #retracted_reqs: {batch.preempted}, "
                              "#new_token_ratio: 0.5000 -> 0.7000", "WARNING")  # fmt: skip
            try:
                await self.execute(batch)
            except LostError as lost:
                self.peer_lost(lost)
                return
            self.emit(batch)

    async def execute(self, batch: Batch) -> None:
        """Let the step take its time on all nodes. Lateness of this machine is made up for in later steps; slowness that
        a node reports, and an exchange that takes longer than the grace, are not."""
        seconds, crossing = self.model.step(batch)
        self.step_s = seconds / self.scale
        start = self.due
        left = start + self.step_s - time.monotonic()
        self.link.begin(self.step_s, max(0.0, left), crossing)
        own = self.step_s * self.slow
        await asyncio.sleep(max(0.0, left + own - self.step_s))
        took, exchange = await self.link.finish()
        self.due = start + max(own, took) + max(0.0, exchange - EXCHANGE_GRACE_S)
        now = time.monotonic()
        if now - self.due > MAX_DEBT_S:
            self.metrics.lag.value += now - self.due - MAX_DEBT_S
            self.due = now - MAX_DEBT_S
        self.devices.add(max(own, took), crossing)

    def emit(self, batch: Batch) -> None:
        """Hand out the step's tokens."""
        now = time.monotonic()
        arrived = self.scheduler.complete(batch)
        itl = self.metrics.itl_hist()
        for req in arrived:
            token = (req.key + 7919 * req.out) % 32000
            reason = self.scheduler.append(req, token)
            self.metrics.token(req, now, itl)
            if req.out == 1:
                req.first = now
            req.last = now
            if reason:
                self.metrics.finished(req, reason)
            req.sink(req, WORDS[token % len(WORDS)], reason)
        self.metrics.step(batch, len(arrived))
        if self.args.style == "sglang":
            self.sglang_stats(batch, now)

    # logs

    def sglang_stats(self, batch: Batch, now: float) -> None:
        stats, pool = self.stats, self.pool
        usage, queue = pool.used / pool.total, len(self.scheduler.waiting)
        if batch.prefill_tokens:
            rate = batch.prefill_tokens / max(1e-6, now - stats.prefill_at)
            stats.prefill_at = now
            asked = batch.prefill_tokens + batch.cached
            stats.hit_rate = batch.cached / asked
            pending = sum(r.prompt for r in self.scheduler.waiting)
            self.log.line("EngineCore", "", f"Prefill batch, #new-seq: {batch.prefill_seqs}, #new-token: {batch.prefill_tokens}, "
                          f"#cached-token: {batch.cached}, token usage: {usage:.2f}, "
                          f"#running-req: {len(self.scheduler.running) - batch.prefill_seqs}, #queue-req: {queue}, "
                          f"#pending-token: {pending}, cuda graph: False, input throughput (token/s): {rate:.2f}")  # fmt: skip
        if batch.decode_seqs:
            stats.decode_steps += 1
            stats.decode_tokens += batch.decode_seqs
            if stats.decode_steps % self.args.decode_log_interval == 0:
                stats.gen_tps = stats.decode_tokens / max(1e-6, now - stats.decode_at)
                stats.decode_at, stats.decode_tokens, stats.retracted = now, 0, 0
                self.log.line("EngineCore", "", f"Decode batch, #running-req: {batch.decode_seqs}, "
                              f"#token: {pool.used * pool.size}, token usage: {usage:.2f}, cuda graph: True, "
                              f"gen throughput (token/s): {stats.gen_tps:.2f}, #queue-req: {queue}")  # fmt: skip

    async def vllm_stats(self) -> None:
        was_idle = True
        while self.args.style == "vllm":
            await asyncio.sleep(self.args.log_stats_interval)
            if not self.ready_at:
                continue
            now, m, stats = time.monotonic(), self.metrics, self.stats
            seen = (m.prompt_tokens, m.generated, m.queries, m.hits, m.preemptions)
            prompt, generated, queries, hits, preempted = (a - b for a, b in zip(seen, stats.seen))
            span = now - stats.at
            stats.seen, stats.at = seen, now
            running, waiting = len(self.scheduler.running), len(self.scheduler.waiting)
            idle = not (prompt or generated or running or waiting)
            if idle and was_idle:
                continue
            was_idle = idle
            if queries:
                stats.hit_rate = 100.0 * hits / queries
            extra = f"Preemptions: {preempted}, " if preempted else ""
            self.log.api("loggers.py:271", f"Engine 000: Avg prompt throughput: {prompt / span:.1f} tokens/s, Avg generation "
                         f"throughput: {generated / span:.1f} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, {extra}"
                         f"GPU KV cache usage: {100.0 * self.pool.used / self.pool.total:.1f}%, "
                         f"Prefix cache hit rate: {stats.hit_rate:.1f}%")  # fmt: skip

    # ends

    async def watch_faults(self) -> None:
        while not self.dead:
            await asyncio.sleep(0.02)
            if not self.ready_at:
                continue
            state = (time.monotonic() - self.ready_at, self.requests, len(self.scheduler.running))
            if self.faults.due("crash", *state):
                self.traceback("RuntimeError: CUDA error: an illegal memory access was encountered")
                self.die("EngineCore encountered an issue")
            elif self.faults.due("oom", *state):
                self.traceback(self.oom())
                self.die("EngineCore encountered an issue")

    def peer_lost(self, lost: LostError) -> None:
        if self.dead or self.done.done():
            return
        peer = lost.peer
        if lost.why.startswith("no answer"):
            ms = int(self.args.watchdog_timeout * 1000)
            self.log.raw(f"[rank0]:[E{time.strftime('%m%d %H:%M:%S')}.000000000 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught "
                         f"collective operation timeout: WorkNCCL(SeqNum={self.link.number}, OpType=ALLREDUCE, NumelIn={HIDDEN}, "
                         f"NumelOut={HIDDEN}, Timeout(ms)={ms}) ran for {ms + 31} milliseconds before timing out.")  # fmt: skip
            if self.args.style == "sglang":
                self.log.line("EngineCore", "", f"Scheduler watchdog timeout (self.watchdog_timeout={self.args.watchdog_timeout:g}, "
                              "self.soft=False)", "ERROR")  # fmt: skip
        self.die(self.lost(peer.rank, peer.host, peer.address, peer.port, lost.why))

    async def peer_left(self, peer: Peer) -> None:
        """A node said good-bye: fine when this one is stopped as well, else the engine cannot go on."""
        await asyncio.sleep(1.0)
        if not self.dead and not self.done.done():
            self.log.core(
                "multiproc_executor.py:301",
                f"node rank {peer.rank} ({peer.host}) was stopped; shutting down executor.",
                "ERROR",
            )
            self.die(f"node rank {peer.rank} was stopped")

    def die(self, why: str) -> None:
        """The engine is dead: say so to the clients as the style does, then end with an error code."""
        if self.dead:
            return
        self.dead = why
        if self.args.style == "vllm":
            self.log.api("async_llm.py:416", "AsyncLLM output_handler failed.\nvllm.v1.engine.exceptions.EngineDeadError: EngineCore "
                         "encountered an issue. See stack trace (above) for the root cause.", "ERROR")  # fmt: skip
            for generation in list(self.live.values()):
                generation.fail("EngineCore encountered an issue. See stack trace (above) for the root cause.")
        else:
            self.log.api("", f"Subprocess scheduler (pid={os.getpid()}) crashed with exit code -9.", "ERROR")
            self.log.api("", "Received sigquit from a child process. It usually means the child failed.", "ERROR")
        asyncio.get_running_loop().call_later(0.1, self.end, CRASHED)

    def stop(self) -> None:
        self.log.uvicorn("Shutting down")
        self.dead = self.dead or "stopped"
        self.link.tell({"t": "bye"})
        asyncio.get_running_loop().call_later(0.1, self.end, 0)


# ----------------------------------------------------------------------------------------------------------------- HTTP

WORDS = [f" {a}{b}{c}{d}" for a in "bdgkmr" for b in "aeiou" for c in "lnrstv" for d in "aio"]
STATUS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 411: "Length Required",
          413: "Content Too Large", 431: "Request Header Fields Too Large", 500: "Internal Server Error",
          503: "Service Unavailable"}  # fmt: skip


class HttpError(Exception):
    """An HTTP error: status, message, type and parameter of the error object."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError", param: Optional[str] = None) -> None:
        super().__init__(message)
        self.status, self.message, self.kind, self.param = status, message, kind, param


def text_tokens(text: str) -> List[int]:
    """One token per four bytes of UTF-8; the same text gives the same tokens, so that prefixes are found again."""
    data = text.encode("utf-8", "surrogatepass")
    return [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]


def prompts_of(value: Any) -> List[List[int]]:
    """The prompts of /v1/completions: a string, token ids, or a list of either."""
    if isinstance(value, str):
        return [text_tokens(value)]
    if not isinstance(value, list) or not value:
        raise HttpError(400, "prompt must be a non-empty string, list of token ids or list of those", param="prompt")
    if all(type(t) is int for t in value):
        if min(value) < 0 or max(value) >= 1 << 40:
            raise HttpError(400, "token id out of range", param="prompt")
        return [value]
    if all(isinstance(p, (str, list)) for p in value):
        return [tokens for part in value for tokens in prompts_of(part)]
    raise HttpError(400, "prompt must be a string, a list of token ids or a list of those", param="prompt")


def chat_tokens(messages: Any) -> List[int]:
    """The prompt of a chat: four tokens a message for the template, three for the reply's head."""
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise HttpError(400, "messages must be a non-empty list of objects", param="messages")
    tokens: List[int] = []
    for message in messages:
        content = message.get("content") or ""
        if isinstance(content, list):
            content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        tokens += [11, 12, 13, 14, *text_tokens(str(content))]
    return [*tokens, 15, 16, 17]


def number(body: Dict[str, Any], name: str, default: Optional[int], low: int) -> Optional[int]:
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not int or value < low:
        raise HttpError(400, f"{name} must be at least {low}, got {value!r}.", param=name)
    return value


class Generation:
    """One completion call: one or more sequences of the engine, answered as a stream or at once."""

    def __init__(self, engine: Engine, connection: HttpConnection, body: Dict[str, Any], chat: bool) -> None:
        self.engine, self.connection, self.chat = engine, connection, chat
        self.vllm = engine.args.style == "vllm"
        self.stream = bool(body.get("stream", False))
        options = body.get("stream_options") or {}
        if not isinstance(options, dict):
            raise HttpError(400, "stream_options must be an object", param="stream_options")
        self.include_usage = bool(options.get("include_usage", False))
        self.continuous = self.include_usage and bool(options.get("continuous_usage_stats", False))
        if number(body, "n", 1, 1) != 1:
            raise HttpError(400, "n > 1 is not simulated", param="n")
        prompts = [chat_tokens(body.get("messages"))] if chat else prompts_of(body.get("prompt"))
        if not all(prompts):
            raise HttpError(400, "The decoder prompt cannot be empty", param="prompt")
        asked = number(body, "max_tokens", None, 1)
        asked = number(body, "max_completion_tokens", asked, 1) if chat else asked
        low = number(body, "min_tokens", 0, 0) or 0
        limits = [self._limit(len(p), asked) for p in prompts]
        self.id = f"{'chatcmpl' if chat else 'cmpl'}-{random.getrandbits(64):016x}"
        self.requests: List[Request] = []
        for i, (prompt, limit) in enumerate(zip(prompts, limits)):
            rid = self.id if len(prompts) == 1 else f"{self.id}-{i}"
            end = 1 << 60 if body.get("ignore_eos") else max(low, self._eos(prompt))
            self.requests.append(Request(rid, list(prompt), limit, end, self.stream, self.sink))
        self.index = {req.rid: i for i, req in enumerate(self.requests)}
        self.texts: List[List[str]] = [[] for _ in prompts]  # not yet sent
        self.reasons: List[Optional[str]] = [None] * len(prompts)
        self.open = len(prompts)
        created, model = int(time.time()), json.dumps(engine.args.model)
        kind = "chat.completion.chunk" if chat else "text_completion"
        self.head = f'data: {{"id":"{self.id}","object":"{kind}","created":{created},"model":{model},"choices":['
        self.created, self.roles = created, set(range(len(prompts))) if chat else set()

    def _limit(self, prompt: int, asked: Optional[int]) -> int:
        limit = self.engine.max_len
        if prompt >= limit or prompt + (asked or 1) > limit:
            raise HttpError(400, self._too_long(prompt, asked, limit), param="input_tokens" if self.vllm else None)
        return asked or (limit - prompt if self.chat else min(16, limit - prompt))

    def _too_long(self, prompt: int, asked: Optional[int], limit: int) -> str:
        if self.vllm:
            start = f"This model's maximum context length is {limit} tokens. However, "
            if prompt >= limit:
                return (f"{start}your prompt contains {prompt} input tokens, which exceeds this limit even without any output tokens. "
                        f"Please reduce the length of the input prompt. (parameter=input_tokens, value={prompt})")  # fmt: skip
            return (f"{start}you requested {asked} output tokens and your prompt contains at least {prompt} input tokens, for a total "
                    f"of at least {prompt + (asked or 0)} tokens. Please reduce the length of the input prompt or the number of "
                    f"requested output tokens. (parameter=input_tokens, value={prompt})")  # fmt: skip
        if prompt >= limit:
            return f"The input ({prompt} tokens) is longer than the model's context length ({limit} tokens)."
        return (f"Requested token count exceeds the model's maximum context length of {limit} tokens. You requested a total of "
                f"{prompt + (asked or 0)} tokens: {prompt} tokens from the input messages and {asked} tokens for the completion. "
                f"Please reduce the number of tokens in the input messages or the completion to fit within the limit.")  # fmt: skip

    def _eos(self, prompt: List[int]) -> int:
        """Where this prompt's answer ends by itself: geometric, and the same every time."""
        args = self.engine.args
        draw = random.Random(f"{args.seed} {hash(tuple(prompt))}").random()
        return 1 + int(math.log(1.0 - draw) / math.log(1.0 - 1.0 / max(2.0, args.mean_output)))

    def start(self) -> None:
        self.engine.live[self.id] = self
        if self.stream:
            self.connection.begin_stream()
        for req in self.requests:
            self.engine.submit(req)

    def sink(self, req: Request, word: str, reason: Optional[str]) -> None:
        """The engine's token. Bundled by --stream-interval; the first and the last of a sequence go out at once."""
        i = self.index[req.rid]
        self.texts[i].append(word)
        self.reasons[i] = reason
        self.open -= reason is not None
        if self.stream and (reason or req.out == 1 or len(self.texts[i]) >= self.engine.args.stream_interval):
            text, self.texts[i] = "".join(self.texts[i]), []
            chunk = self._chunk(i, req, text, reason)
            if i in self.roles:
                self.roles.remove(i)
                chunk = self._role(i, req) + chunk
            if not self.open:
                chunk += self._tail()
            self.connection.stream(chunk.encode(), last=not self.open)
        elif not self.stream and not self.open:
            self.connection.respond(200, self._whole())
        if not self.open:
            self.engine.live.pop(self.id, None)

    def cancel(self) -> None:
        self.engine.live.pop(self.id, None)
        for req in self.requests:
            self.engine.abort(req)

    def fail(self, message: str) -> None:
        self.engine.live.pop(self.id, None)
        error = {"error": {"message": message, "type": "InternalServerError", "param": None, "code": 500}}
        if self.stream:
            self.connection.stream(f"data: {json.dumps(error)}\n\ndata: [DONE]\n\n".encode(), last=True)
        else:
            self.connection.respond(500, error)

    def _usage(self, req: Request) -> str:
        usage: Dict[str, Any] = {
            "prompt_tokens": req.prompt,
            "total_tokens": req.prompt + req.out,
            "completion_tokens": req.out,
        }
        if not self.vllm:
            usage["prompt_tokens_details"] = {"cached_tokens": max(0, req.cached)}
        return "," + json.dumps({"usage": usage}, separators=(",", ":"))[1:-1]

    def _chunk(self, i: int, req: Request, text: str, reason: Optional[str]) -> str:
        end = f'"{reason}"' if reason else "null"
        usage = self._usage(req) if self.continuous else "" if self.vllm else ',"usage":null'
        stop = '"stop_reason":null,"token_ids":null' if self.vllm else '"matched_stop":null'
        if self.chat:
            return f'{self.head}{{"index":{i},"delta":{{"content":"{text}"}},"logprobs":null,"finish_reason":{end},{stop}}}]{usage}}}\n\n'
        return f'{self.head}{{"index":{i},"text":"{text}","logprobs":null,"finish_reason":{end},{stop}}}]{usage}}}\n\n'

    def _role(self, i: int, req: Request) -> str:
        usage = ',"usage":' + json.dumps(
            {"prompt_tokens": req.prompt, "total_tokens": req.prompt, "completion_tokens": 0}
        )
        return (f'{self.head}{{"index":{i},"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null}}]'
                f"{usage if self.continuous else ''}}}\n\n")  # fmt: skip

    def _total(self) -> Dict[str, Any]:
        prompt, out = sum(r.prompt for r in self.requests), sum(r.out for r in self.requests)
        cached = sum(max(0, r.cached) for r in self.requests)
        usage = {"prompt_tokens": prompt, "total_tokens": prompt + out, "completion_tokens": out,
                 "prompt_tokens_details": {"cached_tokens": cached}}  # fmt: skip
        return usage if self.vllm else {**usage, "reasoning_tokens": 0}

    def _tail(self) -> str:
        usage = json.dumps(self._total(), separators=(",", ":"))
        return (f'{self.head}],"usage":{usage}}}\n\n' if self.include_usage else "") + "data: [DONE]\n\n"

    def _whole(self) -> Dict[str, Any]:
        choices: List[Dict[str, Any]] = []
        for i, words in enumerate(self.texts):
            text = "".join(words)
            body = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
            choices.append({"index": i, **body, "logprobs": None, "finish_reason": self.reasons[i]})
        kind = "chat.completion" if self.chat else "text_completion"
        return {"id": self.id, "object": kind, "created": self.created, "model": self.engine.args.model, "choices": choices,
                "usage": self._total()}  # fmt: skip


class HttpConnection(asyncio.Protocol):
    """HTTP/1.1 with keep-alive; one request at a time, a pipelined one waits. A client that goes away aborts its request."""

    def __init__(self, server: HttpServer) -> None:
        self.server = server
        self.buffer = bytearray()
        self.generation: Optional[Generation] = None
        self.busy = self.close_after = self.chunked = self.continued = False
        self.method = self.path = self.version = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        name = transport.get_extra_info("peername") or ("?", 0)
        self.client = f"{name[0]}:{name[1]}"
        transport.set_write_buffer_limits(MAX_BUFFERED)

    def connection_lost(self, exc: Optional[Exception]) -> None:
        if self.generation is not None:
            self.generation.cancel()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if len(self.buffer) > MAX_HEAD + MAX_BODY:
            self.transport.abort()
        while not self.busy and self.buffer and not self.transport.is_closing() and self._next():
            pass

    def _next(self) -> bool:
        """Take one request off the buffer and answer it; False when it is not complete yet."""
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0 or end > MAX_HEAD:
            if len(self.buffer) > MAX_HEAD:
                self._refuse(431)
            return False
        lines = bytes(self.buffer[:end]).decode("latin-1").split("\r\n")
        headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
        match = re.fullmatch(r"([A-Z]+) (\S+) (HTTP/1\.[01])", lines[0])
        length = headers.get("content-length", "0")
        if match is None or not length.isdigit():
            self._refuse(400)
            return False
        if "transfer-encoding" in headers or int(length) > MAX_BODY:
            self._refuse(411 if "transfer-encoding" in headers else 413)
            return False
        size = end + 4 + int(length)
        if len(self.buffer) < size:
            if headers.get("expect", "").lower() == "100-continue" and not self.continued:
                self.continued = True
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return False
        body = bytes(self.buffer[end + 4 : size])
        del self.buffer[:size]
        self.continued = False
        self.method, self.path, self.version = match.groups()
        asked = headers.get("connection", "").lower()
        self.close_after = asked == "close" or (self.version == "HTTP/1.0" and asked != "keep-alive")
        self.busy = True
        self.server.handle(self, self.path.partition("?")[0], body)
        return True

    def _refuse(self, status: int) -> None:
        self.method, self.path, self.version, self.close_after, self.busy = "?", "?", "HTTP/1.1", True, True
        self.respond(
            status, {"error": {"message": STATUS[status], "type": "BadRequestError", "param": None, "code": status}}
        )

    def _head(self, status: int, kind: str, extra: str) -> bytes:
        self.server.access(self, status)
        date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
        close = "connection: close\r\n" if self.close_after else ""
        return (f"HTTP/1.1 {status} {STATUS[status]}\r\ndate: {date}\r\nserver: twinrail-sim\r\n{extra}{close}"
                f"content-type: {kind}\r\n\r\n").encode("latin-1")  # fmt: skip

    def respond(self, status: int, body: Any, kind: str = "application/json") -> None:
        """Answer with JSON, or with text when `body` is a string."""
        data = body.encode() if isinstance(body, str) else json.dumps(body, separators=(",", ":")).encode()
        self.transport.write(self._head(status, kind, f"content-length: {len(data)}\r\n") + data)
        self._finish()

    def begin_stream(self) -> None:
        self.chunked = self.version == "HTTP/1.1"
        self.close_after = self.close_after or not self.chunked
        extra = "transfer-encoding: chunked\r\n" if self.chunked else ""
        self.transport.write(self._head(200, "text/event-stream; charset=utf-8", extra))

    def stream(self, data: bytes, last: bool) -> None:
        if self.transport.is_closing():
            return
        if self.chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data) + (b"0\r\n\r\n" if last else b"")
        self.transport.write(data)
        if self.transport.get_write_buffer_size() > MAX_BUFFERED:
            self.transport.abort()  # a reader that stopped reading
        elif last:
            self._finish()

    def _finish(self) -> None:
        self.generation = None
        self.busy = False
        if self.close_after:
            self.transport.close()
        elif self.buffer:
            asyncio.get_running_loop().call_soon(self.data_received, b"")


class HttpServer:
    """The routes of the simulated server."""

    QUIET = ("ClientDisconnect",)

    def __init__(self, engine: Engine) -> None:
        self.engine, self.args = engine, engine.args
        self.started = int(time.time())

    def bind(self) -> None:
        """Take the port before the long start-up, so that a port in use is told at once. Raises OSError."""
        family = socket.AF_INET6 if ":" in self.args.host else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.sock.bind((self.args.host, self.args.port))

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: HttpConnection(self), sock=self.sock, backlog=2048)

    def access(self, connection: HttpConnection, status: int) -> None:
        path = re.sub(r"[^\x21-\x7e]", "?", connection.path)[:200]
        line = f'{connection.client} - "{connection.method} {path} {connection.version}" {status} {STATUS[status]}'
        self.engine.log.uvicorn(line)
        route = connection.path.partition("?")[0]
        self.engine.metrics.http(connection.method, route if route in self.routes() else "none", status)

    def routes(self) -> Dict[str, Tuple[str, Callable[[HttpConnection, bytes], None]]]:
        both: Dict[str, Tuple[str, Callable[[HttpConnection, bytes], None]]] = {
            "/health": ("GET", self.health), "/v1/models": ("GET", self.models), "/metrics": ("GET", self.metrics),
            "/server_info": ("GET", self.info), "/v1/completions": ("POST", lambda c, b: self.complete(c, b, chat=False)),
            "/v1/chat/completions": ("POST", lambda c, b: self.complete(c, b, chat=True)),
            "/reset_prefix_cache": ("POST", self.flush), "/flush_cache": ("POST", self.flush),
            "/abort_request": ("POST", self.abort), "/abort_requests": ("POST", self.abort),
        }  # fmt: skip
        if self.args.style == "vllm":
            return {
                **both,
                "/version": ("GET", lambda c, b: c.respond(200, {"version": VERSION})),
                "/ping": ("GET", self.health),
            }
        return {
            **both,
            "/get_server_info": ("GET", self.info),
            "/model_info": ("GET", self.info),
            "/get_model_info": ("GET", self.info),
        }

    def handle(self, connection: HttpConnection, path: str, body: bytes) -> None:
        method, route = self.routes().get(path, ("", None))
        try:
            if route is None:
                connection.respond(404, {"detail": "Not Found"})
            elif connection.method != method:
                connection.respond(405, {"detail": "Method Not Allowed"})
            else:
                route(connection, body)
        except HttpError as error:
            what = {"message": error.message, "type": error.kind, "param": error.param, "code": error.status}
            connection.respond(
                error.status, {"error": what} if self.args.style == "vllm" else {"object": "error", **what}
            )

    @staticmethod
    def parse(body: bytes) -> Dict[str, Any]:
        try:
            value = json.loads(body or b"{}")
        except (ValueError, RecursionError) as error:
            raise HttpError(400, f"JSON decode error: {error}") from None
        if not isinstance(value, dict):
            raise HttpError(400, "the body must be a JSON object")
        return value

    def health(self, connection: HttpConnection, _: bytes) -> None:
        connection.respond(503 if self.engine.dead or not self.engine.ready_at else 200, "", "text/plain")

    def models(self, connection: HttpConnection, _: bytes) -> None:
        model = {"id": self.args.model, "object": "model", "created": self.started, "owned_by": self.args.style,
                 "root": self.args.model, "parent": None, "max_model_len": self.engine.max_len}  # fmt: skip
        connection.respond(200, {"object": "list", "data": [model]})

    def metrics(self, connection: HttpConnection, _: bytes) -> None:
        text = self.engine.metrics.render(self.engine)
        connection.respond(200, text, "text/plain; version=0.0.4; charset=utf-8")

    def info(self, connection: HttpConnection, _: bytes) -> None:
        """The settings; not the cost model, which is what a tuner has to find out."""
        names = ("model", "tp", "pp", "nnodes", "max_running", "kv_tokens", "block_size", "chunk", "style", "clock_scale",
                 "prefix_cache", "stream_interval")  # fmt: skip
        info = {name: getattr(self.args, name) for name in names}
        info.update(simulated=True, engine="sim", version=VERSION, context_length=self.engine.max_len, schedule=
                    "prefill-first" if self.engine.scheduler.prefill_first else "mixed", token_rule="4 bytes of text = 1 token")  # fmt: skip
        connection.respond(200, info)

    def flush(self, connection: HttpConnection, _: bytes) -> None:
        if self.engine.pool.reset():
            self.engine.log.core("block_pool.py:374", "Successfully reset prefix cache")
            connection.respond(200, "" if self.args.style == "vllm" else "Cache flushed.\n", "text/plain")
            return
        used = self.engine.pool.used
        self.engine.log.core(
            "block_pool.py:364",
            f"Failed to reset prefix cache because some blocks ({used}) are not freed yet",
            "WARNING",
        )
        raise HttpError(400, "the cache is in use: requests are running")

    def abort(self, connection: HttpConnection, body: bytes) -> None:
        """SGLang's {"rid": ID, "abort_all": bool} and vLLM's {"request_ids": [ID]}; ids as in the responses."""
        asked = self.parse(body)
        ids = asked.get("request_ids") or [asked.get("rid")]
        every = bool(asked.get("abort_all"))
        for generation in list(self.engine.live.values()):
            if every or generation.id in ids:
                generation.cancel()
                generation.connection.generation = None
                generation.connection.transport.close()
        connection.respond(200, "", "text/plain")

    def complete(self, connection: HttpConnection, body: bytes, chat: bool) -> None:
        if self.engine.dead:
            raise HttpError(500, "EngineCore encountered an issue.", "InternalServerError")
        asked = self.parse(body)
        model = asked.get("model")
        if model is not None and model != self.args.model and self.args.style == "vllm":
            raise HttpError(
                404, f"The model `{model}` does not exist. Valid aliases: {self.args.model}.", "NotFoundError", "model"
            )
        generation = Generation(self.engine, connection, asked, chat)
        connection.generation = generation
        generation.start()


# ----------------------------------------------------------------------------------------------------------------- main


def parser() -> argparse.ArgumentParser:
    cli = argparse.ArgumentParser(prog="sim.py", description="A simulated LLM inference engine.", allow_abbrev=False)
    add = cli.add_argument
    add("--host", default="0.0.0.0")
    add("--port", type=int, default=30000)
    add("--model", default="sim-model")
    add("--style", choices=("vllm", "sglang"), default="vllm", help="whose logs, metrics and errors")
    add("--tp", type=int, default=1)
    add("--pp", type=int, default=1)
    add("--nnodes", type=int, default=1)
    add("--node-rank", type=int, default=0)
    add("--dist-init-addr", default="127.0.0.1:29500", metavar="HOST:PORT")
    add("--gpus-per-node", type=int, default=8)
    add(
        "--hca",
        default=os.environ.get("NCCL_IB_HCA", "").lstrip("=^") or "mlx5_0,mlx5_3",
        help="rails, as NCCL names them",
    )
    add("--nccl-net", choices=("ib", "ib-nogdr", "socket"), default=os.environ.get("SIM_NCCL_NET", "ib"))
    add("--max-running", type=int, default=256)
    add("--kv-tokens", type=int, default=400000)
    add("--block-size", type=int, default=16)
    add("--chunk", type=int, default=2048, help="token budget of a step")
    add("--context-length", type=int, default=131072)
    add("--schedule", choices=("auto", "mixed", "prefill-first"), default="auto")
    add("--stream-interval", type=int, default=1, help="tokens per streamed chunk")
    add("--prefix-cache", dest="prefix_cache", action="store_true", default=True)
    add("--no-prefix-cache", dest="prefix_cache", action="store_false")
    add("--clock-scale", type=float, default=1.0, help="simulated seconds per wall second")
    add("--seed", type=int, default=0)
    add("--noise", type=float, default=0.02, help="sigma of the log-normal step noise")
    add("--mean-output", type=float, default=200.0, help="mean length of an answer without ignore_eos, tokens")
    add("--step-base-ms", type=float, default=20.0)
    add("--ms-per-seq", type=float, default=0.25)
    add("--ms-per-ktoken-prefill", type=float, default=55.0)
    add("--ms-per-gpair-prefill", type=float, default=200.0, help="per 1e9 query-key pairs")
    add("--ms-per-mtoken-context", type=float, default=40.0)
    add("--comm-ms", type=float, default=4.0, help="latency between nodes, per step")
    add("--load-s", type=float, default=8.0, help="simulated seconds of start-up")
    add("--rendezvous-timeout", type=float, default=600.0, help="wall seconds")
    add("--watchdog-timeout", type=float, default=20.0, help="wall seconds without an answer of a node")
    add("--log-stats-interval", type=float, default=10.0, help="wall seconds (vllm)")
    add("--decode-log-interval", type=int, default=40, help="steps (sglang)")
    add("--log-flood", type=int, default=0, metavar="LINES_PER_S")
    add("--fault", type=Faults, default=os.environ.get("TWINRAIL_SIM_FAULT", ""))
    add("--state-dir", default="", help="where the lab's device stand-ins read gpu_load and rdma_load")
    return cli


def parse(argv: List[str]) -> argparse.Namespace:
    cli = parser()
    args = cli.parse_args(argv)
    world = args.tp * args.pp
    positive = ("tp", "pp", "nnodes", "max_running", "block_size", "chunk", "clock_scale", "stream_interval", "kv_tokens",
                "context_length", "decode_log_interval", "log_stats_interval", "watchdog_timeout")  # fmt: skip
    for name in positive:
        if getattr(args, name) <= 0:
            cli.error(f"--{name.replace('_', '-')} must be positive")
    if world % args.nnodes:
        cli.error(f"tp {args.tp} x pp {args.pp} ranks cannot be spread over {args.nnodes} nodes")
    if world // args.nnodes > args.gpus_per_node:
        cli.error(f"{world // args.nnodes} ranks a node but {args.gpus_per_node} GPUs")
    if not 0 <= args.node_rank < args.nnodes:
        cli.error(f"--node-rank must be 0 to {args.nnodes - 1}")
    if args.kv_tokens < args.block_size:
        cli.error("--kv-tokens holds no block")
    if not re.fullmatch(r"[\w.:\[\]-]+:\d+", args.dist_init_addr):
        cli.error("--dist-init-addr must be HOST:PORT")
    return args


async def serve(args: argparse.Namespace) -> int:
    process: Union[Engine, Worker] = Engine(args) if args.node_rank == 0 else Worker(args)
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, process.stop)
    jobs = [process.run(), process.background(), process.watch_faults()]
    if isinstance(process, Engine):
        jobs.append(process.vllm_stats())
    tasks = [asyncio.ensure_future(job) for job in jobs]

    def check(task: asyncio.Future[None]) -> None:
        """A bug in one of them must end the process, not leave half a server."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not process.done.done():
            process.done.set_exception(error)

    for task in tasks:
        task.add_done_callback(check)
    try:
        return await process.done
    finally:
        process.devices.idle()


def main(argv: Optional[List[str]] = None) -> int:
    args = parse(sys.argv[1:] if argv is None else argv)
    print(f"twinrail sim {VERSION}: SIMULATED {args.style}-style engine, no GPU and no model behind it; node rank {args.node_rank} of "
          f"{args.nnodes}, clock scale {args.clock_scale:g}", flush=True)  # fmt: skip
    code = asyncio.new_event_loop().run_until_complete(serve(args))
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(code)  # streams that are still open must not hold the process


if __name__ == "__main__":
    main()
