"""Detached jobs: one for each id, found again, held to their time, ended for certain."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from runners.nodes import jobs
from runners.nodes.jobs import JobSpec, JobStatus
from runners.nodes.link import Completed, Link, LinkState, NodeError, open_link
from runners.spec import Node
from tests.runners.nodes.ssh_server import SshServer, bare_path, shells


def shell(job_id: str, text: str, **more: object) -> JobSpec:
    return JobSpec(job_id=job_id, argv=["sh", "-c", text], **more)  # type: ignore[arg-type]  # tests pass fields by name


async def until(link: Link, job_id: str, state: str, seconds: float = 10.0) -> JobStatus:
    end = time.monotonic() + seconds
    while (found := (await jobs.status(link, [job_id]))[job_id]).state != state:
        assert time.monotonic() < end, f"{job_id} is {found}"
        await asyncio.sleep(0.05)
    return found


NAP = 4_000_000 + os.getpid()  # told apart from what another test worker runs


def processes(mark: str) -> list[int]:
    """Living processes with `mark` in their command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes()
            dead = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if mark.encode() in line and not dead:
            found.append(int(folder.name))
    return found


async def test_a_job_leaves_its_output_its_exit_code_and_its_times(link: Link) -> None:
    before = time.time_ns()
    first = await jobs.start(link, shell("a", "echo out; echo err >&2; exit 4"))
    done = await until(link, "a", "exited")
    assert (done.exit_code, done.pid, done.sizes) == (4, first.pid, {"stdout": 4, "stderr": 4})
    assert done.started_wall_ns is not None
    assert done.ended_wall_ns is not None
    assert before <= done.started_wall_ns <= done.ended_wall_ns <= time.time_ns()
    assert done.boot_id == _bytes(Path("/proc/sys/kernel/random/boot_id")).decode().strip()
    assert (await link.run(f"cat {done.folder}/stdout {done.folder}/stderr")).stdout == b"out\nerr\n"
    assert (await link.run(f"cat {done.folder}/cmd")).stdout == b"exec sh -c 'echo out; echo err >&2; exit 4'\n"


async def test_arguments_environment_folder_and_streams_arrive_as_given(link: Link, tmp_path: Path) -> None:
    odd = 'it\'s "odd" $HOME `id`\n\\ ü'
    text = 'printf "%s" "$1" "$A"; pwd; echo "$TWINRAIL_JOB" >"$TWINRAIL_JOB_DIR/rows.jsonl"; read x || echo eof'
    spec = JobSpec(
        job_id="b", argv=["sh", "-c", text, "sh", odd], env={"A": odd}, cwd=str(tmp_path), files=("rows.jsonl",)
    )
    await jobs.start(link, spec)
    done = await until(link, "b", "exited")
    assert (await link.run(f"cat {done.folder}/stdout")).stdout.decode() == f"{odd}{odd}{tmp_path}\neof\n"
    assert done.sizes["rows.jsonl"] == 2


async def test_secrets_reach_the_job_and_stay_nowhere(link: Link) -> None:
    await jobs.start(link, shell("s", 'test "$TOKEN" = "s3cr3t\'s" && sleep 1', secrets={"TOKEN": "s3cr3t's"}))
    assert processes("export TOKEN") == []
    done = await until(link, "s", "exited")
    assert done.exit_code == 0
    assert (await link.run(f"cat {done.folder}/*")).stdout.count(b"export TOKEN") == 0
    assert (await link.run(f"stat -c %a {done.folder}")).stdout == b"700\n"


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


async def test_the_same_id_is_one_job_also_in_a_race(link: Link) -> None:
    spec = shell("race", "echo once; sleep 30")
    found = await asyncio.gather(*[jobs.start(link, spec) for _ in range(6)])
    assert len({f.pid for f in found}) == 1
    assert (await jobs.start(link, spec)).pid == found[0].pid
    await asyncio.sleep(0.3)
    assert (await link.run("cat .twinrail/jobs/race/stdout; ls -A .twinrail/jobs")).stdout == b"once\nrace\n"
    await jobs.stop(link, "race", 1)


async def test_a_request_that_is_cut_short_does_nothing(near: Link) -> None:
    """A lost link looks like an early end of the input: at every place it must be nothing or everything."""
    whole = b""

    class Spy:
        node = near.node

        async def run(self, command: str, *, stdin: bytes = b"", **_: object) -> Completed:
            nonlocal whole
            whole = stdin
            return await near.run(command, stdin=stdin)

    await jobs.start(Spy(), shell("whole", "true"))  # type: ignore[arg-type]  # only run and node are used
    text = whole.replace(b"whole", b"cutup")
    for length in [*range(0, len(text) - 40, 997), *range(len(text) - 40, len(text) - 1)]:
        await near.run("exec sh", stdin=text[:length])
    assert (await near.run("ls -A .twinrail/jobs")).stdout == b"whole\n"


