"""The twinrail.toml that `twinrail init` writes: what was found, what it proposes, and comments that say why."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from runners.flows.survey import Survey
from runners.spec import Rail

NO_MODEL = "/models/NAME"
NAME = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(slots=True)
class Found:
    """A node on its way into the file."""

    name: str
    host: str
    user: str | None = None
    address: str | None = None
    ssh_config: str | None = None
    survey: Survey = field(default_factory=Survey)


@dataclass(slots=True)
class Proposal:
    """A deployment over all nodes. `engine` sim: nothing real was found."""

    name: str = "main"
    engine: str = "sim"
    image: str | None = None
    model: str = "sim-model"
    tp: int = 1


def node_name(host: str, taken: Sequence[str]) -> str:
    """A name for the node that the configuration takes: of the host, and of no other node."""
    stem = NAME.sub("-", host).strip("-._")[:50] or "node"
    return next(n for n in (stem, *(f"{stem}-{i}" for i in range(2, 1000))) if n not in taken)


def propose(nodes: Sequence[Found]) -> Proposal:
    """An engine that every node has, in an image or as a package; then a model that every node has."""
    surveys = [n.survey for n in nodes]
    made = Proposal(tp=sum(len(s.gpus) or 1 for s in surveys))
    images = [i for i in surveys[0].images if all(i in s.images for s in surveys)]
    modules = [m for m in surveys[0].modules if all(m in s.modules for s in surveys)]
    for engine in ("sglang", "vllm"):
        image = next((i for i in images if engine in i.lower()), None)
        if image or engine in modules:
            made.engine, made.image = engine, image
            break
    else:
        made.name = "sim"
        return made
    models = [m for m in surveys[0].models if all(m in s.models for s in surveys)]
    made.model = models[0] if models else NO_MODEL
    return made


def toml_text(nodes: Sequence[Found], chosen: Proposal) -> str:
    """The whole file."""
    day = datetime.now(UTC).date().isoformat()
    parts = [
        f"# Written by `twinrail init` on {day}. Yours from here on: `twinrail check` says what is not right.\n"
        '[project]\nname = "twinrail"\n'
    ]
    parts += [_node(n) for n in nodes]
    parts.append(_deployment(nodes, chosen))
    parts.append(
        "# A first look: two minutes at 16 requests at once. `twinrail run quick`\n"
        '[cases.quick]\nisl = 1024\nosl = 256\nconcurrency = 16\nbudget = "2m"\n'
    )
    parts.append(
        '# What is still fast enough; a case names it by slo = "interactive".\n'
        "# [slo.interactive]\n# ttft_ms = { p95 = 2000 }\n# tpot_ms = { p95 = 50 }\n# success = 0.99\n"
    )
    return "\n".join(parts)


def _q(text: str) -> str:
    return json.dumps(text)


def _node(node: Found) -> str:
    s = node.survey
    lines = ["[[nodes]]", f"name = {_q(node.name)}"]
    if node.host == "local":
        lines.append('host = "local" # this machine, without SSH')
    else:
        lines.append(f"host = {_q(node.host)} # as `ssh` knows it: port, key and jump hosts come from ssh_config")
    if node.user:
        lines.append(f"user = {_q(node.user)}")
    if node.ssh_config:
        lines.append(f"ssh_config = {_q(node.ssh_config)}")
    if node.address and not any(r.address for r in s.rails):
        lines.append(f"address = {_q(node.address)} # how the other nodes reach this one")
    if s.python:
        missing = "" if "aiohttp" in s.modules else " # has no aiohttp, which the load client needs outside containers"
        lines.append(f"python = {_q(s.python)}{missing}")
    if s.container:
        lines.append(f"container = {_q(s.container)}")
    if s.become:
        lines.append(f'become = "sudo -n" # {s.container} refuses this user; every command on the node runs as root')
    elif s.refused and not s.container:
        lines.append(f"# no container engine to use: {s.refused}")
    comment = f" # {s.gpu_name}" if s.gpu_name else ""
    lines.append(f"devices = {{ vendor = {_q(s.vendor)}, count = {len(s.gpus)} }}{comment}")
    lines += [f"# not a rail: {text}" for text in s.idle_rails]
    return "\n".join(lines) + "\n" + "".join(_rail(r) for r in s.rails)


def _rail(rail: Rail) -> str:
    lines = ["[[nodes.rails]]", f"netdev = {_q(rail.netdev)}", f"hca = {_q(rail.hca)}"]
    lines += [f"gbps = {rail.gbps:g}"] if rail.gbps else []
    lines += [f"address = {_q(rail.address)}"] if rail.address else []
    return "\n".join([*lines, '# switch = "NAME"']) + "\n"


def _deployment(nodes: Sequence[Found], chosen: Proposal) -> str:
    head = [] if chosen.engine != "sim" else ["# No engine was found: this one is simulated. Put yours beside it."]
    key = chosen.name if chosen.name.replace("-", "").isalnum() and chosen.name.isascii() else _q(chosen.name)
    lines = [*head, f"[deployments.{key}]", f"engine = {_q(chosen.engine)}"]
    if chosen.image:
        lines += ['launcher = "docker"', f"image = {_q(chosen.image)}"]
    lines += [
        f"model = {_q(chosen.model)}" + (" # none was found: correct it" if chosen.model == NO_MODEL else ""),
        f"nodes = {_q_list([n.name for n in nodes])} # in rank order",
    ]
    lines.append(f"topology = {{ tp = {chosen.tp} }}")
    lines += ["port = 30000", '# flags = ["--mem-fraction-static", "0.88"]', '# env = { NCCL_DEBUG = "INFO" }']
    return "\n".join(lines) + "\n"


def _q_list(names: Sequence[str]) -> str:
    return "[" + ", ".join(_q(n) for n in names) + "]"
