"""Links, jobs and tails against two real sshd nodes and what can happen to them."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

import pytest

from runners.nodes import clock, jobs, lock
from runners.nodes.jobs import JobSpec, JobStatus
from runners.nodes.link import Link, LinkState, NodeError, open_link
from runners.nodes.tail import Tailer
from runners.spec import Node
from tests.lab.fixture import UNDO, Lab
from tests.runners.nodes.ssh_server import COREUTILS

pytestmark = pytest.mark.lab

NOTICED_S = 12.0  # a lost link is shown within this time
# COUNT lines of 130 bytes, RATE a second in ticks of 0.1 s; perl is in every Debian, and fast.
FLOOD = (
    "use Time::HiRes qw(time sleep); $|=1; my ($n,$r)=@ARGV; my $t=time; my $i=0;"
    "while($i<$n){my $b='';for(1..$r/10){last if $i>=$n;$b.=sprintf(\"%010d %s\\n\",$i++,'x'x118)}"
    "print $b; $t+=0.1; my $w=$t-time; sleep $w if $w>0}"
)


@asynccontextmanager
async def linked(node: Node, on_state: Callable[[Link], None] | None = None) -> AsyncIterator[Link]:
    link = open_link(node, on_state)
    try:
        await link.up()
        yield link
    finally:
        await link.close()


def flood(job_id: str, lines: int, rate: int) -> JobSpec:
    return JobSpec(job_id=job_id, argv=["perl", "-e", FLOOD, str(lines), str(rate)], ttl_s=120)


def expected(lines: int) -> str:
    digest = hashlib.sha256()
    for i in range(lines):
        digest.update(b"%010d %s\n" % (i, b"x" * 118))
    return digest.hexdigest()


async def drain(tailer: Tailer, job_id: str, seconds: float = 60) -> tuple[str, int, JobStatus]:
    """SHA-256 and length of stdout up to the job's end, and how the job ended."""
    tailer.follow(job_id, "stdout")
    digest, length = hashlib.sha256(), 0
    async with asyncio.timeout(seconds), aclosing(tailer.__aiter__()) as chunks:
        async for chunk in chunks:
            assert chunk.offset == length
            digest.update(chunk.data)
            length += len(chunk.data)
            tailer.advance(job_id, "stdout", length)
            if chunk.job and chunk.job.state in ("exited", "gone") and length == chunk.size:
                return digest.hexdigest(), length, chunk.job
    raise AssertionError("the tail ended")


async def reached(link: Link, state: LinkState, seconds: float) -> float:
    """Seconds until the link has this state."""
    began = time.monotonic()
    while link.state is not state:
        assert time.monotonic() - began < seconds, f"{link.state} after {seconds} s"
        await asyncio.sleep(0.05)
    return time.monotonic() - began


async def fault(lab: Lab, *what: str) -> None:
    await asyncio.to_thread(lab.fault, *what)


@pytest.fixture(autouse=True)
def fresh(lab: Lab) -> None:
    for name in lab.names:
        lab.inside(name, "rm -rf /root/.twinrail /srv/ops/.twinrail /tmp/twinrail-lock")


@pytest.mark.parametrize("user", ["root", "ops"])
async def test_root_and_a_plain_user_run_jobs_and_stop_them(lab: Lab, user: str) -> None:
    async with linked(lab.node("node5", user=user)) as five, linked(lab.node("node7", user=user)) as seven:
        for link in (five, seven):
            assert (await link.run("hostname; id -un")).stdout.decode().split() == [link.node.name, user]
            text = "trap 'exit 6' TERM; hostname; sleep 4713 & while :; do sleep 0.1; done"
            await jobs.start(link, JobSpec(job_id="j", argv=["sh", "-c", text]))
            await asyncio.sleep(0.3)
            done = await jobs.stop(link, "j", 3)
            assert (done.exit_code, done.why) == (6, "stopped")
            assert lab.inside(link.node.name, "pgrep -f '^sleep 4713'") == ""
            assert await jobs.reap(link, "j")


async def test_a_plain_user_without_the_right_is_told(lab: Lab) -> None:
    async with linked(lab.node("node5", user="ops", root="/root/nope")) as link:
        with pytest.raises(NodeError, match=r"node5.*[Pp]ermission denied") as e:
            await jobs.start(link, JobSpec(job_id="j", argv=["true"]))
        assert e.value.kind == "permission"


