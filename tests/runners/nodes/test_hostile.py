"""Whatever a node says: records or a NodeError, never anything else."""

from __future__ import annotations

import asyncio
import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from runners.nodes import jobs, wire
from runners.nodes.jobs import SAFE_NAME, JobStatus
from runners.nodes.link import KIB, Channel, Completed, NodeError
from runners.nodes.tail import Tailer
from runners.spec import Node

WORDS = st.sampled_from([*b"job size end a a/stdout ../x exited running - 0 -5 \xff".split(b" "), b"9" * 30, b""])
LINES = st.lists(st.lists(WORDS, max_size=13).map(b" ".join), max_size=6)
TEXT = st.one_of(st.binary(max_size=200), LINES.map(lambda lines: b"\n".join([*lines, b"end", b""])))


class Says:
    """A link to a node that answers everything with these bytes, in pieces of `step`."""

    node = Node(name="odd", host="local")

    def __init__(self, said: bytes, step: int = 1 << 20) -> None:
        self.said, self.step, self.at = said, step, 0

    async def run(self, command: str, **_: object) -> Completed:
        return Completed(0, self.said, b"")

    async def channel(self, command: str, ttl_s: float | None = None) -> Channel:
        return self

    async def read(self, limit: int = 256 * KIB) -> bytes:
        self.at += self.step
        return self.said[self.at - self.step : self.at]

    async def write(self, data: bytes) -> None:
        pass

    async def close(self) -> None:
        pass


@settings(max_examples=100, deadline=None)
@given(TEXT)
def test_any_answer_about_jobs_gives_clean_records_or_a_refusal(said: bytes) -> None:
    found: dict[str, JobStatus] = {}
    with contextlib.suppress(NodeError):
        found = asyncio.run(jobs.list_jobs(Says(said)))  # type: ignore[arg-type]  # what jobs uses of a link
    for job_id, status in found.items():
        assert SAFE_NAME.fullmatch(job_id)
        assert status.exit_code is None or status.exit_code >= 0
        assert (status.boot_id or "").isprintable()


HEADERS = st.sampled_from(
    [
        b"hello 1 2\n",
        b"chunk 1 j stdout 0 3 3 running:-:1:2:b\n",
        b"chunk 1 j stdout 0 9 3 x\n",
        b"abc\n",
        b"done 1\n",
        b"end 1\n",
    ]
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(HEADERS, st.binary(max_size=20)), max_size=7).map(b"".join), st.integers(1, 40))
def test_any_answer_about_streams_gives_chunks_that_fit_or_a_refusal(said: bytes, step: int) -> None:
    tailer = Tailer(Says(b"hello 1 2\n" + said, step))  # type: ignore[arg-type]  # what a tailer uses of a link
    tailer.follow("j", "stdout")

    async def poll() -> None:
        async for chunk in tailer._poll(tailer.following):
            assert (chunk.job_id, chunk.stream, chunk.offset) == ("j", "stdout", 0)
            assert chunk.data in (b"", b"abc")

    with contextlib.suppress(NodeError):
        asyncio.run(poll())


@given(st.binary(max_size=300), st.lists(st.integers(1, 50), max_size=20))
def test_the_mark_is_found_however_the_stream_is_cut(noise: bytes, cuts: list[int]) -> None:
    whole = noise.replace(wire.MARK, b"") + wire.MARK + b"payload" + wire.MARK
    strip, got, at = wire.MarkFilter(), b"", 0
    for cut in [*cuts, len(whole)]:
        got += strip(whole[at : at + cut])
        at += cut
    assert got == wire.after_mark(whole) == b"payload" + wire.MARK


@given(st.binary(max_size=1000))
def test_what_a_node_says_is_printable_and_bounded(raw: bytes) -> None:
    text = wire.printable(raw)
    assert text.isprintable()
    assert len(text) <= 300
