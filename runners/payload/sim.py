#!/usr/bin/env python3
"""sim: a simulated LLM inference engine in one file of standard library, for Python 3.9 and later.

It speaks as vLLM or SGLang do (OpenAI-compatible HTTP, /metrics, log lines, NCCL transport lines) and serves from a
model of cost: no GPU, no weights. Batching, KV blocks, prefix cache, preemption and the exchange between nodes are
real; only the time that a step takes is computed (and slept). What is printed and counted is in wall seconds.

Rank 0 serves HTTP and drives; a process with --node-rank N > 0 is a node of workers that joins it at --dist-init-addr
and has to answer every engine step. Text counts as one token per four bytes of UTF-8, rounded up.

Faults (--fault or TWINRAIL_SIM_FAULT, comma list): crash@W, oom@W, hang@W, worker-crash@SECONDS (on the last node),
slow-rank=R:FACTOR (node rank), slow-start=SECONDS, host-bound=MS (simulated ms that every step waits for the one
scheduler process, in a saw-tooth around MS; that process takes a core of its own), prefill-storm=SECONDS:COUNT:TOKENS
(while others decode, so many long prompts of somebody else at once, ever so many wall seconds); W is seconds since
ready (`8.5`), a number of accepted requests (`req=20`) or of running requests (`C=48`).
"""

from __future__ import annotations

import argparse
import asyncio
import bisect
import collections
import contextlib
import errno
import itertools
import json
import math
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, Optional, Tuple, Union

VERSION = "1.0.0+sim"
BUS_IDS = ("16", "27", "38", "5a", "98", "a8", "b8", "d8")
HIDDEN, LAYERS = 7168, 61  # of the simulated model: what one token weighs on the wire
GPU_MIB, WEIGHT_SHARE, POOL_SHARE = 97887, 0.62, 0.91  # device memory; used by weights; used once the KV pool stands
GPU_GIB = GPU_MIB / 1024
RAIL_BYTES_S, SOCKET_BYTES_S = 45e9, 3e9  # what a rail, and TCP over the management net, carry one way
MAX_DEBT_S = 0.2  # how far the engine may lie behind its simulated clock and still catch up
EXCHANGE_GRACE_S = 0.002  # an exchange with a node up to this long is part of --comm-ms
MAX_HEAD, MAX_BODY, MAX_BUFFERED = 64 << 10, 64 << 20, 16 << 20  # bytes: request head, request body, unsent response
CRASHED = 1
ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered"
WORDS = [f" {a}{b}{c}{d}" for a in "bdgkmr" for b in "aeiou" for c in "lnrstv" for d in "aio"]

Labels = Tuple[Tuple[str, str], ...]


# --- logs -------------------------------------------------------------------------------------------------------------


class Log:
    """Lines as the engine of that style writes them, one write each. A reader that went away mutes it, nothing more."""

    def __init__(self, style: str, world: int = 1) -> None:
        self.vllm, self.ranked = style == "vllm", world > 1
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
        if self.vllm:
            name = role if rank is None else f"{role}_TP{rank}"
            head = (
                f"({name} pid={os.getpid() + (rank or 0)}) {level} {time.strftime('%m-%d %H:%M:%S', now)} [{source}] "
            )
        else:
            tag = f" TP{rank or 0}" if self.ranked and role != "APIServer" else ""
            head = f"[{time.strftime('%Y-%m-%d %H:%M:%S', now)}{tag}] "
        self.raw("\n".join(head + part for part in message.split("\n")))

    def api(self, source: str, message: str, level: str = "INFO") -> None:
        self.line("APIServer", source, message, level)

    def core(self, source: str, message: str, level: str = "INFO") -> None:
        self.line("EngineCore", source, message, level)

    def uvicorn(self, message: str) -> None:
        if self.vllm:
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
        text = "\n".join(lines)
        if not self.on or not text:
            return
        if self.target:
            path = self.target.replace("%h", host).replace("%p", str(pid))
            try:
                with open(path, "a", encoding="utf-8") as out:
                    out.write(text + "\n")
                return
            except OSError as error:
                self.log.raw(f"sim: cannot write {path}: {error.strerror}; NCCL lines go here")
                self.target = ""
        self.log.raw(text)


class Node:
    """Who this process is: host, address, its ranks in the world of tp*pp, its rails. Every rank has a pid of its own
    in the lines, as in a real engine, though there is one process."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.rank, self.nodes, self.world = int(args.node_rank), int(args.nnodes), int(args.tp * args.pp)
        self.local, self.tp, self.pp = self.world // self.nodes, int(args.tp), int(args.pp)
        self.host = socket.gethostname().split(".")[0]
        self.address = "127.0.0.1"
        self.hcas: List[str] = [h for h in args.hca.split(",") if h]
        self.net: str = args.nccl_net if self.hcas else "socket"
        self.comm_id = "0x0"

    def pid(self, gpu: int) -> int:
        return os.getpid() + gpu

    def head(self, gpu: int) -> str:
        return f"{self.host}:{self.pid(gpu)}:{self.pid(gpu) + 64} [{gpu}] NCCL INFO "

    def comms(self, gpu: int) -> List[Comm]:
        """The communicators that this GPU's rank belongs to."""
        tp, pp = self.tp, self.pp
        groups = [list(range(s * tp, s * tp + tp)) for s in range(pp) if tp > 1 or pp == 1]
        groups += [list(range(t, self.world, tp)) for t in range(tp) if pp > 1]
        rank = self.rank * self.local + gpu
        return [Comm(self, i, group) for i, group in enumerate(groups) if rank in group]

    def init_lines(self, gpu: int) -> Iterator[str]:
        """What one rank prints while its communicators are being made."""
        head = self.head(gpu)
        yield f"{head}Bootstrap: Using eth0:{self.address}<0>"
        if self.rank == gpu == 0:
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
        yield from (comm.init(gpu, "START") for comm in self.comms(gpu))

    def complete_lines(self, gpu: int) -> Iterator[str]:
        for comm in self.comms(gpu):
            yield from (comm.size(gpu), comm.init(gpu, "COMPLETE"))

    def channel_lines(self, gpu: int) -> Iterator[str]:
        for comm in self.comms(gpu):
            yield from comm.channels(gpu)
            yield f"{self.head(gpu)}Connected all rings, use ring PXN 0 GDR {int(self.net == 'ib')}"


