"""Tails: every byte once, whatever the bytes and whatever happens to the channel."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from runners.nodes import jobs, tail
from runners.nodes.jobs import JobSpec
from runners.nodes.link import KIB, Channel, Link, NodeError, open_link
from runners.nodes.tail import Chunk, Tailer
from tests.runners.nodes.ssh_server import SshServer, bare_path, shells


def shell(job_id: str, text: str, *files: str) -> JobSpec:
    return JobSpec(job_id=job_id, argv=["sh", "-c", text], files=files)


async def collect(tailer: Tailer, job_id: str, stream: str = "stdout", at: int = 0, most: int = 1 << 40) -> bytes:
    """Everything from `at` to the end of the exited job, taking at most `most` bytes of a chunk."""
    got = bytearray()
    tailer.follow(job_id, stream, at)
    async with asyncio.timeout(60), aclosing(tailer.__aiter__()) as chunks:
        async for chunk in chunks:
            if (chunk.job_id, chunk.stream) != (job_id, stream):
                continue
            assert chunk.offset == at + len(got)
            got += chunk.data[:most]
            tailer.advance(job_id, stream, at + len(got))
            if chunk.job and chunk.job.state == "exited" and at + len(got) == chunk.size:
                break
    return bytes(got)


async def first(tailer: Tailer, wanted: Callable[[Chunk], bool]) -> Chunk:
    async with asyncio.timeout(20), aclosing(tailer.__aiter__()) as chunks:
        async for chunk in chunks:
            if wanted(chunk):
                return chunk
    raise AssertionError("the tail ended")


FLOOD = "i=0; while [ $i -lt 40 ]; do head -c {n} /dev/urandom; i=$((i+1)); done; exit 3"


async def test_every_byte_arrives_once_and_the_exit_code_after_the_last(link: Link) -> None:
    started = await jobs.start(link, shell("t", FLOOD.format(n=100_000)))
    data = await collect(Tailer(link), "t")
    assert len(data) == 4_000_000
    there = await link.run(f"sha256sum <{started.folder}/stdout")
    assert there.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()
    again = Tailer(link)
    again.follow("t", "stdout", len(data))
    last = await first(again, lambda c: c.job is not None and c.job.state == "exited")
    assert last.job is not None
    assert (last.job.exit_code, last.job.pid) == (3, started.pid)


async def test_a_tail_starts_where_it_is_told(link: Link) -> None:
    await jobs.start(link, shell("o", "seq 1 20000"))
    whole = await collect(Tailer(link), "o")
    assert whole == b"".join(b"%d\n" % i for i in range(1, 20001))
    assert await collect(Tailer(link), "o", at=12345) == whole[12345:]
    assert await collect(Tailer(link), "o", at=len(whole)) == b""


async def test_what_was_not_consumed_comes_again(near: Link) -> None:
    await jobs.start(near, shell("p", "seq 1 3000"))
    expected = b"".join(b"%d\n" % i for i in range(1, 3001))
    assert await collect(Tailer(near, poll_s=0.01), "p", most=777) == expected


async def test_bad_bytes_and_a_line_without_an_end_are_just_bytes(link: Link) -> None:
    forged = "echo; echo chunk 1 x stdout 0 5 5 running; echo end 1"
    text = f"printf 'a\\000b\\377\\033[2J\\n'; head -c 9000000 /dev/zero; {forged}"
    await jobs.start(link, shell("z", text))
    data = await collect(Tailer(link), "z")
    assert data.startswith(b"a\x00b\xff\x1b[2J\n\x00")
    assert data.endswith(b"\x00\nchunk 1 x stdout 0 5 5 running\nend 1\n")
    assert len(data) == 9 + 9_000_000 + 1 + 31 + 6


async def test_all_streams_of_all_jobs_share_one_channel(link: Link) -> None:
    for i in range(4):
        await jobs.start(
            link, shell(f"j{i}", f"echo out{i}; echo err{i} >&2; echo {{}} >rows.jsonl; sleep 0.2", "rows.jsonl")
        )
    tailer = Tailer(link)
    for i in range(4):
        for stream in ("stdout", "stderr", "rows.jsonl"):
            tailer.follow(f"j{i}", stream)
    got: dict[tuple[str, str], bytes] = {}
    exited: set[str] = set()
    async with asyncio.timeout(20):
        async for chunk in tailer:
            got[chunk.job_id, chunk.stream] = got.get((chunk.job_id, chunk.stream), b"") + chunk.data
            tailer.advance(chunk.job_id, chunk.stream, chunk.end)
            if chunk.job and chunk.job.state == "exited":
                exited.add(chunk.job_id)
            if len(exited) == 4:
                tailer.close()
    for i in range(4):
        assert got[f"j{i}", "stdout"] == b"out%d\n" % i
        assert got[f"j{i}", "stderr"] == b"err%d\n" % i
        assert got[f"j{i}", "rows.jsonl"] == b"{}\n"


async def test_a_lost_connection_costs_nothing(server: SshServer) -> None:
    link = open_link(server.node())
    await link.up()
    text = "i=0; while [ $i -lt 300 ]; do seq $((i*1000)) $((i*1000+999)); sleep 0.005; i=$((i+1)); done"
    await jobs.start(link, shell("cut", text))
    tailer = Tailer(link, poll_s=0.02)

    async def drop_now_and_then() -> None:
        for _ in range(5):
            await asyncio.sleep(random.uniform(0.05, 0.4))
            server.drop()

    dropping = asyncio.create_task(drop_now_and_then())
    data = await collect(tailer, "cut")
    await dropping
    assert data == b"".join(b"%d\n" % i for i in range(300_000))
    assert tailer.resets >= 1
    await link.close()


async def test_the_old_shell_goes_when_a_new_one_comes(server: SshServer) -> None:
    """After a lost connection the node's shell may hang on the dead one; the next shell ends it."""
    link = open_link(server.node())
    await jobs.start(link, shell("s", "sleep 5"))
    tailer = Tailer(link)
    tailer.follow("s", "stdout")
    await first(tailer, lambda c: c.job is not None)
    old = await link.channel(f"{jobs.script()}\nenter .twinrail make\njob_tail")
    hello = (await old.read()).split()
    tailer._server = hello[1].decode(), hello[2].decode()
    tailer.follow("s", "stdout")
    await first(tailer, lambda c: c.job is not None)
    assert await asyncio.wait_for(old.read(), 5) == b""
    await old.close()
    await jobs.stop(link, "s", 0)
    await link.close()


