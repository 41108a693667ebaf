"""Whose server answers: a stale one on the port is never taken for ours."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runners.flows.identity import Listener, Process, listener, parse_listener, stranger
from runners.nodes import jobs
from runners.nodes.jobs import JobSpec
from runners.nodes.link import Link, open_link
from runners.spec import Deployment, Node

LISTEN = """
import socket, sys, time
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print(s.getsockname()[1], flush=True)
time.sleep(60)
"""


@pytest.fixture
def stale() -> Iterator[int]:
    """Port of a server that is nobody's job."""
    with subprocess.Popen([sys.executable, "-c", LISTEN, "0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.kill()


def dep(port: int) -> Deployment:
    return Deployment(name="d", engine="sim", nodes=["n"], port=port)


async def until_listening(link: Link, port: int) -> Listener:
    for _ in range(200):
        found = await listener(link, dep(port), "ours")
        if found.listens:
            return found
        await asyncio.sleep(0.1)
    raise AssertionError("nobody listens")


async def test_a_stale_server_is_a_stranger_and_our_own_job_is_not(tmp_path: Path, stale: int) -> None:
    link = open_link(Node(name="n", host="local", root=str(tmp_path)))
    await link.up()
    try:
        who = await stranger(link, dep(stale), "ours")
        assert who is not None
        assert "create_server" in who
        # a job whose own port is another one does not own this one either
        mine = stale + 1
        spec = JobSpec(job_id="ours", argv=["sh", "-c", 'exec "$0" -c "$1" "$2"', sys.executable, LISTEN, str(mine)])
        await jobs.start(link, spec)
        await until_listening(link, mine)
        assert await stranger(link, dep(mine), "ours") is None
        assert await stranger(link, dep(stale), "ours") is not None
        await jobs.stop(link, "ours", 1)
        assert await stranger(link, dep(mine), "ours") is None  # nobody listens: nobody is taken for ours
    finally:
        await jobs.stop(link, "ours", 0)
        await link.close()


def test_a_child_in_a_session_of_its_own_is_still_ours() -> None:
    child = Process(30, 30, (20, 10), "me", "worker")
    assert Listener(True, [child]).strangers(10) is None
    assert Listener(True, [child]).strangers(11) == "pid 30 of me (worker)"


def test_a_container_is_known_by_its_first_process_or_by_a_look_from_within() -> None:
    boxed = Process(30, 30, (29,), "root", "python3 -m sglang.launch_server")
    assert Listener(True, [boxed], container_pid=29).strangers(None) is None
    assert Listener(True, [], container_pid=29, inside=True).strangers(None) is None
    assert Listener(True, [], container_pid=29, inside=False).strangers(None) == "a process that this user may not see"
    assert Listener(True, [], container_pid=29).strangers(None) is None  # no shell in the image to look from
    assert Listener(True, []).strangers(7) == "a process that this user may not see"


def test_the_answer_is_read_and_garbage_is_left_out() -> None:
    text = "listens 5\npid 7 7 6,5, root python3 -m x\npid x\ncontainer 0\nlooked\nnonsense\n"
    found = parse_listener(text)
    assert found == Listener(True, [Process(7, 7, (6, 5), "root", "python3 -m x")], None, False)