async def _through_a_cut(lab: Lab, seconds: float) -> None:
    async with linked(lab.node("node5")) as link:
        rate = 2000
        lines = int(rate * (seconds + 8))
        await jobs.start(link, flood("cut", lines, rate))
        tailer = Tailer(link)
        draining = asyncio.create_task(drain(tailer, "cut", seconds + 60))
        await asyncio.sleep(1)
        await fault(lab, "node5", "cut")
        assert await reached(link, LinkState.LOST, NOTICED_S) < NOTICED_S
        with pytest.raises(NodeError) as e:
            await link.run("true")
        assert e.value.kind == "lost"
        await asyncio.sleep(max(0.0, seconds - NOTICED_S))
        await fault(lab, "node5", "heal")
        await reached(link, LinkState.UP, 20)
        digest, length, job = await draining
        assert (length, digest, job.exit_code) == (lines * 130, expected(lines), 0)
        assert tailer.resets >= 1
        # the tail's old shell, which hung on the dead connection, is gone too
        assert int(lab.inside("node5", "pgrep -fc '^sh -c .*job_tail'") or 0) <= 1


async def test_a_cut_link_loses_and_doubles_nothing(lab: Lab) -> None:
    await _through_a_cut(lab, 12)


@pytest.mark.slow
async def test_a_link_cut_for_30_s_loses_and_doubles_nothing(lab: Lab) -> None:
    await _through_a_cut(lab, 30)


@pytest.mark.parametrize("what", ["kill-sshd", "freeze"])
async def test_a_dead_sshd_or_a_frozen_node_is_noticed_and_jobs_go_on(lab: Lab, what: str) -> None:
    async with linked(lab.node("node7")) as link:
        lines = 12_000
        await jobs.start(link, flood("on", lines, 1000))
        draining = asyncio.create_task(drain(Tailer(link), "on", 90))
        await asyncio.sleep(0.5)
        await fault(lab, "node7", what)
        await reached(link, LinkState.LOST, NOTICED_S)
        await fault(lab, "node7", UNDO[what])
        await reached(link, LinkState.UP, 20)
        digest, length, job = await draining
        assert (length, digest, job.exit_code) == (lines * 130, expected(lines), 0)


async def test_after_a_crash_the_jobs_are_gone_and_the_name_is_free_again(lab: Lab) -> None:
    async with linked(lab.node("node7", root="/srv/twinrail")) as link:
        before = await jobs.start(link, JobSpec(job_id="doomed", argv=["sleep", "60"]))
        assert before.state == "running"
        await fault(lab, "node7", "crash")
        await reached(link, LinkState.LOST, NOTICED_S)
        await fault(lab, "node7", "boot")
        await reached(link, LinkState.UP, 20)
        after = (await jobs.status(link, ["doomed"]))["doomed"]
        assert (after.state, after.exit_code, after.pid) == ("gone", None, before.pid)
        _, length, job = await drain(Tailer(link), "doomed")
        assert (length, job.state) == (0, "gone")
        assert await jobs.reap(link, "doomed")


async def test_the_budget_of_channels_stays_under_max_sessions(lab: Lab) -> None:
    async with linked(lab.node("node5")) as link:
        held = [await link.channel("cat") for _ in range(8)]
        ninth = asyncio.create_task(link.run("echo nine"))
        await asyncio.sleep(0.3)
        assert not ninth.done()
        await held[0].close()
        assert (await ninth).stdout == b"nine\n"
        for channel in held[1:]:
            await channel.close()
        done = await asyncio.gather(*[link.run(f"sleep 0.2; echo {i}") for i in range(40)])
        assert [int(d.stdout) for d in done] == list(range(40))


async def test_a_changed_host_key_is_refused_with_its_fingerprint(lab: Lab) -> None:
    states: list[LinkState] = []
    await asyncio.to_thread(lab.rekey, "node5")
    shown = lab.inside("node5", "ssh-keygen -lf /run/lab/ssh/host_ed25519.pub").split()[1]
    link = open_link(lab.node("node5"), lambda changed: states.append(changed.state))
    with pytest.raises(NodeError, match="CHANGED") as e:
        await link.up()
    assert e.value.kind == "hostkey"
    assert shown.startswith("SHA256:")
    assert shown in str(e.value)
    assert "twinrail trust node5" in str(e.value)
    assert states == [LinkState.HOSTKEY]
    await link.close()


