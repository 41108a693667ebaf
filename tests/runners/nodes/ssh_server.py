"""An SSH server in this process whose sessions run `sh -c`, with the faults that links must stand."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import asyncssh

from runners.spec import Node


class SshServer:
    """Sessions run in `home` with the environment `env`. Start it, use node(), stop it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.env = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        self.user_key = asyncssh.generate_private_key("ssh-ed25519")
        self.user_key.write_private_key(folder / "id")
        self.known_hosts = folder / "known_hosts"
        self.port = 0
        self.accept_logins = True
        self.connects = 0
        self.banner = ""
        self.tunnels = 0
        self._acceptor: asyncssh.SSHAcceptor | None = None
        self._connections: set[asyncssh.SSHServerConnection] = set()
        self._children: set[asyncio.subprocess.Process] = set()

    async def start(self) -> None:
        self._acceptor = await asyncssh.listen(
            "127.0.0.1",
            self.port,
            server_host_keys=[self.host_key],
            server_factory=lambda: _Session(self),
            process_factory=self._process,
            encoding=None,
        )
        self.port = self._acceptor.get_port()

    async def stop(self) -> None:
        """As a server that dies: nothing listens any more and every connection is gone."""
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None
        self.drop()

    def drop(self) -> None:
        """Cut every connection without a word."""
        for connection in list(self._connections):
            connection.abort()

    async def end(self) -> None:
        """Stop, and end what sessions have left running."""
        await self.stop()
        for child in self._children:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
            # wait() would hang on a pipe that nobody reads any more
            child._transport.close()  # type: ignore[attr-defined]  # asyncio has no public way

    def trust(self) -> None:
        """Write the present host key into known_hosts."""
        key = self.host_key.export_public_key().decode().strip()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {key}\n")

    def node(self, **changes: object) -> Node:
        settings: dict[str, object] = {
            "name": "far",
            "host": "127.0.0.1",
            "port": self.port,
            "user": "somebody",
            "key": str(self.folder / "id"),
            "known_hosts": str(self.known_hosts),
            "ssh_config": os.devnull,
        }
        return Node.model_validate({**settings, **changes})

    async def _process(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        child = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            process.command or "",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self.env,
            cwd=self.home,
            start_new_session=True,
        )
        self._children.add(child)
        feeding = asyncio.create_task(_feed(process, child))
        with contextlib.suppress(OSError, asyncssh.Error):
            await asyncio.gather(_copy(child.stdout, process.stdout), _copy(child.stderr, process.stderr))
            code = await child.wait()
            if code < 0:
                process.exit_with_signal("KILL")
            else:
                process.exit(code)
        feeding.cancel()


async def _feed(process: asyncssh.SSHServerProcess[bytes], child: asyncio.subprocess.Process) -> None:
    assert child.stdin is not None
    with contextlib.suppress(OSError, asyncssh.Error):
        while data := await process.stdin.read(65536):
            child.stdin.write(data)
            await child.stdin.drain()
    child.stdin.close()


async def _copy(source: asyncio.StreamReader | None, target: asyncssh.SSHWriter[bytes]) -> None:
    assert source is not None
    while data := await source.read(65536):
        target.write(data)
        await target.drain()


class _Session(asyncssh.SSHServer):
    def __init__(self, server: SshServer) -> None:
        self._server = server
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._server.connects += 1
        self._server._connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._server._connections.discard(self._connection)

    def begin_auth(self, username: str) -> bool:
        if self._server.banner and self._connection is not None:
            self._connection.send_auth_banner(self._server.banner)
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return self._server.accept_logins and key == self._server.user_key.convert_to_public()

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        self._server.tunnels += 1
        return True


# What a node must have besides a POSIX sh: coreutils and setsid.
COREUTILS = """basename cat chmod chown comm cp cut date dd df dirname du echo env expr false head id join ln ls mkdir
mkfifo mktemp mv nice nl nohup nproc od paste printenv printf pwd readlink realpath rm rmdir seq sha256sum shuf sleep
sort split stat stty sum sync tac tail tee test timeout touch tr true truncate tsort tty uname uniq wc who whoami yes"""


def bare_path(folder: Path, shell: str) -> str:
    """A PATH with `shell` as sh, coreutils, setsid and nothing else."""
    folder.mkdir()
    for name in [*COREUTILS.split(), "setsid"]:
        if target := _which(name):
            (folder / name).symlink_to(target)
    (folder / "sh").write_text(f'#!/bin/sh\nexec {shell} "$@"\n') if " " in shell else (folder / "sh").symlink_to(shell)
    (folder / "sh").chmod(0o755)
    return str(folder)


def shells() -> Iterator[str]:
    """The POSIX shells of this machine."""
    for command in ("dash", "bash --posix", "busybox sh", "ksh", "yash"):
        name, _, rest = command.partition(" ")
        if path := _which(name):
            yield f"{path} {rest}".strip()


def _which(name: str) -> str | None:
    found = (Path(p) / name for p in ("/usr/bin", "/bin", "/usr/sbin"))
    return next((str(p) for p in found if p.exists()), None)
