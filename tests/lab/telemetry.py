"""Probes and alerts on the two sshd nodes while something breaks: samples complete where the node lived, alerts right.

    python -m tests.lab.telemetry LABDIR [SCENE...]      a campaign by hand: LABDIR is made and taken down; root

Each scene is a run of its own: probes on both nodes, simulated load on GPUs and rails, one fault, and what must be told
of it, once. tests/lab/test_telemetry.py runs some of it in CI.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from runners.cluster import Cluster
from runners.flows.services import Services
from runners.flows.telemetry import Telemetry
from runners.ingest import Ingest
from runners.spec import Inventory, load_inventory
from store.database import Store
from store.queries import literal
from store.records import Finding, Run
from tests.lab.configure import inventory_text
from tests.lab.fixture import Lab

GIGA = 10**9
BOTH = ("node5", "node7")


@dataclass
class Watch:
    """One run of probes on both nodes."""

    lab: Lab
    services: Services
    telemetry: Telemetry
    run_id: str

    async def look(self) -> list[Finding]:
        """Judge what is there; all findings of the run so far."""
        await self.telemetry.alerts.look()
        rows = self.services.store.query(f"from findings where run_id = {literal(self.run_id)} order by finding_id")
        return [Finding(**row) for row in rows.dicts()]

    async def until(self, done: Callable[[list[Finding]], bool], limit_s: float) -> list[Finding]:
        """Findings once they are `done`. AssertionError with what there is when they are not in time."""
        deadline = time.monotonic() + limit_s
        while not done(found := await self.look()):
            if time.monotonic() > deadline:
                raise AssertionError(f"after {limit_s:g} s: {[(f.rule, f.node, f.title, f.detail) for f in found]}")
            await asyncio.sleep(1.0)
        return found

    def samples(self, table: str) -> int:
        """How many rows of a table have come."""
        ((count,),) = self.services.store.query(
            f"select count(*) from {table} where run_id = {literal(self.run_id)}"
        ).rows
        return int(count)

    def longest_gap(self, node: str, table: str = "host_samples") -> float:
        """The longest time between two samples of a node, in s of its own monotonic clock."""
        mine = f"run_id = {literal(self.run_id)} and node = {literal(node)}"
        step = f"select mono_ns - lag(mono_ns) over (order by mono_ns) as step from {table} where {mine}"
        ((gap,),) = self.services.store.query(f"select max(step) / 1e9 from ({step})").rows
        return float(gap or 0.0)

    def doubles(self) -> int:
        """Samples of hosts that are there twice."""
        mine = f"run_id = {literal(self.run_id)}"
        twice = f"select count(*) - count(distinct (node, mono_ns)) from host_samples where {mine}"
        ((count,),) = self.services.store.query(twice).rows
        return int(count)


def put(lab: Lab, node: str, name: str, value: object) -> None:
    """Write a state file of a node's simulators, whole or not at all."""
    text = shlex.quote(json.dumps(value))
    lab.inside(
        node, f"printf %s {text} >/run/lab/state/{name}.new && mv /run/lab/state/{name}.new /run/lab/state/{name}"
    )


def load(lab: Lab, node: str, second_rail: float = 1.0, **hw: float) -> None:
    """Busy GPUs, and two rails at 10 GB/s each way; `second_rail` scales one, `hw` are its error counters a second."""
    put(lab, node, "gpu_load", {"all": {"util": 92, "mem_used": 80000}})
    rate = {"tx_bytes_per_s": 10 * GIGA, "rx_bytes_per_s": 10 * GIGA}
    second = {**{k: v * second_rail for k, v in rate.items()}, "hw": hw}
    put(lab, node, "rdma_load", {"mlx5_0": rate, "mlx5_3": second})


