"""Files as streams of lines: bounded memory at any size, endless lines cut, noise dropped before it is decoded."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Final

from runners.formats import text

CHUNK: Final = 256 * 1024  # fits the cache; larger blocks cost page faults
HEAD: Final = 64 * 1024


@dataclass(slots=True)
class Counted:
    """What a reader noticed: lines that were cut at 64 KiB."""

    cut_lines: int = 0


def open_binary(path: Path) -> IO[bytes]:
    """The file's bytes; gzip is unpacked; `-` is standard input. Raises OSError."""
    if str(path) == "-":
        return sys.stdin.buffer
    handle = path.open("rb")
    magic = handle.read(2)
    handle.seek(0)
    if magic == b"\x1f\x8b":
        return gzip.open(handle)  # type: ignore[return-value]  # GzipFile reads bytes as IO[bytes] does
    return handle


def decoded(raw: bytes) -> str:
    """Text of any bytes: UTF-16 with a mark, else UTF-8 with bad bytes replaced."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return raw.decode("utf-16", "replace")
    return raw.decode("utf-8", "replace").removeprefix("\ufeff")


def lines(handle: IO[bytes], first: bytes, long_lines: bool, noise: bytes, counted: Counted) -> Iterator[str]:
    """Lines of a stream whose first bytes were already read.

    long_lines  do not cut: a JSON document may be one line (bounded by text.MAX_DOCUMENT)
    noise       lines with this ending are dropped
    """
    limit = text.MAX_DOCUMENT if long_lines else text.MAX_LINE
    if first[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return iter(decoded(first + handle.read(limit)).splitlines())
    return chain.from_iterable(_blocks(handle, first.removeprefix(b"\xef\xbb\xbf"), limit, noise, counted))


def _blocks(handle: IO[bytes], first: bytes, limit: int, noise: bytes, counted: Counted) -> Iterator[list[str]]:
    """Lists of whole lines, one list a chunk. A line's pieces are joined once, at its end."""
    held: list[bytes] = []  # the start of a line whose end was not read yet
    size = 0
    skipping = False  # the rest of a line that was cut
    for chunk in chain((first,), iter(partial(handle.read, CHUNK), b"")):
        end = chunk.rfind(b"\n") + 1
        if end:
            whole = chunk[chunk.find(b"\n") + 1 : end] if skipping else b"".join([*held, chunk[:end]])
            skipping = False
            held, size = [], 0
            if whole:
                yield _split(whole, limit, noise, counted)
        if not skipping:
            held.append(chunk[end:])
            size += len(chunk) - end
            if size > limit:
                counted.cut_lines += 1
                yield [b"".join(held)[:limit].decode("utf-8", "replace") + text.CUT_MARK]
                held, size, skipping = [], 0, True
    if size:
        yield _split(b"".join(held), limit, noise, counted)


def _split(block: bytes, limit: int, noise: bytes, counted: Counted) -> list[str]:
    found = _decoded_lines(block, noise)
    if found and max(map(len, found)) > limit:
        for at, line in enumerate(found):
            if len(line) > limit:
                counted.cut_lines += 1
                found[at] = line[:limit] + text.CUT_MARK
    return found


def _decoded_lines(block: bytes, noise: bytes) -> list[str]:
    """Lines of a block without those that end in the noise: a busy log is nine tenths access lines.

    Text beyond ASCII goes line by line: one sign of it would make the whole block wide.
    """
    if noise and noise not in block:
        noise = b""
    endings = (noise, noise + b"\r") if b"\r" in block else noise
    if not block.isascii():
        kept = block.split(b"\n")
        return [line.decode("utf-8", "replace") for line in kept if not noise or not line.endswith(endings)]
    found = block.decode("ascii").split("\n")
    if not noise:
        return found
    words = (noise.decode(), noise.decode() + "\r") if b"\r" in block else noise.decode()
    return [line for line in found if not line.endswith(words)]
