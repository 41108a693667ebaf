"""SHA256SUMS of a results tree: what `sha256sum -c` reads, and `export --verify`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from store.errors import ResultsError

NAME = "SHA256SUMS"
OPERATORS = frozenset({NAME, "notes.md"})  # written after the run has ended
_LINE = re.compile(r"^([0-9a-f]{64}) [ *](.+)$")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Paths within the tree, by what became of them."""

    same: list[str]
    changed: list[str]
    missing: list[str]
    added: list[str]

    @property
    def ok(self) -> bool:
        """Whether every file is as it was written. What was added later harms nothing."""
        return not (self.changed or self.missing)


def write_sums(tree: Path) -> None:
    """Write the sums of all files of the tree but those that operators go on writing. Raises ResultsError."""
    try:
        lines = [f"{digest_of(path)}  {name}\n" for name, path in _files(tree)]
        new = tree / f"{NAME}.new"
        new.write_text("".join(lines), encoding="utf-8")
        new.replace(tree / NAME)
    except OSError as e:
        raise ResultsError(f"cannot write {tree / NAME}: {e}") from e


def verify(tree: Path) -> Verdict:
    """Compare a tree with its sums. Raises ResultsError: no sums, or they are not readable as such."""
    try:
        text = (tree / NAME).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as e:
        raise ResultsError(f"{tree / NAME} cannot be read: {e.strerror}. Is this the folder of a run?") from e
    said: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.match(line)
        if match is None or not _inside(match[2]):
            raise ResultsError(f"{tree / NAME} line {number} is no checksum of a file of the tree")
        said[match[2]] = match[1]
    there = dict(_files(tree))
    same = [n for n, digest in said.items() if n in there and digest_of(there[n]) == digest]
    return Verdict(
        same=same,
        changed=[n for n in said if n in there and n not in set(same)],
        missing=[n for n in said if n not in there],
        added=[n for n in there if n not in said],
    )


def digest_of(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _files(tree: Path) -> Iterator[tuple[str, Path]]:
    """Regular files with their paths within the tree, sorted; links are not followed."""
    for path in sorted(tree.rglob("*")):
        name = path.relative_to(tree).as_posix()
        if path.is_file() and not path.is_symlink() and name not in OPERATORS and not name.endswith(".new"):
            yield name, path


def _inside(name: str) -> bool:
    return not name.startswith("/") and ".." not in name.split("/")
