"""Bytes of a capture in chunks, whatever it is packed in, with what went wrong said instead of raised."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

CHUNK = 4 << 20
GZIP = b"\x1f\x8b"


class Packed:
    """Reads a plain or gzip file (any number of members) as chunks of about `CHUNK` decompressed bytes.

    `problem` is None until the stream turned out to be cut short or damaged; the bytes before that are still given.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        with self.path.open("rb", buffering=0) as file:
            head = file.read(2)
            file.seek(0)
            if head == GZIP:
                yield from self._unzip(file.read)
                return
            while chunk := file.read(CHUNK):
                yield chunk

    def _unzip(self, read: Callable[[int], bytes | None]) -> Iterator[bytes]:
        unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
        pending = b""
        fed = False
        while True:
            packed = pending or read(CHUNK) or b""
            if not packed:
                if fed and (rest := unzip.flush()):
                    yield rest
                break
            before = unzip.copy()
            try:
                fed = True
                data = unzip.decompress(packed, CHUNK)
            except zlib.error as error:
                self.problem = f"the gzip stream is damaged ({error}); what came before is analysed"
                yield from _until_damage(before, packed)
                return
            pending = unzip.unconsumed_tail
            if unzip.eof:
                # Another member may follow; zero padding may too, and is no member.
                pending = unzip.unused_data.lstrip(b"\0") or (read(CHUNK) or b"").lstrip(b"\0")
                unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
                fed = False
                if pending and not pending.startswith(GZIP[: len(pending)]):
                    self.problem = "bytes after the end of the gzip stream are no gzip member; they are left out"
                    pending = b""
                    if data:
                        yield data
                    return
            if data:
                yield data
        if fed and not unzip.eof:
            self.problem = "the gzip stream ends early; what came before is analysed"


def _until_damage(unzip: zlib._Decompress, packed: bytes) -> Iterator[bytes]:
    """What a block that does not decompress as a whole gives in small bites, up to the one that fails."""
    for at in range(0, len(packed), 256):
        try:
            data = unzip.decompress(packed[at : at + 256])
        except zlib.error:
            return
        if data:
            yield data
