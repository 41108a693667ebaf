"""What the preflight checks work on: the facts of each node, what was asked for, and the form of a verdict.

A check is a pure function from a `Scope` to verdicts; what it needs was asked in advance by survey.sh and its fellows,
so that a node costs few round trips whatever the number of checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from runners.launchers.base import Verdict
from runners.nodes.wire import printable
from runners.spec import Deployment, Node

MOST_LINES = 40_000
MOST_ROWS = 20_000


@cache
def script(name: str) -> str:
    """The text of a shell script beside this file."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


@dataclass(slots=True)
class Facts:
    """One node's answers to survey.sh.

    values: NAME -> text. blocks: NAME -> raw lines of a tool or file. rows: TABLE -> rows of cells. missing: NAME ->
    why there is no such value or block. `complete`: the survey came to its end.
    """

    values: dict[str, str] = field(default_factory=dict)
    blocks: dict[str, list[str]] = field(default_factory=dict)
    rows: dict[str, list[list[str]]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return "survey.end" in self.values

    def why(self, name: str) -> str:
        """Why `name` is not known."""
        return self.missing.get(name) or ("not asked" if self.complete else "the survey did not come to its end")

    def table(self, name: str) -> list[list[str]]:
        return self.rows.get(name, [])

    def number(self, name: str) -> int | None:
        """A value as a whole number; None when it is none."""
        text = self.values.get(name, "").strip()
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None

    def of(self, table: str) -> dict[str, dict[str, str]]:
        """Rows KEY NAME VALUE as {key: {name: value}}; the first value of a name counts."""
        found: dict[str, dict[str, str]] = {}
        for cells in self.table(table):
            if len(cells) >= 3:
                found.setdefault(cells[0], {}).setdefault(cells[1], cells[2])
        return found


def parse_facts(text: str) -> Facts:
    """The answer of survey.sh (or inside.sh). Lines that are none of it are left out; bounded."""
    facts = Facts()
    block: list[str] | None = None
    for raw in text.split("\n")[:MOST_LINES]:
        if block is not None:
            if raw == "#end":
                block = None
            else:
                block.append(_harmless(raw[:4000]))
            continue
        cells = [printable(part.encode(), 4000) for part in raw.split("\t")]
        if cells[0] == "#block" and len(cells) == 2:
            block = facts.blocks.setdefault(cells[1], [])
        elif cells[0] == "#row" and len(cells) > 2:
            rows = facts.rows.setdefault(cells[1], [])
            if len(rows) < MOST_ROWS:
                rows.append(cells[2:])
        elif cells[0] == "#none" and len(cells) >= 3:
            facts.missing[cells[1]] = cells[2]
        elif len(cells) >= 2 and cells[0] and not cells[0].startswith("#") and cells[1].strip():
            facts.values[cells[0]] = cells[1].strip()
    return facts


def _harmless(raw: str) -> str:
    """A tool's line without control characters; the tabs and blanks of its columns stay."""
    return (
        raw
        if raw.isprintable()
        else "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in raw)
    )


@dataclass(frozen=True, slots=True)
class Reached:
    """From a rail of this node to a rail of another. `state`: ok | lost | silent | big_lost | unknown."""

    rail: str
    node: str
    far_rail: str
    address: str
    state: str
    detail: str


@dataclass(slots=True)
class Seen:
    """Everything that was found out about one node.

    model: file -> (size, hash), None when the folder could not be looked at (then `model_why`). inside: facts from
    within a container of the deployment's image; None when there is none.
    """

    node: Node
    facts: Facts
    model: dict[str, tuple[str, str]] | None = None
    model_why: str = ""
    inside: Facts | None = None
    inside_why: str = ""
    reached: list[Reached] = field(default_factory=list)
    help_text: str | None = None  # of the engine's own --help, asked on the first node
    help_why: str = ""
    weights: dict[str, Any] | None = None  # answer of weights.sh, asked on the first node
    weights_why: str = ""


@dataclass(frozen=True, slots=True)
class Scope:
    """What a check judges: one node, beside all others.

    living: jobs of ours that are meant to run: job id -> pid of its leader on the node, 0 when not known.
    others: what was found on the nodes that answered, this one among them, in rank order.
    """

    seen: Seen
    others: Mapping[str, Seen]
    dep: Deployment | None = None
    living: Mapping[str, int] = field(default_factory=dict)
    first: bool = True  # rank 0's node, which serves HTTP

    @property
    def node(self) -> Node:
        return self.seen.node

    @property
    def facts(self) -> Facts:
        return self.seen.facts

    @property
    def spread(self) -> bool:
        """Whether a server over several nodes was asked for: then the rails matter."""
        return self.dep is not None and len(self.dep.nodes) > 1

    @property
    def ours(self) -> bool:
        """Whether we start the server."""
        return self.dep is not None and self.dep.engine != "external"


__all__ = ["Check", "Facts", "Reached", "Scope", "Seen", "Verdict"]

Judge = Callable[[Scope], Iterable[Verdict]]


@dataclass(frozen=True, slots=True)
class Check:
    """An entry of the registry. `across`: judges all nodes together; asked once, with the first node's scope."""

    name: str
    judge: Judge
    across: bool = False


def unknown(name: str, facts: Facts, source: str, fix: str = "") -> Verdict:
    """The verdict when what `source` would say is not there."""
    return Verdict(name, "unknown", facts.why(source), fix)


def listed(items: Iterable[object], most: int = 6) -> str:
    """Words joined for a verdict; beyond `most` only their number."""
    words = [str(i) for i in items]
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def differing(seen: Mapping[str, str]) -> str:
    """`node5 x, node7 y`, for what should be the same everywhere."""
    return ", ".join(f"{node} {value or 'unknown'}" for node, value in seen.items())


def gids_of(facts: Facts, hca: str) -> Iterator[tuple[int, str, str]]:
    """(index, RoCE version, GID) of an HCA's port, as sysfs lists them."""
    for cells in facts.table("gid"):
        if len(cells) >= 4 and cells[0] == hca and cells[1].isdigit():
            yield int(cells[1]), cells[2], cells[3]


def ipv4_of_gid(gid: str) -> str | None:
    """The IPv4 address of a mapped GID (::ffff:a.b.c.d in sysfs' long form); None for any other."""
    words = gid.lower().split(":")
    if len(words) != 8 or words[:6] != ["0000"] * 5 + ["ffff"]:
        return None
    try:
        high, low = int(words[6], 16), int(words[7], 16)
    except ValueError:
        return None
    return f"{high >> 8}.{high & 255}.{low >> 8}.{low & 255}"


def usable_gid(facts: Facts, hca: str) -> tuple[int, str] | None:
    """Index and IPv4 address of the GID that RoCE over routed Ethernet needs: version 2, IPv4-mapped.

    It is 3 on many hosts and 5 or 7 in macvlan pods: never assumed (NVIDIA/nccl#1573).
    """
    for index, version, gid in gids_of(facts, hca):
        address = ipv4_of_gid(gid)
        if "v2" in version and address:
            return index, address
    return None
