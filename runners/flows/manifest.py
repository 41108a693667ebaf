"""The environment as variables: what was asked for, what the nodes and the server report, what was measured.

`asked` is the operator's word, `reported` what a node or the server says of itself, `measured` what we saw happen: the
library that was loaded, the backend that the log names, the bytes that a rank took.
"""

from __future__ import annotations

import hashlib
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from runners.flows.services import Services
from runners.gates.preflight import limits, memory, pcie, rails, same
from runners.gates.preflight.base import Facts, Seen, parse_facts, usable_gid
from runners.gates.preflight.gather import survey_node
from runners.gates.preflight.gpus import gpu_rows
from runners.nodes.link import NodeError
from runners.spec import Deployment, Node
from store.masking import MASK, is_secret, mask_text
from store.records import Life, Variable

MAX_VARIABLES = 4000
MAX_VALUE = 2000
MAX_SNAPSHOT = 16_000  # a table of nvidia-smi over 8 GPUs with its processes

_PLAIN = ("host.", "affinity.", "kernel.", "iommu.", "driver.")
_SNAPSHOTS = {"nvidia_smi": "gpus", "hy_smi": "gpus", "rocm_smi": "gpus", "containers": "containers"}


def asked(run_id: str, dep: Deployment, nodes: list[Node]) -> list[Variable]:
    """What the operator asked for."""
    spec = dep.model_dump(mode="json", exclude={"flags", "env", "name"}, exclude_none=True)
    rows = list(flatten("deployment", spec, None, None, run_id=run_id, source="asked"))
    rows.append(_variable(run_id, None, "deployment.name", dep.name, None, "asked"))
    rows.append(_variable(run_id, None, "twinrail.version", version("twinrail"), None, "asked"))
    flags = " ".join(dep.flags)
    rows.append(_variable(run_id, None, "deployment.flags", flags, None, "asked"))
    for key, value in sorted(dep.env.items()):
        rows.append(_variable(run_id, None, f"env.{key}", value, None, "asked"))
    found = [(node, rail) for node in nodes for rail in node.rails]
    rows += [_variable(run_id, None, f"rail.{r.netdev}", r.hca, node.name, "asked") for node, r in found]
    return rows


def of_seen(run_id: str, seen: Mapping[str, Seen], dep: Deployment | None = None) -> list[Variable]:
    """What the nodes reported to the preflight, the memory plan made from it, and the state before the run."""
    rows = []
    for one in seen.values() if dep is not None else ():
        gpu = memory.smallest_gpu(gpu_rows(one.facts, one.node.devices.vendor))
        if dep is not None and one.weights and gpu:
            planned = memory.plan(one.weights, dep, gpu).variables()
            rows += [_variable(run_id, None, name, value, None, "asked") for name, value in planned.items()]
    for node, one in seen.items():
        for name, value in node_values(one):
            rows.append(_variable(run_id, None, name, value, node, "reported"))
        rows += [_variable(run_id, None, f"before.{n}", v, node, "measured") for n, v in snapshot_values(one.facts)]
    return [r for r in rows if r.value]


async def node_facts(services: Services, node: Node, run_id: str) -> list[Variable]:
    """What one node tells of itself, asked now. Raises NodeError."""
    link = await services.cluster.link(node.name)
    facts = await survey_node(link, await services.cluster.root(node.name), None, first=False)
    return of_seen(run_id, {node.name: Seen(node, facts)})