def prepare(lab: Lab, folder: Path) -> Inventory:
    """Both nodes at work, and the configuration that names them."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "twinrail.toml"
    path.write_text(inventory_text(lab.folder), encoding="utf-8")
    for node in BOTH:
        lab.call("gpu", node)
        load(lab, node)
    return load_inventory(path)


@contextlib.asynccontextmanager
async def watching(
    lab: Lab, folder: Path, run_id: str = "watch", path: dict[str, str] | None = None
) -> AsyncIterator[Watch]:
    """Probes on both nodes, followed into a store of their own. `path`: node -> PATH of its probes."""
    inventory = prepare(lab, folder)
    with Store.open(folder / f"{run_id}.duckdb") as store:
        cluster = Cluster(inventory, store)
        ingest = Ingest(store)
        services = Services(store, cluster, ingest)
        dep = inventory.deployment("sim")
        nodes = [n.model_copy(update={"env": {"PATH": path[n.name]}}) if path else n for n in inventory.nodes_of(dep)]
        telemetry = Telemetry(services, run_id, dep, nodes)
        run = Run(run_id=run_id, kind="watch", state="running", created_wall_ns=time.time_ns(), clock_node="node5")
        await store.commit([run])
        clocks = [asyncio.create_task(cluster.watch_clock(n, run_id)) for n in BOTH]
        try:
            await telemetry.start()
            yield Watch(lab, services, telemetry, run_id)
        finally:
            for task in clocks:
                task.cancel()
            await asyncio.gather(*clocks, return_exceptions=True)
            await telemetry.stop()
            await ingest.close()
            await cluster.close()


# --- the campaign by hand


@dataclass(frozen=True)
class Scene:
    """`gpu`, `fault`: what breaks on node7; `told`: the rules that must fire there, and nothing else may anywhere."""

    name: str
    told: frozenset[str] = frozenset()
    gpu: tuple[str, ...] = ()
    fault: tuple[str, ...] = ()
    rail: float = 1.0
    hw: dict[str, float] = field(default_factory=dict)
    seconds: float = 30.0
    back: float = 15.0  # after the fault is undone
    may: frozenset[str] = frozenset()  # may fire besides
    gap: float | None = 5.0  # longest gap that node7's host samples may have; None: any


SCENES = (
    Scene("healthy"),
    Scene("gpu-lost", frozenset({"gpu_lost"}), gpu=("lost 3",)),
    Scene("gpu-hang", frozenset({"probe_broken"}), gpu=("hang",), seconds=40),
    Scene("gpu-na", gpu=("na",)),
    Scene("gpu-old", gpu=("old",)),
    Scene("gpu-throttle", frozenset({"throttle"}), gpu=("throttle 2 hw_thermal_slowdown",)),
    Scene("gpu-garbage", gpu=("garbage",)),
    Scene("rail-idle", frozenset({"rail_unequal"}), rail=0.0, seconds=40),
    Scene("rail-rate", frozenset({"rail_unequal"}), fault=("rail-rate", "eth3", "100"), rail=0.3, seconds=40),
    Scene(
        "rail-cut", frozenset({"rail_down"}), fault=("rail-cut", "eth3"), may=frozenset({"rail_unequal"}), seconds=40
    ),
    Scene(
        "rail-loss",
        frozenset({"retransmits"}),
        fault=("rail-loss", "eth3", "10"),
        hw={"packet_seq_err": 30, "local_ack_timeout_err": 1},
    ),
    Scene("skew", frozenset({"clock"}), fault=("skew", "90"), seconds=100),
    Scene("cut-60", fault=("cut",), seconds=60, back=30),
    Scene(
        "freeze", frozenset({"probe_slow"}), fault=("freeze",), seconds=20, back=30, gap=None, may=frozenset({"clock"})
    ),
)


async def play(lab: Lab, folder: Path, scene: Scene) -> list[str]:
    """What was wrong; empty when all was right."""
    async with watching(lab, folder, scene.name) as watch:
        await asyncio.sleep(20)
        if scene.gpu:
            lab.call("gpu", "node7", *scene.gpu)
        load(lab, "node7", scene.rail, **scene.hw)
        if scene.fault:
            lab.fault("node7", *scene.fault)
        if scene.fault[:1] == ("skew",):  # connections made before keep their clock
            lab.fault("node7", "kill-sshd")
            lab.fault("node7", "start-sshd")
        until = time.monotonic() + scene.seconds
        while time.monotonic() < until:
            await watch.look()
            await asyncio.sleep(3)
        lab.restore()
        lab.call("gpu", "node7")
        load(lab, "node7")
        await asyncio.sleep(scene.back)
        found = await watch.look()
        gap, twice = watch.longest_gap("node7"), watch.doubles()
    wrong = []
    told = [(f.rule, f.node) for f in found]
    for f in found:
        print(f"    {f.rule} {f.node} {f.state} x{f.count}: {f.title}: {f.detail}")
    wrong += [f"not told: {rule}" for rule in scene.told if (rule, "node7") not in told]
    allowed = {(rule, "node7") for rule in scene.told | scene.may}
    wrong += [f"told wrongly: {rule} on {node}" for rule, node in told if (rule, node) not in allowed]
    wrong += (
        ["a finding stands there twice"]
        if len({(f.rule, f.node, f.title.split("(")[0]) for f in found}) < len(found)
        else []
    )
    wrong += [f"a gap of {gap:.1f} s"] if scene.gap is not None and gap > scene.gap else []
    wrong += [f"{twice} samples twice"] if twice else []
    return wrong


async def campaign(lab: Lab, names: list[str]) -> int:
    """The scenes called so, or all; how many were wrong."""
    bad = 0
    for scene in SCENES:
        if names and scene.name not in names:
            continue
        begun = time.monotonic()
        try:
            wrong = await play(lab, lab.folder / "work", scene)
        finally:
            lab.restore()
        bad += bool(wrong)
        print(f"{scene.name}: {'; '.join(wrong) or 'right'} ({time.monotonic() - begun:.0f} s)", flush=True)
    return bad


def main(argv: list[str]) -> int:
    lab = Lab(Path(argv[0]).resolve())
    shutil.rmtree(lab.folder / "work", ignore_errors=True)  # stores of an earlier campaign know its findings
    lab.folder.mkdir(parents=True, exist_ok=True)
    lab.folder.chmod(0o755)
    lab.call("up")
    try:
        bad = asyncio.run(campaign(lab, argv[1:]))
    finally:
        lab.call("purge")
    print(f"{bad} scenes wrong")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