async def test_a_truncated_file_shows_by_its_size(near: Link) -> None:
    started = await jobs.start(near, shell("tr", "seq 1 1000; sleep 20"))
    tailer = Tailer(near, poll_s=0.05)
    tailer.follow("tr", "stdout")
    chunk = await first(tailer, lambda c: c.size > 3000)
    tailer.advance("tr", "stdout", chunk.end)
    await asyncio.to_thread(os.truncate, f"{started.folder}/stdout", 10)
    shorter = await first(tailer, lambda c: c.size < c.offset)
    assert (shorter.offset, shorter.data, shorter.size) == (chunk.end, b"", 10)
    await jobs.stop(near, "tr", 0)


async def test_a_job_that_nobody_knows_and_one_that_comes_later(near: Link) -> None:
    tailer = Tailer(near, poll_s=0.05)
    tailer.follow("later", "stdout")
    none = await first(tailer, lambda c: True)
    assert (none.data, none.size) == (b"", 0)
    assert none.job is not None
    assert none.job.state == "unknown"
    await jobs.start(near, shell("later", "echo here"))
    assert await collect(tailer, "later") == b"here\n"


async def test_following_and_unfollowing_while_it_runs(near: Link) -> None:
    await jobs.start(near, shell("a", "while :; do echo a; sleep 0.02; done"))
    await jobs.start(near, shell("b", "echo b; sleep 20"))
    tailer = Tailer(near, poll_s=0.02)
    tailer.follow("a", "stdout")
    seen: list[str] = []
    async with asyncio.timeout(20):
        async for chunk in tailer:
            seen.append(chunk.job_id)
            tailer.advance(chunk.job_id, chunk.stream, chunk.end)
            if len(seen) == 3:
                tailer.unfollow("a", "stdout")
                tailer.follow("b", "stdout")
            if chunk.job_id == "b":
                tailer.close()
    assert seen[:3] == ["a"] * 3
    assert seen[-1] == "b"
    assert seen[3:] == ["b"]
    for job_id in ("a", "b"):
        await jobs.stop(near, job_id, 0)


async def test_memory_stays_bounded_when_the_consumer_is_slow(near: Link) -> None:
    await jobs.start(near, shell("big", "head -c 50000000 /dev/zero"))
    tailer = Tailer(near, chunk=64 * KIB)
    tailer.follow("big", "stdout")
    taken = 0
    async with asyncio.timeout(20):
        async for chunk in tailer:
            taken += len(chunk.data)
            assert len(chunk.data) <= 64 * KIB
            assert len(tailer._buffer) < 2_000_000
            tailer.advance("big", "stdout", chunk.end)
            await asyncio.sleep(0.001)
            if taken > 3_000_000:
                tailer.close()


@pytest.mark.parametrize("command", list(shells()))
async def test_any_posix_shell_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, near: Link
) -> None:
    monkeypatch.setenv("PATH", bare_path(tmp_path / "bin", command))
    await jobs.start(near, shell("bare", "seq 1 50000"))
    assert await collect(Tailer(near), "bare") == b"".join(b"%d\n" % i for i in range(1, 50001))


