"""All streams of all jobs of one node over one channel, by byte offset.

A persistent `sh` on the node answers one request line at a time and ends at EOF of its input; it holds no state, so a
new one goes on where the lost one stopped. Wire, see job_tail in job.sh:

    us    NONCE  JOB STREAM OFFSET MAX  JOB STREAM OFFSET MAX ...
    node  chunk NONCE JOB STREAM OFFSET LENGTH SIZE STATE:RC:PID:TICKS:BOOT
          LENGTH raw bytes, newline, done NONCE            (only when LENGTH > 0)
          ...
          end NONCE

OFFSET says that everything before it is committed: of a stream that has grown long the node may give that back.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shlex
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from runners.nodes.jobs import SAFE_NAME, JobStatus, is_state, known, number, script
from runners.nodes.link import KIB, MIB, Channel, Link, NodeError
from runners.nodes.wire import printable

CHUNK = 4 * MIB  # most bytes of one stream in one answer
POLL_S = 0.25
ANSWER_S = 30.0  # a node that is up but says nothing for so long gets a new channel
HEADER_LIMIT = 4 * KIB
SERVER_S = 600.0  # the node's side ends then and is opened again, so that one that lost us cannot stay for ever


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of one stream, as they lie in the job's file.

    Attributes:
        offset: of data's first byte, counted from the job's start.
        data: may be empty: then only the job's state or the size is news.
        size: of the whole stream when it was read. Smaller than offset: somebody truncated the file.
        job: state, exit code, pid, start ticks and boot id; taken before the size, so that with state `exited` and
            offset + len(data) == size nothing more comes.
    """

    job_id: str
    stream: str
    offset: int
    data: bytes
    size: int
    job: JobStatus | None

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


