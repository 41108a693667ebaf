"""Probes and alerts on two sshd nodes: several faults in one run, told right and once, and no sample lost.

tests/lab/telemetry.py holds the whole campaign, which is run by hand.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from store.records import Finding
from tests.lab.fixture import Lab
from tests.lab.telemetry import BOTH, load, watching
from tests.runners.nodes.ssh_server import COREUTILS

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("lab"), pytest.mark.timeout(300)]

TOLD = {("gpu_lost", "node7"), ("throttle", "node5"), ("rail_unequal", "node7")}


def bare_path(lab: Lab, name: str) -> str:
    """A PATH on a node with sh, coreutils and the vendor's tool: no ethtool, no sysstat, no Python."""
    tools = f"sh nvidia-smi {' '.join(COREUTILS.split())}"  # those that a shell has built in are not needed
    each = 'p=$(command -v $t); case $p in /*) ln -sf "$p" /srv/bare/$t;; esac'
    lab.inside(name, f"mkdir -p /srv/bare; for t in {tools}; do {each}; done")
    return "/srv/bare"


async def test_faults_are_told_once_and_a_cut_link_loses_nothing(lab: Lab, tmp_path: Path) -> None:
    bare = {name: bare_path(lab, name) for name in BOTH}
    name = f"watch-{time.time_ns()}"  # a second try finds no job of the first
    async with watching(lab, tmp_path, name, path=bare) as watch:
        assert (
            await watch.until(lambda f: watch.samples("rail_samples") >= 8 and watch.samples("gpu_samples") > 8, 90)
            == []
        )
        lab.call("gpu", "node7", "lost 3")
        lab.call("gpu", "node5", "throttle 2 hw_thermal_slowdown")
        load(lab, "node7", second_rail=0.0)
        lab.fault("node7", "cut")
        await asyncio.sleep(15)
        assert not [f for f in await watch.look() if f.node == "node7"], "nobody can know yet"
        lab.fault("node7", "heal")
        await watch.until(lambda f: {(x.rule, x.node) for x in f} >= TOLD, 120)
        found = await watch.look()
        assert sorted((f.rule, f.node) for f in found) == sorted(TOLD), [f.detail for f in found]
        assert watch.longest_gap("node7") < 5  # one sample a second, also while nobody could hear the node
        assert watch.doubles() == 0
        _say(found)
        lost = watch.services.store.query(
            f"select distinct gpu from gpu_samples where run_id = '{watch.run_id}' and missing like 'all: %'"
        ).rows
        assert lost == [(3,)]
        said = watch.services.store.query(
            f"select distinct missing from rail_samples where run_id = '{watch.run_id}' and door = 'rdma'"
        ).rows
        assert said == [("pauses: no ethtool on the node",)]


def _say(found: list[Finding]) -> None:
    words = {f.rule: f"{f.title}; {f.detail}" for f in found}
    assert "GPU 3 is lost" in words["gpu_lost"]
    assert "GPU 2 throttles (hw_thermal_slowdown" in words["throttle"]
    assert "rail mlx5_3 idle" in words["rail_unequal"]