class Garbled:
    """A link whose channels change what the node says, once."""

    def __init__(self, link: Link, change: Callable[[bytes], bytes]) -> None:
        self.node = link.node
        self.opened = 0
        self._link, self._change = link, change

    async def up(self, timeout: float | None = None) -> None:
        await self._link.up(timeout)

    async def channel(self, command: str, ttl_s: float | None = None) -> Channel:
        self.opened += 1
        real = await self._link.channel(command, ttl_s)
        if self.opened > 1:
            return real
        return _GarbledChannel(real, self._change)


class _GarbledChannel:
    def __init__(self, real: Channel, change: Callable[[bytes], bytes]) -> None:
        self._real, self._change = real, change

    async def read(self, limit: int = 256 * KIB) -> bytes:
        return self._change(await self._real.read(limit))

    async def write(self, data: bytes) -> None:
        await self._real.write(data)

    async def close(self) -> None:
        await self._real.close()


def _swallow(data: bytes) -> bytes:
    return data.replace(b"4999\n", b"", 1)  # bytes are missing: the next header would be taken for data


@pytest.mark.parametrize(
    "change",
    [
        _swallow,
        lambda data: data.replace(b"chunk ", b"chunk -"),
        lambda data: data.replace(b"hello", b"HELLO"),
        lambda data: b"x" * 10_000,
        lambda data: b"",
    ],
    ids=["bytes missing", "bad header", "bad greeting", "no lines", "early end"],
)
async def test_an_answer_that_cannot_be_right_is_asked_for_again(near: Link, change: Callable[[bytes], bytes]) -> None:
    await jobs.start(near, shell("g", "seq 1 5000"))
    await asyncio.sleep(0.2)
    garbled = Garbled(near, change)
    data = await collect(Tailer(garbled, poll_s=0.02), "g")  # type: ignore[arg-type]  # what a tailer uses of a link
    assert data == b"".join(b"%d\n" % i for i in range(1, 5001))
    assert garbled.opened >= 2


async def test_the_nodes_side_has_an_end_and_is_opened_again(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "SERVER_S", -4.0)  # the wrapper adds 5 s
    await jobs.start(link, shell("end", "seq 1 1000; sleep 3; seq 1001 2000"))
    tailer = Tailer(link, poll_s=0.05)
    assert await collect(tailer, "end") == b"".join(b"%d\n" % i for i in range(1, 2001))
    assert tailer.resets >= 2


async def test_names_that_could_be_paths_are_refused(near: Link) -> None:
    with pytest.raises(ValueError, match="not a stream"):
        Tailer(near).follow("../x", "stdout")
    with pytest.raises(ValueError, match="not a stream"):
        Tailer(near).follow("x", "/etc/passwd")


async def test_a_closed_link_ends_the_tail(near: Link) -> None:
    await jobs.start(near, shell("c", "true"))
    tailer = Tailer(near)
    tailer.follow("c", "stdout")
    await near.close()
    async with asyncio.timeout(5):
        assert [c async for c in tailer] == []
    with pytest.raises(NodeError):
        await near.run("true")


async def test_a_long_stream_gives_its_committed_head_back_and_keeps_its_offsets(
    near: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWINRAIL_KEEP_BYTES", str(64 * KIB))
    monkeypatch.setenv("TWINRAIL_PART_BYTES", str(64 * KIB))
    started = await jobs.start(near, shell("r", "head -c 1000000 /dev/urandom; head -c 1000000 /dev/urandom"))
    data = await collect(Tailer(near, chunk=100_000, poll_s=0.01), "r", most=90_000)
    file = Path(started.folder or "") / "stdout"
    assert len(data) == file.stat().st_size == 2_000_000
    said = file.with_name("stdout.rolled")
    if not said.exists():
        pytest.skip("this file system cannot give the head of a file back")
    gone = int(said.read_text())
    assert gone % (64 * KIB) == 0
    assert 1_700_000 < gone < 2_000_000
    assert file.stat().st_blocks * 512 <= 2_000_000 - gone + 64 * KIB
    assert file.read_bytes()[gone:] == data[gone:]  # what is not committed, and the last of what is, stays in its place
    assert await collect(Tailer(near), "r", at=gone) == data[gone:]


async def test_what_is_not_committed_is_never_given_back(near: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINRAIL_KEEP_BYTES", "0")
    monkeypatch.setenv("TWINRAIL_PART_BYTES", str(4 * KIB))
    await jobs.start(near, shell("u", "head -c 300000 /dev/urandom"))
    tailer = Tailer(near, poll_s=0.01)
    tailer.follow("u", "stdout")
    chunk = await first(tailer, lambda c: c.size == 300_000)
    again = Tailer(near, poll_s=0.01)
    again.follow("u", "stdout")
    assert (await first(again, lambda c: c.size == 300_000)).data == chunk.data
