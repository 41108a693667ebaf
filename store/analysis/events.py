"""Finds the event objects of a Chrome trace in a stream of bytes, without parsing what nobody will look at.

A torch trace of a gigabyte is mostly Python frames, operators and flow arrows. `EventStream` looks for the wanted
categories with one regular expression, cuts out just those objects and hands them to the JSON parser in batches
(measured: 1.8 CPU s for 413 MB, 538,000 wanted events of 1.7 M). Where the layout of a file does not allow that short
cut every object is cut out; what does not parse is read by the strict grammar, then repaired, then counted as bad.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np
import orjson

from store.analysis.timeline import Int, column

Event = dict[str, Any]
Span = tuple[int, int]


@dataclass(frozen=True)
class Batch:
    """Events as parsed. starts, lengths: their ts and dur in whole nanoseconds from the digits in the file (UNREADABLE
    where there are none), once a double would round them; else None. in_ns: they were written as nanoseconds."""

    events: list[Event]
    starts: Int | None = None
    lengths: Int | None = None
    in_ns: bool = False


_KINDS: Final = (
    rb"(?:kernel|Kernel|gpu_mem|cuda_(?:r|d)|Mem|Runtime|user_annotation|privateuse1_|xpu_|mtia_|hpu_|glow_)"
)
WANTED: Final = re.compile(rb'"(?:cat"\s*:\s*"' + _KINDS + rb'|Task Type"\s*:)')
"""Where an event that may be of use says so: a category, or the task type of an Ascend trace."""
# The same as libkineto and json.dump space it: a pattern that begins with plain bytes is found twice as fast.
_WANTED_SPACED: Final = re.compile(rb'"cat": "' + _KINDS)
_CATEGORY: Final = re.compile(rb'"cat"(: ")?')

_HEAD: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
# From the end of one object to the first key of the next. In a JSON string it can only be where the string ends so.
_BOUNDARY: Final = re.compile(rb'\}\s*,\s*\{\s*"')
_EVENT_BOUNDARY: Final = re.compile(rb'\}\s*,\s*\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|bp|s)"')
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"?|[{}\[\]]', re.DOTALL)
_BAD_ESCAPE: Final = re.compile(rb'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_NAME: Final = re.compile(
    rb'"name"\s*:\s*"(.*?)"\s*(?=,\s*"(?:ph|cat|pid|tid|ts|dur|args|id|bp)"\s*:|\}\s*$)', re.DOTALL
)
_THREE_DECIMALS: Final = {
    key: re.compile(rb'"%s"\s*:\s*(-?[0-9]+\.[0-9]{3})(?=[\s,}])' % key.encode()) for key in ("ts", "dur")
}
_ANY_TIME: Final = {key: re.compile(rb'"%s"\s*:\s*(-?[0-9.]+)(?=[\s,}])' % key.encode()) for key in ("ts", "dur")}
UNREADABLE: Final = -(2**63)
_TASK_TYPE: Final = ord("T")
_MAX_OBJECT: Final = 32 << 20
_MAX_HEAD: Final = 64 << 20
_SAMPLE: Final = 1 << 20
_NS_EPOCH: Final = 1e17  # no count of microseconds of our era is above this; counts of nanoseconds are
_DOUBLE_KEEPS_NS: Final = 2.0**43
"""Above this many microseconds a double no longer keeps whole nanoseconds."""

_strict = json.JSONDecoder(strict=False)


class EventStream:
    """The wanted events of one trace, in batches, in file order.

    After iteration: `header` and `trailer` hold what stands before the events and from the last one on, `bad` counts
    objects that could not be read, `found` says whether the array began, `closed` whether its end was there.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._exact = False
        self.header = b""
        self.trailer = b""
        self.bad = 0
        self.found = False
        self.closed = False

    def __iter__(self) -> Iterator[Batch]:
        buffer = self._skip_header()
        if not self.found:
            return
        layout: Layout | None = None
        for chunk in self._chunks:
            buffer += chunk
            if layout is None:
                if len(buffer) < _SAMPLE:
                    continue
                layout = _layout(buffer[:_SAMPLE])
            cut = _last_object(buffer, layout.boundary)
            if cut > 0:
                yield self._read(buffer[:cut], layout)
                buffer = buffer[cut:]
            elif len(buffer) > _MAX_OBJECT:
                self.bad += 1  # no event is that long: what is here is not a trace any more
                buffer = b""
        end = _array_end(buffer, max(_last_object(buffer, None), 0))
        self.closed = end is not None
        self.trailer = buffer[max(buffer.rfind(b'"ph"'), 0) :]
        bad = self.bad
        yield self._read(buffer[:end], layout or _layout(buffer[:_SAMPLE]))
        if not self.closed and self.bad > bad:
            self.bad -= 1  # the object that was cut off is told by `closed`

    def _skip_header(self) -> bytes:
        buffer = b""
        for chunk in self._chunks:
            buffer += chunk
            start = _array_start(buffer)
            if start is not None:
                self.found = True
                self.header = buffer[:start]
                return buffer[start:]
            if len(buffer) > _MAX_HEAD:
                break
        self.header = buffer[:_MAX_HEAD]
        return b""

    def _read(self, data: bytes, layout: Layout) -> Batch:
        """The wanted events in a run of whole objects."""
        if layout.category_first and (spans := _short_cut(data, layout)) is not None:
            batch, bad = self._parse(data, spans)
            if not bad:
                return batch
        batch, bad = self._parse(data, [span for span in _every(data) if WANTED.search(data, *span)])
        self.bad += bad
        return batch

    def _parse(self, data: bytes, spans: list[Span]) -> tuple[Batch, int]:
        if not spans:
            return Batch([]), 0
        pieces = [data[begin:end] for begin, end in spans]
        text = b"[" + b",".join(pieces) + b"]"
        try:
            events: list[Event] = orjson.loads(text)
        except orjson.JSONDecodeError:
            events = []
        if len(events) != len(spans):
            # Something is damaged, or an object that nobody wants stuck to one that is wanted.
            text = b""
            read = [_one(data, span) for span in spans]
            pieces = [piece for piece, event in zip(pieces, read, strict=True) if event is not None]
            events = [event for event in read if event is not None]
        bad = len(spans) - len(events)
        self._exact = self._exact or any(_rounded(event.get("ts")) for event in events[:64])
        if not self._exact:
            return Batch(events), bad
        in_ns = any(isinstance(ts := event.get("ts"), float) and abs(ts) > _NS_EPOCH for event in events[:64])
        if in_ns:
            return Batch(events, _exact("ts", events, pieces, b"", 1), _exact("dur", events, pieces, b"", 1), True), bad
        return Batch(events, _exact("ts", events, pieces, text), _exact("dur", events, pieces, text)), bad


