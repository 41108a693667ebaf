"""`twinrail trust`: nothing is written unless the operator says yes."""

from __future__ import annotations

import asyncio
import io
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import asyncssh
import pytest

from console.trust import remember, run_trust, trusting
from console.verbs import Place
from runners.nodes.link import open_link
from runners.spec import ConfigError, Node
from tests.runners.nodes.ssh_server import SshServer


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SshServer]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    made = SshServer(tmp_path / "server")
    await made.start()
    yield made
    await made.end()


class Operator:
    def __init__(self, answer: bool) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.told: list[str] = []

    def ask(self, question: str) -> bool:
        self.asked.append(question)
        return self.answer

    async def trusts(self, node: Node) -> int:
        return await trusting(node, self.ask, self.told.append)


async def test_an_accepted_key_is_remembered_and_lets_the_link_up(server: SshServer) -> None:
    operator = Operator(True)
    assert await operator.trusts(server.node()) == 0
    assert len(operator.asked) == 1
    assert server.host_key.get_fingerprint() in operator.asked[0]
    link = open_link(server.node())
    await link.up()
    await link.close()
    assert await operator.trusts(server.node()) == 0
    assert len(operator.asked) == 1  # known by now


async def test_a_refused_key_leaves_no_trace(server: SshServer) -> None:
    operator = Operator(False)
    assert await operator.trusts(server.node()) == 1
    assert not server.known_hosts.exists()


async def test_a_changed_key_is_called_changed_and_added_only_on_yes(server: SshServer) -> None:
    server.trust()
    before = server.known_hosts.read_text()
    await server.stop()
    server.host_key = asyncssh.generate_private_key("ssh-ed25519")
    await server.start()
    no, yes = Operator(False), Operator(True)
    assert await no.trusts(server.node()) == 1
    assert "CHANGED" in no.asked[0]
    assert server.known_hosts.read_text() == before
    assert await yes.trusts(server.node()) == 0
    assert server.known_hosts.read_text().startswith(before)
    assert any("ssh-keygen" in line for line in yes.told)


async def test_the_jump_host_comes_first(server: SshServer, tmp_path: Path) -> None:
    jump = SshServer(tmp_path / "jump")
    await jump.start()
    config = tmp_path / "config"
    config.write_text(
        f"Host gate\n  HostName 127.0.0.1\n  Port {jump.port}\n  User somebody\n  IdentityFile {jump.folder}/id\n"
    )
    operator = Operator(True)
    assert await operator.trusts(server.node(jump="gate", ssh_config=str(config))) == 0
    fingerprints = [jump.host_key.get_fingerprint(), server.host_key.get_fingerprint()]
    assert [f in q for f, q in zip(fingerprints, operator.asked, strict=True)] == [True, True]
    await jump.stop()


async def test_a_known_key_with_a_refused_login_is_still_trusted(server: SshServer) -> None:
    server.trust()
    server.accept_logins = False
    operator = Operator(True)
    assert await operator.trusts(server.node()) == 0
    assert operator.asked == []
    assert "login refused" in operator.told[0]


async def test_an_unreachable_node_and_this_machine(server: SshServer) -> None:
    operator = Operator(True)
    assert await operator.trusts(server.node(port=1)) == 3
    assert await operator.trusts(Node(name="here", host="local")) == 0
    assert operator.asked == []


def test_a_line_is_appended_whole_and_private(tmp_path: Path) -> None:
    file = tmp_path / "new" / "known_hosts"
    remember(str(file), "a key")
    assert file.read_text() == "a key\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("no newline")
    remember(str(file), "b key")
    assert file.read_text() == "no newline\nb key\n"


class Verb:
    """`twinrail trust` at no terminal, in a folder with a configuration of one node."""

    def __init__(self, server: SshServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO())
        monkeypatch.chdir(folder)
        node = server.node()
        text = f'[[nodes]]\nname = "{node.name}"\nhost = "{node.host}"\nport = {node.port}\nuser = "{node.user}"\n'
        (folder / "twinrail.toml").write_text(f'{text}key = "{node.key}"\nssh_config = "{node.ssh_config or ""}"\n')
        self.server, self.told = server, ""

    async def __call__(self, *fingerprints: str) -> int:
        said: list[str] = []
        name = self.server.node().name
        code = await asyncio.to_thread(run_trust, Place(), name, fingerprints, None, said.append)
        self.told = "\n".join(said)
        return code


@pytest.fixture
def verb(server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verb:
    monkeypatch.setattr("runners.nodes.dial.DEFAULT_KNOWN_HOSTS", (str(server.known_hosts),))
    return Verb(server, tmp_path, monkeypatch)


async def test_without_a_terminal_it_says_what_to_do_and_writes_nothing(server: SshServer, verb: Verb) -> None:
    assert await verb() == 2
    assert server.host_key.get_fingerprint() in verb.told
    assert "ssh-keygen -lf" in verb.told
    assert "--yes SHA256:..." in verb.told
    assert "Abort" not in verb.told
    assert not server.known_hosts.exists()


async def test_a_fingerprint_that_came_another_way_is_accepted_and_no_other(server: SshServer, verb: Verb) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519").get_fingerprint()
    assert await verb(other) == 1
    assert "none of the fingerprints" in verb.told
    assert not server.known_hosts.exists()
    assert await verb(other, server.host_key.get_fingerprint().removeprefix("SHA256:") + "=") == 0
    assert server.known_hosts.exists()
    assert await verb() == 0  # nothing to ask any more


@pytest.mark.parametrize("text", ["", "yes", "SHA256:", "SHA256:abc", "MD5:00:11"])
async def test_what_is_no_fingerprint_is_bad_usage(verb: Verb, text: str) -> None:
    with pytest.raises(ConfigError, match="ssh-keygen -lf"):
        await verb(text)


async def test_before_there_is_a_configuration_a_host_of_ssh_is_taken(
    server: SshServer, verb: Verb, tmp_path: Path
) -> None:
    (tmp_path / "twinrail.toml").unlink()
    config = tmp_path / "config"
    config.write_text(
        f"Host far\n  HostName 127.0.0.1\n  Port {server.port}\n  User somebody\n  IdentityFile {server.folder}/id\n"
    )
    said: list[str] = []
    wanted = [server.host_key.get_fingerprint()]
    assert await asyncio.to_thread(run_trust, Place(), "far", wanted, str(config), said.append) == 0
    assert any("taking far for a host" in line for line in said)
    with pytest.raises(ConfigError, match="does not exist"):
        run_trust(Place(tmp_path / "no.toml"), "far", wanted, None, said.append)
