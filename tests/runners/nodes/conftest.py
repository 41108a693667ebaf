"""Links to the machine itself: by subprocess, and over a real SSH connection to a server in this process."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runners.nodes.link import Link, open_link
from runners.spec import Node
from tests.lab.fixture import lab as lab
from tests.runners.nodes.ssh_server import SshServer


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, without the operator's agent and configuration."""
    folder = tmp_path / "operator"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return folder


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[SshServer]:
    made = SshServer(tmp_path / "server")
    await made.start()
    made.trust()
    yield made
    await made.end()


@pytest.fixture(params=["local", "ssh"])
async def link(request: pytest.FixtureRequest, server: SshServer, home: Path) -> AsyncIterator[Link]:
    """Both kinds of link, which must behave the same. Jobs that a test leaves are ended."""
    node = Node(name="near", host="local") if request.param == "local" else server.node()
    made = open_link(node)
    await made.up()
    yield made
    await made.close()
    end_jobs(home, server.home)


@pytest.fixture
async def near(home: Path) -> AsyncIterator[Link]:
    """This machine, where one kind of link is enough."""
    made = open_link(Node(name="near", host="local"))
    yield made
    await made.close()
    end_jobs(home)


def end_jobs(*homes: Path) -> None:
    for pid in (p for home in homes for p in home.glob(".twinrail/jobs/*/pid")):
        if not (pid.parent / "rc").exists():
            with contextlib.suppress(OSError, ValueError):
                os.killpg(int(pid.read_text()), signal.SIGKILL)
