"""Real captured output, scrubbed, in tests/data/captures; EXPECTED.tsv tells kind and counts of each file."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

from runners.formats import kinds
from runners.formats.base import Parsed, collect

CAPTURES = Path(__file__).parents[2] / "data" / "captures"
SHARED = Path(__file__).parents[4] / "shared" / "fixtures"


class Expected(NamedTuple):
    """One line of EXPECTED.tsv."""

    file: str
    kind: str
    rows: int
    events: int
    skipped: int


def expected() -> list[Expected]:
    with (CAPTURES / "EXPECTED.tsv").open() as handle:
        return [
            Expected(row["file"], row["kind"], int(row["rows"]), int(row["events"]), int(row["skipped"]))
            for row in csv.DictReader(handle, delimiter="\t")
        ]


def text(name: str) -> str:
    return (CAPTURES / name).read_text(encoding="utf-8", errors="replace")


def parsed(name: str, kind: str | None = None) -> Parsed:
    """Rows, events and skips of a sample, of the guessed kind unless one is given."""
    source = text(name)
    found = kinds.BY_NAME[kind] if kind else kinds.guess(source[:65536])
    assert found is not None, f"no kind for {name}"
    return collect(found.parse(source.splitlines()))
