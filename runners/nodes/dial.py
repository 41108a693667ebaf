"""One SSH connection, made the way the operator's own `ssh` would make it: configuration, agent, jumps, known_hosts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from runners.nodes.link import NodeError
from runners.nodes.wire import printable
from runners.spec import Node

KEEPALIVE_S, KEEPALIVE_COUNT = 2, 3  # a silent peer is noticed after interval x (count + 1), about 8 s
CONNECT_S, LOGIN_S = 8.0, 15.0
DEFAULT_CONFIG = ("~/.ssh/config", "/etc/ssh/ssh_config")
DEFAULT_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2", "/etc/ssh/ssh_known_hosts")


@dataclass(slots=True)
class Hop:
    """One machine on the way: the node itself or a jump host. Empty fields come from ssh_config."""

    host: str
    user: str | None = None
    port: int | None = None
    key: str | None = None
    jump: str | None = None
    proxy_command: str | None = None
    known_hosts: str | None = None
    through: asyncssh.SSHClientConnection | None = None


@dataclass(slots=True)
class Dialled:
    """A connection and the jump connections under it, outermost last."""

    connection: asyncssh.SSHClientConnection
    under: list[asyncssh.SSHClientConnection] = field(default_factory=list)

    def close(self) -> None:
        for conn in [self.connection, *reversed(self.under)]:
            conn.close()

    def abort(self) -> None:
        for conn in [self.connection, *reversed(self.under)]:
            conn.abort()


class _Client(asyncssh.SSHClient):
    """Remembers the host key that was offered and not trusted."""

    def __init__(self) -> None:
        self.offered: asyncssh.SSHKey | None = None

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.offered = key
        return False


@dataclass(frozen=True, slots=True)
class Target:
    """Where a hop really leads once ssh_config has been read, and which keys are known for it."""

    options: asyncssh.SSHClientConnectionOptions
    address: str
    port: int
    alias: str  # the name that known_hosts goes by
    files: list[Path]  # known_hosts files, the first is the one to append to
    known: bytes
    jump: str | None
    proxy: str | None


async def resolve(node: Node, hop: Hop) -> Target:
    """Read the configuration for one hop. Raises NodeError('config')."""
    given: dict[str, object] = {
        "username": hop.user,
        "port": hop.port,
        "client_keys": [_home(hop.key)] if hop.key else None,
    }
    try:
        options = await asyncssh.SSHClientConnectionOptions.construct(
            host=hop.host,
            config=_config_files(node),
            ignore_encrypted=True,  # an encrypted key is used through the agent
            keepalive_interval=KEEPALIVE_S,
            keepalive_count_max=KEEPALIVE_COUNT,
            connect_timeout=CONNECT_S,
            login_timeout=LOGIN_S,
            utf8_decode_errors="replace",  # a banner with bad bytes must not cost the connection
            **{k: v for k, v in given.items() if v is not None},
        )
    except (OSError, ValueError, asyncssh.Error) as e:
        raise NodeError("config", f"{node.name}: the ssh configuration for {hop.host} cannot be used: {e}") from e
    if hop.known_hosts:
        names = [hop.known_hosts]
    else:
        # Never asyncssh's own choice: for `UserKnownHostsFile none` it would stop checking keys at all.
        names = [*_config(options, "UserKnownHostsFile"), *_config(options, "GlobalKnownHostsFile")]
        names = names or list(DEFAULT_KNOWN_HOSTS)
    files = [Path(_home(n)) for n in names]
    jump = hop.jump or (options.tunnel if isinstance(options.tunnel, str) else None)
    return Target(
        options=options,
        address=options.host,
        port=options.port,
        alias=options.host_key_alias or options.host,
        files=files,
        known=await asyncio.to_thread(_read_known, files),
        jump=None if hop.through or jump == "none" else jump,
        proxy=_expanded(hop.proxy_command, options) if hop.proxy_command else None,
    )


def _expanded(command: str, options: asyncssh.SSHClientConnectionOptions) -> str:
    """A ProxyCommand with its tokens filled in; asyncssh does so only for one that ssh_config names."""
    tokens = {"%": "%", "h": options.host, "n": options.orig_host, "p": str(options.port), "r": options.username}
    return re.sub("%([%hnpr])", lambda found: tokens[found[1]], command)


def _home(path: str) -> str:
    return os.path.expanduser(path)


def _config_files(node: Node) -> list[str]:
    """The operator's file alone when one is named (as `ssh -F`), else the user's and the system's."""
    if node.ssh_config:
        return [_home(node.ssh_config)]
    return [path for path in map(_home, DEFAULT_CONFIG) if os.access(path, os.R_OK)]


def _config(options: asyncssh.SSHClientConnectionOptions, key: str) -> list[str]:
    value = options.config.get(key, [])
    return [str(v) for v in value] if isinstance(value, list) else []


def _read_known(files: list[Path]) -> bytes:
    """The usable lines of the files that exist. A line that cannot be read trusts nobody."""
    lines = []
    for path in files:
        with contextlib.suppress(OSError):
            lines += path.read_bytes().splitlines()
    good = []
    for raw in lines:
        try:
            text = raw.decode()
            asyncssh.import_known_hosts(text)
        except ValueError:
            continue
        good.append(text)
    return "\n".join(good).encode()


def first_hop(node: Node) -> Hop:
    """The node itself as the operator described it."""
    return Hop(node.host, node.user, node.port, node.key, node.jump, node.proxy_command, node.known_hosts)


