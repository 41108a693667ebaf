"""The container launcher on a lab node: podman behind the stand-in of docker, real sshd, real jobs."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import time
from collections.abc import Callable

import pytest

from runners.engines.base import RankCommand
from runners.launchers.docker import Docker, container_name
from runners.nodes import jobs
from runners.nodes.jobs import JobStatus
from runners.nodes.link import Link, NodeError
from runners.nodes.tail import Tailer
from runners.probes.base import ProbeContext
from runners.probes.logs import LogReader
from runners.spec import Deployment
from store.records import LogEvent
from tests.lab.fixture import Lab
from tests.lab.test_nodes import drain, linked

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(shutil.which("podman") is None, reason="no podman on this machine: the lab has no containers"),
]

ROOT = "/srv/twinrail"
IMAGE = "localhost/twinrail-lab:1"
SECRET = "hf_0123456789abcdefghij"
# Says what it was given, then LINES lines, then waits for SIGTERM, to which it has a last word.
SERVER = """
import os, signal, sys
def bye(*_):
    print("last word", flush=True)
    os._exit(6)
signal.signal(signal.SIGTERM, bye)
print(os.environ["TWO_WORDS"], len(os.environ["HF_TOKEN"]), flush=True)
print("on stderr", file=sys.stderr, flush=True)
for n in range(LINES):
    print("line", n)
