"""Deployments over both lab nodes, in containers: they come up, and what goes wrong has its type and its words."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from runners.owner import Owner
from runners.spec import parse_inventory
from store.queries import literal
from tests.lab.fixture import Lab

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("podman") is None, reason="no podman on this machine: the lab has no containers"),
]

IMAGE = "localhost/twinrail-lab:1"
SECRET = "hf_0123456789abcdefghijklmn"
PORT = 30100
# A server whose rank 11 never comes through NCCL's init; each process writes the file that NCCL would write.
STUCK = r"""
import os, socket, sys, time
node = int(sys.argv[sys.argv.index("--node-rank") + 1])
name = socket.gethostname()
pattern = os.environ["NCCL_DEBUG_FILE"]
for gpu in range(8):
    rank, pid = node * 8 + gpu, 100 + gpu
    with open(pattern.replace("%h", name).replace("%p", str(pid)), "w") as f:
        head = f"{name}:{pid}:{pid} [{gpu}] NCCL INFO ncclCommInitRank comm 0x{rank:x} rank {rank} nranks 16 "
        tail = f"cudaDev {gpu} nvmlDev {gpu} busId {gpu}000 commId 0xabc - Init "
        f.write(head + tail + "START\n")
        if rank != 11:
            f.write(head + tail + "COMPLETE\n")
print("GID", os.environ.get("NCCL_IB_GID_INDEX"), flush=True)
time.sleep(600)
"""


def config(lab: Lab, **more: Any) -> str:
    nodes = []
    for name in lab.names:
        last = name.removeprefix("node")
        nodes.append(
            f'[[nodes]]\nname = "{name}"\nhost = "{name}"\nssh_config = {json.dumps(str(lab.folder / "ssh_config"))}\n'
            f'root = "/srv/twinrail"\npython = {json.dumps(sys.executable)}\nrails = [\n'
            f'  {{ netdev = "eth0", hca = "mlx5_0", address = "198.19.1.{last}" }},\n'
            f'  {{ netdev = "eth3", hca = "mlx5_3", address = "198.19.2.{last}" }},\n]\n'
        )
    dep: dict[str, Any] = {
        "engine": "sim",
        "launcher": "docker",
        "image": IMAGE,
        "nodes": list(lab.names),
        "topology": {"tp": 16},
        "port": PORT,
        "python": sys.executable,
        "flags": ["--clock-scale", "5"],
        "env": {"HF_TOKEN": SECRET, "PROXY_URL": f"http://bob:{SECRET}@192.0.2.1:1"},
        "ready_timeout": "90s",
        "stop_timeout": "6s",
        "hang_timeout": "20s",
        **more,
    }
    words = "\n".join(f"{k} = {_toml(v)}" for k, v in dep.items())
    case = '[cases.D]\nisl = 64\nosl = 32\nconcurrency = 2\nrequests = 20\nwarmup = 1\nbudget = "60s"\n'
    long = '[cases.L]\nisl = 64\nosl = 400\nconcurrency = 4\nrequests = 4000\nwarmup = 1\nbudget = "120s"\n'
    return "\n".join([*nodes, f"[deployments.box]\n{words}", case, long])


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)


@asynccontextmanager
async def owned(lab: Lab, folder: Path, **more: Any) -> AsyncIterator[Owner]:
    path = folder / "twinrail.toml"
    path.write_text(config(lab, **more))
    async with Owner(parse_inventory(path.read_text(), path)) as owner:
        try:
            yield owner
        finally:
            await owner.order("down", deployment="box")
            await until(lambda: not owner._tasks and not owner.runs, 60)


async def until(holds: Callable[[], bool], seconds: float = 400.0) -> None:
    began = time.monotonic()
    while not await asyncio.to_thread(holds):
        assert time.monotonic() - began < seconds, f"not within {seconds} s"
        await asyncio.sleep(0.3)


async def carried(owner: Owner, case: str, meanwhile: Awaitable[None] | None = None) -> dict[str, Any]:
    """The finished run of one case."""
    answer = await owner.order("start_run", what=[case])
    assert answer["ok"], answer
    if meanwhile is not None:
        await meanwhile
    run = f"from runs where run_id = {literal(answer['run_id'])}"
    await until(lambda: owner.store.query(run).dicts()[0]["state"] == "done", 400)
    return owner.store.query(run).dicts()[0]


def holders_of_the_secret(folder: Path) -> list[Path]:
    """Files of the store, its log and the results that hold it; the configuration is the operator's own."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != "twinrail.toml"]
    assert any(p.suffix == ".duckdb" for p in files)
    assert any("results" in p.parts for p in files)
    return [p for p in files if SECRET.encode() in p.read_bytes()]