def node_values(seen: Seen) -> Iterator[tuple[str, str]]:
    """(name, value) of everything that a node told of itself and that stays as it is while a run is on."""
    facts = seen.facts
    for name, value in facts.values.items():
        if name.startswith(_PLAIN) and name not in ("host.load", "host.uptime"):
            yield name, value.strip('"')
    for name, kept in (
        ("MemTotal", "host.mem_kib"),
        ("SwapTotal", "host.swap_kib"),
        ("HugePages_Total", "host.hugepages"),
    ):
        yield kept, facts.values.get(f"memory.{name}", "")
    for node, cpus in ((c[0], c[1]) for c in facts.table("numa") if len(c) >= 2):
        yield f"numa.{node}.cpus", cpus
    for name, value in limits.sysctls(facts).items():
        yield f"sysctl.{name}", value
    named = {"locked memory": "memlock", "open files": "nofile"}
    for name, value in limits.ulimits_of(facts).items():
        yield f"limits.{named.get(name, name.replace(' ', '_'))}", value
    for cells in facts.table("limit"):
        if len(cells) >= 3:
            yield f"cgroup.{cells[0]}", cells[2]
    yield from _gpus(seen)
    yield from _rails(seen)
    yield "container.engine", (facts.blocks.get("engine_version") or [""])[0]
    words = (facts.blocks.get("image") or [""])[0].split()
    if words:
        yield "image.id", words[0]
        yield "image.digest", ",".join(words[1:])
    yield from _model(seen)
    yield from _inside(seen)


def _gpus(seen: Seen) -> Iterator[tuple[str, str]]:
    facts = seen.facts
    kept = {"driver_version": "driver", "pci_bus_id": "bus"}
    for row in gpu_rows(facts, seen.node.devices.vendor):
        for name, value in row.items():
            moving = name in (
                "index",
                "extra",
                "mem_used_bytes",
                "util_pct",
                "pstate",
                "temp_c",
                "power_w",
                "mem_used_pct",
            )
            if value is not None and not moving and not isinstance(value, (dict, list)):
                yield f"gpu.{row['index']}.{kept.get(name, name)}", str(value)
        for name, value in (row.get("extra") or {}).items():
            if value is not None:
                yield f"gpu.{row['index']}.{name}", str(value)
    yield "gpu.cuda", same.cuda_of(facts)
    for title, block in (("gpu.topology", "topo"), ("gpu.p2p", "p2p")):
        for row in pcie.matrix(facts, block):
            yield f"{title}.{row['device']}", " ".join(f"{n}={w}" for n, w in row["links"].items())


def _rails(seen: Seen) -> Iterator[tuple[str, str]]:
    facts, addresses = seen.facts, rails.addresses(seen)
    for hca, values in facts.of("hca").items():
        for name, value in values.items():
            yield f"rail.{hca}.{name}", value
    for rail in seen.node.rails:
        gid = usable_gid(facts, rail.hca)
        yield f"rail.{rail.hca}.gid_index", str(gid[0]) if gid else ""
        yield f"rail.{rail.hca}.mtu", str(rails.mtu_of(seen, rail) or "")
        yield f"rail.{rail.hca}.rdma_mtu", str(rails.active_mtu(seen, rail.hca) or "")
        yield f"rail.{rail.hca}.address", addresses.get(rail.netdev, ("", 0))[0]
    for cell in seen.reached:
        yield f"reach.{cell.rail}.{cell.node}.{cell.far_rail}", f"{cell.state} {cell.detail}".strip()


def _model(seen: Seen) -> Iterator[tuple[str, str]]:
    """Number, size and one hash over the (sampled) hashes of all model files, and the hash of each small one."""
    files = seen.model or {}
    if not files:
        return
    yield "model.files", str(len(files))
    yield "model.bytes", str(sum(int(size) for size, _ in files.values() if size.isdigit()))
    listing = "".join(f"{name}\t{size}\t{digest}\n" for name, (size, digest) in sorted(files.items()))
    yield "model.sha256", hashlib.sha256(listing.encode()).hexdigest()
    for name, (size, digest) in sorted(files.items()):
        if name.endswith((".json", ".txt", ".py", ".jinja")) and len(files) < 500:
            yield f"model.file.{name}", f"{size} bytes, sha256 {digest}"


def _inside(seen: Seen) -> Iterator[tuple[str, str]]:
    """What a rank's own environment has: packages of the image or the interpreter, limits of a container."""
    if seen.inside is None:
        return
    for cells in seen.inside.table("package"):
        if len(cells) >= 2:
            yield f"package.{cells[0]}", cells[1]
    for name in ("locked memory", "open files"):
        yield f"inside.limits.{name.replace(' ', '_')}", limits.ulimits_of(seen.inside).get(name, "")
    yield "inside.rdma_devices", ",".join(c[0] for c in seen.inside.table("device") if c and "infiniband" in c[0])