async def test_50k_lines_a_second_arrive_exactly(lab: Lab) -> None:
    async with linked(lab.node("node5")) as link:
        lines = 200_000
        await jobs.start(link, flood("fast", lines, 50_000))
        began, used = time.monotonic(), time.process_time()
        tailer = Tailer(link)
        digest, length, job = await drain(tailer, "fast")
        wall, cpu = time.monotonic() - began, time.process_time() - used
        assert (length, digest, job.exit_code) == (lines * 130, expected(lines), 0)
        assert wall < 7, f"4 s of flood took {wall:.1f} s"
        assert cpu < 2, f"{cpu:.2f} s of CPU for 4 s of flood"
        assert tailer.resets == 0


async def test_kill_9_of_our_side_touches_nothing_there(lab: Lab) -> None:
    script = f"""
        import asyncio
        from runners.nodes import jobs
        from runners.nodes.link import open_link
        from runners.nodes.tail import Tailer
        from runners.spec import Node
        from tests.lab.test_nodes import flood

        async def main():
            link = open_link(Node.model_validate_json({lab.node("node5").model_dump_json()!r}))
            await jobs.start(link, flood("mine", 6000, 1000))
            tailer = Tailer(link)
            tailer.follow("mine", "stdout")
            async for chunk in tailer:
                print(chunk.end, flush=True)
                tailer.advance("mine", "stdout", chunk.end)

        asyncio.run(main())
    """
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(script), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    for _ in range(3):
        assert await child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    await child.wait()
    async with linked(lab.node("node5")) as link:
        found = await jobs.start(link, flood("mine", 6000, 1000))
        assert found.state == "running"
        digest, length, job = await drain(Tailer(link), "mine")
        assert (length, digest, job.exit_code) == (6000 * 130, expected(6000), 0)
        assert list(await jobs.list_jobs(link)) == ["mine"]


async def test_time_to_live_ends_a_job_that_nobody_asks_for(lab: Lab) -> None:
    async with linked(lab.node("node7")) as link:
        await jobs.start(link, JobSpec(job_id="ttl", argv=["sleep", "4714"], ttl_s=2))
    await asyncio.sleep(4)
    assert lab.inside("node7", "pgrep -f '^sleep 4714'") == ""
    async with linked(lab.node("node7")) as link:
        done = (await jobs.status(link, ["ttl"]))["ttl"]
        assert (done.state, done.exit_code, done.why) == ("exited", 143, "expired")


async def test_a_full_disk_is_named_and_a_running_job_still_ends_well(lab: Lab) -> None:
    lab.inside("node5", "mkdir -p /srv/small; mount -t tmpfs -o size=256k small /srv/small")
    try:
        async with linked(lab.node("node5", root="/srv/small")) as link:
            await jobs.start(link, JobSpec(job_id="early", argv=["sh", "-c", "sleep 1.5; exit 5"]))
            await link.run("head -c 1000000 /dev/zero >/srv/small/filler")
            with pytest.raises(NodeError, match="disk is full") as e:
                await jobs.start(link, JobSpec(job_id="late", argv=["true"]))
            assert e.value.kind == "space"
            with pytest.raises(NodeError, match="disk is full"):
                await link.put(b"x" * 100_000, "/srv/small/file", 0o644)
            await asyncio.sleep(2)
            found = await jobs.list_jobs(link)
            assert {j: (s.state, s.exit_code) for j, s in found.items()} == {"early": ("exited", 5)}
    finally:
        lab.inside("node5", "umount -l /srv/small")


async def test_a_node_with_nothing_but_posix_tools(lab: Lab) -> None:
    names = " ".join([*COREUTILS.split(), "setsid", "sh"])
    lab.inside("node5", f"mkdir -p /srv/bare; cd /usr/bin; for n in {names}; do ln -sf $PWD/$n /srv/bare/; done")
    node = lab.node("node5", become="/usr/bin/env -i HOME=/root PATH=/srv/bare")
    async with linked(node) as link:
        assert (await link.run("command -v awk sed grep ps perl python3")).stdout == b""
        await jobs.start(link, JobSpec(job_id="bare", argv=["sh", "-c", "seq 1 100000; exit 8"]))
        digest, _, job = await drain(Tailer(link), "bare")
        assert job.exit_code == 8
        assert digest == hashlib.sha256(b"".join(b"%d\n" % i for i in range(1, 100_001))).hexdigest()
        assert (await clock.measure(link, rounds=4)).error_ns < 50_000_000
        await lock.acquire(link, "run1", 30)
        await lock.release(link, "run1")


