#!/usr/bin/env python3
"""Load generator for OpenAI-compatible streaming servers; runs alone on a node with Python 3.9+ and aiohttp.

    python3 loadgen.py --spec FILE.json        (or `-`: the spec comes on stdin)

stdout carries JSON lines (flushed at least each 100 ms), stderr messages for people. Every instant `*_ns` is
CLOCK_MONOTONIC of this machine in integer ns; `wall_ns` beside it is CLOCK_REALTIME at the same moment.

    hello  schema, spec (secrets masked), loop (closed|open), limit, wall_ns, mono_ns, python, aiohttp, pid, cpus
    phase  name (warmup|ramp|steady|drain), mono_ns, wall_ns
    sent   id, phase, kind (load|warmup|filler|inject), measured, scheduled_ns, sent_ns, sent_wall_ns, isl, osl (asked)
    done   the keys of sent, and status (ok|failed|timed_out|cut), error, error_text, http, first_ns, last_ns, end_ns,
           chunk_ns (ns after sent_ns, one entry a chunk with generated content), chunk_tokens, tokens_per_chunk
           (counted: by running usage or token ids | assumed: 1 a chunk), usage {prompt, completion, cached,
           reasoning} or null, finish_reason
    tick   each second: mono_ns, wall_ns, in_flight, sent, done, failed, waiting (arrivals that the cap holds back),
           input_tokens, output_tokens (so far), loop_lag_ms (max of the second), cpu (share of a core),
           cpu_wait (share of the time it was ready but had no CPU), saturated
    end    reason (completed|budget|stopped|failing|error), counts, measured, errors, tokens (asked against counted),
           saturated, usage_mode (continuous|final|none), coalesced (events that shared a read), mono_ns, wall_ns

Error types: connect, reset, timeout, http_4xx, http_5xx, stream_error, bad_json, no_tokens, incomplete.

Closed loop: `concurrency` slots. Ramp lasts until all slots are busy and as many requests have ended well; `requests`
counts those sent in steady; then unmeasured filler keeps the load up until the last measured request ends. With
`filler: false` (to compare with other clients) `requests` counts from the first one, the load simply runs out and
nothing is called steady.
Open loop (`request_rate`): no ramp; steady starts with the first arrival; `concurrency` caps what is in flight.

Exit status: 0 completed, budget or stopped; 1 failing or error; 2 bad spec; 78 no aiohttp; 143 second SIGTERM.
"""

from __future__ import annotations

import argparse
import array
import asyncio
import collections
import dataclasses
import gc
import json
import os
import platform
import random
import re
import resource
import signal
import sys
import time
import traceback
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple
from urllib.parse import urlsplit, urlunsplit

try:
    import aiohttp
except ImportError as missing:
    _advice = "install aiohttp for this interpreter, or name another one as `python` of the node"
    _report = {"t": "error", "error": "missing_aiohttp", "python": sys.executable, "fix": _advice}
    sys.stderr.write(json.dumps({**_report, "detail": str(missing)}) + "\n")
    raise SystemExit(78) from None

_quick: Callable[[bytes], Any] = json.loads
try:
    import orjson
except ImportError:
    pass
else:
    _quick = orjson.loads  # where it is at hand, a chunk costs a sixth less

SCHEMA = 1
FLUSH_S = 0.09  # the longest that a line waits
BEAT_S = 0.09  # between two looks at the event loop's lag while much happens; a fifth as often while little does
BUSY_TOKENS = 50  # a beat
MAX_EVENT = 8 << 20  # bytes of one server-sent event; a longer one is not a token
MAX_FILES = 65536
MAX_POOL = 256 << 20  # bytes of prompts made ahead
ERROR_TEXT = 300
HEAD_TOKENS = 32  # drawn afresh for each prompt, so that no prompt shares a cache block with another
WORDS = re.findall(
    r"\w+",
    "time people way day man thing woman life child world school state family student group country problem hand part "
    "place case week company system program question work number night point home water room mother area money story "
    "fact month lot right study book eye job word business issue side kind head house service friend father power hour "
    "game line end member law car city name team minute idea body back parent face level office door health person art",
)
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_mono = time.monotonic_ns


class SpecError(ValueError):
    """The spec cannot be used; the text says which key and why."""


