"""The vocabulary of the parsers: rows, events, skips, and the description of one kind of file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, final

# A cell is JSON-like: None (not known), bool, int, float, str, or a list/dict of those.
Value: TypeAlias = Any
Row: TypeAlias = dict[str, Value]


@dataclass(slots=True)
class Event:
    """Something that happened at one line.

    name    one of events.NAMES
    node    host as the source names it, None when the source does not
    rank    rank of the process inside its job, None when unknown
    time    the line's own time as written (formats differ: some have no year or no date), None when absent
    detail  what else is known; `line` holds the text (bounded, control characters removed)
    """

    name: str
    node: str | None = None
    rank: int | None = None
    time: str | None = None
    detail: dict[str, Value] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Value]:
        """The JSON shape of DESIGN section 4."""
        return {
            "name": self.name,
            "node": self.node,
            "rank": self.rank,
            "time": self.time,
            "detail": {key: value for key, value in self.detail.items() if not key.startswith("_")},
        }


@final
class Skip:
    """A line that claims to be of this format but cannot be read; it is counted and costs nothing else."""


SKIP: Final = Skip()


@dataclass(frozen=True, slots=True)
class Texts:
    """Rows that were read together, as JSON: `text` holds `count` objects with commas between them."""

    count: int
    text: str


Item: TypeAlias = Row | Event | Skip


@dataclass(slots=True)
class Parsed:
    """What a parser made of a text: rows, events, and the number of unreadable lines."""

    rows: list[Row] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    skipped: int = 0

    def add(self, item: Item) -> None:
        """Sort one item into its place."""
        if isinstance(item, dict):
            self.rows.append(item)
        elif isinstance(item, Event):
            self.events.append(item)
        else:
            self.skipped += 1


def collect(items: Iterable[Item]) -> Parsed:
    """Run a parser to its end."""
    parsed = Parsed()
    for item in items:
        parsed.add(item)
    return parsed


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a kind's rows: `type` is text, int, float, bool, list or map; `unit` is "" for none."""

    name: str
    type: str
    unit: str = ""
    note: str = ""


Sniffer: TypeAlias = Callable[[str], int]
Parser: TypeAlias = Callable[[Iterable[str]], Iterator[Item]]
TextParser: TypeAlias = Callable[[Iterable[str]], Iterator[Item | Texts]]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of captured output.

    sniff  first 64 KiB of the text -> 0 (certainly not) .. 100 (certainly)
    parse  lines (without or with their line ends) -> rows, events, skips, in order; consumed lazily
    texts  the same for who writes JSON anyway: rows that are read many at a time come as text
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    sniff: Sniffer
    parse: Parser
    events: tuple[str, ...] = ()
    long_lines: bool = False  # a document or JSON Lines: a line may be megabytes long
    noise: bytes = b""  # lines with this ending (a busy server's access log) hold nothing and are dropped unread
    texts: TextParser | None = None


def columns(spec: str) -> tuple[Column, ...]:
    """Columns from a compact table: one `name type unit [note...]` a line, `-` for no unit."""
    found = []
    for line in filter(str.strip, spec.splitlines()):
        name, kind, unit, *note = line.split(None, 3)
        found.append(Column(name, kind, "" if unit == "-" else unit, note[0] if note else ""))
    return tuple(found)
