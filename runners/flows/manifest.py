"""The environment as variables: what was asked for, what the nodes and the server report."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from runners.flows.services import Services
from runners.nodes.link import NodeError
from runners.spec import Deployment, Node
from store.masking import MASK, is_secret, mask_text
from store.records import Life, Variable

MAX_VARIABLES = 2000
MAX_VALUE = 2000

# One round trip a node, POSIX tools only; a tool that is not there leaves its variable out.
NODE_FACTS = r"""
p() { printf '%s\t%s\n' "$1" "$2"; }
p host.name "$(uname -n)"
p host.kernel "$(uname -r)"
p host.machine "$(uname -m)"
p host.os "$(. /etc/os-release 2>/dev/null; echo "$PRETTY_NAME")"
p host.boot_id "$(cat /proc/sys/kernel/random/boot_id)"
p host.cpu_model "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
p host.cpus "$(grep -c ^processor /proc/cpuinfo)"
p host.mem_kib "$(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo)"
p host.governor "$(cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor 2>/dev/null)"
p host.cmdline "$(cat /proc/cmdline)"
p limits.memlock "$(ulimit -l 2>/dev/null)"
p limits.nofile "$(ulimit -n)"
for d in ${TWINRAIL_SYS:-/sys}/class/infiniband/*; do
  [ -e "$d" ] && p "rail.${d##*/}.rate" "$(cat "$d"/ports/1/rate 2>/dev/null)"
  [ -e "$d" ] && p "rail.${d##*/}.state" "$(cat "$d"/ports/1/state 2>/dev/null)"
done
if command -v nvidia-smi >/dev/null 2>&1; then
  timeout 10 nvidia-smi --query-gpu=index,name,uuid,driver_version --format=csv,noheader 2>/dev/null |
  while IFS=, read -r i name uuid driver; do
    p "gpu.$i.name" "${name# }"; p "gpu.$i.uuid" "${uuid# }"; p "gpu.$i.driver" "${driver# }"
  done
fi
"""


async def node_facts(services: Services, node: Node, run_id: str) -> list[Variable]:
    """What a node reports of itself. Raises NodeError."""
    link = await services.cluster.link(node.name)
    done = await link.run(NODE_FACTS, timeout=30.0)
    facts = []
    for line in done.stdout.decode(errors="replace").splitlines():
        name, tab, value = line.partition("\t")
        if tab and value.strip():
            facts.append(_variable(run_id, None, name, value.strip(), node.name, "reported"))
    return facts


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
    rails = [(node, rail) for node in nodes for rail in node.rails]
    rows += [_variable(run_id, None, f"rail.{r.netdev}", r.hca, node.name, "asked") for node, r in rails]
    return rows


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
    run_id: str, life_id: str | None, name: str, value: str | None, node: str | None, source: str
) -> Variable:
    if value:
        value = MASK if is_secret(name.rsplit(".", 1)[-1]) else mask_text(value[:MAX_VALUE])
    return Variable(
        run_id=run_id, life_id=life_id, name=name[:200], value=value, node=node, source=source, wall_ns=time.time_ns()
    )


async def gather_facts(services: Services, nodes: list[Node], run_id: str) -> list[Variable]:
    """Facts of all nodes; a node that does not answer leaves its facts out (the check has said so already)."""
    rows: list[Variable] = []
    for node in nodes:
        try:
            rows += await node_facts(services, node, run_id)
        except NodeError:
            continue
    return rows