class GenerationError(Exception):
    """One generation went wrong; `kind` is an error type of the module's list."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


# ---- the spec ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Inject:
    """Long requests put into a running load: `count` of them, one each `every_s`, from `start_s` after steady began.

    Measured requests go on until the last injected one has ended and `after_s` more have passed.
    """

    isl: int
    osl: int
    every_s: float
    count: int
    start_s: Optional[float] = None
    after_s: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class Spec:
    """What to send; lengths in tokens, `_s` in seconds, `vocab` the first and last ordinary token id."""

    url: str
    model: str
    isl: int
    osl: int
    api: str = "completions"
    prompt: str = "ids"
    concurrency: Optional[int] = None
    request_rate: Optional[float] = None
    arrival: str = "poisson"
    requests: Optional[int] = None
    budget_s: float = 600.0
    grace_s: float = 2.0
    ramp_s: float = 0.0
    warmup: int = 0
    deadline_s: float = 300.0
    seed: int = 0
    ignore_eos: bool = True
    temperature: float = 0.0
    vocab: List[int] = dataclasses.field(default_factory=lambda: [1000, 3999])
    prefix_share: float = 0.0
    filler: bool = True
    inject: Optional[Inject] = None
    cpus: Optional[List[int]] = None
    headers: Dict[str, str] = dataclasses.field(default_factory=dict)
    api_key_env: Optional[str] = None
    extra: Dict[str, Any] = dataclasses.field(default_factory=dict)
    stop_file: Optional[str] = None
    max_failures: Optional[int] = None
    lag_limit_ms: float = 25.0

    @property
    def limit(self) -> int:
        return self.requests if self.requests is not None else max(5 * (self.concurrency or 0), 20)

    @property
    def patience(self) -> int:
        """Failures in a row that end the load; in an open loop by default those of five seconds."""
        allowed = 5 * self.request_rate if self.request_rate else 2 * (self.concurrency or 0)
        return self.max_failures or max(int(allowed), 10)

    @property
    def endpoint(self) -> str:
        parts = urlsplit(self.url)
        path = parts.path.rstrip("/")
        if not path.endswith("/completions"):
            path += "" if path.endswith("/v1") else "/v1"
            path += "/chat/completions" if self.api == "chat" else "/completions"
        return urlunsplit(parts._replace(path=path))


_BIG = 10**9
_RULES: Dict[str, Tuple[Any, ...]] = {  # type, then the lowest and highest number or the texts allowed
    "url": (str,), "model": (str,), "api_key_env": (str,), "stop_file": (str,), "api": (str, "completions", "chat"),
    "prompt": (str, "ids", "text"), "arrival": (str, "poisson", "constant"), "ignore_eos": (bool,), "filler": (bool,),
    "isl": (int, 1, _BIG), "osl": (int, 1, _BIG), "concurrency": (int, 1, _BIG), "requests": (int, 1, _BIG),
    "count": (int, 1, _BIG), "max_failures": (int, 1, _BIG), "warmup": (int, 0, _BIG), "seed": (int, -(2**63), 2**63),
    "request_rate": (float, 1e-9, _BIG), "budget_s": (float, 1e-9, _BIG), "deadline_s": (float, 1e-9, _BIG),
    "every_s": (float, 1e-9, _BIG), "lag_limit_ms": (float, 1e-9, _BIG), "grace_s": (float, 0, _BIG),
    "ramp_s": (float, 0, _BIG), "start_s": (float, 0, _BIG), "after_s": (float, 0, _BIG),
    "temperature": (float, 0, 100), "prefix_share": (float, 0, 1),
    "vocab": (list,), "cpus": (list,), "headers": (dict,), "extra": (dict,), "inject": (dict,),
}  # fmt: skip


def _fits(value: Any, kind: Any, bounds: Tuple[Any, ...]) -> bool:
    if kind is list:  # both lists of a spec hold small numbers
        return type(value) is list and value != [] and all(_fits(item, int, (0, _BIG)) for item in value)
    if type(value) is not kind and not (kind is float and type(value) is int):
        return False
    if kind is str:
        return value in bounds if bounds else value != ""
    return not bounds or bool(bounds[0] <= value <= bounds[1])


def _build(target: Any, raw: Any, where: str) -> Any:
    if type(raw) is not dict:
        raise SpecError(f"{where or 'the spec'} wants an object")
    fields = {field.name: field for field in dataclasses.fields(target)}
    for key, value in raw.items():
        if key not in fields:
            raise SpecError(f"{where}{key}: unknown key")
        kind, *bounds = _RULES[key]
        if not (value is None and fields[key].default is None) and not _fits(value, kind, tuple(bounds)):
            wanted = f" {bounds[0]} to {bounds[-1]}" if kind in (int, float) else " " + " or ".join(bounds)
            raise SpecError(f"{where}{key}: wants {kind.__name__}{wanted.rstrip()}")
    try:
        return target(**raw)
    except TypeError as problem:
        raise SpecError(f"{where or 'the spec: '}{problem}") from None


def parse_spec(raw: object) -> Spec:
    """The spec from decoded JSON. SpecError on an unknown key, a wrong value or a combination without meaning."""
    spec: Spec = _build(Spec, raw, "")
    parts = urlsplit(spec.url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise SpecError("url: wants http://host:port or https://host:port")
    if len(spec.vocab) != 2 or not spec.vocab[0] < spec.vocab[1] < 10**7:
        raise SpecError("vocab: wants [lowest, highest] token id")
    if not all(isinstance(text, str) for text in spec.headers.values()):
        raise SpecError("headers: wants texts")
    if spec.api == "chat" and spec.prompt == "ids":
        raise SpecError("prompt: the chat route takes text, not token ids")
    if spec.concurrency is None and spec.request_rate is None:
        raise SpecError("concurrency or request_rate: one of them is needed")
    if spec.inject is not None and not spec.filler:
        raise SpecError("inject: needs filler, for a load that is kept up")
    if spec.api_key_env and parts.username:
        raise SpecError("api_key_env: the url has credentials of its own")
    inject = _build(Inject, spec.inject, "inject.") if spec.inject is not None else None
    return dataclasses.replace(spec, inject=inject)


def masked(spec: Spec) -> Dict[str, Any]:
    """The spec without secrets: header values, credentials and query of the URL, key-like entries of `extra`."""
    shown = dataclasses.asdict(spec)
    parts = urlsplit(spec.url)
    host = parts.netloc.rpartition("@")[2]
    shown["url"] = urlunsplit((parts.scheme, host, parts.path, "***" if parts.query else "", ""))
    shown["headers"] = dict.fromkeys(spec.headers, "***")
    secret = re.compile(r"(?i)api_?key|secret|passw|authori[sz]ation|(auth|access|bearer)_?token")
    shown["extra"] = {key: "***" if secret.search(key) else value for key, value in spec.extra.items()}
    return shown


# ---- prompts -------------------------------------------------------------------------------------------------------


class Prompts:
    """Request bodies, cheap to make while a load runs: a fresh head, then a stretch of a long random text.

    A prompt that differs in its first tokens can share no prefix-cache block with another; the shared part of
    `prefix_share` stands before that head.
    """

    def __init__(self, spec: Spec) -> None:
        rng = random.Random(f"{spec.seed}:base")
        longest = max(spec.isl, spec.inject.isl if spec.inject else 0)
        low, high = spec.vocab
        self._spec = spec
        self._width = len(str(high)) + 1
        self._pieces = [b"%*d," % (self._width - 1, number) for number in range(low, high + 1)]
        # blanks before a number are legal JSON: with one width for all ids a stretch is a plain slice
        self._base = b"".join(rng.choices(self._pieces, k=longest + 65536)) if spec.prompt == "ids" else b""
        self._words = rng.choices(WORDS, k=2 * longest + 65536) if spec.prompt == "text" else []
        self.words_per_token = 1.0
        self.ask_usage(2)

    def ask_usage(self, level: int) -> None:
        """What the bodies ask of the server's token counts: 2 in every chunk, 1 at the end, 0 nothing."""
        spec = self._spec
        body: Dict[str, Any] = {"model": spec.model, "stream": True, "temperature": spec.temperature}
        if spec.ignore_eos:
            body["ignore_eos"] = True
        if level:
            body["stream_options"] = {"include_usage": True}
        if level == 2:
            body["stream_options"]["continuous_usage_stats"] = True
        self.usage_level = level
        self._fixed = _encode({**body, **spec.extra})[:-1].encode()

    def body(self, index: int, isl: int, osl: int) -> bytes:
        """The JSON body of request `index`; the same seed and index give the same bytes."""
        rng = random.Random(f"{self._spec.seed}:{index}")
        make = self._ids if self._spec.prompt == "ids" else self._text
        return b'%s,"max_tokens":%d,%s}' % (self._fixed, osl, make(rng, isl))

    def _ids(self, rng: random.Random, isl: int) -> bytes:
        shared = int(isl * self._spec.prefix_share)
        head = min(HEAD_TOKENS, isl - shared)
        rest = isl - shared - head
        start = rng.randrange(len(self._base) // self._width - rest)
        parts = (
            self._base[: shared * self._width],
            b"".join(rng.choices(self._pieces, k=head)),
            self._base[start * self._width : (start + rest) * self._width],
        )
        return b'"prompt":[%s]' % b"".join(parts)[:-1]

    def _text(self, rng: random.Random, isl: int) -> bytes:
        count = max(1, round(isl * self.words_per_token))
        shared = int(count * self._spec.prefix_share)
        head = min(HEAD_TOKENS, count - shared)
        rest = min(count - shared - head, len(self._words))
        start = rng.randrange(len(self._words) - rest + 1)
        words = self._words[:shared] + rng.choices(WORDS, k=head) + self._words[start : start + rest]
        text = " ".join(words).encode()
        if self._spec.api == "chat":
            return b'"messages":[{"role":"user","content":"%s"}]' % text
        return b'"prompt":"%s"' % text


# ---- the stream ----------------------------------------------------------------------------------------------------


class EventSplitter:
    """Server-sent events from bytes in any split (WHATWG HTML, 9.2): CR, LF, CRLF, comments, data over many lines."""

    def __init__(self) -> None:
        self._rest = b""
        self._after_cr = False
        self._begun = False

    def feed(self, data: bytes) -> List[Tuple[bytes, bytes]]:
        """(event name or b"", data) of each event that these bytes complete. GenerationError if one has no end."""
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
            self._after_cr = False
        if data:
            self._after_cr = data[-1:] == b"\r"
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        text = self._rest + data if self._rest else data
        if not self._begun:
            if len(text) < 3 and b"\xef\xbb\xbf".startswith(text):
                self._rest = text
                return []
            self._begun = True
            text = text[3:] if text.startswith(b"\xef\xbb\xbf") else text
        blocks = text.split(b"\n\n")
        self._rest = blocks.pop()
        if len(self._rest) > MAX_EVENT:
            raise GenerationError("stream_error", f"an event of more than {MAX_EVENT} bytes")
        return self._events(blocks)

    def close(self) -> List[Tuple[bytes, bytes]]:
        """What an end of the stream completes: a last event whose blank line is missing still counts."""
        rest, self._rest = self._rest, b""
        return self._events([rest])

    @staticmethod
    def _events(blocks: List[bytes]) -> List[Tuple[bytes, bytes]]:
        found: List[Tuple[bytes, bytes]] = []
        for block in blocks:
            if block.startswith(b"data: ") and b"\n" not in block:
                found.append((b"", block[6:]))
                continue
            name, lines = b"", []
            for line in block.split(b"\n"):
                field, _, value = line.partition(b":")
                value = value[1:] if value.startswith(b" ") else value
                if field == b"data":
                    lines.append(value)
                elif field == b"event":
                    name = value
            if lines:
                found.append((name, b"\n".join(lines)))
        return found


def _short(raw: object) -> str:
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)
    return re.sub(r"[^\x20-\x7e\u00a0-\ud7ff\ue000-\uffff]+", " ", text[: 4 * ERROR_TEXT]).strip()[:ERROR_TEXT]


