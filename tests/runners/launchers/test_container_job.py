"""container.sh as a job of this machine, with coreutils only and an engine that behaves like Docker."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from runners.engines.base import RankCommand
from runners.launchers.docker import Docker, Look, container_job, container_name, server_argv
from runners.nodes import jobs
from runners.nodes.jobs import JobStatus
from runners.nodes.link import Link, NodeError, open_link
from runners.spec import Deployment, Node
from tests.runners.launchers import fake_engine
from tests.runners.nodes.ssh_server import bare_path

SERVER = """
import os, signal, sys
def bye(*_):
    print("last word", flush=True)
    os._exit(6)
signal.signal(signal.SIGTERM, bye)
print(os.environ["TWO_WORDS"], flush=True)
print("on stderr", file=sys.stderr, flush=True)
for n in range(2000):
    print("line", n)
sys.stdout.flush()
signal.pause()
"""
EXPECTED = "hello there\n" + "".join(f"line {n}\n" for n in range(2000))
DEP = Deployment(name="box", engine="sim", launcher="docker", image="an/image:1", nodes=["near"], stop_timeout=8)


class Box:
    """One container job on this machine."""

    def __init__(self, link: Link, root: Path, engine: Path) -> None:
        self.link, self.root, self.engine = link, root, engine
        self.folder = root / "jobs" / "box"

    async def start(self, program: str = SERVER, *, python: str = sys.executable, ttl_s: int = 60) -> None:
        env = {"TWO_WORDS": "hello there", "HF_TOKEN": "a-secret"}
        command = RankCommand(self.link.node, 0, [python, "-u", "-c", program], env)
        argv = server_argv(DEP, command, str(self.root), "box", "nonce", Look())
        await jobs.start(self.link, container_job(self.link.node, "box", ttl_s, "nonce", 5, Look(), argv, env))

    def said(self, stream: str = "stdout") -> str:
        return (self.folder / stream).read_text()

    async def up(self) -> None:
        await until(lambda: "line 1999" in self.said())

    async def ended(self, seconds: float = 20.0) -> JobStatus:
        began = time.monotonic()
        while (status := (await jobs.status(self.link, ["box"]))["box"]).state == "running":
            assert time.monotonic() - began < seconds
            await asyncio.sleep(0.1)
        return status

    @property
    def containers(self) -> list[str]:
        return fake_engine.names(self.engine)

    def processes(self, word: str) -> list[int]:
        """Processes of this test that have `word` in their command line."""
        found = []
        for proc in Path("/proc").glob("[0-9]*"):
            try:
                line = (proc / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                mine = str(self.engine) in (proc / "environ").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if mine and word in line:
                found.append(int(proc.name))
        return found

    def kill(self, word: str) -> None:
        for pid in self.processes(word):
            os.kill(pid, signal.SIGKILL)


async def until(check: Callable[[], bool], seconds: float = 15.0) -> None:
    began = time.monotonic()
    while not check():
        assert time.monotonic() - began < seconds, f"not within {seconds} s"
        await asyncio.sleep(0.05)


@pytest.fixture
async def box(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Box]:
    """On a node whose sh is the one that the test is parametrised with."""
    tools, engine = tmp_path / "tools", tmp_path / "engine"
    monkeypatch.setenv("PATH", bare_path(tools, getattr(request, "param", "/bin/sh")))
    monkeypatch.setenv("FAKE_ENGINE", str(engine))
    engine.mkdir()
    docker = tools / "docker"
    docker.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {fake_engine.__file__} "$@"\n')
    docker.chmod(0o755)
    link = open_link(Node.model_validate({"name": "near", "host": "local", "root": str(tmp_path / "root")}))
    made = Box(link, tmp_path / "root", engine)
    yield made
    (engine / "down").unlink(missing_ok=True)
    await jobs.stop(link, "box", 1)
    assert made.containers in ([], ["stranger"], [container_name("box")]), "left by a test that says so"
    await link.close()


async def test_output_exit_code_and_nothing_left(box: Box) -> None:
    await box.start(SERVER.replace("signal.pause()", "sys.exit(7)"))
    assert (await box.ended()).exit_code == 7
    assert box.said() == EXPECTED
    assert box.said("stderr").endswith("on stderr\n")
    assert box.containers == []
    assert not list(box.folder.glob("undo*"))
    assert not (box.folder / "container.env").exists()
    assert not (box.folder / "followed").exists()
    assert "a-secret" not in (box.folder / "cmd").read_text()


@pytest.mark.parametrize("box", ["/bin/sh", "/bin/bash --posix"], indirect=True)
async def test_stop_lets_the_server_have_its_last_word(box: Box) -> None:
    await box.start()
    await box.up()
    status = await jobs.stop(box.link, "box", 8)
    assert (status.exit_code, status.why) == (6, "stopped")
    assert box.said() == EXPECTED + "last word\n"
    assert box.containers == []


async def test_a_server_that_does_not_listen_is_killed(box: Box) -> None:
    await box.start(SERVER.replace("SIGTERM, bye", "SIGTERM, signal.SIG_IGN"))
    await box.up()
    assert (await jobs.stop(box.link, "box", 8)).exit_code == 137
    assert box.containers == []


@pytest.mark.parametrize("box", ["/bin/sh", "/bin/bash --posix"], indirect=True)
async def test_killed_clients_cost_nothing(box: Box) -> None:
    await box.start()
    await box.up()
    box.kill("fake_engine.py logs")
    box.kill("fake_engine.py wait")
    await asyncio.sleep(1.5)
    assert (await jobs.status(box.link, ["box"]))["box"].state == "running"
    await jobs.stop(box.link, "box", 8)
    assert box.said() == EXPECTED + "last word\n"
    assert box.said("stderr").count("on stderr") == 1


async def test_a_daemon_that_is_away_for_a_while_costs_nothing(box: Box) -> None:
    await box.start()
    await box.up()
    (box.engine / "down").touch()
    box.kill("fake_engine.py logs")
    box.kill("fake_engine.py wait")
    await asyncio.sleep(1.5)
    (box.engine / "down").unlink()
    assert (await jobs.status(box.link, ["box"]))["box"].state == "running"
    await jobs.stop(box.link, "box", 8)
    assert box.said() == EXPECTED + "last word\n"


async def test_logs_that_were_thrown_away_are_not_guessed(box: Box) -> None:
    await box.start()
    await box.up()
    (log,) = box.engine.glob("*/out")
    log.write_text(log.read_text()[5000:])  # as rotation does
    box.kill("fake_engine.py logs")
    await until(lambda: "does not give again" in box.said("stderr"))
    await jobs.stop(box.link, "box", 8)
    assert box.said() == EXPECTED


async def test_a_killed_wrapper_takes_its_container_along(box: Box) -> None:
    await box.start()
    await box.up()
    box.kill("A container as a job")
    assert (await box.ended()).exit_code == 137
    await until(lambda: box.containers == [])


async def test_a_job_killed_with_its_keeper_is_ended_by_stop_and_by_reap(box: Box) -> None:
    for end in (lambda: jobs.stop(box.link, "box", 2), lambda: jobs.reap(box.link, "box")):
        await box.start()
        await box.up()
        for word in ("./job", "A container as a job", "fake_engine.py logs", "fake_engine.py wait"):
            box.kill(word)
        assert (await box.ended()).state == "gone"
        assert box.containers == [container_name("box")]
        await end()
        assert box.containers == []
        await jobs.reap(box.link, "box")


async def test_time_to_live(box: Box) -> None:
    await box.start(ttl_s=2)
    status = await box.ended()
    assert (status.exit_code, status.why) == (6, "expired")
    assert box.containers == []


async def test_a_stranger_of_the_same_name_is_left_alone(box: Box) -> None:
    other = box.engine / "0123"
    other.mkdir()
    for key, value in (("name", container_name("box")), ("label", "twinrail.start=other"), ("running", "false")):
        (other / key).write_text(value)
    await box.start()
    assert (await box.ended()).exit_code == 125
    assert f"docker rm -f {container_name('box')}" in box.said("stderr")
    await jobs.stop(box.link, "box", 1)
    assert box.containers == [container_name("box")]


async def test_a_program_that_the_image_lacks(box: Box) -> None:
    await box.start(python="/no/such/python")
    assert (await box.ended()).exit_code == 127
    assert "no such file" in box.said("stderr")
    assert box.containers == []


async def test_a_container_that_cannot_be_removed_is_said_and_tried_again(box: Box) -> None:
    await box.start()
    await box.up()
    (box.engine / "down").touch()
    with pytest.raises(NodeError, match="Cannot connect to the Docker daemon"):
        await jobs.stop(box.link, "box", 1)
    (box.engine / "down").unlink()
    await jobs.stop(box.link, "box", 1)
    assert box.containers == []


async def test_a_probe_runs_in_a_container_where_the_node_has_no_interpreter(box: Box) -> None:
    for python, program in ((sys.executable, sys.executable), ("/no/such/python", "docker")):
        argv = [python, "-u", "-c", "print(1)", "url"]
        launch = await Docker().probe(box.link, str(box.root), "p", 60, DEP, argv, {"A": "b"})
        assert launch.shown[0] == program
        assert launch.shown[-4:] == argv[1:]
        assert launch.env == {"A": "b"}
    assert launch.job.argv[-4:] == argv[1:]


async def test_the_oom_kill_is_told(box: Box) -> None:
    await box.start()
    await box.up()
    (pid,) = box.engine.glob("*/pid")
    (pid.parent / "oom").touch()
    os.kill(int(pid.read_text()), signal.SIGKILL)
    assert (await box.ended()).exit_code == 137
    assert "twinrail: oom-kill: " in box.said("stderr")


@pytest.mark.parametrize(("scope", "told"), [("{id}", True), ("0123", False)])
async def test_where_the_engine_knows_no_oom_kill_the_kernels_log_does(box: Box, scope: str, told: bool) -> None:
    (box.engine / "nerdctl").touch()
    await box.start()
    await box.up()
    (pid,) = box.engine.glob("*/pid")
    memcg = f"/system.slice/nerdctl-{scope.format(id=pid.parent.name)}.scope"
    line = (
        f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg={memcg},task_memcg={memcg},task=python,pid=7"
    )
    dmesg = box.engine.parent / "tools" / "dmesg"
    dmesg.write_text(f"#!/bin/sh\necho '[ 12.1] something else'\necho '[ 12.3] {line}'\necho '[ 13.0] more'\n")
    dmesg.chmod(0o755)
    os.kill(int(pid.read_text()), signal.SIGKILL)
    assert (await box.ended()).exit_code == 137
    assert ("twinrail: oom-kill: " in box.said("stderr")) is told
    assert box.containers == []


async def test_a_stop_of_ours_is_no_oom_kill(box: Box) -> None:
    (box.engine / "nerdctl").touch()
    await box.start(SERVER.replace("SIGTERM, bye", "SIGTERM, signal.SIG_IGN"))
    await box.up()
    (pid,) = box.engine.glob("*/pid")
    dmesg = box.engine.parent / "tools" / "dmesg"
    dmesg.write_text(f"#!/bin/sh\necho 'oom-kill:task_memcg=/{pid.parent.name}'\n")
    dmesg.chmod(0o755)
    assert (await jobs.stop(box.link, "box", 8)).exit_code == 137
    assert "oom-kill" not in box.said("stderr")


async def test_a_user_whom_the_engine_refuses_works_by_become(box: Box, tmp_path: Path) -> None:
    """As sudo does: another environment, and the engine lets only that one in. Start, follow, stop and removal."""
    tools = tmp_path / "tools"
    docker, sudo = tools / "docker", tools / "sudo"
    refusal = "permission denied while trying to connect to the Docker daemon socket"
    guard = f'[ -n "$BECAME" ] || {{ echo "{refusal}" >&2; exit 1; }}\n'
    docker.write_text(docker.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\n{guard}"))
    sudo.write_text(
        '#!/bin/sh\n[ "$1" = -n ] || exit 1\nshift\n'
        'exec env -i BECAME=1 PATH="$PATH" HOME="$HOME" FAKE_ENGINE="$FAKE_ENGINE" "$@"\n'
    )
    sudo.chmod(0o755)
    (refused,) = await Docker().check(box.link, DEP)
    assert (refused.status, "refuses this user" in refused.detail) == ("fail", True)
    assert 'become = "sudo -n"' in refused.fix
    node = box.link.node.model_copy(update={"become": "sudo -n"})
    link = open_link(node)
    try:
        assert [v.status for v in await Docker().check(link, DEP)] == ["pass"]
        root = Box(link, box.root, box.engine)
        await root.start()
        await root.up()
        assert root.containers == [container_name("box")]
        assert (await jobs.stop(link, "box", 8)).exit_code == 6
        assert root.said() == EXPECTED + "last word\n"
        assert root.containers == []
    finally:
        await jobs.stop(link, "box", 1)
        await link.close()