def _array_start(data: bytes) -> int | None:
    """Where the content of the event array begins: after `"traceEvents": [`, or after the bracket of a bare array."""
    found = _HEAD.search(data)
    if found:
        return found.end()
    if data[:256].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        return data.index(b"[") + 1
    return None


def _array_end(data: bytes, begin: int) -> int | None:
    """Where the array is closed, looking from an object in or after it; None where it is not.

    That object may lie deeper (in a list of an event's arguments), so the end is the last bracket that closes a level
    which was open at the start: after it only the document itself closes.
    """
    depth = lowest = 0
    end = None
    for token in _TOKEN.finditer(data, begin):
        mark = token.group()[:1]
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            depth -= 1
            if depth < lowest:
                lowest = depth
                end = token.start() if mark == b"]" else end
    return end


@dataclass(frozen=True)
class Layout:
    """How a file sets its events apart. boundary: from the end of one to the first key of the next, where that is
    regular. category_first: whether nothing but the phase comes before an event's category. spaced: whether every
    category is written `"cat": "...`, which one writer does or does not do throughout."""

    boundary: bytes | None
    category_first: bool
    spaced: bool = False


def _layout(sample: bytes) -> Layout:
    forms = Counter(match.group() for match in _EVENT_BOUNDARY.finditer(sample))
    boundary = forms.most_common(1)[0][0] if forms else None
    for match in WANTED.finditer(sample):
        begin = sample.rfind(b"{", 0, match.start())
        if not sample[begin + 1 : match.end()].lstrip().startswith((b'"ph"', b'"cat"')):
            return Layout(boundary, category_first=False)
    written = [match.group(1) for match in _CATEGORY.finditer(sample)]
    return Layout(boundary, category_first=boundary is not None, spaced=bool(written) and all(written))


