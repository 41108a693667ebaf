"""What a node looks like to the rest of runners: one exec, one file, one persistent channel, and a state.

Everything is bytes. Two kinds of link exist, SSH (runners.nodes.ssh) and this machine (runners.nodes.local), with the
same behaviour, so that no caller needs to know which one it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from runners.spec import Node

ErrorKind = Literal[
    "lost",  # no connection now; the link tries again by itself
    "auth",  # the node does not accept our keys; needs a person
    "hostkey",  # unknown or changed host key; needs a person
    "refused",  # nothing answers there, or the node refuses (port closed, name unknown, too many sessions)
    "config",  # our side's ssh configuration cannot be used
    "timeout",  # the command did not end in time
    "space",  # disk full or quota
    "permission",  # no right to write there
    "missing",  # a file, tool or job is not there
    "stuck",  # a process survives SIGKILL (usually in device or file-system wait)
    "protocol",  # the node answered something that we cannot read
    "held",  # somebody else's run is on this node
    "closed",  # we closed this link ourselves
]
KIB, MIB = 1024, 1024 * 1024
RUN_LIMIT = 8 * MIB


class NodeError(Exception):
    """Something failed on or on the way to a node. The text says what, where and what to do next."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind


class LinkState(StrEnum):
    CONNECTING = "connecting"  # not up yet since it was opened
    UP = "up"
    LOST = "lost"  # was up; reconnecting by itself
    AUTH_NEEDED = "auth_needed"  # tried again rarely, or at once by retry()
    HOSTKEY = "hostkey"  # ditto
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Completed:
    """One finished command. `exit_code` is None when a signal ended it or the server did not say."""

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    truncated: bool = False  # output beyond the limit was read and thrown away


class Channel(Protocol):
    """A persistent remote command: bytes to its stdin, bytes from its stdout. Errors are NodeError('lost')."""

    async def read(self, limit: int = 256 * KIB) -> bytes:
        """Up to `limit` bytes, at least one; b"" at the end of the output."""
        ...

    async def write(self, data: bytes) -> None: ...

    async def close(self) -> None:
        """End of stdin, then close. The command must end at EOF: a root command gets no signal over SSH."""
        ...


@runtime_checkable
class Link(Protocol):
    """A connection to one node that is kept up while it is wanted."""

    node: Node
    on_state: Callable[[Link], None] | None

    @property
    def state(self) -> LinkState: ...

    @property
    def error(self) -> NodeError | None:
        """Why the link is not up; None when it is."""
        ...

    async def up(self, timeout: float | None = 15.0) -> None:
        """Wait until the link is up.

        A link that was never up raises the first attempt's error at once; one that was up waits for its return.
        AUTH_NEEDED and HOSTKEY raise at once.
        """
        ...

    def retry(self) -> None:
        """Try now instead of at the next turn, e.g. after the operator unlocked the agent."""
        ...

    async def run(
        self,
        command: str,
        *,
        stdin: bytes = b"",
        timeout: float = 30.0,
        limit: int = RUN_LIMIT,
    ) -> Completed:
        """Run one shell command (`sh -c` on the node, with `become` applied) and wait for its end.

        Args:
            command: POSIX shell text. Quote what you put in.
            stdin: bytes for its standard input, then EOF.
            timeout: s; the node itself ends the command a little later too.
            limit: bytes kept of each of stdout and stderr; what comes beyond is dropped and flagged.

        Raises:
            NodeError: no connection, connection lost before the end, or timeout. A non-zero exit does not raise.
        """
        ...

    async def put(self, data: bytes, path: str, mode: int = 0o644) -> None:
        """Write a file by rename, so that it is whole or absent. A relative path starts at the user's home."""
        ...

    async def fetch(self, path: str, target: Path) -> int:
        """Copy a finished file from the node to `target` (by rename); goes on where it was after a lost link.

        Returns:
            its size in bytes.
        """
        ...

    async def channel(self, command: str, ttl_s: float | None = None) -> Channel:
        """A persistent command. The node ends it after `ttl_s`: a cut link can hide our end from sshd for hours."""
        ...

    async def close(self) -> None: ...


def open_link(node: Node, on_state: Callable[[Link], None] | None = None) -> Link:
    """A link to `node`, already connecting. Must be called in a running event loop; close it when done."""
    if node.host == "local":
        from runners.nodes.local import LocalLink

        return LocalLink(node, on_state)
    from runners.nodes.ssh import SshLink  # asyncssh costs 0.3 s to import

    return SshLink(node, on_state)