@pytest.fixture(autouse=True)
def images(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_IMAGE_PIP", "")
    for name in lab.names:
        if not lab.inside(name, f"docker images -q {IMAGE}").strip():
            lab.call("image", name)
        lab.inside(
            name, "docker ps -aq | xargs -r docker rm -f; rm -rf /srv/twinrail; rm -f /run/lab/state/docker_fault"
        )


async def test_a_server_over_two_nodes_comes_up_in_containers_and_leaves_no_secret_anywhere(
    lab: Lab, tmp_path: Path
) -> None:
    seen: list[str] = []

    async def look() -> None:
        await until(lambda: "twinrail-" in lab.inside("node7", "docker ps --format '{{.Names}}'"))
        seen.extend(lab.inside(n, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '") for n in lab.names)

    async with owned(lab, tmp_path) as owner:
        run = await carried(owner, "D", look())
        assert run["outcome"] == "OK", run
        variables = owner.store.query(
            f"select name, value, node from variables where run_id = {literal(run['run_id'])}"
        ).rows
        names = {(n, w) for n, _, w in variables}
        for wanted in (
            "image.id",
            "rail.mlx5_3.gid_index",
            "before.containers",
            "after.containers",
            "inside.rdma_devices",
        ):
            assert {(wanted, "node5"), (wanted, "node7")} <= names, wanted
        gates = owner.store.query("select name, status from gates where name in ('rdma', 'image_same')").rows
        assert ("rdma", "pass") in gates
        assert ("image_same", "pass") in gates
        stages = owner.store.query(f"from startup_stages({literal(run['run_id'] + '.L1')})").dicts()
        assert {r["state"] for r in stages if r["stage"] in ("nccl", "weights", "ready")} == {"done"}
        assert not await asyncio.to_thread(holders_of_the_secret, tmp_path)
        assert seen
        assert SECRET not in "".join(seen)


async def test_an_hca_missing_on_one_node_and_a_stale_server_refuse_before_anything_is_started(
    lab: Lab, tmp_path: Path
) -> None:
    lab.inside("node7", "pkill -STOP -f '[n]odesim.py'; mv /sys/class/infiniband/mlx5_3 /sys/class/away")
    try:
        async with owned(lab, tmp_path) as owner:
            run = await carried(owner, "D")
            assert run["outcome"] == "START_FAILED"
            assert "node7 rails: eth0=mlx5_0" in run["detail"]
            assert "eth3=mlx5_3: no such HCA; there: mlx5_0" in run["detail"]
            lab.inside("node7", "mv /sys/class/away /sys/class/infiniband/mlx5_3; pkill -CONT -f '[n]odesim.py'")
            # an old server of the same engine, in a container that nobody knows any more: it answers all questions
            sim = next(p for p in Path(__file__).parents[2].joinpath("runners/payload").glob("sim.py"))
            lab.inside(
                "node5",
                f"mkdir -p /srv/old; cp {sim} /srv/old/; docker run -d --name twinrail-old.r0 --network=host "
                f"-v /srv/old:/srv/old {IMAGE} python3 /srv/old/sim.py --port {PORT} --model sim --clock-scale 50",
            )
            await until(lambda: f":{PORT:04X} " in lab.inside("node5", "cat /proc/net/tcp"))
            run = await carried(owner, "D")
            assert run["outcome"] == "START_FAILED"
            assert f"{PORT} is held by pid" in run["detail"]
            assert "docker rm -f twinrail-old.r0" in run["detail"]
            assert "twinrail-old.r0" in lab.inside("node5", "docker ps --format '{{.Names}}'")  # named, not cleared
            await owner.order("up", deployment="box")  # without a preflight: the port's owner is looked at all the same
            life = "from lives where deployment = 'box' order by started_wall_ns desc limit 1"
            await until(lambda: [r["state"] for r in owner.store.query(life).dicts()] == ["gone"])
            found = owner.store.query(life).dicts()[0]
            assert found["outcome"] == "START_FAILED"
            assert "held by a server that is not ours" in found["detail"]
    finally:
        lab.inside("node7", "mv /sys/class/away /sys/class/infiniband/mlx5_3; pkill -CONT -f '[n]odesim.py'")


async def test_images_that_differ_refuse_with_both_ids(lab: Lab, tmp_path: Path) -> None:
    lab.inside("node7", f"id=$(docker create {IMAGE} sleep 1); docker commit $id {IMAGE}; docker rm $id")
    try:
        async with owned(lab, tmp_path) as owner:
            run = await carried(owner, "D")
            assert run["outcome"] == "START_FAILED"
            assert f"image_same: {IMAGE} differs: node5 " in run["detail"]
    finally:
        lab.call("image", "node7")


async def test_a_container_that_dies_under_load_ends_the_attempt_typed(lab: Lab, tmp_path: Path) -> None:
    async with owned(lab, tmp_path) as owner:

        async def kill() -> None:
            await until(lambda: bool(owner.store.query("select 1 from load_ticks where in_flight > 0").rows))
            lab.inside("node7", "docker kill $(docker ps -q --filter name=twinrail-)")

        run = await carried(owner, "L", kill())
        assert run["outcome"] in ("ENGINE_CRASH", "NODE_LOST"), run
        assert "node7" in run["detail"]
        assert lab.inside("node5", "docker ps -aq").strip() == ""


async def test_the_rank_that_never_finishes_init_is_named_from_nccls_own_files(lab: Lab, tmp_path: Path) -> None:
    stuck = {
        "engine": "sglang",
        "model": "m",
        "command": ["python3", "-c", STUCK],
        "ready_timeout": "40s",
        "flags": [],
        "python": sys.executable,
    }
    async with owned(lab, tmp_path, **stuck) as owner:
        await owner.order("up", deployment="box")
        life = "from lives where deployment = 'box'"
        await until(lambda: [r["state"] for r in owner.store.query(life).dicts()] == ["gone"])
        found = owner.store.query(life).dicts()[0]
        assert found["outcome"] == "START_FAILED"
        assert "hangs in NCCL init: rank 11 on node7 not through it, 15 of 16 ranks are" in found["detail"]
        said = owner.store.query("select distinct text from log_lines where text like 'GID %'").rows
        assert said == [("GID 3",)]
        files = owner.store.query("select count(distinct stream) from log_lines where stream like 'nccl.%'").rows
        assert files == [(16,)]  # one a process
