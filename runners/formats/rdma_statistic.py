"""`rdma statistic`: hardware counters of RDMA ports, or of the queue pairs bound to a counter, in every print form.

Sources: rdma-statistic(8) of iproute2. One line a port; `-j` prints a JSON array (`-p` makes it pretty); some versions
print one counter a line below the port's name. `statistic qp show` puts words (type, pid, comm, LQPN) among the pairs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final

from runners.formats import jsontext, text
from runners.formats.base import SKIP, Item, Kind, Row, columns

_HEAD = re.compile(r"(?:link |\d+/\d+: )([\w.-]{1,64})/(\d{1,9}):?(?:\s+(\S.*))?\Z")
_JSON = re.compile(r'\s*(?:\[\s*(?:[{\]]|\Z)|\{\s*(?:"|\Z))')
_CELL = re.compile(r"\w{1,64} \d{1,19}\Z", re.ASCII)
_WORDS: Final = frozenset({"type", "pid", "comm", "lqpn", "cntn", "qp-type"})
_IDENTITY: Final = frozenset({"ifindex", "ifname", "port"})


def _row(hca: str, port: int | None, cntn: int | None = None) -> Row:
    return {"hca": hca, "port": port, "cntn": cntn, "counters": {}, "bound": {}}


def _put(row: Row, key: str, value: str) -> bool:
    """Place one `key value`; False when the value is no counter."""
    if key.lower() in _WORDS:
        if key.lower() == "cntn":
            row["cntn"] = text.integer(value)
        else:
            row["bound"][key.lower()] = text.shown(value.strip("<>"), 200)
        return True
    number = text.integer(value)
    if number is not None:
        row["counters"][key] = number
    return number is not None


def parse(lines: Iterable[str]) -> Iterator[Item]:
    """One row per port or counter: `counters`, and for a bound counter what it is bound to."""
    source = text.cleaned(lines)
    first = list(islice(filter(str.strip, source), 2))
    document = (
        bool(first) and _JSON.match(first[0]) is not None and not any(_HEAD.match(line.strip()) for line in first)
    )
    yield from (_json if document else _plain)(chain(first, source)) if first else ()


def _plain(lines: Iterable[str]) -> Iterator[Item]:
    row: Row | None = None
    for line in lines:
        bare = line.strip()
        if not bare:
            continue
        match = _HEAD.match(bare)
        if match is None:
            if row is None or not _CELL.match(bare) or not _put(row, *bare.split(" ")):
                yield SKIP
            continue
        if row is not None and row["counters"]:
            yield row
        row = _row(match[1], int(match[2]))
        words = (match[3] or "").split()
        if len(words) % 2 or not all(_put(row, *pair) for pair in zip(words[::2], words[1::2], strict=True)):
            yield SKIP
            row = None
    if row is not None and row["counters"]:
        yield row


def _json(lines: Iterable[str]) -> Iterator[Item]:
    found = jsontext.document(lines)
    for item in found if isinstance(found, list) else [found]:
        if not isinstance(item, dict) or not isinstance(item.get("ifname"), str):
            yield SKIP
            continue
        port = item.get("port")
        row = _row(item["ifname"], port if isinstance(port, int) else None)
        for key, value in item.items():
            if key not in _IDENTITY and isinstance(value, str | int):
                _put(row, key, str(value))
            elif key.lower() == "lqpn" and isinstance(value, list):
                row["bound"]["lqpn"] = ",".join(map(str, value[:64]))
        yield row


def sniff(head: str) -> int:
    """A port's name before counters, on one line or on several, or the JSON of the same."""
    plain = re.search(
        r"^[ \t]*(?:link |\d+/\d+: )\S{1,64}/\d+:?\s+(?!state )\w+ [\w-]+(?:\s+\w+ \d+|[ \t]*$)", head, re.M
    )
    if plain:
        return 95
    start = head.lstrip()[:4000]
    objects = start[:1] in ("[", "{") and re.search(r'"ifname": ?"', start) and re.search(r'"port": ?\d', start)
    return 90 if objects and '"physical_state"' not in start and re.search(r'"(?:rx_|np_|out_of_|cntn)', start) else 0


KIND: Final = Kind(
    "rdma_statistic",
    "rdma statistic show (also -j, -p, and qp show)",
    columns(
        "hca text -\nport int -\ncntn int - number of a bound counter, null for a port\ncounters map -\n"
        "bound map - type, pid, comm, lqpn of a bound counter"
    ),
    sniff,
    parse,
    long_lines=True,
)
