"""Lines a second of the Tailer against `ssh NODE cat` of the same file.

    python -m tests.benchmarks.tail [LINES]        needs root: brings the two-node lab up and takes it down

Both sides read the whole file and count its lines in this process; three interleaved repeats.
"""

from __future__ import annotations

import asyncio
import shlex
import statistics
import sys
import time
from contextlib import aclosing

from runners.nodes import jobs
from runners.nodes.jobs import JobSpec
from runners.nodes.link import MIB, Link, open_link
from runners.nodes.tail import Tailer
from tests.lab.fixture import shared_lab

REPEATS = 3
LINE = "x" * 118  # 130 bytes with its number, as long as an engine's log lines


async def made(link: Link, count: int) -> str:
    """A finished job with `count` lines of output; the path of its stdout on the node."""
    spec = JobSpec(job_id="bench", argv=["seq", "-f", f"%010.0f {LINE}", "1", str(count)])
    folder = (await jobs.start(link, spec)).folder
    await link.run(f"until [ -e {folder}/rc ]; do sleep 0.1; done", timeout=120)
    return f"{folder}/stdout"


async def by_tailer(link: Link) -> int:
    tailer = Tailer(link)
    tailer.follow("bench", "stdout")
    lines = 0
    async with aclosing(tailer.__aiter__()) as chunks:
        async for chunk in chunks:
            lines += chunk.data.count(b"\n")
            tailer.advance("bench", "stdout", chunk.end)
            if chunk.end == chunk.size:
                break
    return lines


async def by_peer(command: list[str]) -> int:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, limit=4 * MIB)
    assert process.stdout is not None
    lines = 0
    while data := await process.stdout.read(MIB):
        lines += data.count(b"\n")
    await process.wait()
    return lines


async def main(count: int) -> None:
    lab = shared_lab()
    link = open_link(lab.node("node5"))
    await link.up()
    path = await made(link, count)
    peer = ["ssh", "-F", str(lab.folder / "ssh_config"), "node5", "cat", path]
    print(f"{count} lines of 130 bytes, read from the lab's node5 over SSH; {REPEATS} interleaved repeats")
    print(f"peer: {shlex.join(peer)}")
    rates: dict[str, list[float]] = {"tailer": [], "peer": []}
    for turn in range(REPEATS):
        for name in rates:
            began, used = time.perf_counter(), time.process_time()
            lines = await (by_tailer(link) if name == "tailer" else by_peer(peer))
            wall, cpu = time.perf_counter() - began, time.process_time() - used
            assert lines == count, f"{name} read {lines} lines"
            rates[name].append(lines / wall)
            speed = f"{lines / wall:10,.0f} lines/s {lines * 130 / wall / 1e6:7.1f} MB/s"
            print(f"{turn + 1} {name:7} {speed}  our CPU {cpu:.2f} s")
    ours, theirs = (statistics.median(rates[name]) for name in ("tailer", "peer"))
    print(f"median: tailer {ours:,.0f} lines/s, peer {theirs:,.0f} lines/s, ratio {ours / theirs:.2f}")
    await jobs.reap(link, "bench")
    await link.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))
