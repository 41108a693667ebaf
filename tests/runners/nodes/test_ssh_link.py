"""How an SSH link behaves when the other side does not: losses, logins, host keys, jumps."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import asyncssh
import pytest

from runners.nodes import ssh
from runners.nodes.dial import first_hop, resolve
from runners.nodes.link import Link, LinkState, NodeError, open_link
from runners.nodes.ssh import CHANNELS
from runners.spec import Node
from tests.runners.nodes.ssh_server import SshServer

needs_openssh = pytest.mark.skipif(shutil.which("ssh-agent") is None, reason="needs ssh-agent and ssh-keygen")


class Watched:
    """A link and the states it went through."""

    def __init__(self, node: Node) -> None:
        self.states: list[LinkState] = []
        self._changed = asyncio.Event()
        self.link = open_link(node, self._note)

    def _note(self, link: Link) -> None:
        self.states.append(link.state)
        self._changed.set()

    async def reach(self, state: LinkState, seconds: float = 15) -> None:
        async with asyncio.timeout(seconds):
            while self.link.state is not state:
                self._changed.clear()
                await self._changed.wait()


@contextlib.asynccontextmanager
async def watched(node: Node) -> AsyncIterator[Watched]:
    made = Watched(node)
    try:
        yield made
    finally:
        await made.link.close()


async def failure(link: Link) -> NodeError:
    with pytest.raises(NodeError) as e:
        await link.up()
    return e.value


async def test_a_lost_connection_comes_back_by_itself(server: SshServer) -> None:
    async with watched(server.node()) as w:
        await w.link.up()
        await server.stop()
        await w.reach(LinkState.LOST)
        assert w.link.error is not None
        assert w.link.error.kind in ("lost", "refused")
        with pytest.raises(NodeError):
            await w.link.run("true")
        await asyncio.sleep(1)
        await server.start()
        await w.link.up()
        assert (await w.link.run("echo back")).stdout == b"back\n"
    assert w.states == [LinkState.UP, LinkState.LOST, LinkState.UP, LinkState.CLOSED]


async def test_a_command_whose_connection_dies_is_lost_not_finished(server: SshServer) -> None:
    async with watched(server.node()) as w:
        await w.link.up()
        running = asyncio.create_task(w.link.run("echo some; sleep 20"))
        channel = await w.link.channel("cat")
        await asyncio.sleep(0.3)
        server.drop()
        with pytest.raises(NodeError) as e:
            await running
        assert e.value.kind == "lost"
        with pytest.raises(NodeError) as e:
            await channel.read()
        assert e.value.kind == "lost"
        await channel.close()


async def test_a_fetch_goes_on_after_a_lost_connection(server: SshServer, tmp_path: Path) -> None:
    async with watched(server.node()) as w:
        await w.link.run("head -c 80000000 /dev/urandom >big")
        fetching = asyncio.create_task(w.link.fetch("big", tmp_path / "got"))
        for _ in range(2):
            await asyncio.sleep(0.15)
            server.drop()
        assert await fetching == 80_000_000
        assert LinkState.LOST in w.states
        theirs = (await w.link.run("sha256sum <big")).stdout.split()[0].decode()
    assert hashlib.sha256((tmp_path / "got").read_bytes()).hexdigest() == theirs


async def test_a_fault_of_our_own_is_told(server: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(node: Node) -> None:
        raise KeyError("no such thing")

    monkeypatch.setattr(ssh, "dial", broken)
    async with watched(server.node()) as w:
        error = await failure(w.link)
        assert "no such thing" in str(error)
        assert w.link.state is LinkState.CLOSED


async def test_a_refused_login_is_a_state_and_not_a_storm(server: SshServer) -> None:
    server.accept_logins = False
    async with watched(server.node()) as w:
        error = await failure(w.link)
        assert (error.kind, w.link.state) == ("auth", LinkState.AUTH_NEEDED)
        assert "ssh-add" in str(error)
        await asyncio.sleep(2.5)
        assert server.connects == 1
        server.accept_logins = True
        w.link.retry()
        await w.reach(LinkState.UP)
        assert server.connects == 2
    assert w.states == [LinkState.AUTH_NEEDED, LinkState.UP, LinkState.CLOSED]


async def test_an_unknown_host_key_is_refused_with_its_fingerprint(server: SshServer) -> None:
    server.known_hosts.write_text("")
    async with watched(server.node()) as w:
        error = await failure(w.link)
        assert (error.kind, w.link.state) == ("hostkey", LinkState.HOSTKEY)
        assert server.host_key.get_fingerprint() in str(error)
        assert "unknown" in str(error)
        assert "twinrail trust far" in str(error)
        server.trust()
        w.link.retry()
        await w.reach(LinkState.UP)


@pytest.mark.parametrize("kind", ["ssh-ed25519", "ecdsa-sha2-nistp256"], ids=["same kind", "another kind of key"])
async def test_a_changed_host_key_is_refused_even_of_another_kind(server: SshServer, kind: str) -> None:
    await server.stop()
    server.host_key = asyncssh.generate_private_key(kind)
    await server.start()
    async with watched(server.node()) as w:
        error = await failure(w.link)
        assert error.kind == "hostkey"
        assert "CHANGED" in str(error)
        assert server.host_key.get_fingerprint() in str(error)


async def test_no_configuration_turns_the_check_off(server: SshServer, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host *\n  UserKnownHostsFile none\n  StrictHostKeyChecking no\n")
    async with watched(server.node(known_hosts=None, ssh_config=str(config))) as w:
        assert (await failure(w.link)).kind == "hostkey"


async def test_a_bad_line_in_known_hosts_trusts_nobody_and_costs_only_itself(server: SshServer) -> None:
    good = server.known_hosts.read_bytes()
    server.known_hosts.write_bytes(b"\xff\xfe broken\n[127.0.0.1 ssh-rsa\nhost ssh-ed25519 !!!\n" + good)
    async with watched(server.node()) as w:
        await w.link.up()


async def test_ssh_config_is_honoured(server: SshServer, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"Host far-away\n  HostName 127.0.0.1\n  Port {server.port}\n  User somebody\n"
        f"  IdentityFile {server.folder}/id\n  UserKnownHostsFile {server.known_hosts}\n"
    )
    async with watched(Node(name="n", host="far-away", ssh_config=str(config))) as w:
        await w.link.up()
        assert (await w.link.run("echo $HOME")).stdout.decode().strip() == str(server.home)


async def test_the_users_own_ssh_config_is_read_when_none_is_named(server: SshServer, home: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text(
        f"Host mine\n  HostName 127.0.0.1\n  Port {server.port}\n  User somebody\n  IdentityFile {server.folder}/id\n"
    )
    (home / ".ssh" / "known_hosts").write_bytes(server.known_hosts.read_bytes())
    async with watched(Node(name="n", host="mine")) as w:
        await w.link.up()


async def test_a_broken_ssh_config_is_named(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host *\n  Port many\n")
    async with watched(Node(name="n", host="far", ssh_config=str(config))) as w:
        error = await failure(w.link)
        assert error.kind == "config"
    async with watched(Node(name="n", host="far", ssh_config=str(tmp_path / "missing"))) as w:
        assert (await failure(w.link)).kind == "config"


@needs_openssh
async def test_an_agent_is_used(server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    socket = tmp_path / "agent"
    agent = await asyncio.create_subprocess_exec("ssh-agent", "-D", "-a", str(socket), stdout=asyncio.subprocess.PIPE)
    try:
        assert agent.stdout is not None
        await agent.stdout.readline()  # it says where it listens once it does
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        async with watched(server.node(key=None)) as w:
            assert (await failure(w.link)).kind == "auth"
            async with asyncssh.connect_agent(str(socket)) as client:
                await client.add_keys([asyncssh.read_private_key(server.folder / "id")])
            w.link.retry()
            await w.reach(LinkState.UP)
    finally:
        agent.kill()
        await agent.wait()


@needs_openssh
async def test_an_encrypted_key_without_agent_is_a_login_that_needs_a_person(server: SshServer, tmp_path: Path) -> None:
    locked = str(tmp_path / "locked")
    make = await asyncio.create_subprocess_exec("ssh-keygen", "-q", "-t", "ed25519", "-N", "a word", "-f", locked)
    assert await make.wait() == 0
    async with watched(server.node(key=locked)) as w:
        assert (await failure(w.link)).kind == "auth"


async def test_a_jump_host_carries_the_connection_and_is_checked_itself(server: SshServer, tmp_path: Path) -> None:
    jump = SshServer(tmp_path / "jump")
    await jump.start()
    config = tmp_path / "config"
    config.write_text(
        f"Host gate\n  HostName 127.0.0.1\n  Port {jump.port}\n  User somebody\n"
        f"  IdentityFile {jump.folder}/id\n  UserKnownHostsFile {jump.known_hosts}\n"
    )
    node = server.node(jump="gate", ssh_config=str(config))
    async with watched(node) as w:
        error = await failure(w.link)
        assert error.kind == "hostkey"
        assert jump.host_key.get_fingerprint() in str(error)
        jump.trust()
        w.link.retry()
        await w.reach(LinkState.UP)
        assert (await w.link.run("echo $HOME")).stdout.decode().strip() == str(server.home)
        assert (jump.tunnels, server.connects) == (1, 1)
        jump.drop()
        await w.reach(LinkState.LOST)
        await w.reach(LinkState.UP)
    await jump.stop()


async def test_a_proxy_command_carries_the_connection(server: SshServer, tmp_path: Path) -> None:
    relay = tmp_path / "relay.py"
    relay.write_text(
        "import socket, sys, threading, os\n"
        "s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "def up():\n"
        "    while d := os.read(0, 65536): s.sendall(d)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while d := s.recv(65536): os.write(1, d)\n"
    )
    async with watched(server.node(proxy_command=f"{sys.executable} {relay} %h %p")) as w:
        await w.link.up()
        assert (await w.link.run("echo through")).stdout == b"through\n"


async def test_bad_bytes_in_a_banner_do_no_harm(server: SshServer) -> None:
    server.banner = "\x1b[2J Wilkommen \udcff".encode("utf-8", "surrogateescape").decode("latin-1")
    async with watched(server.node()) as w:
        await w.link.up()
        assert (await w.link.run("printf '\\377'")).stdout == b"\xff"


async def test_channels_stay_within_their_budget(server: SshServer) -> None:
    async with watched(server.node()) as w:
        await w.link.up()
        held = [await w.link.channel("cat") for _ in range(CHANNELS)]
        waiting = asyncio.create_task(w.link.run("echo late"))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await held.pop().close()
        assert (await waiting).stdout == b"late\n"
        held.append(await w.link.channel("cat"))
        with pytest.raises(NodeError) as e:
            await w.link.run("true", timeout=0.3)
        assert e.value.kind == "timeout"
        for channel in held:
            await channel.close()


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({"port": 1}, "refused", "nothing listens"),
        ({"host": "no-such-host.invalid"}, "refused", "does not resolve"),
        ({"jump": "nobody@127.0.0.1:1"}, "refused", "nothing listens"),
        ({"proxy_command": "false"}, "lost", "no connection"),
    ],
)
async def test_what_does_not_answer_is_told_apart(
    server: SshServer, changes: dict[str, object], kind: str, text: str
) -> None:
    async with watched(server.node(**changes)) as w:
        began = time.monotonic()
        error = await failure(w.link)
        assert error.kind == kind
        assert text in str(error)
        assert time.monotonic() - began < 10
        assert w.link.state is LinkState.CONNECTING


async def test_the_default_known_hosts_come_from_the_home_folder(home: Path) -> None:
    target = await resolve(Node(name="n", host="far", ssh_config=os.devnull), first_hop(Node(name="n", host="far")))
    assert target.files[0] == home / ".ssh" / "known_hosts"
    assert target.known == b"" or b"\n" in target.known  # only what the system's own file may hold


async def test_opening_and_closing_at_once_leaves_nothing(server: SshServer) -> None:
    for delay in (0.0, 0.005, 0.02, 0.1):
        link = open_link(server.node())
        await asyncio.sleep(delay)
        await link.close()
        assert link.state is LinkState.CLOSED
    await asyncio.sleep(0.2)
    assert not server._connections