def _last_object(data: bytes, boundary: bytes | None) -> int:
    """Where the last object that has another before it opens; -1 if there is none."""
    if boundary is not None:
        at = data.rfind(boundary)
        return at if at < 0 else data.index(b"{", at)
    at = len(data)
    while (at := data.rfind(b"{", 0, at)) > 0:
        before = data[max(0, at - 256) : at].rstrip()
        if before.endswith(b",") and before[:-1].rstrip().endswith(b"}"):
            return at
    return -1


def _short_cut(data: bytes, layout: Layout) -> list[Span] | None:
    """Where the wanted objects are; None where they do not follow the layout and all must be cut out."""
    spans: list[Span] = []
    find, rfind = data.find, data.rfind
    boundary = layout.boundary or b""
    # Kernels never stand among Ascend's tasks, which the quicker pattern does not know.
    spaced = layout.spaced and (b'"cat": "kernel"' in data or b'Task Type"' not in data)
    done = 0
    for match in (_WANTED_SPACED if spaced else WANTED).finditer(data):
        at = match.start()
        begin = rfind(b"{", 0, at)
        if begin < done or data[at + 1] == _TASK_TYPE:
            return None
        end = find(boundary, at)
        done = end + 1 if end >= 0 else data.rfind(b"}") + 1
        if done <= begin:
            return None
        spans.append((begin, done))
    return spans


def _every(data: bytes) -> Iterator[Span]:
    """Where the objects are, in any layout."""
    begin = data.find(b"{")
    if begin < 0:
        return
    for match in _BOUNDARY.finditer(data, begin):
        yield begin, match.start() + 1
        begin = data.index(b"{", match.start())
    yield begin, max(data.rfind(b"}") + 1, begin + 1)


def _one(data: bytes, span: Span) -> Event | None:
    """One object that may be longer than its span (objects inside its arguments) or damaged; None if unreadable."""
    begin, end = span
    for text in (data[begin:end], data[begin : begin + (1 << 18)], _repaired(data[begin:end])):
        try:
            event, _ = _strict.raw_decode(text.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            continue
        return event if isinstance(event, dict) else None
    return None


def _repaired(piece: bytes) -> bytes:
    """Quotes and backslashes that a name holds unescaped (kineto issues 80 and 336), escaped."""
    text = _BAD_ESCAPE.sub(rb"\\\\", piece)
    return _NAME.sub(_quoted, text, count=1)


def _quoted(match: re.Match[bytes]) -> bytes:
    name = match.group(1).replace(b'\\"', b'"').replace(b"\\\\", b"\\")
    return b'"name": ' + json.dumps(name.decode("utf-8", "replace")).encode()


def _rounded(ts: object) -> bool:
    return isinstance(ts, float) and abs(ts) > _DOUBLE_KEEPS_NS


def _exact(key: str, events: list[Event], pieces: list[bytes], text: bytes, scale: int = 1000) -> Int:
    """A time of each event in nanoseconds, from its digits. scale: nanoseconds of the unit they are written in."""
    found = _THREE_DECIMALS[key].findall(text)
    if len(found) == len(events):
        # As libkineto writes them: without their dots they are whole nanoseconds.
        return np.array(b",".join(found).replace(b".", b"").split(b",")).astype(np.int64)
    # Somewhere a time is missing, stands twice or is written in another way: each object by itself.
    times = []
    for event, piece in zip(events, pieces, strict=True):
        digits = _ANY_TIME[key].search(piece)
        times.append(_ns(digits.group(1).decode() if digits else str(event.get(key)), scale))
    return column(times)


def _ns(written: str, scale: int) -> int:
    """A time as written, in whole nanoseconds; UNREADABLE if that is no number or out of range."""
    try:
        ns = int((Decimal(written[:40]) * scale).to_integral_value())
    except (InvalidOperation, ValueError, OverflowError):
        return UNREADABLE
    return ns if abs(ns) < 2**62 else UNREADABLE