class Tailer:
    """Follows streams of jobs of one node. Iterate it in one task; follow, unfollow and advance from the same loop.

    Nothing is asked for before the consumer takes the next chunk, so memory is bounded by one chunk. The consumer
    says how far it got with `advance`; what it did not consume comes again, with what has been added since.
    The iterator outlives lost connections and ends only after close().
    """

    def __init__(self, link: Link, *, chunk: int = CHUNK, poll_s: float = POLL_S) -> None:
        self.link = link
        self._chunk = chunk
        self._poll_s = poll_s
        self._offsets: dict[tuple[str, str], int] = {}
        self._most: dict[tuple[str, str], int] = {}
        self._told: dict[tuple[str, str], tuple[JobStatus | None, int]] = {}
        self._channel: Channel | None = None
        self._buffer = bytearray()
        self._server: tuple[str, str] | None = None  # pid and start ticks of the node's side
        self._nonces = itertools.count(1)
        self._wake = asyncio.Event()
        self._closed = False
        self.resets = 0  # how often the channel had to be opened again

    def follow(self, job_id: str, stream: str, offset: int = 0, most: int | None = None) -> None:
        """Read this stream from `offset` on. Raises ValueError for a name that cannot be one.

        most: bytes of this stream in one answer, for a file that only means something as a whole.
        """
        if not (SAFE_NAME.fullmatch(job_id) and SAFE_NAME.fullmatch(stream)):
            raise ValueError(f"not a stream of a job: {job_id!r}, {stream!r}")
        self._most[job_id, stream] = most or self._chunk
        self._offsets[job_id, stream] = offset
        self._told.pop((job_id, stream), None)
        self._wake.set()

    def unfollow(self, job_id: str, stream: str) -> None:
        self._offsets.pop((job_id, stream), None)
        self._told.pop((job_id, stream), None)
        self._most.pop((job_id, stream), None)

    def advance(self, job_id: str, stream: str, offset: int) -> None:
        """The consumer has everything before `offset`; the next chunk of this stream starts there."""
        if (job_id, stream) in self._offsets:
            self._offsets[job_id, stream] = offset

    @property
    def following(self) -> dict[tuple[str, str], int]:
        """Offset of the next wanted byte by (job, stream)."""
        return dict(self._offsets)

    def close(self) -> None:
        """End the iteration; the channel closes with it."""
        self._closed = True
        self._wake.set()

    async def __aiter__(self) -> AsyncGenerator[Chunk, None]:
        try:
            while not self._closed:
                self._wake.clear()
                more = False
                if self._offsets:
                    before = dict(self._offsets)
                    try:
                        async for chunk in self._poll(before):
                            yield chunk
                            moved = self._offsets.get((chunk.job_id, chunk.stream), chunk.offset) != chunk.offset
                            more = more or (moved and chunk.end < chunk.size)
                    except NodeError as e:
                        await self._drop()
                        if e.kind == "closed":
                            return
                        await self._wait_for_link(e)
                        continue
                if not more:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._wake.wait(), self._poll_s)
        finally:
            await self._drop()

    async def _wait_for_link(self, error: NodeError) -> None:
        """Until the link is up again; but never in a tight loop when the node answers nonsense."""
        self.resets += 1
        await asyncio.sleep(self._poll_s if error.kind == "lost" else 4 * self._poll_s)
        with contextlib.suppress(NodeError):
            await self.link.up(timeout=5.0)

    async def _drop(self) -> None:
        channel, self._channel = self._channel, None
        self._buffer.clear()
        if channel is not None:
            await channel.close()

    async def _open(self) -> Channel:
        if self._channel is None:
            replaced = shlex.join(self._server) if self._server else ""
            root = shlex.quote(self.link.node.root)
            command = f"{script()}\nexport LC_ALL=C\nenter {root} make\njob_tail {replaced}"
            self._channel = await self.link.channel(command, SERVER_S)
            hello = await self._line()
            if len(hello) != 3 or hello[0] != "hello":
                raise self._nonsense(hello)
            self._server = hello[1], hello[2]
        return self._channel

    async def _poll(self, wanted: dict[tuple[str, str], int]) -> AsyncIterator[Chunk]:
        """One request and its answers; every stream that has news."""
        channel = await self._open()
        nonce = str(next(self._nonces))
        # In order of jobs: the node looks up the state of each once.
        most = max((self._most.get(key, 0) for key in wanted), default=0)
        asked = [f"{j} {s} {offset} {self._most.get((j, s), self._chunk)}" for (j, s), offset in sorted(wanted.items())]
        await channel.write(f"{nonce} {' '.join(asked)}\n".encode())
        while (words := await self._line()) != ["end", nonce]:
            chunk = await self._read_chunk(words, nonce, most)
            key = chunk.job_id, chunk.stream
            if self._offsets.get(key) != chunk.offset:
                continue  # unfollowed, or followed anew from elsewhere, since it was asked for
            if chunk.data or self._told.get(key) != (chunk.job, chunk.size):
                self._told[key] = chunk.job, chunk.size
                yield chunk

    async def _read_chunk(self, words: list[str], nonce: str, most: int) -> Chunk:
        if len(words) != 8 or words[:2] != ["chunk", nonce]:
            raise self._nonsense(words)
        job_id, stream, state = words[2], words[3], words[7]
        offset, length, size = (number(w) for w in words[4:7])
        if offset is None or length is None or size is None or length > most:
            raise self._nonsense(words)
        data = await self._exactly(length) if length else b""
        # A file cut shorter while it was read would swallow our next header: the line after the bytes tells.
        if length and (await self._line() != [""] or await self._line() != ["done", nonce]):
            raise self._nonsense(words)
        return Chunk(job_id, stream, offset, data, size, _status(job_id, state))

    async def _more(self) -> None:
        assert self._channel is not None
        try:
            async with asyncio.timeout(ANSWER_S):
                data = await self._channel.read(MIB)
        except TimeoutError as e:
            raise NodeError("timeout", f"{self.link.node.name}: no answer about streams in {ANSWER_S:g} s.") from e
        if not data:
            raise NodeError("lost", f"{self.link.node.name}: the tail's shell has ended.")
        self._buffer += data

    async def _line(self) -> list[str]:
        while (at := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > HEADER_LIMIT:
                raise self._nonsense([bytes(self._buffer[:200]).decode("latin-1")])
            await self._more()
        line = bytes(self._buffer[:at]).decode("latin-1")
        del self._buffer[: at + 1]
        return line.split(" ")

    async def _exactly(self, length: int) -> bytes:
        while len(self._buffer) < length:
            await self._more()
        data = bytes(self._buffer[:length])
        del self._buffer[:length]
        return data

    def _nonsense(self, words: list[str]) -> NodeError:
        said = printable(" ".join(words).encode())
        return NodeError("protocol", f"{self.link.node.name}: not an answer about streams: {said}")


def _status(job_id: str, word: str) -> JobStatus | None:
    state, *rest = word.split(":")
    if len(rest) != 4 or not is_state(state):
        return None
    rc, pid, ticks, boot = rest
    return JobStatus(
        job_id=job_id,
        state=state,
        exit_code=number(rc),
        pid=number(pid),
        start_ticks=number(ticks),
        boot_id=known(boot),
    )