def _decoded(data: bytes) -> Any:
    try:
        return _quick(data)
    except ValueError:
        return json.loads(data)  # some servers write NaN, which orjson refuses


def _natural(value: object) -> Optional[int]:
    return value if type(value) is int and 0 <= value < 2**62 else None


def _has_content(choice: Dict[str, Any]) -> bool:
    if choice.get("text"):
        return True
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return False
    return any(delta.get(key) for key in ("content", "reasoning_content", "reasoning", "refusal", "tool_calls"))


class Flight:
    """One request: what was asked, and what its stream has brought so far."""

    def __init__(self, number: int, kind: str, isl: int, osl: int, body: bytes, scheduled_ns: int) -> None:
        self.number, self.kind, self.isl, self.osl, self.body = number, kind, isl, osl, body
        self.scheduled_ns = scheduled_ns
        self.phase = ""
        self.measured = False
        self.sent_ns = self.sent_wall_ns = 0
        self.end_ns = 0
        self.status = "ok"
        self.error: Optional[str] = None
        self.error_text: Optional[str] = None
        self.http: Optional[int] = None
        self.chunk_ns: List[int] = []
        self.chunk_tokens: List[int] = []
        self.tokens = 0
        self.assumed = False
        self.usage: Dict[str, Optional[int]] = {}
        self.finish_reason: Optional[str] = None
        self.finished = False  # [DONE] was seen
        self.overdue = False

    def take(self, name: bytes, data: bytes, now: int) -> int:
        """Account for one event that arrived at `now`; returns its tokens. GenerationError on an error or nonsense."""
        word = data.strip()
        if word in (b"[DONE]", b""):
            self.finished = self.finished or word != b""
            return 0
        try:
            event = _decoded(data)
        except (ValueError, RecursionError):
            raise GenerationError("bad_json", _short(data)) from None
        if not isinstance(event, dict):
            raise GenerationError("bad_json", _short(data))
        if name == b"error" or event.get("error") or event.get("object") == "error":
            raise GenerationError("stream_error", _short(_encode(event.get("error") or event)))
        counted = self._count(event.get("usage"))
        choices = event.get("choices")
        if not isinstance(choices, list):
            return 0
        content, ids, real = False, 0, False
        for choice in choices:
            if not isinstance(choice, dict):
                continue
            real = True
            content = content or _has_content(choice)
            token_ids = choice.get("token_ids")
            ids += len(token_ids) if isinstance(token_ids, list) else 0
            if choice.get("finish_reason"):
                self.finish_reason = _short(choice["finish_reason"])
        # the closing usage event has no choice, so its total is no arrival
        return self._arrival(now, content, counted, ids) if real else 0

    def _count(self, usage: object) -> Optional[int]:
        if not isinstance(usage, dict):
            return None
        details = usage.get("prompt_tokens_details")
        inner = usage.get("completion_tokens_details")
        completion = _natural(usage.get("completion_tokens"))
        found = {
            "prompt": _natural(usage.get("prompt_tokens")),
            "completion": completion,
            "cached": _natural(details.get("cached_tokens")) if isinstance(details, dict) else None,
            "reasoning": _natural(inner.get("reasoning_tokens")) if isinstance(inner, dict) else None,
        }
        if found["reasoning"] is None:
            found["reasoning"] = _natural(usage.get("reasoning_tokens"))
        for key, value in found.items():
            if value is not None or key not in self.usage:
                self.usage[key] = value
        return completion

    def _arrival(self, now: int, content: bool, counted: Optional[int], ids: int) -> int:
        grown = max(0, counted - self.tokens) if counted is not None else ids
        if self.assumed or (counted is None and not ids):
            # a total after uncounted chunks says nothing about this one chunk
            if not content:
                return 0
            self.assumed = True
            grown = 1
        elif not content and not grown:
            return 0
        self.tokens += grown
        self.chunk_ns.append(now - self.sent_ns)
        self.chunk_tokens.append(grown)
        return grown

    def conclude(self) -> None:
        """Judge a stream that has ended. GenerationError unless it is a whole generation."""
        if self.finish_reason in ("abort", "error"):
            raise GenerationError("stream_error", f"finish_reason {self.finish_reason}")
        if self.finish_reason is None and not self.finished:
            raise GenerationError("incomplete", "the stream ended without a finish reason or [DONE]")
        if not self.chunk_ns or self.chunk_ns[0] <= 0:
            raise GenerationError("no_tokens", "no generated content arrived")

    def fail(self, status: str, error: Optional[str], text: Optional[str]) -> None:
        self.status, self.error, self.error_text = status, error, text

    def head(self) -> Dict[str, Any]:
        return {
            "t": "sent", "id": self.number, "phase": self.phase, "kind": self.kind, "measured": self.measured,
            "scheduled_ns": self.scheduled_ns, "sent_ns": self.sent_ns, "sent_wall_ns": self.sent_wall_ns,
            "isl": self.isl, "osl": self.osl,
        }  # fmt: skip

    def record(self) -> Dict[str, Any]:
        chunks = self.chunk_ns
        known = any(value is not None for value in self.usage.values())
        line = self.head()
        line.update(
            t="done", status=self.status, error=self.error, error_text=self.error_text, http=self.http,
            first_ns=self.sent_ns + chunks[0] if chunks else None,
            last_ns=self.sent_ns + chunks[-1] if chunks else None,
            end_ns=self.end_ns, chunk_ns=chunks, chunk_tokens=self.chunk_tokens,
            tokens_per_chunk=("assumed" if self.assumed else "counted") if chunks else None,
            usage=self.usage if known else None, finish_reason=self.finish_reason,
        )  # fmt: skip
        return line


