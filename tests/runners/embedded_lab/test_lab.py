"""The embedded lab as a client sees it: real SSH, real processes, nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncssh
import pytest

from runners import lab
from runners.lab import sweep
from runners.lab.control import read
from runners.nodes.lock import ROOT_VARIABLE
from runners.payload import sim
from runners.probes import PROBES
from runners.spec import Inventory, Node, parse_inventory
from store.records import GpuSample, RailSample
from tests.runners.probes.running import CONTEXT


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("lab")
    lab.start(path)
    yield path
    lab.stop(path)


@pytest.fixture
def inventory(folder: Path) -> Inventory:
    return parse_inventory((folder / "twinrail.toml").read_text(), folder / "twinrail.toml")


@contextlib.asynccontextmanager
async def connect(node: Node) -> AsyncIterator[asyncssh.SSHClientConnection]:
    async with asyncssh.connect(
        node.host,
        node.port or 22,
        username=node.user,
        client_keys=[node.key],
        known_hosts=node.known_hosts,
        config=None,
    ) as connection:
        yield connection


async def sh(connection: asyncssh.SSHClientConnection, command: str, stdin: bytes = b"") -> tuple[int | None, bytes]:
    done = await connection.run(command, input=stdin, encoding=None)
    assert isinstance(done.stdout, bytes)
    return done.exit_status, done.stdout


def test_its_configuration_is_whole(inventory: Inventory, folder: Path) -> None:
    assert [n.name for n in inventory.nodes] == ["node5", "node7"]
    deployment = inventory.deployment("sim")
    assert deployment.topology.ranks == 16
    assert [c.concurrency for c in inventory.case("D2")] == [4, 8]
    assert all(c.slo in inventory.slo for name in ("D1", "D2") for c in inventory.case(name))
    assert (folder / "id_ed25519").stat().st_mode & 0o077 == 0
    assert all(n.env[ROOT_VARIABLE].startswith(str(folder / n.name)) for n in inventory.nodes)
    found = lab.find(folder)
    assert found is not None
    assert lab.start(folder) == (folder / "twinrail.toml").read_text()  # the same lab, not another
    assert lab.find(folder) == found


async def test_commands_keep_their_streams_and_exit_codes(inventory: Inventory) -> None:
    async with connect(inventory.nodes[0]) as node:
        done = await node.run("echo out; echo err >&2; exit 3", encoding=None)
        assert (done.exit_status, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
        done = await node.run("kill -9 $$", encoding=None)
        assert done.exit_signal is not None
        assert done.exit_signal[0] == "KILL"
        assert await sh(node, "cat; exit 5", bytes(range(256)) * 4000) == (5, bytes(range(256)) * 4000)
        status, data = await sh(node, "head -c 20000000 /dev/zero")
        assert (status, len(data)) == (0, 20_000_000)


async def test_each_node_is_a_machine_of_its_own(inventory: Inventory, folder: Path) -> None:
    for index, node in enumerate(inventory.nodes):
        async with connect(node) as connection:
            _, home = await sh(connection, "pwd -P; hostname; python3 -c 'import socket; print(socket.gethostname())'")
            assert home.decode().split() == [str((folder / node.name / "home").resolve()), node.name, node.name]
            _, listing = await sh(connection, "nvidia-smi -L")
            assert listing.count(b"Simulated GPU") == 8
            _, variables = await sh(connection, "env")
            assert b"PYTEST" not in variables  # nothing of this process leaks in
            if index == 0:
                first = listing
    assert listing != first


async def test_strangers_are_refused(inventory: Inventory) -> None:
    node = inventory.nodes[0]
    key = asyncssh.generate_private_key("ssh-ed25519")
    with pytest.raises(asyncssh.PermissionDenied):
        await asyncssh.connect(
            node.host, node.port or 22, username="lab", client_keys=[key], known_hosts=node.known_hosts, config=None
        )
    other = inventory.nodes[1]
    with pytest.raises(asyncssh.HostKeyNotVerifiable):
        await asyncssh.connect(
            node.host, node.port or 22, username="lab", client_keys=[node.key], known_hosts=([], [], []), config=None
        )
    assert other.port != node.port


async def test_a_long_lived_channel_answers_line_by_line_and_ends_at_eof(inventory: Inventory) -> None:
    async with connect(inventory.nodes[0]) as node:
        process = await node.create_process("while read -r x; do echo got $x; done; exit 4", encoding=None)
        for i in range(50):
            process.stdin.write(b"%d\n" % i)
            assert await process.stdout.readline() == b"got %d\n" % i
        process.stdin.write_eof()
        await process.wait()
        assert process.exit_status == 4


async def test_ten_sessions_a_connection_as_sshd_has_it(inventory: Inventory) -> None:
    async with connect(inventory.nodes[0]) as node:
        ten = [await node.create_process("cat", encoding=None) for _ in range(10)]
        with pytest.raises(asyncssh.ChannelOpenError):
            await node.create_process("true", encoding=None)
        ten[0].stdin.write_eof()
        await ten[0].wait()
        assert (await sh(node, "echo again"))[1] == b"again\n"
        for process in ten[1:]:
            process.stdin.write_eof()


async def test_a_signal_reaches_the_whole_process_group(inventory: Inventory) -> None:
    async with connect(inventory.nodes[0]) as node:
        process = await node.create_process("trap 'exit 7' TERM; sleep 30 & sleep 0.3; echo ready; wait", encoding=None)
        assert await process.stdout.readline() == b"ready\n"
        process.terminate()
        await process.wait()
        assert process.exit_status == 7


async def test_a_detached_job_outlives_its_connection(inventory: Inventory, folder: Path) -> None:
    command = "setsid sh -c 'echo $$ >pid; sleep 60; echo no' </dev/null >log 2>&1 &"
    async with connect(inventory.nodes[0]) as node:
        await sh(node, command)
        node.abort()
    async with connect(inventory.nodes[0]) as node:
        for _ in range(100):
            status, pid = await sh(node, "cat pid && kill -0 $(cat pid)")
            if status == 0:
                break
        assert status == 0
        _, environ = await sh(node, f"cat /proc/{int(pid)}/environ")
        assert b"TWINRAIL_LAB=" in environ


async def test_a_killed_orphan_leaves_no_zombie(inventory: Inventory) -> None:
    gone = "n=0; while [ -e /proc/$! ] && [ $n -lt 60 ]; do n=$((n + 1)); sleep 0.05; done; [ ! -e /proc/$! ]"
    async with connect(inventory.nodes[1]) as node:
        await sh(node, "setsid sleep 60 </dev/null >/dev/null 2>&1 & echo $! >orphan")
        status, _ = await sh(node, f"sleep 0.2; kill -9 $(cat orphan); {gone.replace('$!', '$(cat orphan)')}")
        assert status == 0


async def probe(node: Node, name: str, frames: int) -> bytes:
    """Output of a probe run on a lab node until it has printed so many frames."""
    async with connect(node) as connection:
        command = shlex.join(PROBES[name].argv(node, 0.5))
        process = await connection.create_process(command, encoding=None)
        data = b""
        async with asyncio.timeout(20):
            while data.count(b"#end\n") < frames:
                data += await process.stdout.read(65536)
        process.kill()
        return data


async def test_devices_follow_the_engines_load(inventory: Inventory, folder: Path) -> None:
    node = inventory.nodes[0]
    state = folder / node.name / "state"
    load = {"memory_total": 97887, "gpus": {"3": {"util": 90, "mem_used": 80000}}}
    (state / "gpu_load").write_text(json.dumps(load))
    rails = {"mlx5_0": {"tx_bytes_per_s": 8e9, "rx_bytes_per_s": 4e9}}
    (state / "rdma_load").write_text(json.dumps(rails))
    gpus = [
        r for r in PROBES["nvidia"].parse(await probe(node, "nvidia", 1), CONTEXT).records if isinstance(r, GpuSample)
    ]
    assert [g.gpu for g in gpus] == list(range(8))
    assert gpus[3].mem_used_bytes == 80000 << 20
    assert gpus[3].util_pct is not None
    assert gpus[3].util_pct > 50
    assert gpus[0].util_pct == 0
    parsed = PROBES["rails"].parse(await probe(node, "rails", 5), CONTEXT)
    ports = [r for r in parsed.records if isinstance(r, RailSample)]
    busy = [r.tx_bytes or 0 for r in ports if r.device == "mlx5_0"]
    still = [r.tx_bytes for r in ports if r.device == "mlx5_3"]
    assert busy[-1] - busy[0] > 4e9
    assert still == [still[0]] * len(still)
    (state / "rdma_load").unlink()


def test_stop_leaves_no_process_and_a_new_lab_keeps_names_and_ports(tmp_path: Path) -> None:
    lab.start(tmp_path, nodes=1)
    first = lab.find(tmp_path)
    assert first is not None

    async def leave_something() -> None:
        node = parse_inventory((tmp_path / "twinrail.toml").read_text()).nodes[0]
        async with connect(node) as connection:
            await sh(connection, "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 77 & sleep 77' >/dev/null 2>&1 &")

    asyncio.run(leave_something())
    assert sweep.marked(first.mark)
    assert lab.stop(tmp_path)
    assert lab.find(tmp_path) is None
    assert sweep.marked(first.mark) == []
    assert not lab.stop(tmp_path)
    lab.start(tmp_path, nodes=1)
    again = lab.find(tmp_path)
    lab.stop(tmp_path)
    assert again is not None
    assert (again.ports, again.server_port, again.mark) == (first.ports, first.server_port, first.mark)


def labs_in(folder: Path) -> list[str]:
    """Processes whose command line names this lab."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in path.read_bytes().split(b"\0"):
                found.append(path.parent.name)
    return found


