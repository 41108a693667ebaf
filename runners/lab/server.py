"""One node of the embedded lab: an SSH server on loopback whose commands are real processes of this machine.

It behaves as OpenSSH does where that matters to us: `sh -c` in a process group of its own, streams and exit codes as
they are, ten sessions a connection, signals for the command, and no mercy or murder for a command whose client went
away: its pipes are closed, nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Final

import asyncssh

from runners.lab.layout import HOST, USER, LabNode

MAX_SESSIONS: Final = 10  # sshd's default
_CHUNK: Final = 64 << 10
_SIGNALS: Final = {"INT", "TERM", "KILL", "HUP", "QUIT", "USR1", "USR2"}


class _Connection(asyncssh.SSHServer):
    """Public keys only, ten sessions, forwards to loopback only."""

    def __init__(self, node: NodeServer) -> None:
        self.node = node
        self.sessions = 0

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self.node.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.node.connections.discard(self)

    def begin_auth(self, username: str) -> bool:
        return True

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        return dest_host in (HOST, "localhost", "::1")

    def session_requested(self) -> asyncssh.SSHServerProcess[bytes]:
        if self.sessions >= MAX_SESSIONS:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_RESOURCE_SHORTAGE, "open failed")
        return asyncssh.SSHServerProcess(self._session, None, 3, False)

    async def _session(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        self.sessions += 1
        try:
            await self.node.serve(process)
        finally:
            self.sessions -= 1


class NodeServer:
    """Listens for one node and runs what it is asked to."""

    def __init__(self, node: LabNode, mark: str, host_key: asyncssh.SSHKey, client_key: asyncssh.SSHKey) -> None:
        self.node = node
        self.connections: set[_Connection] = set()
        self.children: set[int] = set()
        self._env = node.env(mark)
        self._host_key = host_key
        self._authorized = asyncssh.import_authorized_keys(client_key.export_public_key().decode())
        self._acceptor: asyncssh.SSHAcceptor | None = None

    async def start(self, port: int) -> int:
        """Listen on `port`, or on any free one when that is taken or 0; the port. Raises OSError."""
        try:
            self._acceptor = await self._listen(port)
        except OSError:
            self._acceptor = await self._listen(0)
        return self._acceptor.get_port()

    async def _listen(self, port: int) -> asyncssh.SSHAcceptor:
        return await asyncssh.create_server(
            lambda: _Connection(self),
            HOST,
            port,
            server_host_keys=[self._host_key],
            authorized_client_keys=self._authorized,
            encoding=None,
            password_auth=False,
            kbdint_auth=False,
            line_editor=False,
        )

    async def close(self) -> None:
        """Drop all connections; what the commands started goes on."""
        if self._acceptor is not None:
            self._acceptor.close()
            await self._acceptor.wait_closed()

    async def serve(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        """Run one command: carry its streams until it has ended and nothing holds its output open."""
        if process.get_extra_info("username") != USER:
            process.stderr.write(b"no such user on this lab node\n")
            process.exit(254)
            return
        readers = [await _Pipe.open(process.stdout), await _Pipe.open(process.stderr)]
        try:
            child = await asyncio.create_subprocess_exec(
                *(["sh", "-c", process.command] if process.command else ["sh"]),
                stdin=asyncio.subprocess.PIPE,
                stdout=readers[0].write_fd,
                stderr=readers[1].write_fd,
                cwd=self._env["HOME"],
                env=self._env,
                start_new_session=True,
            )
        except OSError as e:
            process.stderr.write(f"cannot run it: {e}\n".encode())
            process.exit(255)
            for pipe in readers:
                pipe.close()
            return
        finally:
            for pipe in readers:
                pipe.close_write_end()
        self.children.add(child.pid)
        ended = asyncio.create_task(_carry_all(readers, child))
        gone = asyncio.create_task(process.channel.wait_closed())
        feed = asyncio.create_task(_feed(process, child))
        try:
            await asyncio.wait([ended, gone], return_when=asyncio.FIRST_COMPLETED)
            if ended.done() and ended.exception() is None and not process.channel.is_closing():
                _leave(process, child.returncode or 0)
        finally:
            for task in (ended, gone, feed):
                task.cancel()
            for pipe in readers:
                pipe.close()
            if child.stdin is not None:
                child.stdin.close()
            await child.wait()
            self.children.discard(child.pid)


class _Pipe:
    """A command's output on its way to a channel. Unlike asyncio's own pipes of a subprocess, it can be closed."""

    def __init__(self, target: asyncssh.SSHWriter[bytes]) -> None:
        self.target = target
        self.reader = asyncio.StreamReader(limit=_CHUNK)
        self.read_fd, self.write_fd = os.pipe()
        self.transport: asyncio.ReadTransport | None = None

    @classmethod
    async def open(cls, target: asyncssh.SSHWriter[bytes]) -> _Pipe:
        pipe = cls(target)
        loop = asyncio.get_running_loop()
        end = os.fdopen(pipe.read_fd, "rb", buffering=0)
        pipe.transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(pipe.reader), end)
        return pipe

    async def carry(self) -> None:
        """Until the last process that holds the other end is gone."""
        while data := await self.reader.read(_CHUNK):
            self.target.write(data)
            await self.target.drain()

    def close_write_end(self) -> None:
        """Our copy of the end that the command writes to."""
        os.close(self.write_fd)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()


async def _carry_all(pipes: list[_Pipe], child: asyncio.subprocess.Process) -> None:
    """All output, then the end of the command. Raises OSError or asyncssh.Error when the client is gone."""
    await asyncio.gather(*(pipe.carry() for pipe in pipes))
    await child.wait()


def _leave(process: asyncssh.SSHServerProcess[bytes], code: int) -> None:
    """Tell the client how the command ended."""
    if code < 0:
        process.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
    else:
        process.exit(code)


async def _feed(process: asyncssh.SSHServerProcess[bytes], child: asyncio.subprocess.Process) -> None:
    """The client's input to the command; signals that it asks for go to the command's process group."""
    stdin = child.stdin
    if stdin is None:
        return
    while True:
        try:
            data = await process.stdin.read(_CHUNK)
            if not data:
                break
            stdin.write(data)
            await stdin.drain()
        except asyncssh.SignalReceived as asked:
            if asked.signal in _SIGNALS:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.Signals["SIG" + asked.signal])
        except (asyncssh.BreakReceived, asyncssh.TerminalSizeChanged):
            continue
        except (OSError, asyncssh.Error):
            break
    stdin.close()