# ---- output and health of the client itself --------------------------------------------------------------------------


class Lines:
    """JSON lines on a file descriptor, gathered and written in one go."""

    def __init__(self, descriptor: int, later: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._later = later  # called when a line begins to wait
        self._parts: List[str] = []

    def emit(self, record: Dict[str, Any]) -> None:
        if not self._parts:
            self._later()
        self._parts.append(_encode(record))

    def stamp(self, record: Dict[str, Any]) -> int:
        """Emit with this moment on both clocks; returns the monotonic one."""
        mono, wall = clock_pair()
        self.emit({**record, "mono_ns": mono, "wall_ns": wall})
        return mono

    def flush(self) -> None:
        if not self._parts:
            return
        data = memoryview(("\n".join(self._parts) + "\n").encode())
        self._parts.clear()
        while data:
            data = data[os.write(self._descriptor, data) :]


def say(text: str) -> None:
    sys.stderr.write(f"loadgen: {text}\n")


def clock_pair() -> Tuple[int, int]:
    """(monotonic, wall) in ns of one moment: the tightest of three readings."""
    readings = []
    for _ in range(3):
        before, wall, after = _mono(), time.time_ns(), _mono()
        readings.append((after - before, before + (after - before) // 2, wall))
    _, mono, wall = min(readings)
    return mono, wall


def cpu_wait() -> float:
    """Seconds that this thread was ready to run but had no CPU (the kernel's run delay); 0 where that is not told."""
    try:
        with open("/proc/self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def highest(values: "array.array[float]", share: float) -> Optional[float]:
    """The value that `share` of the sample does not exceed; None without values."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else None


class Health:
    """Is the client itself the bottleneck? Lag of the event loop and CPU use, by the second and over the whole load."""

    def __init__(self, lag_limit_ms: float) -> None:
        self._limit = lag_limit_ms
        self._all = array.array("d")
        self._second = 0.0
        self._bad = 0
        self._shares = array.array("d")
        self._wait = self._wait0 = cpu_wait()
        self.began = self._wall = time.monotonic()
        self.due = self.began + 1.0  # of the next tick
        self._cpu = self._cpu0 = time.process_time()

    def lag(self, ms: float) -> None:
        self._all.append(round(ms, 3))
        self._second = max(self._second, ms)

    def tick(self) -> Dict[str, Any]:
        wall, cpu = time.monotonic(), time.process_time()
        self.due = max(self.due + 1.0, wall)
        elapsed = max(wall - self._wall, 1e-9)
        share = (cpu - self._cpu) / elapsed
        lag, self._second = self._second, 0.0
        self._wall, self._cpu = wall, cpu
        wait, self._wait = self._wait, cpu_wait()
        saturated = lag > self._limit or share > 0.9
        self._bad += saturated
        self._shares.append(round(share, 4))
        return {
            "loop_lag_ms": round(lag, 3), "cpu": round(share, 4), "cpu_wait": round((self._wait - wait) / elapsed, 4),
            "saturated": saturated,
        }  # fmt: skip

    def summary(self) -> Dict[str, Any]:
        p99, busy = highest(self._all, 0.99), highest(self._shares, 0.9)
        elapsed = max(time.monotonic() - self.began, 1e-9)
        cpu, wait = (time.process_time() - self._cpu0) / elapsed, (cpu_wait() - self._wait0) / elapsed
        reasons = []
        if p99 is not None and p99 > self._limit:
            reasons.append(
                f"event loop lag p99 {p99:.1f} ms is over {self._limit:g} ms; "
                f"{wait:.0%} of the time it was ready but had no CPU"
            )
        if cpu > 0.9 or (busy or 0) > 0.9:
            reasons.append(f"{cpu:.0%} of a core used, {busy or cpu:.0%} in its busiest tenth of seconds")
        return {
            "value": bool(reasons), "reasons": reasons, "ticks": len(self._shares), "saturated_ticks": self._bad,
            "lag_p99_ms": p99, "lag_max_ms": max(self._all, default=None), "cpu_mean": round(cpu, 4),
            "cpu_max": max(self._shares, default=None), "cpu_wait": round(wait, 4),
        }  # fmt: skip


# ---- the load ------------------------------------------------------------------------------------------------------


class Load:
    """Sends the requests of a spec and writes what happens; one instance a process."""

    def __init__(self, spec: Spec, descriptor: int) -> None:
        self.spec = spec
        self.lines = Lines(descriptor, self._flush_later)
        self.health = Health(spec.lag_limit_ms)
        self.loop = asyncio.get_running_loop()
        self.prompts = Prompts(spec)
        self.pool: Deque[bytes] = collections.deque()
        self.built = self.numbers = 0
        self.flights: Dict["asyncio.Task[None]", Flight] = {}
        self.waiting: Deque[int] = collections.deque()  # arrivals that the cap holds back
        self.phase = ""
        self.phase_ns = 0
        self.reason = ""
        self.signalled = self.stopped_sending = False
        self.in_flight = self.steady_sent = self.ok_load = self.measured_open = self.row_of_failures = 0
        self.sent = self.done = self.failed = self.input_tokens = self.output_tokens = self.coalesced = 0
        self.counts: Dict[str, Dict[str, int]] = {}
        self.measured: Dict[str, int] = dict.fromkeys(("sent", "ok", "failed", "timed_out", "cut"), 0)
        self.errors: Dict[str, int] = {}
        self.compared = {
            side: dict.fromkeys(("requests", "asked", "counted", "different"), 0) for side in ("prompt", "completion")
        }
        self.steady_event = asyncio.Event()
        self.idle_event = asyncio.Event()
        self.injecting = spec.inject is not None
        key = os.environ.get(spec.api_key_env, "") if spec.api_key_env else ""
        self.headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        self.headers.update({"Accept-Encoding": "identity", **spec.headers})
        if key:
            self.headers["Authorization"] = f"Bearer {key}"
        self.secrets = [text for text in (key, *spec.headers.values()) if len(text) > 3]
        self.session: aiohttp.ClientSession

    # -- life

    async def run(self) -> int:
        spec = self.spec
        self.lines.stamp({
            "t": "hello", "schema": SCHEMA, "spec": masked(spec), "loop": "open" if spec.request_rate else "closed",
            "limit": spec.limit, "python": platform.python_version(), "aiohttp": aiohttp.__version__,
            "pid": os.getpid(), "cpus": sorted(os.sched_getaffinity(0)),
        })  # fmt: skip
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, self._signalled)
        heart = self.loop.create_task(self._heart())
        self.loop.call_later(spec.budget_s, self._finish, "budget")
        connect = min(10.0, spec.deadline_s)
        # servers drop idle connections after 5 s (uvicorn's default); we must be the first to let go
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=3.0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect),
            headers=self.headers,
        ) as self.session:
            await self._warm_up()
            if not self.reason:
                await self._offer()
            await self._idle()
        heart.cancel()
        self._end()
        return 1 if self.reason in ("failing", "error") else 0

    async def _warm_up(self) -> None:
        self._enter("warmup")
        await self._settle_usage()
        left = self.spec.warmup - 1
        width = self.spec.concurrency or 8
        pending: "set[asyncio.Task[None]]" = set()
        while (left > 0 or pending) and not self.reason:
            while left > 0 and len(pending) < width:
                left -= 1
                pending.add(self._launch("warmup"))
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)

    async def _settle_usage(self) -> None:
        """The first request, alone: learns which usage options the server takes, and how long its words are."""
        osl = self.spec.osl if self.spec.warmup else 1
        for level in (2, 1, 0):
            self.prompts.ask_usage(level)
            flight = self._flight("warmup", self.spec.isl, osl, _mono())
            await asyncio.wait([self._start(flight)])
            if flight.http not in (400, 422):
                break
            say(f"HTTP {flight.http} when asked for usage at level {level}: {flight.error_text}")
        else:
            self.prompts.ask_usage(2)  # refused for another reason
        counted = flight.usage.get("prompt")
        if self.spec.prompt == "text" and flight.status == "ok" and counted:
            self.prompts.words_per_token = min(2.0, max(0.1, self.spec.isl / counted))

    async def _offer(self) -> None:
        spec = self.spec
        self._refill()
        ahead = min(spec.concurrency or 64, MAX_POOL // len(self.pool[0]))
        while len(self.pool) < ahead:
            self._refill()
        gc.collect()
        gc.freeze()  # a full collection over start-up objects would stall the loop in the middle of a stream
        self.health = Health(spec.lag_limit_ms)  # start-up and warm-up say nothing about the load
        helpers = [self.loop.create_task(self._inject(spec.inject))] if spec.inject else []
        if spec.request_rate:
            self._enter("steady")
            helpers.append(self.loop.create_task(self._arrivals(spec.request_rate)))
        else:
            self._enter("ramp")
            width = spec.concurrency or 1
            for slot in range(width):
                self.loop.call_later(spec.ramp_s * slot / width, self._next)
        await self.idle_event.wait()
        for helper in helpers:
            helper.cancel()

    async def _idle(self) -> None:
        while self.flights:
            await asyncio.wait(list(self.flights))
            await asyncio.sleep(0)  # their callbacks write the last lines

    def _enter(self, phase: str) -> None:
        if phase != self.phase:
            self.phase = phase
            self.phase_ns = self.lines.stamp({"t": "phase", "name": phase})
        if phase == "steady":
            self.steady_event.set()

    def _finish(self, reason: str) -> None:
        """Stop sending for good; what is still on its way is cut, after a grace if only the budget ended."""
        if self.reason:
            return
        self.reason = reason
        self.stopped_sending = True
        self._enter("drain")
        if reason == "budget":
            self.loop.call_later(self.spec.grace_s, self._cut)
        else:
            self._cut()
        self.idle_event.set()

    def _cut(self) -> None:
        for task in list(self.flights):
            task.cancel()

    def _signalled(self) -> None:
        if self.signalled:
            self.lines.flush()
            os._exit(143)
        self.signalled = True
        self._finish("stopped")
        self._cut()

    # -- when to send

    def _limit_reached(self) -> bool:
        return self.steady_sent >= self.spec.limit and not self.injecting

    def _next(self) -> None:
        """A slot is free, or an arrival is due: send, unless the load has ended."""
        if not self.stopped_sending:
            self._launch("load")

    async def _arrivals(self, rate: float) -> None:
        rng = random.Random(f"{self.spec.seed}:arrivals")
        due = _mono()
        while not self.stopped_sending:
            gap = rng.expovariate(rate) if self.spec.arrival == "poisson" else 1 / rate
            due += int(gap * 1e9)
            await asyncio.sleep(max(0.0, (due - _mono()) / 1e9))
            if self.spec.concurrency is not None and len(self.flights) >= self.spec.concurrency:
                self.waiting.append(due)
            else:
                self._launch("load", scheduled_ns=due)

    async def _inject(self, plan: Inject) -> None:
        await self.steady_event.wait()
        start = self.phase_ns + int((plan.every_s if plan.start_s is None else plan.start_s) * 1e9)
        tasks = []
        for index in range(plan.count):
            due = start + int(index * plan.every_s * 1e9)
            flight = self._flight("inject", plan.isl, plan.osl, due)
            await asyncio.sleep(max(0.0, (due - _mono()) / 1e9))
            tasks.append(self._start(flight))
        await asyncio.wait(tasks)
        await asyncio.sleep(plan.every_s if plan.after_s is None else plan.after_s)
        self.injecting = False
        self._check_end()

    def _check_end(self) -> None:
        if self._limit_reached() and not self.measured_open:
            self._finish("completed")

    def _admit(self, flight: Flight) -> bool:
        """The last step before the bytes go out: phase, measured or filler. False: nothing more to send."""
        spec = self.spec
        if flight.kind == "load":
            if self.stopped_sending:
                return False
            if self._limit_reached():
                if not spec.filler:
                    self.stopped_sending = True
                    self._enter("drain")
                    return False
                flight.kind = "filler"
            full = spec.concurrency or 1
            if spec.filler and self.phase == "ramp" and self.ok_load >= full and self.in_flight + 1 >= full:
                self._enter("steady")
            flight.measured = flight.kind == "load"
        if flight.measured:
            self.measured_open += 1
            self.measured["sent"] += 1
            self.steady_sent += self.phase == "steady" or not spec.filler
        flight.phase = self.phase
        return True

    # -- one request

    def _refill(self) -> None:
        self.pool.append(self.prompts.body(self.built, self.spec.isl, self.spec.osl))
        self.built += 1

    def _flight(self, kind: str, isl: int, osl: int, scheduled_ns: int) -> Flight:
        body = self.prompts.body(self.built, isl, osl)
        self.built += 1
        self.numbers += 1
        return Flight(self.numbers, kind, isl, osl, body, scheduled_ns)

    def _launch(self, kind: str, scheduled_ns: Optional[int] = None) -> "asyncio.Task[None]":
        if not self.pool:
            self._refill()
        self.numbers += 1
        when = _mono() if scheduled_ns is None else scheduled_ns
        flight = Flight(self.numbers, kind, self.spec.isl, self.spec.osl, self.pool.popleft(), when)
        self.loop.call_later(0.001, self._refill)
        return self._start(flight)

    def _start(self, flight: Flight) -> "asyncio.Task[None]":
        task = self.loop.create_task(self._request(flight))
        self.flights[task] = flight
        task.add_done_callback(self._ended)
        return task

    async def _request(self, flight: Flight) -> None:
        if not self._admit(flight):
            return
        self.in_flight += 1
        self.sent += 1
        task = asyncio.current_task()
        alarm = self.loop.call_later(self.spec.deadline_s, self._overdue, flight, task)
        self.loop.call_soon(lambda: self.lines.emit(flight.head()))  # written once the request is on its way
        flight.sent_wall_ns, flight.sent_ns = time.time_ns(), _mono()
        try:
            await self._stream(flight)
        except GenerationError as problem:
            flight.fail("failed", problem.kind, problem.text)
        except asyncio.CancelledError:
            if flight.overdue:
                flight.fail("timed_out", "timeout", f"no end within {self.spec.deadline_s:g} s")
            else:
                flight.fail("cut", None, None)
        except (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError) as problem:
            flight.fail("failed", "connect", _short(problem))
        except aiohttp.ClientResponseError as problem:
            flight.fail("failed", "stream_error", _short(problem))
        except (aiohttp.ClientError, OSError) as problem:
            flight.fail("failed", "reset", _short(f"{type(problem).__name__}: {problem}"))
        finally:
            alarm.cancel()
            flight.end_ns = flight.end_ns or _mono()
            flight.body = b""
            self.in_flight -= 1

    def _overdue(self, flight: Flight, task: "Optional[asyncio.Task[Any]]") -> None:
        flight.overdue = True
        if task is not None:
            task.cancel()

    async def _stream(self, flight: Flight) -> None:
        async with self.session.post(self.spec.endpoint, data=flight.body, allow_redirects=False) as response:
            flight.http = response.status
            content = response.content
            if not 200 <= response.status < 300:
                text = await content.read(4 * ERROR_TEXT)
                raise GenerationError(f"http_{response.status // 100}xx", _short(text) or str(response.reason))
            if response.content_type == "application/json":
                text = await content.read(4 * ERROR_TEXT)
                kind = "stream_error" if b'"error"' in text else "bad_json"
                raise GenerationError(kind, "not a stream: " + _short(text))
            splitter = EventSplitter()
            while not flight.finished:
                data = await content.readany()
                now = _mono()
                events = splitter.feed(data) if data else splitter.close()
                for name, payload in events:
                    grown = flight.take(name, payload, now)
                    if grown:
                        self._arrived(flight, grown)
                if len(events) > 1:
                    self.coalesced += len(events) - 1
                if not data:
                    break
            flight.conclude()
            flight.end_ns = _mono()
            # the transfer's end follows [DONE]; reading it keeps the connection for the next request
            try:
                await asyncio.wait_for(content.readany(), 1.0)
            except (asyncio.TimeoutError, asyncio.CancelledError, aiohttp.ClientError, OSError):
                response.close()

    def _arrived(self, flight: Flight, grown: int) -> None:
        if len(flight.chunk_ns) == 1:
            self.input_tokens += flight.usage.get("prompt") or flight.isl
        self.output_tokens += grown

    def _ended(self, task: "asyncio.Task[None]") -> None:
        flight = self.flights.pop(task)
        problem = None if task.cancelled() else task.exception()
        if problem is not None:
            traceback.print_exception(type(problem), problem, problem.__traceback__)
            self._finish("error")
        for secret in self.secrets if flight.error_text else ():
            flight.error_text = str(flight.error_text).replace(secret, "***")
        if flight.sent_ns:
            self._judge(flight)
            self._tally(flight)
            self.lines.emit(flight.record())
        if self.phase != "warmup":
            self._check_end()

    def _judge(self, flight: Flight) -> None:
        """What the end of a request means for the load; first of all, its slot sends the next one."""
        bad = flight.status in ("failed", "timed_out")
        self.done += 1
        self.failed += bad
        self.measured_open -= flight.measured
        if flight.kind not in ("load", "filler"):
            return
        self.ok_load += flight.status == "ok"
        self.row_of_failures = self.row_of_failures + 1 if bad else 0
        if self.row_of_failures >= self.spec.patience:
            say(f"gave up: {self.row_of_failures} requests in a row failed; {flight.error}: {flight.error_text}")
            self._finish("failing")
        self._check_end()
        self._free(bad)

    def _free(self, bad: bool) -> None:
        if self.spec.request_rate:
            if self.waiting:
                self._launch("load", scheduled_ns=self.waiting.popleft())
        elif bad:  # a server that refuses at once must not be hammered
            self.loop.call_later(min(1.0, 0.05 * 2 ** min(self.row_of_failures, 6)), self._next)
        else:
            self._next()

    # -- sums

    def _tally(self, flight: Flight) -> None:
        kind = self.counts.setdefault(flight.kind, dict.fromkeys(("ok", "failed", "timed_out", "cut"), 0))
        kind[flight.status] += 1
        if flight.error:
            self.errors[flight.error] = self.errors.get(flight.error, 0) + 1
        if not flight.measured:
            return
        self.measured[flight.status] += 1
        if flight.status == "ok":
            for side, asked in (("prompt", flight.isl), ("completion", flight.osl)):
                counted = flight.usage.get(side)
                if counted is not None:
                    sums = self.compared[side]
                    sums["requests"] += 1
                    sums["asked"] += asked
                    sums["counted"] += counted
                    sums["different"] += counted != asked

    def _end(self) -> None:
        saturated = self.health.summary()
        self.lines.stamp({
            "t": "end", "reason": self.reason, "counts": self.counts, "measured": self.measured, "errors": self.errors,
            "tokens": self.compared, "saturated": saturated, "coalesced": self.coalesced,
            "usage_mode": ("none", "final", "continuous")[self.prompts.usage_level],
        })  # fmt: skip
        self.lines.flush()
        for side, sums in self.compared.items():
            if sums["different"]:
                say(f"{side} tokens are not as asked: {sums}")
        for reason in saturated["reasons"]:
            say(f"the client itself was saturated: {reason}")

    async def _heart(self) -> None:
        """Lag samples, ticks and the stop file. Each waking costs CPU that may be the server's, hence two paces."""
        tokens = 0
        while True:
            before = time.monotonic()
            busy, tokens = self.output_tokens - tokens > BUSY_TOKENS, self.output_tokens
            pause = min(BEAT_S if busy else 5 * BEAT_S, max(self.health.due - before, 0.001))
            await asyncio.sleep(pause)
            now = time.monotonic()
            self.health.lag((now - before - pause) * 1e3)
            if now >= self.health.due:
                self.lines.stamp({
                    "t": "tick", "in_flight": self.in_flight, "sent": self.sent, "done": self.done,
                    "failed": self.failed, "waiting": len(self.waiting), "input_tokens": self.input_tokens,
                    "output_tokens": self.output_tokens, **self.health.tick(),
                })  # fmt: skip
            if self._stop_asked():
                self._finish("stopped")

    def _flush_later(self) -> None:
        self.loop.call_later(FLUSH_S, self._flush)

    def _flush(self) -> None:
        try:
            self.lines.flush()
        except OSError:  # nobody can read on; main() says why when the last flush fails as well
            self._finish("error")

    def _stop_asked(self) -> bool:
        return self.spec.stop_file is not None and os.path.exists(self.spec.stop_file)


def prepare(spec: Spec) -> None:
    """The key is there, the CPUs are as asked, and so many files may be open as the system allows."""
    if spec.api_key_env and not os.environ.get(spec.api_key_env):
        raise SpecError(f"api_key_env: {spec.api_key_env} is not set on this machine")
    if spec.cpus is not None:
        try:
            os.sched_setaffinity(0, spec.cpus)
        except OSError as problem:
            raise SpecError(f"cpus: {problem}") from None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def generate(spec: Spec, descriptor: int) -> int:
    """Run the load of `spec`, lines to `descriptor`; returns the exit status."""
    return await Load(spec, descriptor).run()


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(description="Load generator for OpenAI-compatible streaming servers.")
    parser.add_argument("--spec", required=True, help="JSON file, or - for stdin")
    chosen: str = parser.parse_args(arguments).spec
    try:
        if chosen == "-":
            raw = json.load(sys.stdin)
        else:
            with open(chosen, encoding="utf-8") as file:
                raw = json.load(file)
        spec = parse_spec(raw)
        prepare(spec)
    except (OSError, ValueError) as problem:
        sys.stderr.write(_encode({"t": "error", "error": "bad_spec", "detail": str(problem)}) + "\n")
        return 2
    try:
        return asyncio.run(generate(spec, 1))
    except OSError as problem:
        sys.stderr.write(_encode({"t": "error", "error": "output_failed", "detail": str(problem)}) + "\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
