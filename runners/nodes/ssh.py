"""A link over SSH that keeps itself up: keepalive, reconnect with jittered back-off, a budget of channels."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import asyncssh

from runners.nodes import wire
from runners.nodes.dial import Dialled, classify, dial
from runners.nodes.link import KIB, RUN_LIMIT, Channel, Completed, Link, LinkState, NodeError
from runners.spec import Node

# sshd's MaxSessions is 10 per connection. Two stay free for what the operator's jump or a dead command still holds.
CHANNELS = 8
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.5, 10.0
# What needs a person is not hammered: a refused login counts towards lock-outs, a host key check costs nobody.
AUTH_RETRY_S, HOSTKEY_RETRY_S = 60.0, 15.0
CLOSE_S = 2.0
# sshd frees a session a little after it has said that it is closed, so a busy link can be refused for a moment.
OPEN_AGAIN_S = (0.02, 0.05, 0.1, 0.3, 1.0)

_WAITING = {"auth": LinkState.AUTH_NEEDED, "hostkey": LinkState.HOSTKEY}


class SshLink:
    """See runners.nodes.link.Link."""

    def __init__(self, node: Node, on_state: Callable[[Link], None] | None = None) -> None:
        self.node = node
        self.on_state = on_state
        self._state = LinkState.CONNECTING
        self._error: NodeError | None = None
        self._was_up = False
        self._dialled: Dialled | None = None
        self._budget = asyncio.Semaphore(CHANNELS)
        self._changed = asyncio.Event()
        self._nudge = asyncio.Event()
        self._keeper = asyncio.create_task(self._keep(), name=f"link {node.name}")
        self._keeper.add_done_callback(self._ended)

    @property
    def state(self) -> LinkState:
        return self._state

    @property
    def error(self) -> NodeError | None:
        return self._error

    def _set(self, state: LinkState, error: NodeError | None) -> None:
        changed = state is not self._state
        self._state, self._error = state, error
        self._changed.set()
        self._changed = asyncio.Event()
        if changed and self.on_state is not None:
            self.on_state(self)

    async def _keep(self) -> None:
        """Connect, wait for the loss, connect again, until the link is closed."""
        failures = 0
        while True:
            try:
                self._dialled = await dial(self.node)
            except NodeError as e:
                failures += 1
                down = LinkState.LOST if self._was_up else LinkState.CONNECTING
                self._set(_WAITING.get(e.kind, down), e)
                await self._pause(e.kind, failures)
                continue
            failures, self._was_up = 0, True
            self._set(LinkState.UP, None)
            await self._dialled.connection.wait_closed()
            self._dialled.abort()
            self._dialled = None
            where = f"{self.node.name} ({self.node.host})"
            self._set(LinkState.LOST, NodeError("lost", f"{where}: the connection was lost; it is being made again."))

    def _ended(self, keeper: asyncio.Task[None]) -> None:
        """A fault of ours must not look like a node that never answers."""
        if not keeper.cancelled() and (error := keeper.exception()) is not None:
            self._set(LinkState.CLOSED, NodeError("config", f"{self.node.name}: the link failed: {error!r}"))

    async def _pause(self, kind: str, failures: int) -> None:
        rest = {"auth": AUTH_RETRY_S * min(failures, 10), "hostkey": HOSTKEY_RETRY_S}.get(kind)
        if rest is None:  # "full jitter": many links that lost the same switch do not come back in one wave
            rest = random.uniform(0.2, min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(failures, 10)))
        self._nudge.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._nudge.wait(), rest)

    def retry(self) -> None:
        self._nudge.set()

    async def up(self, timeout: float | None = 15.0) -> None:
        try:
            async with asyncio.timeout(timeout):
                while not self._alive():
                    final = self._state in (LinkState.AUTH_NEEDED, LinkState.HOSTKEY, LinkState.CLOSED)
                    if self._error is not None and (final or not self._was_up):
                        raise self._error
                    await self._changed.wait()
        except TimeoutError:
            why = self._error or NodeError("lost", f"{self.node.name}: no connection within {timeout:g} s.")
            raise why from None

    def _alive(self) -> bool:
        """Up, and not lost since: asyncssh knows a little before our keeper has had its turn."""
        return self._dialled is not None and not self._dialled.connection.is_closed() and self._state is LinkState.UP

    async def _connection(self) -> asyncssh.SSHClientConnection:
        if self._state is LinkState.CONNECTING:
            await self.up()
        if self._dialled is None:
            raise self._error or NodeError("lost", f"{self.node.name}: no connection.")
        return self._dialled.connection

    async def _open(self, line: str) -> asyncssh.SSHClientProcess[bytes]:
        for pause in (*OPEN_AGAIN_S, None):
            connection = await self._connection()
            try:
                return await connection.create_process(line, encoding=None)
            except (asyncssh.Error, OSError) as e:
                error = classify(e, self.node)
                if error.kind != "refused" or pause is None:
                    raise error from e
                await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def run(
        self,
        command: str,
        *,
        stdin: bytes = b"",
        timeout: float = 30.0,
        limit: int = RUN_LIMIT,
    ) -> Completed:
        process: asyncssh.SSHClientProcess[bytes] | None = None
        try:
            async with asyncio.timeout(timeout), self._budget:
                process = await self._open(wire.wrapped(self.node, command, timeout))
                feeding = _feed(process.stdin, stdin)
                reads = _gather(process.stdout, limit + wire.NOISE_LIMIT), _gather(process.stderr, limit)
                _, (out, cut_out), (err, cut_err) = await asyncio.gather(feeding, *reads)
                await process.wait_closed()
        except TimeoutError as e:
            if self._state is not LinkState.UP:
                raise self._error or classify(e, self.node) from e
            raise NodeError("timeout", f"{self.node.name}: no end within {timeout:g} s: {_brief(command)}") from e
        except (asyncssh.Error, OSError) as e:
            raise classify(e, self.node) from e
        finally:
            if process is not None:
                process.close()
        if process.exit_status is None and process.exit_signal is None:
            raise NodeError("lost", f"{self.node.name}: the connection was lost during: {_brief(command)}")
        out = wire.after_mark(out)
        cut_out = cut_out or len(out) > limit
        code = process.exit_status if process.exit_signal is None else None
        return Completed(code, out[:limit], err, cut_out or cut_err)

    async def put(self, data: bytes, path: str, mode: int = 0o644) -> None:
        await wire.put(self, data, path, mode)

    async def fetch(self, path: str, target: Path) -> int:
        return await wire.fetch(self, path, target)

    async def channel(self, command: str, ttl_s: float | None = None) -> Channel:
        await self._budget.acquire()
        try:
            process = await self._open(wire.wrapped(self.node, command, ttl_s))
        except BaseException:
            self._budget.release()
            raise
        return _SshChannel(self.node, process, self._budget.release)

    async def close(self) -> None:
        self._keeper.cancel()
        await asyncio.wait([self._keeper])
        if self._dialled is not None:
            self._dialled.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._dialled.connection.wait_closed(), CLOSE_S)
            self._dialled.abort()
            self._dialled = None
        self._set(LinkState.CLOSED, NodeError("closed", f"{self.node.name}: this link was closed."))


class _SshChannel:
    """See runners.nodes.link.Channel."""

    def __init__(self, node: Node, process: asyncssh.SSHClientProcess[bytes], released: Callable[[], None]) -> None:
        self._node = node
        self._process = process
        self._released: Callable[[], None] | None = released
        self._filter = wire.MarkFilter()

    async def read(self, limit: int = 256 * KIB) -> bytes:
        try:
            while raw := await self._process.stdout.read(limit):
                if data := self._filter(raw):
                    return data
        except (asyncssh.Error, OSError) as e:
            raise classify(e, self._node) from e
        if self._process.exit_status is None and self._process.is_closing():
            raise NodeError("lost", f"{self._node.name}: the connection was lost.")
        return b""

    async def write(self, data: bytes) -> None:
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except (asyncssh.Error, OSError) as e:
            raise classify(e, self._node) from e

    async def close(self) -> None:
        if self._released is None:
            return
        released, self._released = self._released, None
        try:
            with contextlib.suppress(asyncssh.Error, OSError, TimeoutError):
                self._process.stdin.write_eof()
                async with asyncio.timeout(CLOSE_S):  # a clean end frees the session on the server at once
                    while await self._process.stdout.read(256 * KIB):
                        pass
            self._process.close()
        finally:
            released()


async def _feed(writer: asyncssh.SSHWriter[bytes], data: bytes) -> None:
    with contextlib.suppress(
        BrokenPipeError, ConnectionResetError
    ):  # it ended without reading all: its exit code tells
        writer.write(data)
        writer.write_eof()
        await writer.drain()


async def _gather(reader: asyncssh.SSHReader[bytes], limit: int) -> tuple[bytes, bool]:
    """Read to the end, keep `limit` bytes, say whether there was more."""
    kept, cut = bytearray(), False
    while data := await reader.read(256 * KIB):
        room = limit - len(kept)
        kept += data[:room]
        cut = cut or len(data) > room
    return bytes(kept), cut


def _brief(command: str) -> str:
    return wire.printable(command.split("\n", 1)[0].encode(), 120)