def snapshot_values(facts: Facts) -> Iterator[tuple[str, str]]:
    """GPUs, containers and network as text: what may be other after the run than before."""
    for block, name in _SNAPSHOTS.items():
        lines = [line for line in facts.blocks.get(block, []) if line.strip()]
        if block in facts.blocks:
            yield name, "\n".join(lines) or "none"
    for net, values in facts.of("net").items():
        yield f"net.{net}", " ".join(f"{n}={v}" for n, v in values.items() if n in ("mtu", "speed", "operstate"))
    addresses = [m for line in facts.blocks.get("addresses", []) if (m := rails.ADDRESS.match(line))]
    if addresses:
        yield "net.addresses", " ".join(f"{m[1]}={m[2]}/{m[3]}" for m in addresses)


@cache
def _script() -> str:
    return Path(__file__).with_name("snapshot.sh").read_text(encoding="utf-8")


async def after(services: Services, dep: Deployment, nodes: Iterable[Node], run_id: str) -> list[Variable]:
    """The state after a run, node by node; one that does not answer leaves its own out."""
    rows = []
    for node in nodes:
        try:
            link = await services.cluster.link(node.name)
            engine = node.container if dep.launcher == "docker" else ""
            vendor = node.devices.vendor if node.devices.count else "none"
            argv = ["sh", "-c", _script(), "snapshot", engine, vendor, " ".join(r.netdev for r in node.rails)]
            done = await link.run(shlex.join(argv), timeout=40.0)
        except NodeError:
            continue
        facts = parse_facts(done.stdout.decode("utf-8", "replace"))
        rows += [_variable(run_id, None, f"after.{n}", v, node.name, "measured") for n, v in snapshot_values(facts)]
    return rows


def of_values(life: Life, values: Mapping[str, Any], node: str, rank: int | None, source: str) -> list[Variable]:
    """Variables of a server life from name -> value; None is left out."""
    owner = life.run_id or life.life_id
    return [
        _variable(owner, life.life_id, name, str(value), node, source, rank)
        for name, value in values.items()
        if value is not None
    ]


def flatten(
    prefix: str, value: Any, life: Life | None, node: str | None, *, run_id: str | None = None, source: str = "reported"
) -> list[Variable]:
    """JSON as variables `prefix.a.b`, secrets masked, long values cut, at most MAX_VARIABLES of them."""
    owner = run_id or (life.run_id if life else None) or ""
    life_id = life.life_id if life else None
    rows = []
    for name, leaf in _leaves(prefix, value):
        rows.append(_variable(owner, life_id, name, leaf, node, source))
        if len(rows) >= MAX_VARIABLES:
            break
    return rows


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, str | None]]:
    if isinstance(value, dict):
        for k, v in value.items():
            yield from _leaves(f"{prefix}.{k}", v)
    elif isinstance(value, list) and any(isinstance(v, (dict, list)) for v in value):
        for n, v in enumerate(value):
            yield from _leaves(f"{prefix}.{n}", v)
    elif isinstance(value, list):
        yield prefix, ",".join(str(v) for v in value)
    else:
        yield prefix, None if value is None else str(value)


def _variable(
    run_id: str,
    life_id: str | None,
    name: str,
    value: str | None,
    node: str | None,
    source: str,
    rank: int | None = None,
) -> Variable:
    if value:
        most = MAX_SNAPSHOT if name.startswith(("before.", "after.")) else MAX_VALUE
        counted = name.endswith("tokens") and value.isdigit()  # context_tokens = 8192 is a count
        value = MASK if is_secret(name.rsplit(".", 1)[-1]) and not counted else mask_text(value[:most])
    return Variable(
        run_id=run_id,
        life_id=life_id,
        name=name[:200],
        value=value,
        node=node,
        rank=rank,
        source=source,
        wall_ns=time.time_ns(),
    )