async def test_stop_ends_the_whole_group_and_keeps_the_exit_code(link: Link) -> None:
    await jobs.start(link, shell("g", f"trap 'echo bye; exit 9' TERM; sleep {NAP}.1 & while :; do sleep 0.05; done"))
    await asyncio.sleep(0.2)
    done = await jobs.stop(link, "g", 5)
    assert (done.state, done.exit_code, done.why) == ("exited", 9, "stopped")
    assert processes(f"{NAP}.1") == []
    assert (await jobs.stop(link, "g", 5)).exit_code == 9  # again: nothing happens


async def test_stop_kills_what_does_not_listen_and_what_went_its_own_way(link: Link) -> None:
    text = f"trap '' TERM; setsid sleep {NAP}.2 & (trap '' TERM; sleep {NAP}.2) & while :; do sleep 0.05; done"
    await jobs.start(link, shell("deaf", text))
    await asyncio.sleep(0.3)
    assert len(processes(f"sleep\x00{NAP}.2")) == 2
    done = await jobs.stop(link, "deaf", 0.5)
    assert (done.state, done.exit_code, done.why) == ("exited", 137, "stopped")
    assert processes(f"{NAP}.2") == []


async def test_what_a_job_leaves_behind_is_ended_with_it(link: Link) -> None:
    await jobs.start(link, shell("left", f"sleep {NAP}.3 & exit 0"))
    assert (await until(link, "left", "exited")).exit_code == 0
    end = time.monotonic() + 8
    while processes(f"{NAP}.3"):
        assert time.monotonic() < end
        await asyncio.sleep(0.1)


async def test_time_to_live_is_held_by_the_node_alone(near: Link) -> None:
    await jobs.start(near, shell("short", f"sleep {NAP}.4", ttl_s=1))
    await jobs.start(near, shell("longer", f"sleep {NAP}.5", ttl_s=1))
    extended = await jobs.extend(near, ["longer", "unheard-of"], 60)
    assert extended["longer"].expires_s is not None
    assert extended["longer"].expires_s > time.time() + 50
    await near.close()  # nobody is connected while it happens
    await asyncio.sleep(3.5)
    assert processes(f"{NAP}.4") == []
    assert len(processes(f"sleep\x00{NAP}.5")) == 1
    again = open_link(near.node)
    found = await jobs.status(again, ["short", "longer"])
    assert (found["short"].state, found["short"].exit_code, found["short"].why) == ("exited", 143, "expired")
    assert found["longer"].state == "running"
    await jobs.stop(again, "longer", 1)
    await again.close()


async def test_a_job_killed_from_outside_is_gone_and_its_rest_is_ended(near: Link) -> None:
    found = await jobs.start(near, shell("hit", f"sleep {NAP}.6"))
    assert found.pid is not None
    await asyncio.sleep(0.2)
    os.kill(found.pid, signal.SIGKILL)  # the leader alone: its child would stay
    assert (await until(near, "hit", "gone")).exit_code is None
    end = time.monotonic() + 8
    while processes(f"{NAP}.6"):
        assert time.monotonic() < end
        await asyncio.sleep(0.1)


async def test_a_reused_pid_is_not_the_job(near: Link) -> None:
    found = await jobs.start(near, shell("old", f"sleep {NAP}.7"))
    await jobs.stop(near, "old", 1)
    folder = Path(found.folder or "")
    (folder / "rc").unlink()
    (folder / "killed").unlink(missing_ok=True)
    (folder / "pid").write_text(f"{os.getpid()}\n")
    assert (await jobs.status(near, ["old"]))["old"].state == "gone"
    assert (await jobs.stop(near, "old", 0)).state == "gone"  # and this process is still here to see it


async def test_a_job_of_an_earlier_boot_is_gone(near: Link) -> None:
    found = await jobs.start(near, shell("boot", f"sleep {NAP}.8"))
    boot = Path(found.folder or "") / "boot_id"
    real = boot.read_text()
    boot.write_text("00000000-0000-0000-0000-000000000000\n")
    status = (await jobs.status(near, ["boot"]))["boot"]
    assert (status.state, status.boot_id) == ("gone", "00000000-0000-0000-0000-000000000000")
    boot.write_text(real)
    await jobs.stop(near, "boot", 1)