class Comm:
    """An NCCL communicator (a TP or PP group) as one node prints it. members: world ranks in communicator order."""

    def __init__(self, node: Node, index: int, members: List[int]) -> None:
        self.node, self.index, self.members = node, index, members
        self.homes = sorted({rank // node.local for rank in members})  # nodes, by rank

    def _of(self, home: int) -> List[int]:
        return [rank for rank in self.members if rank // self.node.local == home]

    def _name(self, gpu: int) -> str:
        rank = self.members.index(self.node.rank * self.node.local + gpu)
        return f"comm 0x{0x55D000000000 + self.node.pid(gpu) * 65536 + self.index * 64:x} rank {rank}"

    def size(self, gpu: int) -> str:
        here = self._of(self.node.rank)
        place = f"localRanks {len(here)} localRank {here.index(self.node.rank * self.node.local + gpu)} MNNVL 0"
        sizes = f"nRanks {len(self.members)} nNodes {len(self.homes)} {place}"
        return f"{self.node.head(gpu)}{self._name(gpu)} {sizes}"

    def init(self, gpu: int, state: str) -> str:
        number = (int(self.node.comm_id, 16) + self.index * 0x9E3779B97F4A7C15) % (1 << 64)
        device = f"cudaDev {gpu} nvmlDev {gpu} busId {BUS_IDS[gpu % 8]}000 commId 0x{number:016x}"
        end = f"nranks {len(self.members)} {device} - Init {state}"
        return f"{self.node.head(gpu)}ncclCommInitRank {self._name(gpu)} {end}"

    def channels(self, gpu: int) -> Iterator[str]:
        """The edges that this GPU holds: two channels a rail, each crossing nodes at the GPU near that rail. Where a
        communicator has one of a node's several ranks, that one uses the rail near it."""
        node, rails = self.node, max(1, len(self.node.hcas))
        me, here, at = node.rank * node.local + gpu, self._of(node.rank), self.homes.index(node.rank)

        def edge(source: int, target: int) -> str:
            ends = (f"{self.members.index(rank)}[{rank % node.local}]" for rank in (source, target))
            return f"{node.head(gpu)}Channel {channel:02d}/0 : {' -> '.join(ends)}"

        for channel in range(2 * rails):
            rail = channel % rails if len(here) > 1 or node.local == 1 else gpu * rails // node.local
            before, mine, after = (
                group[rail * len(group) // rails % len(group)]
                for group in (self._of(self.homes[(at + step) % len(self.homes)]) for step in (-1, 0, 1))
            )
            beside = here[(here.index(me) + 1) % len(here)]
            if beside not in (mine, me):
                yield f"{edge(me, beside)} via P2P/CUMEM"
            if len(self.homes) > 1 and me == mine:
                via = {"socket": "NET/Socket/0", "ib": f"NET/IB/{rail}/GDRDMA"}.get(node.net, f"NET/IB/{rail}")
                yield f"{edge(before, me)} [receive] via {via}"
                yield f"{edge(me, after)} [send] via {via}"


# --- faults -----------------------------------------------------------------------------------------------------------


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
    """What shall go wrong, from the --fault text. Raises ValueError."""

    NAMES = ("crash", "oom", "hang", "worker-crash")

    def __init__(self, spec: str) -> None:
        self.when: Dict[str, When] = {}
        self.slow: Dict[int, float] = {}
        self.slow_start = self.host_ms = 0.0
        self.storm: Optional[Tuple[float, int, int]] = None  # wall seconds between, prompts, tokens of each
        for item in filter(None, (part.strip() for part in spec.split(","))):
            name, sep, rest = item.partition("@")
            factor = re.fullmatch(r"slow-rank=(\d+):(\d+(?:\.\d+)?)", item)
            seconds = re.fullmatch(r"(slow-start|host-bound)=(\d+(?:\.\d+)?)", item)
            storm = re.fullmatch(r"prefill-storm=(\d+(?:\.\d+)?):([1-9]\d{0,3}):([1-9]\d{0,6})", item)
            if sep and name in self.NAMES:
                self.when[name] = When(rest)
                if name == "worker-crash" and self.when[name].kind != "time":
                    raise ValueError("worker-crash needs SECONDS: a worker counts no requests")
            elif factor:
                self.slow[int(factor.group(1))] = float(factor.group(2))
            elif seconds and seconds.group(1) == "slow-start":
                self.slow_start = float(seconds.group(2))
            elif seconds:
                self.host_ms = float(seconds.group(2))
            elif storm and float(storm.group(1)) > 0:
                self.storm = float(storm.group(1)), int(storm.group(2)), int(storm.group(3))
            else:
                raise ValueError(f"bad fault {item!r}")

    def due(self, name: str, seconds: float, requests: int = 0, running: int = 0) -> bool:
        """Whether it strikes now; each one strikes once."""
        when = self.when.get(name)
        if when is None or not when.met(seconds, requests, running):
            return False
        del self.when[name]
        return True


# --- requests and KV blocks -------------------------------------------------------------------------------------------


class Request:
    """One sequence. tokens = prompt + generated; computed = how many of them have KV. Times are monotonic seconds."""

    __slots__ = (
        *("rid", "tokens", "prompt", "max_tokens", "eos_at", "stream", "sink", "key", "state", "decoding"),
        *("computed", "cached", "out", "preemptions", "blocks", "hashes", "published"),
        *("arrived", "scheduled", "first", "last"),
    )

    def __init__(self, rid: str, tokens: List[int], max_tokens: int, eos_at: int, stream: bool, sink: Sink) -> None:
        self.rid, self.tokens, self.max_tokens, self.eos_at = rid, tokens, max_tokens, eos_at
        self.stream, self.sink, self.prompt = stream, sink, len(tokens)
        self.key = hash(tuple(tokens)) & 0x7FFFFFFF  # the generated text depends on the prompt alone
        self.computed = self.out = self.published = self.preemptions = 0
        self.cached = -1  # tokens found in the prefix cache at first admission
        self.decoding = False
        self.state = "new"  # waiting, running, done
        self.blocks: List[int] = []
        self.hashes: List[int] = []
        self.arrived = time.monotonic()
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

    @property
    def usage(self) -> float:
        return self.used / self.total

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
        return list(itertools.takewhile(lambda b: b >= 0, (self.by_hash.get(digest, -1) for digest in hashes)))

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
        self.cached = self.preempted = 0

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
    """Continuous batching with chunked prefill: up to `chunk` tokens a step, the running ones first, oldest first. Out
    of blocks, the youngest running request loses its KV and is computed again later. `prefill_first` (SGLang's habit)
    keeps prefill and decode in steps of their own; otherwise they mix, as in vLLM."""

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
        self._advance(batch, (False,) if self.prefill_first else (True, False))
        self._admit(batch)
        if self.prefill_first and not batch.items:
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
        while self.waiting and batch.tokens < self.chunk and len(self.running) < self.max_running:
            req = self.waiting[0]
            hits: List[int] = []
            if pool.caching:
                self._hash(req, (len(req.tokens) - 1) // pool.size)  # the last token is always computed
                hits = pool.match(req.hashes[: (len(req.tokens) - 1) // pool.size])
            pool.acquire(hits)
            if batch.preempted or -(-len(req.tokens) // pool.size) - len(hits) > len(pool.free):
                pool.release(hits)
                return  # the whole prompt has to fit
            self.waiting.popleft()
            self.running.append(req)
            req.state, req.blocks, req.published = "running", hits, len(hits)
            req.computed = len(hits) * pool.size
            req.cached = req.computed if req.cached < 0 else req.cached
            batch.cached += req.computed
            count = min(len(req.tokens) - req.computed, self.chunk - batch.tokens)
            self._grow(req, req.computed + count)
            batch.add(req, count)

    def _grow(self, req: Request, tokens: int) -> bool:
        need = -(-tokens // self.pool.size) - len(req.blocks)
        fresh = self.pool.allocate(need) if need > 0 else []
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


# --- step cost --------------------------------------------------------------------------------------------------------


class CostModel:
    """Simulated seconds of a step. Per step a base (weights, launches), per decoding sequence, per context token;
    prefill by token and by query-key pair; between nodes a latency and the tokens' bytes over the rails. TP across the
    nodes pays an all-reduce per layer; PP pays a hand-over and a bubble. Noise is log-normal, per step and per life."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.noise = args, float(args.noise)
        self.rng = random.Random(args.seed)
        self.bias = math.exp(self.rng.gauss(0.0, self.noise / 2))
        self.spans = args.nnodes > 1 and args.tp > args.tp * args.pp // args.nnodes
        rails = max(1, len(args.hca.split(",")))
        self.wire_bytes_s = SOCKET_BYTES_S if args.nccl_net == "socket" else RAIL_BYTES_S * rails
        activation = 2 * HIDDEN  # bytes of a token between two layers, bf16
        crossings = 2 * LAYERS if self.spans else args.pp - 1 if args.nnodes > 1 else 0
        self.token_bytes = activation * crossings

    def step(self, batch: Batch) -> Tuple[float, float]:
        """(seconds, bytes that cross the nodes one way)."""
        args, crossing = self.args, float(self.token_bytes * batch.tokens)
        ms = args.step_base_ms * (1 + 0.5 * (args.pp - 1)) + args.ms_per_seq * batch.decode_seqs
        ms += args.ms_per_mtoken_context * batch.context / 1e6
        ms += args.ms_per_ktoken_prefill * batch.prefill_tokens / 1e3 + args.ms_per_gpair_prefill * batch.pairs / 1e9
        if args.nnodes > 1:
            ms += args.comm_ms * (1.0 if self.spans else 0.2) + crossing / self.wire_bytes_s * 1e3
        return ms / 1e3 * self.bias * math.exp(self.rng.gauss(0.0, self.noise)), crossing


# --- metrics ----------------------------------------------------------------------------------------------------------


class Cell:
    """The value of a counter or gauge."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0


class Hist:
    """A histogram."""

    __slots__ = ("bounds", "count", "counts", "total")

    def __init__(self, bounds: Tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total, self.count = 0.0, 0

    def observe(self, value: float) -> None:
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value
        self.count += 1


class Registry:
    """Prometheus text exposition, format 0.0.4."""

    def __init__(self, created: bool) -> None:
        self.families: Dict[str, Tuple[str, Dict[Labels, Union[Cell, Hist]]]] = {}
        self.born = time.time() if created else None

    def _at(self, name: str, kind: str, labels: Dict[str, str], new: Callable[[], Union[Cell, Hist]]) -> Any:
        series = self.families.setdefault(name, (kind, {}))[1]
        key = tuple(sorted(labels.items()))
        if key not in series:
            series[key] = new()
        return series[key]

    def cell(self, kind: str, name: str, labels: Dict[str, str]) -> Cell:
        cell: Cell = self._at(name, kind, labels, Cell)
        return cell

    def hist(self, name: str, bounds: Tuple[float, ...], labels: Dict[str, str]) -> Hist:
        hist: Hist = self._at(name, "histogram", labels, lambda: Hist(bounds))
        return hist

    def render(self) -> str:
        out: List[str] = []
        for name, (kind, series) in self.families.items():
            about = name.partition(":")[2].replace("_", " ") or name
            out += [f"# HELP {name} {about} (simulated)", f"# TYPE {name} {kind}"]
            for labels, value in series.items():
                if isinstance(value, Cell):
                    out.append(f"{name}{self._labels(labels)} {value.value!r}")
                    continue
                bounds = [*map(repr, value.bounds), "+Inf"]
                for i, seen in enumerate(itertools.accumulate(value.counts)):
                    out.append(f"{name}_bucket{self._labels(labels, bounds[i])} {float(seen)}")
                out.append(f"{name}_count{self._labels(labels)} {float(value.count)}")
                out.append(f"{name}_sum{self._labels(labels)} {value.total!r}")
            if self.born is not None and kind != "gauge":
                base = re.sub("_total$", "", name) if kind == "counter" else name
                out += [f"# HELP {base}_created {about} (simulated)", f"# TYPE {base}_created gauge"]
                out += [f"{base}_created{self._labels(labels)} {self.born!r}" for labels in series]
        return "\n".join(out) + "\n"

    @staticmethod
    def _labels(labels: Labels, le: str = "") -> str:
        pairs = sorted((*labels, ("le", le))) if le else labels
        text = ",".join('{}="{}"'.format(k, v.replace("\\", "\\\\").replace('"', '\\"')) for k, v in pairs)
        return "{" + text + "}" if text else ""


def bounds(text: str) -> Tuple[float, ...]:
    return tuple(float(word) for word in text.split())


_TOKENS = bounds("1 2 5 10 20 50 100 200 500 1000 2000 5000 10000 20000 50000 100000")
_REQUEST = bounds("0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680")
_TOKEN_S = bounds("0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5 5 7.5 10 20 40 80")
_S_TOKEN = bounds(
    "0.002 0.004 0.006 0.008 0.01 0.015 0.02 0.025 0.03 0.035 0.04 0.06 0.08 0.1 0.2 0.4 0.6 0.8 1 2 4 6 8"
)
_S_TTFT = bounds("0.1 0.2 0.4 0.6 0.8 1 2 4 6 8 10 20 40 60 80 100 200 400")
# Names and buckets as served by vLLM 0.32 and SGLang 0.5.23.
HISTOGRAMS: Dict[str, Dict[str, Tuple[float, ...]]] = {
    "vllm": {
        "request_prompt_tokens": _TOKENS,
        "request_generation_tokens": _TOKENS,
        "request_params_max_tokens": _TOKENS,
        "request_prefill_kv_computed_tokens": _TOKENS,
        "request_num_preemptions": bounds("1 2 3 4 5 10 20"),
        "iteration_tokens_total": bounds("1 8 16 32 64 128 256 512 1024 2048 4096 8192 16384"),
        "time_to_first_token_seconds": bounds(
            "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40 80 160 640 2560"
        ),
        "inter_token_latency_seconds": _TOKEN_S,
        "request_time_per_output_token_seconds": _TOKEN_S,
        "e2e_request_latency_seconds": _REQUEST,
        "request_queue_time_seconds": _REQUEST,
        "request_prefill_time_seconds": _REQUEST,
        "request_decode_time_seconds": _REQUEST,
        "request_inference_time_seconds": _REQUEST,
    },
    "sglang": {
        "time_to_first_token_seconds": _S_TTFT,
        "inter_token_latency_seconds": _S_TOKEN,
        "request_time_per_output_token_seconds": _S_TOKEN,
        "e2e_request_latency_seconds": (*_S_TTFT, *bounds("600 1200 1800 2400")),
        "queue_time_seconds": bounds("0 0.001 0.005 0.01 0.05 0.1 0.2 0.5 1 2 3 4 5 10 15 20 30 60 100 300 1000 3000"),
    },
}
VLLM_COUNTERS = (
    *("num_preemptions", "prefix_cache_queries", "prefix_cache_hits", "external_prefix_cache_queries"),
    *("external_prefix_cache_hits", "prompt_tokens", "prompt_tokens_cached", "generation_tokens"),
)


class Metrics:
    """What both engines count, under the names and labels of one of them. All times are wall seconds."""

    def __init__(self, args: argparse.Namespace, blocks: int) -> None:
        self.args, self.vllm = args, args.style == "vllm"
        self.registry = Registry(created=self.vllm)
        kind = {"engine": "0"} if self.vllm else {"engine_type": "unified"}
        self.base = {"model_name": str(args.model), **kind}
        self.ranked = self.base if self.vllm else {**self.base, "tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}
        self.prompt_tokens = self.generated = self.queries = self.hits = self.preemptions = 0  # for the log lines
        info = {"version": VERSION, "style": args.style, "clock_scale": repr(args.clock_scale)}
        self.registry.cell("gauge", "twinrail_sim_info", info).value = 1.0
        self.lag = self.registry.cell("counter", "twinrail_sim_lag_seconds_total", {})  # machine too slow for the scale
        if self.vllm:
            self._register(blocks)

    def _register(self, blocks: int) -> None:
        """Series that vLLM serves from the start, so that a reader can tell zero from absent."""
        for name in VLLM_COUNTERS:
            self.counter(name)
        for source in ("local_compute", "local_cache_hit", "external_kv_transfer"):
            self.counter("prompt_tokens_by_source", source=source)
        for reason in ("stop", "length", "abort", "error", "repetition"):
            self.counter("request_success", finished_reason=reason)
        for name in HISTOGRAMS["vllm"]:
            self.hist(name)
        size, caching = self.args.block_size, str(bool(self.args.prefix_cache))
        info = {"block_size": str(size), "num_gpu_blocks": str(blocks), "kv_cache_size_tokens": str(blocks * size)}
        self.gauge("cache_config_info", 1, cache_dtype="auto", enable_prefix_caching=caching, **info)

    def counter(self, name: str, **labels: str) -> Cell:
        return self.registry.cell("counter", f"{self.args.style}:{name}_total", {**self.base, **labels})

    def ranked_counter(self, name: str, **labels: str) -> Cell:
        return self.registry.cell("counter", f"{self.args.style}:{name}_total", {**self.ranked, **labels})

    def gauge(self, name: str, value: float, **labels: str) -> None:
        self.registry.cell("gauge", f"{self.args.style}:{name}", {**self.ranked, **labels}).value = float(value)

    def hist(self, name: str, **labels: str) -> Hist:
        edges = HISTOGRAMS[self.args.style][name]
        return self.registry.hist(f"{self.args.style}:{name}", edges, {**self.base, **labels})

    def admitted(self, req: Request) -> None:
        """First scheduling of a request."""
        queried = req.prompt if self.args.prefix_cache else 0
        self.queries += queried
        self.hits += req.cached
        waited = req.scheduled - req.arrived
        if self.vllm:
            self.counter("prefix_cache_queries").value += queried
            self.counter("prefix_cache_hits").value += req.cached
            self.hist("request_queue_time_seconds").observe(waited)
        else:
            self.counter("cached_tokens", cache_source="device").value += req.cached
            edges = HISTOGRAMS["sglang"]["queue_time_seconds"]
            self.registry.hist("sglang:queue_time_seconds", edges, self.ranked).observe(waited)

    def step(self, batch: Batch, generated: int) -> None:
        self.preemptions += batch.preempted
        self.generated += generated
        if self.vllm:
            self.counter("generation_tokens").value += generated
            self.counter("num_preemptions").value += batch.preempted
            self.hist("iteration_tokens_total").observe(batch.tokens)
            return
        self.ranked_counter("realtime_tokens", mode="prefill_compute").value += batch.prefill_tokens
        self.ranked_counter("realtime_tokens", mode="prefill_cache").value += batch.cached
        self.ranked_counter("realtime_tokens", mode="decode").value += batch.decode_seqs
        self.ranked_counter("num_retracted_requests").value += batch.preempted

    def first_token(self, req: Request) -> None:
        self.prompt_tokens += req.prompt - req.cached
        if not self.vllm:
            stream = str(req.stream).lower()
            self.hist("time_to_first_token_seconds", is_streaming=stream).observe(req.first - req.arrived)
            return
        self.hist("time_to_first_token_seconds").observe(req.first - req.arrived)
        self.counter("prompt_tokens").value += req.prompt
        self.counter("prompt_tokens_cached").value += req.cached
        self.counter("prompt_tokens_by_source", source="local_compute").value += req.prompt - req.cached
        self.counter("prompt_tokens_by_source", source="local_cache_hit").value += req.cached

    def finished(self, req: Request, reason: str) -> None:
        """reason: stop, length, abort or error."""
        good = reason in ("stop", "length")
        if self.vllm:
            self.counter("request_success", finished_reason=reason).value += 1
        elif not good:
            self.counter("num_aborted_requests").value += 1
        if not good:
            return
        stream = {} if self.vllm else {"is_streaming": str(req.stream).lower()}
        decode = req.last - req.first
        self.hist("e2e_request_latency_seconds", **stream).observe(req.last - req.arrived)
        if req.out > 1:
            self.hist("request_time_per_output_token_seconds", **stream).observe(decode / (req.out - 1))
        if not self.vllm:  # SGLang counts tokens when a request ends
            self.counter("prompt_tokens", **stream).value += req.prompt
            self.counter("generation_tokens", **stream).value += req.out
            self.counter("num_requests", **stream).value += 1
            return
        self.hist("request_decode_time_seconds").observe(decode)
        self.hist("request_prefill_time_seconds").observe(req.first - req.scheduled)
        self.hist("request_inference_time_seconds").observe(req.last - req.scheduled)
        self.hist("request_prompt_tokens").observe(req.prompt)
        self.hist("request_generation_tokens").observe(req.out)
        self.hist("request_params_max_tokens").observe(req.max_tokens)
        self.hist("request_prefill_kv_computed_tokens").observe(req.prompt - req.cached)
        self.hist("request_num_preemptions").observe(req.preemptions)

    def http(self, method: str, path: str, status: int) -> None:
        if self.vllm:
            labels = {"handler": path, "method": method, "status": f"{status // 100}xx"}
            self.registry.cell("counter", "http_requests_total", labels).value += 1
        else:
            labels = {"endpoint": path, "method": method}
            self.registry.cell("counter", "sglang:http_requests_total", labels).value += 1
            labels["status_code"] = str(status)
            self.registry.cell("counter", "sglang:http_responses_total", labels).value += 1

    def render(self, engine: Engine) -> str:
        pool, size = engine.pool, engine.pool.size
        running, waiting = len(engine.scheduler.running), len(engine.scheduler.waiting)
        if self.vllm:
            self.gauge("num_requests_running", running)
            self.gauge("num_requests_waiting", waiting)
            self.gauge("num_requests_waiting_by_reason", waiting, reason="capacity")
            self.gauge("num_requests_waiting_by_reason", 0, reason="deferred")
            self.gauge("kv_cache_usage_perc", pool.usage)
            return self.registry.render()
        evictable = size * sum(pool.hash_of[block] is not None for block in pool.free)
        values = {"num_running_reqs": running, "num_queue_reqs": waiting, "num_paused_reqs": 0, "is_cuda_graph": 1}
        values.update(num_used_tokens=pool.used * size, kv_used_tokens=pool.used * size, kv_evictable_tokens=evictable)
        values.update(kv_available_tokens=len(pool.free) * size - evictable, max_total_num_tokens=pool.total * size)
        values.update(page_size=size, num_pages=pool.total, context_len=engine.max_len)
        values.update(num_retracted_reqs=engine.stats.retracted, spec_accept_length=0)
        shares = {"token_usage": pool.usage, "full_token_usage": pool.usage, "cache_hit_rate": engine.stats.hit_rate}
        for name, value in {**values, **shares, "gen_throughput": engine.stats.gen_tps}.items():
            self.gauge(name, value)
        return self.registry.render()


# --- a node's process -------------------------------------------------------------------------------------------------


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
        node, now = self.node, time.monotonic()
        span, self.at = max(1e-3, now - self.at), now
        util = round(min(99.0, 100.0 * self.busy / span), 1)
        rate = round(self.crossing / span / max(1, len(node.hcas)))
        self.busy = self.crossing = 0.0
        used = int(GPU_MIB * self.memory)
        procs = [{"pid": node.pid(g), "name": f"{self.label}_TP{g}", "gpu": g, "mib": used} for g in range(node.local)]
        gpus = {str(g): {"util": util, "mem_used": used} for g in range(node.local)}
        over_rails = node.net != "socket" and node.nodes > 1
        rails = {hca: {"tx_bytes_per_s": rate, "rx_bytes_per_s": rate} for hca in node.hcas if over_rails}
        self._put("gpu_load", {"memory_total": GPU_MIB, "gpus": gpus, "procs": procs})
        self._put("rdma_load", rails)

    def idle(self) -> None:
        """The process ends: its memory and load go."""
        self._put("gpu_load", {"memory_total": GPU_MIB})
        self._put("rdma_load", {})

    def _put(self, name: str, value: Any) -> None:
        if not self.folder:
            return
        path = os.path.join(self.folder, name)
        try:
            with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as out:
                json.dump(value, out)
            os.replace(f"{path}.{os.getpid()}", path)
        except OSError:
            self.folder = ""  # not writable here: the devices stay as they are


class Process:
    """What every node has: its log, its ranks' start-up, its faults, its end."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.scale = args, float(args.clock_scale)
        self.vllm = args.style == "vllm"
        self.node = Node(args)
        self.log = Log(args.style, self.node.world)
        self.nccl = NcclLog(self.log)
        self.faults: Faults = args.fault
        self.devices = Devices(args.state_dir, self.node, "VLLM::Worker" if self.vllm else "sglang::scheduler")
        self.slow = self.faults.slow.get(self.node.rank, 1.0)
        self.ready_at = 0.0
        self.flooded = 0
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(self, code: int) -> None:
        if not self.done.done():
            self.done.set_result(code)

    async def pause(self, simulated_s: float) -> None:
        await asyncio.sleep(simulated_s / self.scale)

    def each(self, source: str, vllm: str, sglang: str = "") -> None:
        """A line from each of this node's ranks, in the words of the style; none where it has none."""
        message = vllm if self.vllm else sglang
        for gpu in range(self.node.local if message else 0):
            self.log.line("Worker", source, message, rank=self.node.rank * self.node.local + gpu)

    async def load(self) -> None:
        """Start-up between rendezvous and ready, on every node: communicator, weights, KV pool, graphs."""
        node, args, total = self.node, self.args, float(self.args.load_s)
        gpus, weights = range(node.local), GPU_GIB * WEIGHT_SHARE
        self.each("parallel_state.py:1906", f"world_size={node.world} backend=nccl", "Init torch distributed begin.")
        for gpu in gpus:
            self.nccl.write(node.host, node.pid(gpu), node.init_lines(gpu))
        await self.pause(0.1 * total)
        for gpu in gpus:
            self.nccl.write(node.host, node.pid(gpu), node.complete_lines(gpu))
        await asyncio.sleep(self.faults.slow_start)
        self.each(
            "", "", f"Init torch distributed ends. mem usage=0.62 GB\nLoad weight begin. avail mem={GPU_GIB:.2f} GB"
        )
        for step in range(1, 5):
            await self.pause(0.15 * total)
            self.devices.memory = WEIGHT_SHARE * step / 4
            done = f"{25 * step:3d}% Completed | {step * 4}/16 [00:0{step}<00:0{4 - step},  3.5it/s]"
            self.log.raw(f"Loading safetensors checkpoint shards: {done}")
        self.each("default_loader.py:438", f"Loading weights took {0.6 * total:.2f} seconds")
        took = f"took {weights:.2f} GiB memory and {0.7 * total:.6f} seconds"
        kind = "type=SimForCausalLM, dtype=torch.bfloat16"
        memory = f"avail mem={GPU_GIB - weights:.2f} GB, mem usage={weights:.2f} GB."
        ended = f"Load weight end. elapsed={0.6 * total:.2f} s, {kind}, {memory}"
        self.each("gpu_model_runner.py:5255", f"Model loading {took}", ended)
        self.devices.memory = POOL_SHARE
        pool = GPU_GIB * (POOL_SHARE - WEIGHT_SHARE)
        tokens, length = args.kv_tokens // args.block_size * args.block_size, args.context_length
        allocated = f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {tokens}, KV size: {pool:.2f} GB"
        left = f"Memory pool end. avail mem={GPU_GIB * (1 - POOL_SHARE):.2f} GB"
        capture = "Capture cuda graph begin. This can take up to several minutes."
        self.each("gpu_worker.py:560", f"Available KV cache memory: {pool:.2f} GiB", f"{allocated}\n{left}\n{capture}")
        if self.vllm and node.rank == 0:
            most = f"Maximum concurrency for {length:,} tokens per request: {tokens / length:.2f}x"
            self.log.core("kv_cache_utils.py:2327", f"GPU KV cache size: {tokens:,} tokens, {most}")
        await self.pause(0.3 * total)
        for gpu in gpus:  # channels connect with the first collectives, after the communicator is complete
            self.nccl.write(node.host, node.pid(gpu), node.channel_lines(gpu))
        captured = f"Graph capturing finished in {max(1, round(0.3 * total))} secs, took 2.51 GiB"
        end = f"Capture cuda graph end. Time elapsed: {0.3 * total:.2f} s. mem usage=2.51 GB."
        self.each("gpu_model_runner.py:6905", captured, end)

    def traceback(self, error: str, rank: Optional[int] = None) -> None:
        """An exception of the engine loop, or of one rank's worker, in the style's own words."""
        where = '  File "/opt/sim/engine.py", line '
        body = (
            f"{where}1021, in run_engine\n    engine.run_busy_loop()\n{where}438, in step\n    executor.execute(batch)"
        )
        head = "Traceback (most recent call last):"
        if not self.vllm:
            self.log.line("EngineCore", "", f"Scheduler hit an exception: {head}", "ERROR", rank)
            self.log.raw(f"{body}\n{error}")
        elif rank is None:
            self.log.core("core.py:1032", f"EngineCore encountered a fatal error.\n{head}\n{body}\n{error}", "ERROR")
        else:
            text = f"WorkerProc hit an exception.\n{head}\n{body}\n{error}"
            self.log.line("Worker", "multiproc_executor.py:870", text, "ERROR", rank)

    def lost(self, rank: int, host: str, address: str, port: int, why: str) -> None:
        """NCCL's and torch's lines about a peer that is gone, and one of ours that names the node."""
        pid = self.node.pid(0)
        head = f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {self.node.host}:{pid}:{pid + 65} [0]"
        if self.node.net == "socket" or not self.node.hcas:
            source, last = "misc/socket.cc:915", f"socketProgress: Connection closed by remote peer {host}<{port}>"
        else:
            status = "status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=129 req_type=Send"
            last = f"NET/IB : Got completion from peer {address}<{port}> with {status} hca {self.node.hcas[0]}"
            source = "transport/net_ib.cc:1862"
        self.log.raw(f"\n{head} {source} NCCL WARN {last}")
        self.traceback(
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, remote process exited or "
            "there was a network error, NCCL version 2.27.7\nncclRemoteError: A call failed possibly due to a network "
            f"error or a remote process exiting prematurely.\nLast error:\n{last}"
        )
        self.log.raw(f"sim: node rank {rank} ({host}, {address}) is lost: {why}")

    def flood(self, count: int) -> None:
        head = f"(EngineCore pid={os.getpid()}) DEBUG {time.strftime('%m-%d %H:%M:%S')} [flood.py:1] sim flood "
        first, self.flooded = self.flooded + 1, self.flooded + count
        self.log.raw("\n".join(f"{head}{n:09d} {'x' * 40}" for n in range(first, first + count)))

    async def background(self) -> None:
        """Once a second the devices' load; in between the extra log lines that were asked for."""
        tick, owed, due = 0.05, 0.0, time.monotonic()
        for number in itertools.count():
            due += tick
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if number % 20 == 0:
                self.devices.write()
            owed += self.args.log_flood * tick
            if owed >= 1:
                self.flood(int(owed))
                owed %= 1


# --- the link between the nodes ---------------------------------------------------------------------------------------


def send(writer: asyncio.StreamWriter, **message: Any) -> None:
    writer.write(json.dumps(message).encode() + b"\n")


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


def endpoint(address: str) -> Tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


class Worker(Process):
    """A node of worker ranks: joins rank 0, loads, then answers each step after its share of the step's time."""

    writer: Optional[asyncio.StreamWriter] = None

    async def join(self) -> Tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raises TimeoutError."""
        host, port = endpoint(self.args.dist_init_addr)
        deadline = time.monotonic() + self.args.rendezvous_timeout
        while True:
            try:
                return await asyncio.wait_for(asyncio.open_connection(host, port), 5)
            except (OSError, asyncio.TimeoutError) as error:
                if time.monotonic() > deadline:
                    timeout = f"timed out after {self.args.rendezvous_timeout:g}s while trying to connect to"
                    raise TimeoutError(f"The client socket has {timeout} ({host}, {port}). {error}") from None
                await asyncio.sleep(0.2)

    async def run(self) -> None:
        args, node = self.args, self.node
        try:
            reader, writer = await self.join()
        except TimeoutError as error:
            self.log.raw(f"torch.distributed.DistNetworkError: {error}")
            self.end(CRASHED)
            return
        self.writer = writer
        tune(writer, args.watchdog_timeout)
        address, port = writer.get_extra_info("peername")[:2]
        node.address = writer.get_extra_info("sockname")[0]
        send(writer, t="hello", rank=node.rank, host=node.host, nodes=node.nodes, world=node.world)
        init = await receive(reader)
        if init.get("t") != "init":
            why = init.get("why", "connection closed")
            self.log.raw(f"sim: rank 0 at {args.dist_init_addr} refused this node: {why}")
            self.end(CRASHED)
            return
        node.comm_id, self.scale = str(init["comm_id"]), float(init["scale"])
        loading = asyncio.ensure_future(self.load())
        loading.add_done_callback(lambda task: send(writer, t="loaded", error=task.result()))  # raises what it raised
        while True:
            message = await receive(reader)
            if message.get("t") == "step":
                await self.step(writer, message)
            elif message.get("t") == "ready":
                self.ready_at = time.monotonic()
            else:
                break
        if message.get("t") == "bye":
            self.end(0)
            return
        self.lost(0, str(init.get("host")), str(address), int(port), "its process closed the connection")
        self.end(CRASHED)

    async def step(self, writer: asyncio.StreamWriter, message: Dict[str, Any]) -> None:
        start, share = time.monotonic(), float(message["share"])
        took = share * self.slow
        await asyncio.sleep(max(0.0, float(message["left"]) + took - share))
        self.devices.add(took - float(message["host"]), float(message["bytes"]))
        send(writer, t="ack", n=message["n"], took=took, held=time.monotonic() - start)

    async def watch_faults(self) -> None:
        while True:
            await asyncio.sleep(0.02)
            since = time.monotonic() - self.ready_at if self.ready_at else -1.0
            if self.node.rank == self.node.nodes - 1 and self.faults.due("worker-crash", since):
                self.traceback(ILLEGAL, self.node.rank * self.node.local)
                self.end(CRASHED)

    def stop(self) -> None:
        """SIGTERM: say good-bye, so that rank 0 does not take it for a crash."""
        if self.writer is not None:
            send(self.writer, t="bye")
        asyncio.get_running_loop().call_later(0.05, self.end, 0)


class Peer:
    """Rank 0's end of the link to one node of workers."""

    def __init__(self, rank: int, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.rank, self.host, self.reader, self.writer = rank, host, reader, writer
        name = writer.get_extra_info("peername")
        self.address, self.port = str(name[0]), int(name[1])
        loop = asyncio.get_running_loop()
        self.loaded: asyncio.Future[None] = loop.create_future()
        self.ack: asyncio.Future[Dict[str, Any]] = loop.create_future()
        self.sent = 0.0


class LostError(Exception):
    """A node does not answer any more."""

    def __init__(self, peer: Peer, why: str, silent: bool = False) -> None:
        super().__init__(why)
        self.peer, self.why, self.silent = peer, why, silent


class RankLink:
    """Rank 0's side of the exchange with the other nodes."""

    def __init__(self, process: Engine) -> None:
        self.process, self.args = process, process.args
        self.peers: Dict[int, Peer] = {}
        self.joined = asyncio.Event()
        self.number = 0

    async def open(self) -> None:
        """Wait until every node has joined. Raises OSError for an unusable address, TimeoutError after a while."""
        if self.args.nnodes == 1:
            return
        host, port = endpoint(self.args.dist_init_addr)
        try:
            self.server = await asyncio.start_server(self._accept, host, port)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            self.server = await asyncio.start_server(self._accept, "0.0.0.0", port)  # a name that is ours only outside
        await asyncio.wait_for(self.joined.wait(), self.args.rendezvous_timeout)

    def _refusal(self, hello: Dict[str, Any], rank: int) -> str:
        nodes, world = self.args.nnodes, self.args.tp * self.args.pp
        if hello.get("t") != "hello" or not 0 < rank < nodes:
            return "not a node of this deployment"
        if (hello.get("nodes"), hello.get("world")) != (nodes, world):
            theirs = f"this node {hello.get('nodes')} and {hello.get('world')}"
            return f"rank 0 has {nodes} nodes and a world of {world}, {theirs}"
        return f"node rank {rank} has joined already" if rank in self.peers else ""

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            hello = await asyncio.wait_for(receive(reader), 10)
        except asyncio.TimeoutError:
            hello = {}
        rank = hello["rank"] if isinstance(hello.get("rank"), int) else 0
        why = self._refusal(hello, rank)
        if why:
            send(writer, t="no", why=why)
            writer.close()
            return
        tune(writer, self.args.watchdog_timeout)
        name = re.sub(r"[^\w.-]", "_", str(hello.get("host")))[:64]
        peer = self.peers[rank] = Peer(rank, name, reader, writer)
        self.process.node.address = str(writer.get_extra_info("sockname")[0])
        count = f"{len(self.peers) + 1} of {self.args.nnodes} nodes"
        self.process.log.core("parallel_state.py:1906", f"node rank {rank} joined: {name} ({peer.address}), {count}")
        if len(self.peers) == self.args.nnodes - 1:
            self.joined.set()
        await self._listen(peer)

    async def _listen(self, peer: Peer) -> None:
        while True:
            message = await receive(peer.reader)
            if message.get("t") == "ack" and not peer.ack.done():
                peer.ack.set_result({**message, "got": time.monotonic()})
            elif message.get("t") == "loaded" and not peer.loaded.done():
                peer.loaded.set_result(None)
            else:
                break
        if message.get("t") == "bye":
            await self.process.peer_left(peer)
        else:
            self.process.peer_lost(LostError(peer, "its process closed the connection"))

    def tell(self, **message: Any) -> None:
        for peer in self.peers.values():
            send(peer.writer, **message)

    async def loaded(self) -> None:
        for peer in self.peers.values():
            await peer.loaded

    def begin(self, share: float, left: float, crossing: float, host: float) -> None:
        """Send a step to every node: its length, what is left of it, and in how much of it no GPU works, in wall
        seconds."""
        self.number += 1
        for peer in self.peers.values():
            peer.ack = asyncio.get_running_loop().create_future()
            peer.sent = time.monotonic()
        self.tell(t="step", n=self.number, share=share, left=left, bytes=crossing, host=host)

    async def finish(self, step_s: float) -> Tuple[float, float]:
        """(longest time that a node says the step took, longest time that an exchange cost beyond the node's own work).
        Raises LostError when a node is silent for longer than the watchdog allows."""
        took = exchange = 0.0
        for peer in self.peers.values():
            limit = peer.sent + step_s + self.args.watchdog_timeout - time.monotonic()
            try:
                ack = await asyncio.wait_for(peer.ack, max(0.01, limit))
            except asyncio.TimeoutError:
                raise LostError(peer, f"no answer for {self.args.watchdog_timeout:g} s", silent=True) from None
            took = max(took, float(ack["took"]))
            exchange = max(exchange, float(ack["got"]) - peer.sent - float(ack["held"]))
        return took, exchange


# --- the engine -------------------------------------------------------------------------------------------------------

HOST_PERIOD_S = 8.0  # of the saw-tooth
# Takes a whole core after a "1" on its stdin, none after a "0", and ends with it. Its title is what a real one has.
HOST_PROCESS = """
import ctypes, os, select, sys, time
title = sys.argv[1].encode()
ctypes.CDLL(None).prctl(15, title[:15], 0, 0, 0)
start, end = map(int, open("/proc/self/stat").read().rpartition(")")[2].split()[45:47])  # of the command line
ctypes.memset(start, 0, end - start)
ctypes.memmove(start, title, min(len(title), end - start - 1))
os.nice(5)
busy = False
while True:
    if select.select([0], [], [], 0 if busy else None)[0]:
        word = os.read(0, 1)
        if not word:
            break
        busy = word == b"1"
    end = time.monotonic() + 0.005
    while busy and time.monotonic() < end:
        pass
"""


class HostSide:
    """The scheduler process where it is what everything waits for: a real process that fills a core while there is
    work, and the simulated time that GPUs wait for it."""

    def __init__(self, mean_ms: float, vllm: bool) -> None:
        self.mean_ms = mean_ms
        self.process: Optional[subprocess.Popen[bytes]] = None
        if mean_ms:
            title = "VLLM::EngineCore" if vllm else "sglang::scheduler_TP0"
            argv = [title, "-ISc", HOST_PROCESS, title]
            self.process = subprocess.Popen(argv, executable=sys.executable, stdin=subprocess.PIPE)

    def busy(self, working: bool) -> None:
        if self.process is not None and self.process.stdin is not None:
            try:
                os.write(self.process.stdin.fileno(), b"1" if working else b"0")
            except OSError:
                self.process = None  # somebody ended it: the time is still simulated

    def step_s(self) -> float:
        """Simulated seconds that this step waits for the host: from nothing to twice the mean, then from nothing."""
        return 2e-3 * self.mean_ms * (time.monotonic() % HOST_PERIOD_S) / HOST_PERIOD_S


class Stats:
    """Figures between two log lines."""

    def __init__(self) -> None:
        self.decode_at = self.prefill_at = time.monotonic()
        self.decode_steps = self.decode_tokens = self.retracted = 0
        self.gen_tps = self.hit_rate = 0.0


class Engine(Process):
    """Node rank 0: the queue, the step loop and everything that is told to the outside."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args)
        self.requests = 0
        self.live: Dict[str, Generation] = {}
        self.wakeup = asyncio.Event()
        self.dead = ""
        self.due = 0.0  # where the simulated clock stands, in wall time
        self.pool = BlockPool(args.kv_tokens // args.block_size, args.block_size, args.prefix_cache)
        self.max_len = min(args.context_length, self.pool.total * args.block_size)
        first = args.schedule == "prefill-first" or (args.schedule == "auto" and not self.vllm)
        self.scheduler = Scheduler(self.pool, args.max_running, args.chunk, first)
        self.model = CostModel(args)
        self.metrics = Metrics(args, self.pool.total)
        self.stats = Stats()
        self.link = RankLink(self)
        self.host = HostSide(self.faults.host_ms, self.vllm)
        self.http = HttpServer(self)

    async def run(self) -> None:
        if not await self.gather_nodes():
            self.end(CRASHED)
            return
        self.node.comm_id = f"0x{random.SystemRandom().getrandbits(64):016x}"
        self.link.tell(t="init", comm_id=self.node.comm_id, scale=self.scale, host=self.node.host)
        await self.load()
        await self.link.loaded()
        await self.open_for_service()
        self.link.tell(t="ready")
        self.ready_at = time.monotonic()
        await asyncio.gather(self.loop(), self.vllm_stats(), self.storms())

    async def gather_nodes(self) -> bool:
        args = self.args
        shape = f"model={args.model} tp={args.tp} pp={args.pp} nnodes={args.nnodes}"
        self.log.api("entry.py:140", f"sim engine v{VERSION} {shape}")
        try:
            self.http.bind()
            await self.link.open()
            return True
        except asyncio.TimeoutError:  # before OSError, of which it is one since Python 3.11
            after = f"Timed out after {args.rendezvous_timeout:g} seconds waiting for clients."
            joined = f"{len(self.link.peers) + 1}/{args.nnodes} clients joined."
            self.log.raw(f"torch.distributed.DistStoreError: {after} {joined}")
        except OSError as error:
            self.log.api("launcher.py:60", f"[Errno {error.errno}] {error.strerror}", "ERROR")
        return False

    async def open_for_service(self) -> None:
        args, log = self.args, self.log
        if self.max_len < args.context_length:
            log.api("model.py:2152", f"context length lowered to {self.max_len}, the size of the KV cache", "WARNING")
        if self.vllm:
            log.core(
                "core.py:402", f"init engine (profile, create kv cache, warmup model) took {0.3 * args.load_s:.2f} s"
            )
            log.api("entry.py:140", f"Starting vLLM server on http://{args.host}:{args.port}")
        else:
            sizes = f"max_total_num_tokens={self.pool.total * self.pool.size}, chunked_prefill_size={args.chunk}"
            limits = f"max_running_requests={args.max_running}, context_len={self.max_len}"
            log.line("EngineCore", "", f"{sizes}, max_prefill_tokens=16384, {limits}")
        await self.http.listen()
        log.uvicorn(f"Started server process [{os.getpid()}]")
        log.uvicorn("Waiting for application startup.")
        log.uvicorn("Application startup complete.")
        if not self.vllm:
            log.uvicorn(f"Uvicorn running on http://{args.host}:{args.port} (Press CTRL+C to quit)")
            await self.pause(0.5)  # the warm-up request; /health says 503 until then
            log.api("", "The server is fired up and ready to roll!")

    def submit(self, req: Request) -> None:
        self.requests += 1
        self.scheduler.submit(req)
        self.wakeup.set()

    def abort(self, req: Request) -> None:
        if req.state != "done":
            self.scheduler.drop(req)
            req.last = time.monotonic()
            self.metrics.finished(req, "abort")

    async def loop(self) -> None:
        while not self.dead:
            batch = self.scheduler.schedule()
            if not batch.items:
                self.wakeup.clear()
                self.host.busy(False)
                await self.wakeup.wait()
                self.host.busy(True)
                self.due = time.monotonic()
                continue
            if self.faults.due("hang", *self.state()):
                await asyncio.Event().wait()
            now = time.monotonic()
            for req, _ in batch.items:
                if not req.scheduled:
                    req.scheduled = now
                    self.metrics.admitted(req)
            try:
                await self.execute(batch)
            except LostError as lost:
                self.peer_lost(lost)
            if not self.dead:
                self.emit(batch)

    def state(self) -> Tuple[float, int, int]:
        return time.monotonic() - self.ready_at, self.requests, len(self.scheduler.running)

    async def execute(self, batch: Batch) -> None:
        """Let the step take its time on all nodes. Lateness of this machine is made up for in later steps; slowness
        that a node reports, and an exchange that takes longer than the grace, are not."""
        seconds, crossing = self.model.step(batch)
        host_s = self.host.step_s() / self.scale
        step_s, start = seconds / self.scale + host_s, self.due
        own = step_s * self.slow
        left = start + step_s - time.monotonic()
        self.link.begin(step_s, max(0.0, left), crossing, host_s)
        await asyncio.sleep(max(0.0, left + own - step_s))
        took, exchange = await self.link.finish(step_s)
        self.due = start + max(own, took) + max(0.0, exchange - EXCHANGE_GRACE_S)
        now = time.monotonic()
        if now - self.due > MAX_DEBT_S:
            self.metrics.lag.value += now - self.due - MAX_DEBT_S
            self.due = now - MAX_DEBT_S
        self.devices.add(max(own, took) - host_s, crossing)

    def emit(self, batch: Batch) -> None:
        """Hand out the step's tokens."""
        now, arrived, itl = (
            time.monotonic(),
            self.scheduler.complete(batch),
            self.metrics.hist("inter_token_latency_seconds"),
        )
        for req in arrived:
            token = (req.key + 7919 * req.out) % 32000
            reason = self.scheduler.append(req, token)
            if req.out == 1:
                req.first = now
                self.metrics.first_token(req)
            else:
                itl.observe(now - req.last)
            req.last = now
            if reason:
                self.metrics.finished(req, reason)
            req.sink(req, WORDS[token % len(WORDS)], reason)
        self.metrics.step(batch, len(arrived))
        if not self.vllm:
            self.sglang_stats(batch, now)

    def sglang_stats(self, batch: Batch, now: float) -> None:
        """A line for each prefill batch, one for every --decode-log-interval decode batches, one for a retraction."""
        stats, pool, running = self.stats, self.pool, len(self.scheduler.running)
        usage, queue = f"token usage: {pool.usage:.2f}", f"#queue-req: {len(self.scheduler.waiting)}"
        if batch.preempted:
            stats.retracted = batch.preempted
            count = f"#retracted_reqs: {batch.preempted}, #new_token_ratio: 0.5000 -> 0.7000"
            self.log.line("EngineCore", "", f"KV cache pool is full. Retract requests. {count}", "WARNING")
        if batch.prefill_tokens:
            rate = batch.prefill_tokens / max(1e-6, now - stats.prefill_at)
            stats.prefill_at, stats.hit_rate = now, batch.cached / (batch.prefill_tokens + batch.cached)
            new = f"#new-seq: {batch.prefill_seqs}, #new-token: {batch.prefill_tokens}, #cached-token: {batch.cached}"
            pending = f"#pending-token: {sum(r.prompt for r in self.scheduler.waiting)}"
            load = f"{usage}, #running-req: {max(0, running - batch.prefill_seqs)}, {queue}, {pending}"
            speed = f"cuda graph: False, input throughput (token/s): {rate:.2f}"
            self.log.line("EngineCore", "", f"Prefill batch, {new}, {load}, {speed}")
        stats.decode_steps += batch.decode_seqs > 0
        stats.decode_tokens += batch.decode_seqs
        if batch.decode_seqs and stats.decode_steps % self.args.decode_log_interval == 0:
            stats.gen_tps = stats.decode_tokens / max(1e-6, now - stats.decode_at)
            stats.decode_at, stats.decode_tokens, stats.retracted = now, 0, 0
            load = f"#running-req: {batch.decode_seqs}, #token: {pool.used * pool.size}, {usage}"
            speed = f"cuda graph: True, gen throughput (token/s): {stats.gen_tps:.2f}"
            self.log.line("EngineCore", "", f"Decode batch, {load}, {speed}, {queue}")

    async def storms(self) -> None:
        """Long prompts of other clients, all at once, while somebody decodes. No two are alike, and none comes while
        one of the last storm is on: a slow machine has longer storms, not ever more of them."""
        storm, rng, mine = self.faults.storm, random.Random(self.args.seed), 0

        def sink(req: Request, word: str, reason: Optional[str]) -> None:
            nonlocal mine
            mine -= reason is not None

        while storm is not None and not self.dead:
            await asyncio.sleep(storm[0])
            if mine or not any(req.decoding for req in self.scheduler.running):
                continue
            mine = storm[1]
            length = min(storm[2], self.max_len - 1)
            for _ in range(storm[1]):
                tokens = [rng.randrange(32000) for _ in range(length)]
                rid = f"storm-{rng.getrandbits(32):08x}"
                self.submit(Request(rid, tokens, 1, 1 << 60, False, sink))

    async def vllm_stats(self) -> None:
        """vLLM's averages, every interval in which there was work and once after."""
        m, at, seen, was_idle = self.metrics, time.monotonic(), (0, 0, 0, 0, 0), True
        while self.vllm:
            await asyncio.sleep(self.args.log_stats_interval)
            now, total = time.monotonic(), (m.prompt_tokens, m.generated, m.queries, m.hits, m.preemptions)
            prompt, generated, queries, hits, preempted = (total[i] - seen[i] for i in range(5))
            span, at, seen = now - at, now, total
            running, waiting = len(self.scheduler.running), len(self.scheduler.waiting)
            idle = not (prompt or generated or running or waiting)
            if idle and was_idle:
                continue
            was_idle = idle
            self.stats.hit_rate = 100.0 * hits / queries if queries else self.stats.hit_rate
            speed = (
                f"prompt throughput: {prompt / span:.1f} tokens/s, Avg generation throughput: {generated / span:.1f}"
            )
            load = f"Running: {running} reqs, Waiting: {waiting} reqs"
            extra = f", Preemptions: {preempted}" if preempted else ""
            cache = f"usage: {100.0 * self.pool.usage:.1f}%, Prefix cache hit rate: {self.stats.hit_rate:.1f}%"
            text = f"Engine 000: Avg {speed} tokens/s, {load}{extra}, GPU KV cache {cache}"
            self.log.api("loggers.py:271", text)

    async def watch_faults(self) -> None:
        while not self.dead:
            await asyncio.sleep(0.02)
            if self.ready_at and self.faults.due("crash", *self.state()):
                self.traceback(ILLEGAL)
                self.die()
            elif self.ready_at and self.faults.due("oom", *self.state()):
                free = f"{GPU_GIB:.2f} GiB of which 1.70 GiB is free"
                use = f"Including non-PyTorch memory, this process has {GPU_GIB - 1.7:.2f} GiB memory in use"
                torch = (
                    f"Of the allocated memory {GPU_GIB - 9.5:.2f} GiB is allocated by PyTorch, and 7.10 GiB is reserved"
                )
                error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.35 GiB."
                self.traceback(f"{error} GPU 0 has a total capacity of {free}. {use}. {torch} but unallocated.")
                self.die()

    def peer_lost(self, lost: LostError) -> None:
        if self.dead or self.done.done():
            return
        peer, ms = lost.peer, int(self.args.watchdog_timeout * 1000)
        if lost.silent:
            work = f"WorkNCCL(SeqNum={self.link.number}, OpType=ALLREDUCE, NumelIn={HIDDEN}, NumelOut={HIDDEN}, "
            ran = f"Timeout(ms)={ms}) ran for {ms + 31} milliseconds before timing out."
            head = f"[rank0]:[E{time.strftime('%m%d %H:%M:%S')}.000000000 ProcessGroupNCCL.cpp:632] [Rank 0]"
            self.log.raw(f"{head} Watchdog caught collective operation timeout: {work}{ran}")
            if not self.vllm:
                limit = f"self.watchdog_timeout={self.args.watchdog_timeout:g}, self.soft=False"
                self.log.line("EngineCore", "", f"Scheduler watchdog timeout ({limit})", "ERROR")
        self.lost(peer.rank, peer.host, peer.address, peer.port, lost.why)
        self.die()

    async def peer_left(self, peer: Peer) -> None:
        """A node said good-bye: fine when this one is stopped as well, else the engine cannot go on."""
        await asyncio.sleep(1.0)
        if not self.dead and not self.done.done():
            text = f"node rank {peer.rank} ({peer.host}) was stopped; shutting down executor."
            self.log.core("multiproc_executor.py:301", text, "ERROR")
            self.die()

    def die(self) -> None:
        """The engine is dead: say so to the clients as the style does, then end with an error code."""
        if self.dead:
            return
        self.dead = "crashed"
        if self.vllm:
            issue = "EngineCore encountered an issue. See stack trace (above) for the root cause."
            text = f"AsyncLLM output_handler failed.\nvllm.v1.engine.exceptions.EngineDeadError: {issue}"
            self.log.api("async_llm.py:416", text, "ERROR")
            for generation in list(self.live.values()):
                generation.fail(issue)
        else:
            self.log.api("", f"Subprocess scheduler (pid={os.getpid()}) crashed with exit code -9.", "ERROR")
            text = "Received sigquit from a child process. It usually means the child failed."
            self.log.api("", text, "ERROR")
        asyncio.get_running_loop().call_later(0.1, self.end, CRASHED)

    def stop(self) -> None:
        self.log.uvicorn("Shutting down")
        self.dead = self.dead or "stopped"
        self.link.tell(t="bye")
        asyncio.get_running_loop().call_later(0.1, self.end, 0)


# --- HTTP -------------------------------------------------------------------------------------------------------------

STATUS = {
    **{200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 411: "Length Required"},
    **{413: "Content Too Large", 431: "Request Header Fields Too Large", 500: "Internal Server Error"},
    503: "Service Unavailable",
}


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
    """The prompts of /v1/completions: a string, token ids, or a list of either. Raises HttpError."""
    if isinstance(value, str):
        return [text_tokens(value)]
    if isinstance(value, list) and value and all(type(t) is int for t in value):
        if min(value) < 0 or max(value) >= 1 << 40:
            raise HttpError(400, "token id out of range", param="prompt")
        return [value]
    nested = isinstance(value, list) and value and all(isinstance(p, (str, list)) for p in value)
    if not nested or any(isinstance(t, (str, list)) for p in value if isinstance(p, list) for t in p):
        raise HttpError(400, "prompt must be a string, token ids, or a non-empty list of either", param="prompt")
    return [tokens for part in value for tokens in prompts_of(part)]


def chat_tokens(messages: Any) -> List[int]:
    """The prompt of a chat: four tokens a message for the template, three for the reply's head. Raises HttpError."""
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise HttpError(400, "messages must be a non-empty list of objects", param="messages")
    tokens: List[int] = []
    for message in messages:
        content = message.get("content") or ""
        if isinstance(content, list):
            content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        tokens += [11, 12, 13, 14, *text_tokens(str(content))]
    return [*tokens, 15, 16, 17]


def number(body: Dict[str, Any], name: str, default: int, low: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not int or value < low:
        raise HttpError(400, f"{name} must be at least {low}, got {str(value)[:80]}.", param=name)
    return value


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


class Generation:
    """One completion call: one or more sequences of the engine, answered as a stream or at once. Raises HttpError."""

    def __init__(self, engine: Engine, connection: HttpConnection, body: Dict[str, Any], chat: bool) -> None:
        self.engine, self.connection, self.chat, self.vllm = engine, connection, chat, engine.vllm
        self.stream = bool(body.get("stream"))
        options = body.get("stream_options") or {}
        if not isinstance(options, dict):
            raise HttpError(400, "stream_options must be an object", param="stream_options")
        self.include_usage = bool(options.get("include_usage"))
        self.continuous = self.include_usage and bool(options.get("continuous_usage_stats"))
        if number(body, "n", 1, 1) != 1:
            raise HttpError(400, "n > 1 is not simulated", param="n")
        prompts = [chat_tokens(body.get("messages"))] if chat else prompts_of(body.get("prompt"))
        if not all(prompts):
            raise HttpError(400, "The decoder prompt cannot be empty", param="prompt")
        asked = number(body, "max_tokens", 0, 1)
        asked = number(body, "max_completion_tokens", asked, 1) if chat else asked
        low = number(body, "min_tokens", 0, 0)
        self.id = f"{'chatcmpl' if chat else 'cmpl'}-{random.getrandbits(64):016x}"
        self.requests: List[Request] = []
        for i, prompt in enumerate(prompts):
            eos = 1 << 60 if body.get("ignore_eos") else max(low, self._eos(prompt))
            limit = self._limit(len(prompt), asked)
            self.requests.append(Request(f"{self.id}-{i}", list(prompt), limit, eos, self.stream, self.sink))
        self.index = {req.rid: i for i, req in enumerate(self.requests)}
        self.texts: List[List[str]] = [[] for _ in prompts]  # not yet sent
        self.reasons: List[Optional[str]] = [None] * len(prompts)
        self.roles = set(self.index.values()) if chat else set()  # whose first chunk is still to come
        self.open = len(prompts)
        self.created = int(time.time())
        kind = "chat.completion.chunk" if chat else "text_completion"
        base = {"id": self.id, "object": kind, "created": self.created, "model": engine.args.model}
        self.head = f'data: {compact(base)[:-1]},"choices":['

    def _limit(self, prompt: int, asked: int) -> int:
        limit = self.engine.max_len
        if prompt < limit and prompt + (asked or 1) <= limit:
            return asked or (limit - prompt if self.chat else min(16, limit - prompt))
        total, least = prompt + asked, f"your prompt contains at least {prompt} input tokens"
        if self.vllm and prompt < limit:
            text = f"you requested {asked} output tokens and {least}, for a total of at least {total} tokens. Please"
            text += " reduce the length of the input prompt or the number of requested output tokens."
        elif self.vllm:
            text = (
                f"your prompt contains {prompt} input tokens, which exceeds this limit even without any output tokens."
            )
            text += " Please reduce the length of the input prompt."
        if self.vllm:
            value = f"(parameter=input_tokens, value={prompt})"
            start = f"This model's maximum context length is {limit} tokens. However,"
            raise HttpError(400, f"{start} {text} {value}", param="input_tokens")
        if prompt >= limit:
            size = f"longer than the model's context length ({limit} tokens)"
            raise HttpError(400, f"The input ({prompt} tokens) is {size}.")
        text = (
            f"Requested token count exceeds the model's maximum context length of {limit} tokens. You requested a total"
        )
        text += (
            f" of {total} tokens: {prompt} tokens from the input messages and {asked} tokens for the completion. Please"
        )
        text += " reduce the number of tokens in the input messages or the completion to fit within the limit."
        raise HttpError(400, text)

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
        """A token. Bundled by --stream-interval; the first and the last of a sequence go out at once."""
        i = self.index[req.rid]
        self.texts[i].append(word)
        self.reasons[i] = reason
        self.open -= reason is not None
        if not self.open:
            self.engine.live.pop(self.id, None)
        if self.stream and (reason or req.out == 1 or len(self.texts[i]) >= self.engine.args.stream_interval):
            text, self.texts[i] = "".join(self.texts[i]), []
            chunk = self._chunk(i, req, text, reason)
            if i in self.roles:
                self.roles.remove(i)
                chunk = self._role(i, req) + chunk
            self.connection.stream((chunk if self.open else chunk + self._tail()).encode(), last=not self.open)
        elif not self.stream and not self.open:
            self.connection.respond(200, self._whole())

    def cancel(self, tell: bool) -> None:
        """Take it out of the engine; `tell` the client that it was aborted, when it is still there."""
        self.engine.live.pop(self.id, None)
        for req in self.requests:
            if req.state != "done":
                self.engine.abort(req)
                if tell:
                    self.sink(req, "", "abort")

    def fail(self, message: str) -> None:
        self.engine.live.pop(self.id, None)
        error = {"error": {"message": message, "type": "InternalServerError", "param": None, "code": 500}}
        if self.stream:
            self.connection.stream(f"data: {compact(error)}\n\ndata: [DONE]\n\n".encode(), last=True)
        else:
            self.connection.respond(500, error)

    def _usage(self, req: Request, out: int) -> str:
        if not self.continuous:
            return "" if self.vllm else ',"usage":null'
        usage = f'"prompt_tokens":{req.prompt},"total_tokens":{req.prompt + out},"completion_tokens":{out}'
        details = "" if self.vllm else f',"prompt_tokens_details":{{"cached_tokens":{max(0, req.cached)}}}'
        return f',"usage":{{{usage}{details}}}'

    def _chunk(self, i: int, req: Request, text: str, reason: Optional[str]) -> str:
        body = f'"delta":{{"content":"{text}"}}' if self.chat else f'"text":"{text}"'
        stop = '"stop_reason":null,"token_ids":null' if self.vllm else '"matched_stop":null'
        end = f'"logprobs":null,"finish_reason":{compact(reason) if reason else "null"},{stop}'
        return f'{self.head}{{"index":{i},{body},{end}}}]{self._usage(req, req.out)}}}\n\n'

    def _role(self, i: int, req: Request) -> str:
        body = f'"index":{i},"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null'
        return f"{self.head}{{{body}}}]{self._usage(req, 0)}}}\n\n"

    def _total(self) -> Dict[str, Any]:
        prompt, out = sum(r.prompt for r in self.requests), sum(r.out for r in self.requests)
        details = {"cached_tokens": sum(max(0, r.cached) for r in self.requests)}
        usage = {"prompt_tokens": prompt, "total_tokens": prompt + out, "completion_tokens": out}
        return {**usage, "prompt_tokens_details": details, **({} if self.vllm else {"reasoning_tokens": 0})}

    def _tail(self) -> str:
        return (
            f'{self.head}],"usage":{compact(self._total())}}}\n\n' if self.include_usage else ""
        ) + "data: [DONE]\n\n"

    def _whole(self) -> Dict[str, Any]:
        choices: List[Dict[str, Any]] = []
        for i, words in enumerate(self.texts):
            text = "".join(words)
            body = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
            choices.append({"index": i, **body, "logprobs": None, "finish_reason": self.reasons[i]})
        kind = "chat.completion" if self.chat else "text_completion"
        head = {"id": self.id, "object": kind, "created": self.created, "model": self.engine.args.model}
        return {**head, "choices": choices, "usage": self._total()}


class HttpConnection(asyncio.Protocol):
    """HTTP/1.1 with keep-alive; one request at a time, pipelined ones wait. A client that leaves aborts its request."""

    transport: asyncio.Transport

    def __init__(self, server: HttpServer) -> None:
        self.server = server
        self.buffer = bytearray()
        self.generation: Optional[Generation] = None
        self.busy = self.close_after = self.chunked = self.continued = False
        self.method = self.path = "?"
        self.version, self.client = "HTTP/1.1", "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        host, port = transport.get_extra_info("peername", ("?", 0))[:2]
        self.client = f"{host}:{port}"

    def connection_lost(self, exc: Optional[Exception]) -> None:
        if self.generation is not None:
            self.generation.cancel(tell=False)

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
            return self._refuse(431) if len(self.buffer) > MAX_HEAD else False
        first, *rest = bytes(self.buffer[:end]).decode("latin-1").split("\r\n")
        headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in rest)}
        match = re.fullmatch(r"([A-Z]{1,16}) (\S+) (HTTP/1\.[01])", first)
        length = headers.get("content-length", "0")
        if match is None or not re.fullmatch(r"[0-9]{1,12}", length):
            return self._refuse(400)
        if "transfer-encoding" in headers or int(length) > MAX_BODY:
            return self._refuse(411 if "transfer-encoding" in headers else 413)
        size = end + 4 + int(length)
        if len(self.buffer) < size:
            if headers.get("expect", "").lower() == "100-continue" and not self.continued:
                self.continued = True
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return False
        body = bytes(self.buffer[end + 4 : size])
        del self.buffer[:size]
        self.busy, self.continued = True, False
        self.method, self.path, self.version = match.groups()
        asked = headers.get("connection", "").lower()
        self.close_after = asked == "close" or (self.version == "HTTP/1.0" and asked != "keep-alive")
        self.server.handle(self, self.path.partition("?")[0], body)
        return True

    def _refuse(self, status: int) -> bool:
        self.close_after = self.busy = True
        error = {"message": STATUS[status], "type": "BadRequestError", "param": None, "code": status}
        self.respond(status, {"error": error})
        return False

    def _head(self, status: int, kind: str, extra: str) -> bytes:
        self.server.access(self, status)
        date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
        more = f"{extra}connection: close\r\n" if self.close_after else extra
        head = f"HTTP/1.1 {status} {STATUS[status]}\r\ndate: {date}\r\nserver: twinrail-sim\r\n{more}"
        return f"{head}content-type: {kind}\r\n\r\n".encode("latin-1")

    def respond(self, status: int, body: Any, kind: str = "application/json") -> None:
        """Answer with JSON, or with text when `body` is a string."""
        data = (body if isinstance(body, str) else compact(body)).encode()
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
        self.generation, self.busy = None, False
        if self.close_after:
            self.transport.close()
        elif self.buffer:
            asyncio.get_running_loop().call_soon(self.data_received, b"")


Handler = Callable[[HttpConnection, bytes], None]


class HttpServer:
    """The routes of the simulated server."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.args, self.vllm = engine, engine.args, engine.vllm
        self.started = int(time.time())
        self.routes: Dict[str, Tuple[str, Handler]] = {
            "/health": ("GET", self.health),
            "/v1/models": ("GET", self.models),
            "/metrics": ("GET", self.metrics),
            "/server_info": ("GET", self.info),
            "/v1/completions": ("POST", lambda connection, body: self.complete(connection, body, chat=False)),
            "/v1/chat/completions": ("POST", lambda connection, body: self.complete(connection, body, chat=True)),
            "/reset_prefix_cache": ("POST", self.flush),
            "/flush_cache": ("POST", self.flush),
            "/abort_request": ("POST", self.abort),
            "/abort_requests": ("POST", self.abort),
        }
        if self.vllm:
            self.routes["/version"] = ("GET", lambda connection, _: connection.respond(200, {"version": VERSION}))
            self.routes["/ping"] = ("GET", self.health)
        else:
            self.routes.update(
                dict.fromkeys(("/get_server_info", "/model_info", "/get_model_info"), ("GET", self.info))
            )

    def bind(self) -> None:
        """Take the port before the long start-up, so that a port in use is told at once. Raises OSError."""
        family = socket.AF_INET6 if ":" in self.args.host else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        address = (self.args.host, self.args.port)
        try:
            self.sock.bind(address)
        except OSError as error:
            why = str(error.strerror).lower()
            raise OSError(error.errno, f"error while attempting to bind on address {address}: {why}") from None

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: HttpConnection(self), sock=self.sock, backlog=2048)

    def access(self, connection: HttpConnection, status: int) -> None:
        path = re.sub(r"[^\x21-\x7e]", "?", connection.path)[:200]
        asked = f'"{connection.method} {path} {connection.version}"'
        self.engine.log.uvicorn(f"{connection.client} - {asked} {status} {STATUS[status]}")
        route = connection.path.partition("?")[0]
        method = connection.method if connection.method in ("GET", "POST") else "other"
        self.engine.metrics.http(method, route if route in self.routes else "none", status)

    def handle(self, connection: HttpConnection, path: str, body: bytes) -> None:
        method, route = self.routes.get(path, ("", None))
        try:
            if route is None:
                connection.respond(404, {"detail": "Not Found"})
            elif connection.method != method:
                connection.respond(405, {"detail": "Method Not Allowed"})
            else:
                route(connection, body)
        except HttpError as error:
            what = {"message": error.message, "type": error.kind, "param": error.param, "code": error.status}
            connection.respond(error.status, {"error": what} if self.vllm else {"object": "error", **what})

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
        model = {"id": self.args.model, "object": "model", "created": self.started, "owned_by": self.args.style}
        model.update(root=self.args.model, parent=None, max_model_len=self.engine.max_len)
        connection.respond(200, {"object": "list", "data": [model]})

    def metrics(self, connection: HttpConnection, _: bytes) -> None:
        text = self.engine.metrics.render(self.engine)
        connection.respond(200, text, "text/plain; version=0.0.4; charset=utf-8")

    def info(self, connection: HttpConnection, _: bytes) -> None:
        """The settings; not the cost model, which is what a tuner has to find out."""
        names = ["model", "tp", "pp", "nnodes", "max_running", "kv_tokens", "block_size", "chunk", "style"]
        info = {name: getattr(self.args, name) for name in [*names, "clock_scale", "prefix_cache", "stream_interval"]}
        schedule = "prefill-first" if self.engine.scheduler.prefill_first else "mixed"
        info.update(
            simulated=True, engine="sim", version=VERSION, schedule=schedule, context_length=self.engine.max_len
        )
        connection.respond(200, info)

    def flush(self, connection: HttpConnection, _: bytes) -> None:
        if self.engine.pool.reset():
            self.engine.log.core("block_pool.py:374", "Successfully reset prefix cache")
            connection.respond(200, "" if self.vllm else "Cache flushed.\n", "text/plain")
            return
        why = f"Failed to reset prefix cache because some blocks ({self.engine.pool.used}) are not freed yet"
        self.engine.log.core("block_pool.py:364", why, "WARNING")
        raise HttpError(400, why)

    def abort(self, connection: HttpConnection, body: bytes) -> None:
        """SGLang's {"rid": ID, "abort_all": bool} and vLLM's {"request_ids": [ID]}; ids as in the responses."""
        asked = self.parse(body)
        ids = asked.get("request_ids") or [asked.get("rid")]
        for generation in list(self.engine.live.values()):
            if asked.get("abort_all") or generation.id in ids:
                generation.cancel(tell=True)
        connection.respond(200, "", "text/plain")

    def complete(self, connection: HttpConnection, body: bytes, chat: bool) -> None:
        if self.engine.dead:
            raise HttpError(500, "EngineCore encountered an issue.", "InternalServerError")
        asked, known = self.parse(body), self.args.model
        model = asked.get("model")
        if self.vllm and model not in (None, known):
            text = f"The model `{str(model)[:200]}` does not exist. Valid aliases: {known}."
            raise HttpError(404, text, "NotFoundError", "model")
        connection.generation = Generation(self.engine, connection, asked, chat)
        connection.generation.start()


# --- command line -----------------------------------------------------------------------------------------------------


def lab_state() -> str:
    """The state folder of a lab node, embedded or with a real sshd; empty on any other machine."""
    known = (os.environ.get("TWINRAIL_LAB_STATE", ""), "/run/lab/state")
    return next((path for path in known if path and os.path.isdir(path)), "")


OPTIONS: Tuple[Tuple[str, Any, str], ...] = (
    ("--host", "0.0.0.0", "address of the HTTP server"),
    ("--port", 30000, "port of the HTTP server"),
    ("--model", "sim-model", "the name it serves"),
    ("--tp", 1, "tensor parallel ranks"),
    ("--pp", 1, "pipeline stages"),
    ("--nnodes", 1, "nodes; tp*pp ranks are spread evenly"),
    ("--node-rank", 0, "this node"),
    ("--dist-init-addr", "127.0.0.1:29500", "HOST:PORT where rank 0 waits for the other nodes"),
    ("--gpus-per-node", 8, "most ranks of a node"),
    ("--hca", os.environ.get("NCCL_IB_HCA", "").lstrip("=^") or "mlx5_0,mlx5_3", "rails, as NCCL names them"),
    ("--max-running", 256, "most running requests"),
    ("--kv-tokens", 400000, "size of the KV cache"),
    ("--block-size", 16, "tokens of a KV block"),
    ("--chunk", 2048, "token budget of a step"),
    ("--context-length", 131072, "most tokens of a request; not above the KV cache"),
    ("--stream-interval", 1, "tokens of a streamed chunk"),
    ("--clock-scale", 1.0, "simulated seconds in a wall second"),
    ("--seed", 0, "of noise and of answer lengths"),
    ("--noise", 0.02, "sigma of the log-normal step noise"),
    ("--mean-output", 200.0, "mean tokens of an answer without ignore_eos"),
    ("--step-base-ms", 20.0, "hidden cost: each step"),
    ("--ms-per-seq", 0.25, "hidden cost: each decoding sequence"),
    ("--ms-per-ktoken-prefill", 55.0, "hidden cost: 1000 prefill tokens"),
    ("--ms-per-gpair-prefill", 200.0, "hidden cost: 1e9 query-key pairs of prefill"),
    ("--ms-per-mtoken-context", 40.0, "hidden cost: 1e6 tokens attended to by decodes"),
    ("--comm-ms", 4.0, "hidden cost: latency between nodes, each step"),
    ("--load-s", 8.0, "simulated seconds of start-up"),
    ("--rendezvous-timeout", 600.0, "wall seconds in which all nodes have to join"),
    ("--watchdog-timeout", 20.0, "wall seconds in which a node has to answer"),
    ("--log-stats-interval", 10.0, "wall seconds between vLLM's averages"),
    ("--decode-log-interval", 40, "steps between SGLang's decode lines"),
    ("--log-flood", 0, "extra log lines a second"),
    ("--state-dir", lab_state(), "where a lab's device stand-ins read gpu_load and rdma_load"),
)
NETS = ("ib", "ib-nogdr", "socket")


def parse(argv: List[str]) -> argparse.Namespace:
    """Settings of a process; ends it with a usage message when they cannot work."""
    cli = argparse.ArgumentParser(prog="sim.py", description="A simulated LLM inference engine.", allow_abbrev=False)
    cli.formatter_class = argparse.ArgumentDefaultsHelpFormatter
    for flag, default, about in OPTIONS:
        cli.add_argument(flag, type=type(default), default=default, help=about)
    cli.add_argument("--style", choices=("vllm", "sglang"), default="vllm", help="whose logs, metrics and errors")
    cli.add_argument("--schedule", choices=("auto", "mixed", "prefill-first"), default="auto", help="auto: by style")
    cli.add_argument("--nccl-net", choices=NETS, default=os.environ.get("SIM_NCCL_NET", "ib"), help="transport shown")
    cli.add_argument("--prefix-cache", action="store_true", default=True, help="on unless --no-prefix-cache")
    cli.add_argument("--no-prefix-cache", dest="prefix_cache", action="store_false")
    cli.add_argument(
        "--fault", type=Faults, default=os.environ.get("TWINRAIL_SIM_FAULT", ""), help="see the file's head"
    )
    args = cli.parse_args(argv)
    needed = "tp pp nnodes max_running block_size chunk clock_scale stream_interval context_length decode_log_interval"
    for name in [*needed.split(), "log_stats_interval", "watchdog_timeout"]:
        if getattr(args, name) <= 0:
            cli.error(f"--{name.replace('_', '-')} must be positive")
    world = args.tp * args.pp
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
    if any(rank >= args.nnodes for rank in args.fault.slow):
        cli.error(f"slow-rank names a node rank beyond {args.nnodes - 1}")
    if args.nccl_net not in NETS:
        cli.error(f"SIM_NCCL_NET must be one of {', '.join(NETS)}")
    return args


async def serve(args: argparse.Namespace) -> int:
    process: Union[Engine, Worker] = Engine(args) if args.node_rank == 0 else Worker(args)
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, process.stop)

    def check(task: asyncio.Future[None]) -> None:
        """A bug in one of the tasks must end the process, not leave half a server."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not process.done.done():
            process.done.set_exception(error)

    tasks = [asyncio.ensure_future(job) for job in (process.run(), process.background(), process.watch_faults())]
    for task in tasks:
        task.add_done_callback(check)
    try:
        return await process.done
    finally:
        process.devices.idle()


def main(argv: Optional[List[str]] = None) -> None:
    args = parse(sys.argv[1:] if argv is None else argv)
    what = f"SIMULATED {args.style}-style engine, no GPU and no model behind it"
    print(f"twinrail sim {VERSION}: {what}; node rank {args.node_rank} of {args.nnodes}", flush=True)
    code = asyncio.new_event_loop().run_until_complete(serve(args))
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(code)  # streams that are still open must not hold the process


if __name__ == "__main__":
    main()
