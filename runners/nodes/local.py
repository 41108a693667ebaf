"""A link to this very machine: the same commands, by subprocess instead of SSH."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from pathlib import Path

from runners.nodes import wire
from runners.nodes.link import KIB, RUN_LIMIT, Channel, Completed, Link, LinkState, NodeError
from runners.spec import Node

CLOSE_S = 2.0


class LocalLink:
    """See runners.nodes.link.Link. Always up until it is closed."""

    def __init__(self, node: Node, on_state: Callable[[Link], None] | None = None) -> None:
        self.node = node
        self.on_state = on_state
        self._state = LinkState.UP

    @property
    def state(self) -> LinkState:
        return self._state

    @property
    def error(self) -> NodeError | None:
        return None if self._state is LinkState.UP else NodeError("closed", f"{self.node.name}: this link was closed.")

    async def up(self, timeout: float | None = 15.0) -> None:
        if self.error is not None:
            raise self.error

    def retry(self) -> None:
        """Nothing to try: this machine is always there."""

    async def _spawn(self, line: str, stderr: int) -> Process:
        await self.up()
        # From the home folder, as over SSH, and in a session of its own, so that a Ctrl-C here does not reach it.
        home = Path.home()
        return await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            line,
            stdin=PIPE,
            stdout=PIPE,
            stderr=stderr,
            cwd=home if home.is_dir() else "/",
            start_new_session=True,
        )

    async def run(
        self,
        command: str,
        *,
        stdin: bytes = b"",
        timeout: float = 30.0,
        limit: int = RUN_LIMIT,
    ) -> Completed:
        process: Process | None = None
        try:
            async with asyncio.timeout(timeout):
                process = await self._spawn(wire.wrapped(self.node, command, timeout), PIPE)
                feeding = _feed(process, stdin)
                reads = _gather(process.stdout, limit + wire.NOISE_LIMIT), _gather(process.stderr, limit)
                _, (out, cut_out), (err, cut_err) = await asyncio.gather(feeding, *reads)
                code = await process.wait()
        except TimeoutError as e:
            first = wire.printable(command.split("\n", 1)[0].encode(), 120)
            raise NodeError("timeout", f"{self.node.name}: no end within {timeout:g} s: {first}") from e
        finally:
            if process is not None:
                _kill(process)
        out = wire.after_mark(out)
        cut = cut_out or cut_err or len(out) > limit
        return Completed(code if code >= 0 else None, out[:limit], err, cut)

    async def put(self, data: bytes, path: str, mode: int = 0o644) -> None:
        await wire.put(self, data, path, mode)

    async def fetch(self, path: str, target: Path) -> int:
        return await wire.fetch(self, path, target)

    async def channel(self, command: str, ttl_s: float | None = None) -> Channel:
        return _LocalChannel(self.node, await self._spawn(wire.wrapped(self.node, command, ttl_s), DEVNULL))

    async def close(self) -> None:
        if self._state is not LinkState.CLOSED:
            self._state = LinkState.CLOSED
            if self.on_state is not None:
                self.on_state(self)


class _LocalChannel:
    """See runners.nodes.link.Channel."""

    def __init__(self, node: Node, process: Process) -> None:
        self._node = node
        self._process = process
        self._filter = wire.MarkFilter()

    async def read(self, limit: int = 256 * KIB) -> bytes:
        assert self._process.stdout is not None
        while raw := await self._process.stdout.read(limit):
            if data := self._filter(raw):
                return data
        return b""

    async def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except OSError as e:
            raise NodeError("lost", f"{self._node.name}: the command behind the channel has ended.") from e

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_drain(self._process), CLOSE_S)
        _kill(self._process)
        await self._process.wait()


async def _drain(process: Process) -> None:
    await _gather(process.stdout, 0)
    await process.wait()


def _kill(process: Process) -> None:
    """End what is left of a command of ours that outstayed its time; a detached job has left this group long ago."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


async def _feed(process: Process, data: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()


async def _gather(reader: asyncio.StreamReader | None, limit: int) -> tuple[bytes, bool]:
    """Read to the end, keep `limit` bytes, say whether there was more."""
    assert reader is not None
    kept, cut = bytearray(), False
    while data := await reader.read(256 * KIB):
        room = limit - len(kept)
        kept += data[:room]
        cut = cut or len(data) > room
    return bytes(kept), cut