async def test_noise_from_start_up_files_does_no_harm(lab: Lab) -> None:
    rc = lab.folder / "node5" / "root" / ".bashrc"
    rc.write_text("echo 'Welcome to the cluster'; printf 'job x running\\nend\\n'\n")
    try:
        async with linked(lab.node("node5")) as link:
            assert (await link.run("echo mine")).stdout == b"mine\n"
            await jobs.start(link, JobSpec(job_id="n", argv=["echo", "out"]))
            assert (await drain(Tailer(link), "n"))[1] == 4
    finally:
        rc.unlink()


@pytest.mark.parametrize("way", ["jump", "proxy_command", "ssh_config"])
async def test_through_another_node(lab: Lab, way: str) -> None:
    config = lab.folder / "ssh_config"
    if way == "ssh_config":
        config = lab.folder / "jump_config"
        config.write_text(f"Include {lab.folder}/ssh_config\nHost node7\n  ProxyJump node5\n")
        node = lab.node("node7", ssh_config=str(config))
    elif way == "jump":
        node = lab.node("node7", jump="node5")
    else:
        node = lab.node("node7", proxy_command=f"ssh -F {config} -W %h:%p node5")
    async with linked(node) as link:
        done = await link.run("hostname; echo $SSH_CONNECTION")
        name, peer = done.stdout.decode().split()[:2]
        assert name == "node7"
        assert peer.endswith(".5")  # it sees node5, not this machine


async def test_a_skewed_clock_is_measured_within_its_bound(lab: Lab) -> None:
    await fault(lab, "node5", "skew", "5")
    async with linked(lab.node("node5")) as five, linked(lab.node("node7")) as seven:
        skewed, straight = await clock.measure(five), await clock.measure(seven)
        assert abs(skewed.offset_ns - 5_000_000_000) <= skewed.error_ns < 50_000_000
        assert abs(straight.offset_ns) <= straight.error_ns < 50_000_000
        for found in (skewed, straight):  # the monotonic clock is the machine's own, and ours too
            assert found.mono_offset_ns is not None
            assert found.mono_error_ns is not None
            assert abs(found.mono_offset_ns) <= found.mono_error_ns


async def test_a_long_way_widens_the_bound_and_the_truth_stays_inside(lab: Lab) -> None:
    await fault(lab, "node7", "delay", "40")
    async with linked(lab.node("node7", user="ops")) as link:
        found = await clock.measure(link, rounds=6)
        assert 19_000_000 < found.error_ns < 100_000_000
        assert abs(found.offset_ns) <= found.error_ns
        assert found.mono_offset_ns is not None
        assert found.mono_error_ns is not None
        assert abs(found.mono_offset_ns) <= found.mono_error_ns


async def test_the_lock_is_seen_by_another_user_and_cannot_be_taken_away(lab: Lab) -> None:
    async with linked(lab.node("node5")) as root, linked(lab.node("node5", user="ops")) as ops:
        await lock.acquire(ops, "run-of-ops", 60)
        seen = await lock.inspect(root)
        assert [(c.run_id, c.user) for c in seen] == [("run-of-ops", "ops")]
        with pytest.raises(NodeError, match="run-of-ops") as e:
            await lock.acquire(root, "run-of-root", 60)
        assert e.value.kind == "held"
        await lock.release(ops, "run-of-ops")
        await lock.acquire(root, "run-of-root", 2)
        await lock.release(ops, "run-of-root")
        assert (await ops.run("rm -rf /tmp/twinrail-lock/*")).exit_code != 0
        with pytest.raises(NodeError):
            await lock.acquire(ops, "run-of-ops", 60)
        await asyncio.sleep(2.5)  # root's owner died: its claim runs out, though its folder stays
        assert (await lock.acquire(ops, "run-of-ops", 60)).user == "ops"