sys.stdout.flush()
signal.pause()
"""
DEP = Deployment(name="box", engine="sim", launcher="docker", image=IMAGE, nodes=["node5"], stop_timeout=8)


@pytest.fixture(autouse=True)
def image(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_IMAGE_PIP", "")  # a shell and Python are enough here
    if "twinrail-lab" not in lab.inside("node5", "docker images -q localhost/twinrail-lab | sed s/^/twinrail-lab/"):
        lab.call("image", "node5")
    lab.inside("node5", f"docker ps -aq | xargs -r docker rm -f; rm -rf {ROOT} /run/lab/state/docker_fault")


async def begin(link: Link, job_id: str, program: str, ttl_s: int = 300) -> None:
    env = {"HF_TOKEN": SECRET, "TWO_WORDS": "hello there"}
    command = RankCommand(link.node, 0, ["python3", "-c", program], env)
    await link.run(f"mkdir -p {ROOT}/bin")
    launch = await Docker().server(link, ROOT, job_id, ttl_s, DEP, command)
    assert launch.facts["image.id"].startswith("sha256:")
    await jobs.start(link, launch.job)


def server(lines: int = 10) -> str:
    return SERVER.replace("LINES", str(lines))


def said(lab: Lab, job_id: str, stream: str = "stdout") -> str:
    return lab.inside("node5", f"cat {ROOT}/jobs/{job_id}/{stream}")


def containers(lab: Lab) -> list[str]:
    return lab.inside("node5", "docker ps -a --format '{{.Names}}'").split()


async def until(check: Callable[[], bool], seconds: float = 20.0) -> None:
    began = time.monotonic()
    while not await asyncio.to_thread(check):
        assert time.monotonic() - began < seconds, f"not within {seconds} s"
        await asyncio.sleep(0.2)


async def ended(link: Link, job_id: str, seconds: float = 30.0) -> JobStatus:
    began = time.monotonic()
    while (status := (await jobs.status(link, [job_id]))[job_id]).state == "running":
        assert time.monotonic() - began < seconds
        await asyncio.sleep(0.2)
    return status


async def test_a_container_is_followed_to_its_last_byte_and_leaves_nothing(lab: Lab) -> None:
    async with linked(lab.node("node5", root=ROOT)) as link:
        lines = 20_000
        await begin(link, "box", server(lines))
        await until(lambda: f"line {lines - 1}" in said(lab, "box"))
        assert containers(lab) == [container_name("box")]
        # the secret is in no command line, in no file of the job, and the file that carried it is gone
        seen = lab.inside("node5", f"cat /proc/[0-9]*/cmdline | tr '\\0' ' '; cat {ROOT}/jobs/box/*; docker ps -a")
        assert SECRET not in seen
        assert "container.env" not in lab.inside("node5", f"ls {ROOT}/jobs/box")
        assert (await jobs.stop(link, "box", DEP.stop_timeout)).exit_code == 6
        expected = f"hello there {len(SECRET)}\n" + "".join(f"line {n}\n" for n in range(lines)) + "last word\n"
        digest, length, _ = await drain(Tailer(link), "box")
        assert (length, digest) == (len(expected), hashlib.sha256(expected.encode()).hexdigest())
        assert "on stderr\n" in said(lab, "box", "stderr")
        assert containers(lab) == []


@pytest.mark.slow
async def test_clients_may_be_killed_and_nothing_is_lost_or_doubled(lab: Lab) -> None:
    async with linked(lab.node("node5", root=ROOT)) as link:
        await begin(link, "box", server())
        await until(lambda: "line 9" in said(lab, "box"))
        lab.inside("node5", "pkill -9 -f 'podman.* logs -f'; pkill -9 -f 'podman.* wait '")
        await asyncio.sleep(3)
        assert (await jobs.status(link, ["box"]))["box"].state == "running"
        assert (await jobs.stop(link, "box", DEP.stop_timeout)).exit_code == 6
        assert said(lab, "box").splitlines()[1:] == [*(f"line {n}" for n in range(10)), "last word"]
        assert containers(lab) == []


@pytest.mark.slow
async def test_a_killed_wrapper_does_not_leave_its_container(lab: Lab) -> None:
    async with linked(lab.node("node5", root=ROOT)) as link:
        await begin(link, "box", server())
        await until(lambda: "line 9" in said(lab, "box"))
        lab.inside("node5", "pkill -9 -f 'sh -c.*A container as a job'")
        assert (await ended(link, "box")).exit_code == 137
        await until(lambda: containers(lab) == [])


@pytest.mark.slow
async def test_with_all_of_the_job_killed_the_container_runs_on_until_the_job_is_stopped(lab: Lab) -> None:
    async with linked(lab.node("node5", root=ROOT)) as link:
        await begin(link, "box", server())
        await until(lambda: "line 9" in said(lab, "box"))
        lab.inside("node5", "pkill -9 -f '^sh ./job'; pkill -9 -f 'A container as a job'; pkill -9 -f 'podman.*logs'")
        assert (await ended(link, "box")).state == "gone"
        assert containers(lab) == [container_name("box")]
        await jobs.stop(link, "box", 2)
        assert containers(lab) == []


@pytest.mark.slow
async def test_time_to_live_ends_the_container(lab: Lab) -> None:
    async with linked(lab.node("node5", root=ROOT)) as link:
        await begin(link, "box", server(), ttl_s=4)
        done = await ended(link, "box")
        assert (done.exit_code, done.why) == (6, "expired")
        assert containers(lab) == []


@pytest.mark.slow
async def test_a_stale_container_of_the_same_name_is_named_and_left_alone(lab: Lab) -> None:
    lab.inside("node5", f"docker run -d --name {container_name('box')} {IMAGE} sleep 100")
    async with linked(lab.node("node5", root=ROOT)) as link:
        await begin(link, "box", server())
        assert (await ended(link, "box")).exit_code == 125
        assert f"docker rm -f {container_name('box')}" in said(lab, "box", "stderr")
        await jobs.stop(link, "box", 1)
        assert containers(lab) == [container_name("box")]


@pytest.mark.slow
async def test_an_out_of_memory_kill_is_an_oom_event(lab: Lab) -> None:
    async with linked(lab.node("node5", root=ROOT)) as link:
        await begin(link, "box", server())
        await until(lambda: "line 9" in said(lab, "box"))
        lab.inside(
            "node5",
            f"id=$(cat {ROOT}/jobs/box/container.id); echo oom $id >/run/lab/state/docker_fault; docker kill $id",
        )
        assert (await ended(link, "box")).exit_code == 137
        context = ProbeContext(run_id="r", node="node5", job_id="box", engine="sim", stream="stderr")
        rows = LogReader().parse(said(lab, "box", "stderr").encode(), context, final=True).records
        assert [(r.name, r.severity) for r in rows if isinstance(r, LogEvent)] == [("oom", "fatal")]


@pytest.mark.slow
async def test_what_is_missing_is_said_with_the_next_step(lab: Lab) -> None:
    async with linked(lab.node("node5", root=ROOT)) as link:
        absent = DEP.model_copy(update={"image": "localhost/nobody/nothing:1", "model": "/srv/no-model"})
        with pytest.raises(NodeError, match=r"/srv/no-model is not there.*docker pull localhost/nobody/nothing:1"):
            await Docker().server(link, ROOT, "box", 60, absent, RankCommand(link.node, 0, ["true"]))
        lab.inside("node5", "echo down >/run/lab/state/docker_fault")
        assert "docker is down" in (await Docker().check(link, DEP))[0].detail
    async with linked(lab.node("node5", user="ops")) as link:
        assert "docker group" in (await Docker().check(link, DEP))[0].fix
