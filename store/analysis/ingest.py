"""Opens captures of any kind this project knows, and says in a sentence what it could not use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from store.analysis.timeline import Ingest
from store.analysis.torch_trace import read_torch

SQLITE = b"SQLite format 3\0"
_SUFFIXES = (".json", ".json.gz", ".sqlite", ".json.tmp", ".nsys-rep", ".trace.gz")


def ingest(path: Path) -> Ingest:
    """Read one capture. What is wrong with it is in `problems`; nothing is raised for its content."""
    try:
        if path.is_dir():
            return _directory(path)
        if path.exists() and not path.is_file():
            return Ingest(problems=["no regular file (a pipe, a socket or a device): save the capture to a file first"])
        with path.open("rb") as file:
            head = file.read(64)
        if not head:
            return Ingest(problems=["the file is empty"])
        if head.startswith(SQLITE):
            from store.analysis.nsys import read_nsys

            return read_nsys(path)
        if head.startswith((b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ")):
            return Ingest(problems=["packed in a way that is not read here; unpack it, or pack it with gzip"])
        if head.startswith((b"\xff\xfe", b"\xfe\xff")) or head[1:16:2] == b"\0" * 8:
            return Ingest(problems=["the text is UTF-16; traces are UTF-8: iconv -f UTF-16 -t UTF-8 FILE > NEW"])
        if path.suffix in (".nsys-rep", ".qdrep"):
            return Ingest(problems=["a raw Nsight Systems report; export it first: nsys export --type sqlite FILE"])
        return read_torch(path)
    except (OSError, MemoryError) as error:
        return Ingest(problems=[f"cannot be read: {getattr(error, 'strerror', None) or error}"])


def _directory(path: Path) -> Ingest:
    names = [p.name for p in path.iterdir()]
    if any(name.startswith("CUPTI_ACTIVITY_KIND_") and name.endswith(".parquet") for name in names):
        from store.analysis.nsys import read_nsys

        return read_nsys(path)
    return Ingest(problems=["a folder without captures"])


def _inside(path: Path) -> list[Path]:
    try:
        return sorted(p for p in path.iterdir() if p.name.endswith(_SUFFIXES) or p.suffix == ".parquetdir")
    except OSError:  # said for the folder itself, beside what the other paths give
        return []


def expand(paths: Iterable[Path]) -> Iterator[Path]:
    """The captures behind the paths given: files as they are, folders by the captures that lie in them."""
    for path in paths:
        if path.is_dir() and not any(path.glob("CUPTI_ACTIVITY_KIND_*.parquet")):
            yield from _inside(path) or [path]
        else:
            yield path
