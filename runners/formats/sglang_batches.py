"""Many SGLang batch lines at once: lines that differ only in digits are read as one JSON array of numbers.

A shape (the line without its digits) is learnt from one line that `fast_row` read. The lines of a shape are then
reduced to `, number, number` by one translation and parsed by one call. A digit at a wrong place makes two numbers with
only a blank between them, or one number too many: the array is refused, and each line goes the slow way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final

import orjson

from runners.formats.base import Row
from runners.formats.sglang_log import GRAPHS, KEYS, fast_row

_DIGITS: Final = b"0123456789"
_DROPPED: Final = bytes(code for code in range(33, 127) if chr(code) not in "0123456789.:,TF")
_TO_ARRAY: Final = bytes.maketrans(b":,\nTF", b",  10")  # each value follows a colon; True and False become 1 and 0
_TO_ZEROS: Final = bytes.maketrans(_DIGITS, b"0" * 10)
_TOO_LONG: Final = b"0" * 19  # such a number may not fit 64 bits: the JSON parser would make it a float

_BODY = re.compile(r"\] (?:Prefill|Decode) batch, ([ -~]+)\Z")
_PLAIN = re.compile(r"\d+(?:\.\d+)?\Z", re.ASCII)
_KEY = re.compile(r"[^\d.:,TF]+\Z")
_MAX_SEEN: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class _Shape:
    """How lines of one shape become rows.

    base     the row of a line, with what is fixed in place
    names    columns of the numbers, in the line's order
    flags    at which places True or False stands: index among the values -> 1 or 0
    """

    base: Row
    names: tuple[str, ...]
    flags: dict[int, int]


_SHAPES: Final[dict[tuple[str, bytes], _Shape | None]] = {}
_HEAD: Final = b"[0000-00-00 00:00:00"
_HEAD_NAMES: Final = ("record", "time", "dp_rank", "tp_rank", "ep_rank", "pp_rank")


def _learn(line: str, end: int) -> _Shape | None:
    """The shape of a line, None when its cells are not all plain numbers of known columns."""
    row = fast_row(line)
    body = _BODY.match(line[end:])
    if row is None or body is None:
        return None
    names: list[str] = []
    flags: dict[int, int] = {}
    for part in body[1].rstrip(", ").split(", "):
        key, _, value = part.partition(": ")
        column = KEYS.get(key)
        if column is not None and _PLAIN.match(value) and _KEY.match(key):
            names.append(column)
        elif key in GRAPHS and value in ("True", "False"):
            flags[len(names)] = int(value == "True")
            names.append("graph")
        else:
            return None
    known = {*names, *_HEAD_NAMES, "graph_device"} if flags else {*names, *_HEAD_NAMES}
    if len(set(names)) != len(names) or known != set(row):
        return None
    return _Shape(row, tuple(names), flags)


def rows_of(lines: Sequence[str]) -> list[Row | None]:
    """A row for each line that could be read this way, None for every other line."""
    found: list[Row | None] = [None] * len(lines)
    whole = "\n".join(lines)
    if not whole.isascii():
        kept = [line if line.isascii() else "" for line in lines]
        whole = "\n".join(kept)
    shapes = whole.encode().translate(None, _DIGITS).split(b"\n")
    if len(shapes) != len(lines):  # lines with their line ends
        return found
    groups: dict[bytes, list[int]] = {}
    for at, shape in enumerate(shapes):
        if shape in groups:
            groups[shape].append(at)
        else:
            groups[shape] = [at]
    for shape, places in groups.items():
        if b" batch, #" not in shape or shape[:6] != b"[-- ::":
            continue
        if shape[6:7] == b"]":
            _read(found, lines, places, shape, "")
            continue
        by_ranks: dict[str, list[int]] = {}  # ranks are no figures
        for at in places:
            by_ranks.setdefault(lines[at][20 : lines[at].find("]", 20, 120)], []).append(at)
        for ranks, members in by_ranks.items():
            _read(found, lines, members, shape, ranks)
    return found


def _read(found: list[Row | None], lines: Sequence[str], places: Sequence[int], shape: bytes, ranks: str) -> None:
    key = (ranks, shape)
    if key not in _SHAPES:
        if len(_SHAPES) >= _MAX_SEEN:
            _SHAPES.clear()
        _SHAPES[key] = _learn(lines[places[0]], 20 + len(ranks))
    known = _SHAPES[key]
    if known is None:
        return
    chosen = [lines[at] for at in places]
    times = [line[:20] for line in chosen]
    if "".join(times).encode().translate(_TO_ZEROS) == _HEAD * len(places):
        start = 20 + len(ranks)
        _fill(found, known, places, times, [line[start:] for line in chosen])


def _fill(
    found: list[Row | None], shape: _Shape, places: Sequence[int], times: Sequence[str], bodies: Sequence[str]
) -> None:
    joined = "\n".join(bodies).encode().translate(_TO_ARRAY, _DROPPED)
    before, _, rest = joined.partition(b",")
    if before.strip() or _TOO_LONG in rest.translate(_TO_ZEROS):
        return
    try:
        flat = orjson.loads(b"[" + rest + b"]")
    except orjson.JSONDecodeError:
        return
    count = len(shape.names)
    if len(flat) != count * len(places):
        return
    for at, value in shape.flags.items():
        flags = flat[at::count]
        if flags.count(value) != len(flags):
            return
        flat[at::count] = [bool(value)] * len(flags)
    values = iter(flat)
    copy, names = shape.base.copy, shape.names
    pairs = map(zip, repeat(names), zip(*[values] * count, strict=True))
    for at, time, cells in zip(places, times, pairs, strict=True):
        row = found[at] = copy()
        row["time"] = time[1:]
        row.update(cells)