def test_two_that_start_at_once_share_one_lab(tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        texts = set(pool.map(lambda _: lab.start(tmp_path, nodes=1), range(3)))
    found = lab.find(tmp_path)
    lab.stop(tmp_path)
    assert found is not None
    assert len(texts) == 1
    assert not labs_in(tmp_path)


def test_another_scenario_is_another_lab(tmp_path: Path) -> None:
    lab.start(tmp_path, nodes=1)
    first = lab.find(tmp_path)
    text = lab.start(tmp_path, "oom-at-48", nodes=1)
    second = lab.find(tmp_path)
    lab.stop(tmp_path)
    assert first is not None
    assert second is not None
    assert first.pid != second.pid
    assert "oom@C=48" in parse_inventory(text).deployment("sim").flags
    with pytest.raises(lab.LabError, match="healthy"):
        lab.start(tmp_path, "no-such")


@pytest.mark.parametrize("name", sorted(lab.SCENARIOS))
def test_every_scenario_gives_flags_that_the_engine_takes(name: str) -> None:
    # sim leaves by SystemExit when it does not know a flag
    sim.parse(["--tp", "16", "--nnodes", "2", *lab.SCENARIOS[name].sim_flags])


def test_a_lab_that_nobody_needs_ends_by_itself(tmp_path: Path) -> None:
    lab.start(tmp_path, nodes=1, idle_minutes=0.01)
    started = read(tmp_path)
    assert started is not None
    deadline = time.monotonic() + 20
    while started.alive and time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(started.pid, os.WNOHANG)
        time.sleep(0.1)
    assert not started.alive


def test_a_killed_lab_is_found_dead_and_swept(tmp_path: Path) -> None:
    lab.start(tmp_path, nodes=1)
    started = lab.find(tmp_path)
    assert started is not None
    os.kill(started.pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(started.pid, 0)
    assert lab.find(tmp_path) is None
    assert not lab.stop(tmp_path)