async def dial(node: Node) -> Dialled:
    """Connect to the node, through its jump hosts if it has any.

    Raises:
        NodeError: auth, hostkey, refused, lost (no answer) or config.
    """
    under: list[asyncssh.SSHClientConnection] = []
    try:
        async with asyncio.timeout(CONNECT_S + LOGIN_S):
            return Dialled(await _connect(node, first_hop(node), under), under)
    except BaseException as e:
        for conn in reversed(under):
            conn.abort()
        if isinstance(e, TimeoutError):
            raise NodeError(
                "lost", f"{node.name}: {node.host} did not answer within {CONNECT_S + LOGIN_S:.0f} s."
            ) from e
        raise


async def jump_through(
    node: Node, jump: str, under: list[asyncssh.SSHClientConnection]
) -> asyncssh.SSHClientConnection:
    """Connect the chain `[user@]host[:port],...` and return its last connection."""
    last: asyncssh.SSHClientConnection | None = None
    for part in jump.split(","):
        user, _, rest = part.strip().rpartition("@")
        host, colon, port = rest.rpartition(":")
        named = colon and port.isdigit()
        hop = Hop(host if named else rest, user or None, int(port) if named else None, through=last)
        last = await _connect(node, hop, under)
        under.append(last)
    if last is None:
        raise NodeError("config", f"{node.name}: the jump host is empty.")
    return last


async def _connect(node: Node, hop: Hop, under: list[asyncssh.SSHClientConnection]) -> asyncssh.SSHClientConnection:
    target = await resolve(node, hop)
    through = await jump_through(node, target.jump, under) if target.jump else hop.through
    client = _Client()
    # asyncssh asks only for kinds of keys that are known; a reinstalled node may have none of these to show.
    for kinds in ((), "default"):
        try:
            return await asyncssh.connect(
                hop.host,
                options=target.options,
                known_hosts=target.known,
                client_factory=lambda: client,
                tunnel=through,
                proxy_command=target.proxy or (),
                server_host_key_algs=kinds,
            )
        except asyncssh.KeyExchangeFailed as e:
            if kinds == "default":
                raise classify(e, node, hop.host) from e
        except asyncssh.HostKeyNotVerifiable as e:
            if client.offered is None:  # revoked, or a certificate that does not fit
                raise classify(e, node, hop.host) from e
            raise HostKeyError(node, target, client.offered) from e
        except (OSError, ValueError, asyncssh.Error, TimeoutError) as e:
            raise classify(e, node, hop.host) from e
    raise AssertionError("unreachable")


class HostKeyError(NodeError):
    """An unknown or changed host key: what was offered, by whom, and where it would be remembered.

    Attributes:
        name: as in known_hosts, `host` or `[host]:port`.
        shown: algorithm and SHA256 fingerprint.
        line: for known_hosts.
        file: to append it to.
        changed: other keys are known for this name.
    """

    def __init__(self, node: Node, target: Target, offered: asyncssh.SSHKey) -> None:
        self.name = target.alias if target.port == 22 else f"[{target.alias}]:{target.port}"
        self.shown = f"{offered.get_algorithm()} {offered.get_fingerprint()}"
        self.line = f"{self.name} {' '.join(offered.export_public_key().decode().split()[:2])}"
        self.file = target.files[0]
        self.changed = has_known(target)
        known = ", ".join(str(f) for f in target.files)
        if self.changed:
            text = (
                f"the host key CHANGED, it is now {self.shown}. Either the node was reinstalled or somebody is in "
                f"between. Ask its administrator; if the key is right, `twinrail trust {node.name}`. Known in: {known}."
            )
        else:
            text = f"unknown host key {self.shown}. Check it, then `twinrail trust {node.name}`."
        super().__init__("hostkey", f"{node.name}: {self.name}: {text}")


def has_known(target: Target) -> bool:
    """Does known_hosts have any key for this name or address?"""
    port = target.port if target.port != 22 else None
    found = asyncssh.match_known_hosts(target.known, target.alias, target.address, port)
    return bool(found[0] or found[1])


def classify(error: BaseException, node: Node, host: str | None = None) -> NodeError:
    """The one place where asyncssh's and the system's errors become ours."""
    where = f"{node.name} ({host or node.host})"
    said = printable(str(error).encode()) or type(error).__name__
    if isinstance(error, NodeError):
        return error
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return NodeError("hostkey", f"{where}: host key not verified: {said}. `twinrail trust {node.name}`")
    if isinstance(error, asyncssh.PermissionDenied) or "too many authentication failures" in said.lower():
        return NodeError(
            "auth", f"{where}: login refused: {said}. Is the key in the agent (ssh-add -l) and allowed there?"
        )
    if isinstance(error, asyncssh.ChannelOpenError):
        # Raised with "SSH connection closed" after a loss, though it is no DisconnectError (asyncssh #212).
        if "closed" in said.lower() or "lost" in said.lower():
            return NodeError("lost", f"{where}: the connection is gone ({said}); it is being made again.")
        return NodeError("refused", f"{where}: refused to open a channel ({said}). sshd's MaxSessions may be reached.")
    if isinstance(error, asyncssh.KeyExchangeFailed):
        return NodeError("hostkey", f"{where}: no common host key or cipher: {said}. `twinrail trust {node.name}`")
    if isinstance(error, socket.gaierror):
        return NodeError("refused", f"{where}: the name does not resolve ({said}). Check host in the configuration.")
    if isinstance(error, ConnectionRefusedError):
        return NodeError("refused", f"{where}: nothing listens there ({said}). Is sshd running, is the port right?")
    if isinstance(error, (ConnectionError, asyncssh.Error, TimeoutError, EOFError)):
        return NodeError("lost", f"{where}: no connection ({said}); it is being made again.")
    if isinstance(error, OSError):
        return NodeError("lost", f"{where}: no way there ({said}). Check the network between here and the node.")
    return NodeError("config", f"{where}: {said}")
