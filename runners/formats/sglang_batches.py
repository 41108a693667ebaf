"""Many SGLang batch lines at once, as JSON: lines that differ only in digits are read as one array of numbers.

A shape (the line without its digits) is learnt from one line that `fast_row` read. The lines of a shape are then
reduced to `, number, number` by one translation and parsed by one call, and the numbers are put between the texts of
the shape. A digit at a wrong place makes two numbers with only a blank between them, or one number too many: the array
is refused, and each line goes the slow way.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final

import orjson

from runners.formats.sglang_log import GRAPHS, KEYS, fast_row

_DIGITS: Final = b"0123456789"
_DROPPED: Final = bytes(code for code in range(33, 127) if chr(code) not in "0123456789.:,TF")
_TO_ARRAY: Final = bytes.maketrans(b":,\nTF", b",  10")  # each value follows a colon; True and False become 1 and 0
_TO_ZEROS: Final = bytes.maketrans(_DIGITS, b"0" * 10)
_TOO_LONG: Final = b"0" * 19  # such a number may not fit 64 bits: the JSON parser would make it a float
_NO_VALUE: Final = b",  "  # a cell without a value: a digit inside the next key would take its place

_BODY = re.compile(r"\] (?:Prefill|Decode) batch, ([ -~]+)\Z")
_PLAIN = re.compile(r"\d+(?:\.\d+)?\Z", re.ASCII)
_KEY = re.compile(r"[^\d.:,TF]+\Z")
_MAX_SEEN: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class _Shape:
    """How lines of one shape become JSON objects.

    texts  what stands before the time, before each number, and at the end
    count  numbers of a line; flags: at which places True or False stands, as 1 or 0 (told in the texts)
    """

    texts: tuple[str, ...]
    count: int
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
    for at, part in enumerate(body[1].rstrip(", ").split(", ")):
        key, _, value = part.partition(": ")
        column = KEYS.get(key)
        if column is not None and _PLAIN.match(value) and _KEY.match(key):
            names.append(column)
        elif key in GRAPHS and value in ("True", "False"):
            flags[at] = int(value == "True")
        else:
            return None
    known = {*names, *_HEAD_NAMES, *(("graph", "graph_device") if flags else ())}
    if len(set(names)) != len(names) or len(flags) > 1 or known != set(row):
        return None
    fixed = {name: value for name, value in row.items() if name not in names and name != "time"}
    texts = (
        orjson.dumps(fixed).decode()[:-1] + ',"time":"',
        f'","{names[0]}":',
        *(f',"{name}":' for name in names[1:]),
    )
    return _Shape((*texts, "}"), len(names) + len(flags), flags)


def texts_of(lines: Sequence[str], shapes: Sequence[bytes]) -> list[str | None]:
    """A JSON object for each line that could be read this way, None for every other line.

    shapes  the lines without their digits
    """
    found: list[str | None] = [None] * len(lines)
    groups: defaultdict[bytes, list[int]] = defaultdict(list)
    for at, shape in enumerate(shapes):
        groups[shape].append(at)
    for shape, places in groups.items():
        if b" batch, #" not in shape or shape[:6] != b"[-- ::" or not shape.isascii():
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


def _read(found: list[str | None], lines: Sequence[str], places: Sequence[int], shape: bytes, ranks: str) -> None:
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
        _fill(found, known, places, [time[1:] for time in times], [line[start:] for line in chosen])


def _fill(
    found: list[str | None], shape: _Shape, places: Sequence[int], times: Sequence[str], bodies: Sequence[str]
) -> None:
    joined = "\n".join(bodies).encode().translate(_TO_ARRAY, _DROPPED)
    before, _, rest = joined.partition(b",")
    if before.strip() or _NO_VALUE in rest or _TOO_LONG in rest.translate(_TO_ZEROS):
        return
    try:
        flat = orjson.loads(b"[" + rest + b"]")
    except orjson.JSONDecodeError:
        return
    count = shape.count
    if len(flat) != count * len(places):
        return
    for at, value in shape.flags.items():
        if flat[at::count].count(value) != len(places):
            return
    words = orjson.dumps(flat).decode()[1:-1].split(",")
    columns = [words[at::count] for at in range(count) if at not in shape.flags]
    cells = [part for text, column in zip(shape.texts[1:-1], columns, strict=True) for part in (repeat(text), column)]
    rows = map("".join, zip(repeat(shape.texts[0]), times, *cells, repeat(shape.texts[-1])))
    for at, text in zip(places, rows, strict=True):
        found[at] = text