async def test_listing_and_reaping(link: Link) -> None:
    assert await jobs.list_jobs(link) == {}
    await jobs.start(link, shell("done", "exit 0"))
    await jobs.start(link, shell("busy", f"sleep {NAP}.9"))
    await until(link, "done", "exited")
    assert {j: s.state for j, s in (await jobs.list_jobs(link)).items()} == {"done": "exited", "busy": "running"}
    assert await jobs.reap(link, "done")
    assert not await jobs.reap(link, "busy")
    assert await jobs.reap(link, "never-was")
    assert list(await jobs.list_jobs(link)) == ["busy"]
    await jobs.stop(link, "busy", 1)


@pytest.mark.parametrize("name", ["", "..", "a/b", "-x", "a b", "x" * 200, "ü", "a\n"])
async def test_names_that_could_be_paths_are_refused(near: Link, name: str) -> None:
    with pytest.raises(ValueError, match="not a name"):
        await jobs.start(near, shell(name, "true"))


async def test_a_program_that_is_not_there_exits_127(link: Link) -> None:
    await jobs.start(link, JobSpec(job_id="no", argv=["no-such-program"]))
    assert (await until(link, "no", "exited")).exit_code == 127


async def test_a_folder_that_cannot_be_made_is_named() -> None:
    link = open_link(Node(name="near", host="local", root="/proc/here"))
    with pytest.raises(NodeError, match="near: job start") as e:
        await jobs.start(link, shell("x", "true"))
    assert e.value.kind in ("missing", "permission")
    await link.close()


@pytest.mark.parametrize("command", list(shells()))
async def test_a_posix_shell_coreutils_and_setsid_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, near: Link
) -> None:
    monkeypatch.setenv("PATH", bare_path(tmp_path / "bin", command))
    if "busybox" not in command:  # it carries its own
        assert (await near.run("command -v awk grep ps find python3")).stdout == b""
    first = await jobs.start(near, shell("bare", "trap 'exit 6' TERM; echo up; while :; do sleep 0.05; done"))
    assert first.state == "running"
    await asyncio.sleep(0.3)
    done = await jobs.stop(near, "bare", 5)
    assert (done.state, done.exit_code, done.sizes["stdout"]) == ("exited", 6, 3)
    await jobs.start(near, shell("deaf", "trap '' TERM; while :; do sleep 0.05; done", ttl_s=100))
    assert (await jobs.stop(near, "deaf", 0)).exit_code == 137
    await jobs.start(near, shell("short", "sleep 60", ttl_s=1))
    assert (await until(near, "short", "exited")).why == "expired"
    assert set(await jobs.list_jobs(near)) == {"bare", "deaf", "short"}
    assert await jobs.reap(near, "bare")


async def test_a_lost_answer_to_start_is_asked_again(server: SshServer) -> None:
    """The connection dies while start waits for its answer; the job is there once, and the next start finds it."""
    noticed = asyncio.Event()
    link = open_link(server.node(), lambda changed: noticed.set() if changed.state is LinkState.LOST else None)
    await link.up()

    async def attempt(delay: float) -> None:
        noticed.clear()
        starting = asyncio.create_task(jobs.start(link, shell("lost", "echo once; sleep 20")))
        await asyncio.sleep(delay)
        server.drop()
        with contextlib.suppress(NodeError):  # with or without an answer, depending on the moment
            await starting
        await noticed.wait()
        await link.up()

    for delay in (0.0, 0.005, 0.01, 0.02, 0.04):
        await attempt(delay)
    found = await jobs.start(link, shell("lost", "echo once; sleep 20"))
    assert found.state == "running"
    assert (await link.run("cat .twinrail/jobs/lost/stdout")).stdout == b"once\n"
    await jobs.stop(link, "lost", 1)
    await link.close()


async def test_statuses_of_many_jobs_take_one_round_trip(near: Link) -> None:
    for i in range(5):
        await jobs.start(near, shell(f"m{i}", f"exit {i}"))
    calls = 0
    run: Callable[..., Awaitable[Completed]] = near.run

    class Counting:
        node = near.node

        async def run(self, command: str, **more: object) -> Completed:
            nonlocal calls
            calls += 1
            return await run(command, **more)

    await asyncio.sleep(0.3)
    found = await jobs.status(Counting(), [f"m{i}" for i in range(5)])  # type: ignore[arg-type]  # run and node only
    assert [found[f"m{i}"].exit_code for i in range(5)] == list(range(5))
    assert calls == 1
