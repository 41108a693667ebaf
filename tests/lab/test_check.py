"""Preflight on two real nodes: what is wrong there is found, named, and left as it is."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from runners.cluster import Cluster
from runners.flows.check import inspect
from runners.flows.services import Services
from runners.ingest import Ingest
from runners.spec import Deployment, Inventory
from store.database import Store
from store.records import Gate
from tests.lab.fixture import Lab

pytestmark = pytest.mark.lab

ROOT = "/srv/twinrail"
IMAGE = "localhost/twinrail-lab:1"
SIM = Deployment(name="sim", engine="sim", nodes=["node5", "node7"], port=30555)
BOXED = SIM.model_copy(update={"launcher": "docker", "image": IMAGE, "engine": "sglang", "model": "/srv/model"})
CORE = "cat head tail cut tr stat df uname id nproc timeout readlink ls who mkdir touch sha256sum sh env date wc mv rm"

Found = dict[tuple[str | None, str], Gate]


@asynccontextmanager
async def services(lab: Lab, tmp_path: Path, **node: Any) -> AsyncIterator[Services]:
    nodes = [lab.node(n, root=ROOT, python=sys.executable, **node) for n in lab.names]
    with Store.open(tmp_path / "check.duckdb") as store:
        cluster = Cluster(Inventory(nodes=nodes), store)
        try:
            yield Services(store, cluster, Ingest(store))
        finally:
            await cluster.close()


async def check(lab: Lab, tmp_path: Path, dep: Deployment, full: bool = False, **node: Any) -> Found:
    async with services(lab, tmp_path, **node) as s:
        return {(g.node, g.name): g for g in (await inspect(s, dep, full=full)).gates}


async def test_two_healthy_nodes_pass_in_few_round_trips(lab: Lab, tmp_path: Path) -> None:
    found = await check(lab, tmp_path, SIM)
    assert not [g for g in found.values() if g.status == "fail"], found
    for name in lab.names:
        assert found[name, "rails"].status == "pass"
        assert found[name, "reach"].status == "pass", found[name, "reach"]
        assert "8 GPUs" in (found[name, "gpu"].detail or "")
    assert found[None, "rails_same"].status == "pass"
    assert found[None, "versions"].status == "pass"


async def test_faults_of_one_node_are_named_and_nothing_is_cleared(lab: Lab, tmp_path: Path) -> None:
    lab.inside(
        "node7",
        "ip link set eth3 mtu 1500; pkill -STOP -f '[n]odesim.py'; mv /sys/class/infiniband/mlx5_3 /sys/class/away",
    )
    stale = "python3 -c 'import socket,time; s=socket.create_server((\"\",30555)); time.sleep(100)'"
    lab.inside("node5", f"setsid {stale} >/dev/null 2>&1 &")
    try:
        found = await check(lab, tmp_path, SIM)
        assert found["node5", "ports"].status == "fail"
        assert "python3 -c import socket" in (found["node5", "ports"].detail or "")
        assert "kill " in (found["node5", "ports"].fix or "")
        assert found["node7", "rails"].status == "fail"
        assert "no such HCA; there: mlx5_0" in (found["node7", "rails"].detail or "")
        assert "node5 9000, node7 1500" in (found[None, "rails_same"].detail or "")
        assert "whole frames are lost: eth3 to node7" in (found["node5", "reach"].detail or "")
        assert lab.inside("node5", "pgrep -fc '[c]reate_server'").strip() != "0"  # named, not cleared
    finally:
        lab.inside("node5", "pkill -f '[c]reate_server'")
        lab.inside(
            "node7",
            "mv /sys/class/away /sys/class/infiniband/mlx5_3; pkill -CONT -f '[n]odesim.py'; ip link set eth3 mtu 9000",
        )


async def test_a_plain_user_with_coreutils_only_gets_reasons_instead_of_guesses(lab: Lab, tmp_path: Path) -> None:
    for name in lab.names:
        lab.inside(name, f"mkdir -p /tmp/core; for t in {CORE}; do ln -sf $(command -v $t) /tmp/core/$t; done")
    masked = {"user": "ops", "become": "env PATH=/tmp/core", "root": "/srv/ops/twinrail"}
    async with services(lab, tmp_path) as s:
        inventory = Inventory(nodes=[lab.node(n, **masked) for n in lab.names])
        await s.cluster.update(inventory, busy=False)
        gates = (await inspect(s, None)).gates
    found = {(g.node, g.name): g for g in gates}
    assert found["node5", "ssh"].status == "pass"
    for name in ("gpu", "gpu_holders", "acs", "containers"):
        assert found["node5", name].status == "unknown", found["node5", name]
        assert found["node5", name].detail
    assert "nvidia-smi is not installed" in (found["node5", "gpu"].detail or "")
    assert found["node5", "rails"].status == "pass"  # sysfs tells, without any tool
    assert found["node5", "kernel"].status in ("pass", "warn")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("podman") is None, reason="no podman on this machine: the lab has no containers")
async def test_images_models_and_old_containers_are_compared_over_the_nodes(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_IMAGE_PIP", "")
    for name in lab.names:
        if not lab.inside(name, f"docker images -q {IMAGE}").strip():
            lab.call("image", name)
        lab.inside(
            name, "mkdir -p /srv/model; echo '{}' >/srv/model/config.json; head -c 5000000 /dev/zero >/srv/model/w.bin"
        )
    found = await check(lab, tmp_path, BOXED)
    assert found[None, "image_same"].status == "pass", found[None, "image_same"]
    assert found[None, "model_same"].status == "pass"
    # devices are passed in; the lab's HCAs are files over its sysfs, of which a container gets a new one
    assert "/dev/infiniband/uverbs0, /dev/infiniband/uverbs3" in (found["node5", "rails_inside"].detail or "")
    # one byte in the middle of a file, which a sample does not see; another image behind the same tag; a stranger
    lab.inside("node7", "printf x | dd of=/srv/model/w.bin bs=1 seek=2500000 conv=notrunc")
    lab.inside("node7", f"id=$(docker create {IMAGE} sleep 1); docker commit $id {IMAGE}; docker rm $id")
    lab.inside("node7", f"docker run -d --name twinrail-old.r1 {IMAGE} sleep 100")
    try:
        found = await check(lab, tmp_path, BOXED)
        assert found[None, "image_same"].status == "fail"
        assert found[None, "model_same"].status == "pass"
        assert found["node7", "containers"].fix == "docker rm -f twinrail-old.r1"
        found = await check(lab, tmp_path, BOXED, full=True)
        assert "w.bin differs in content" in (found[None, "model_same"].detail or "")
        assert "twinrail-old.r1" in lab.inside("node7", "docker ps --format '{{.Names}}'")
    finally:
        lab.inside("node7", "docker rm -f twinrail-old.r1")
        lab.call("image", "node7")
