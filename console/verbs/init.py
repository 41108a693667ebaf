"""`init`: asks, looks at the nodes over SSH, and writes a commented twinrail.toml."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from console.verbs import DONE, INFRASTRUCTURE, NEGATIVE, USAGE, out, out_json, run_async, say
from console.verbs.init_text import NO_MODEL, Found, Proposal, node_name, propose, toml_text
from runners.ssh_hosts import SshHost, ssh_hosts
from store.text import plain

ENGINES = ("sglang", "vllm", "sim")
FEW = 4  # so many hosts of an ssh_config are proposed together


class Asker(Protocol):
    """Puts questions to the operator."""

    def text(self, question: str, default: str) -> str: ...

    def yes(self, question: str, *, default: bool) -> bool: ...


class Defaults:
    """`--yes`: takes every proposal, and trusts no host key."""

    def text(self, question: str, default: str) -> str:
        return default

    def yes(self, question: str, *, default: bool) -> bool:
        return default


class Terminal:
    """Asks on stderr, so that stdout holds the answer alone."""

    def text(self, question: str, default: str) -> str:
        import typer

        return str(typer.prompt(question, default=default, err=True)).strip()

    def yes(self, question: str, *, default: bool) -> bool:
        import typer

        return typer.confirm(question, default=default, err=True)


@dataclass(frozen=True, slots=True)
class InitRequest:
    """What the command line says. `hosts`: empty, and the ssh_config is asked."""

    hosts: Sequence[str] = ()
    target: Path | None = None
    ssh_config: Path | None = None
    yes: bool = False
    force: bool = False
    as_json: bool = False


def run_init(request: InitRequest, asker: Asker | None = None) -> int:
    """Exit code 0 written, 1 not wanted, 2 cannot ask or the file is there, 3 no node could be reached."""
    import typer

    try:
        return _asked(request, asker)
    except typer.Abort:  # Ctrl-C or Ctrl-D at a question
        say("\ntwinrail: left; nothing was written")
        return NEGATIVE


def _asked(request: InitRequest, asker: Asker | None) -> int:
    target = (request.target or Path("twinrail.toml")).absolute()
    config = request.ssh_config or Path("~/.ssh/config").expanduser()
    if asker is None:
        if not request.yes and not sys.stdin.isatty():
            say("twinrail: init asks questions, and there is no terminal: add --yes to take what it proposes")
            return USAGE
        asker = Defaults() if request.yes else Terminal()
    if not target.parent.is_dir():
        say(f"twinrail: the folder {target.parent} does not exist: make it, or name another --config")
        return USAGE
    if target.exists() and not request.force and not asker.yes(f"{target} is there. Replace it?", default=False):
        say(f"twinrail: {target} stays as it is; --force replaces it, --config OTHER.toml writes beside it")
        return USAGE if request.yes else NEGATIVE
    if request.ssh_config and not config.is_file():
        say(f"twinrail: {config} is no file: name the one that `ssh -F` would take")
        return USAGE
    return run_async(_init(request, target, config, asker))


async def _init(request: InitRequest, target: Path, config: Path, asker: Asker) -> int:
    known = ssh_hosts(config)
    wanted = list(request.hosts) or _which(known, config, asker)
    if not wanted:
        say(f"twinrail: no node named, and {config} has no hosts: `twinrail init HOST HOST`, or `twinrail init local`")
        return USAGE
    nodes = _nodes(wanted, known, request.ssh_config)
    say(f"looking at {', '.join(n.name for n in nodes)} ...")
    await asyncio.gather(*(_look(node) for node in nodes))
    for node in nodes:
        if node.survey.error is not None and node.survey.error.kind == "hostkey" and not request.yes:
            await _trust(node, asker)
    reached = [n for n in nodes if n.survey.error is None]
    left = [n for n in nodes if n not in reached]
    for node in nodes:
        say(summary(node))
    for node in left:
        say(f"next for {node.name}: {_cure(node)}")
    without = ", ".join(n.name for n in left)
    if not reached or (left and not asker.yes(f"Go on without {without}?", default=True)):
        if request.as_json:
            out_json(_document(target, nodes, None, written=False))
        said = "because no node could be reached" if not reached else "as you wish"
        say(f"twinrail: nothing was written, {said}. Put the first one right and try again")
        return NEGATIVE if reached else INFRASTRUCTURE
    chosen = _deployment(reached, asker)
    text = toml_text(reached, chosen)
    if left:
        said = "\n".join(f"# {summary(n)}" for n in left)
        text += f"\n# Not reached, so not here; `twinrail init` again when they are:\n{said}\n"
    if not asker.yes(f"Write {target}?", default=True):
        out(text)
        return NEGATIVE
    try:
        _write(target, text)
    except OSError as e:
        say(f"twinrail: cannot write {target}: {e.strerror}. Nothing is written; --config FILE names another place")
        return INFRASTRUCTURE
    if request.as_json:
        out_json(_document(target, nodes, chosen, written=True))
    else:
        out(f"{target} is written{f', without {without}' if left else ''}. Next: {'; '.join(_next(chosen))}")
        for line in _lacks(reached, chosen):
            out(f"first: {line}")
    return DONE


def _which(known: Sequence[SshHost], config: Path, asker: Asker) -> list[str]:
    """The nodes in rank order, as the operator says."""
    names = [h.alias for h in known]
    if names:
        say(f"hosts in {config}: {', '.join(names)}")
    default = ", ".join(names[:FEW]) if names else "local"
    answer = asker.text("Nodes in rank order (names of ssh_config, user@host, or local)", default)
    return [word for word in answer.replace(",", " ").split() if word]


def _nodes(wanted: Sequence[str], known: Sequence[SshHost], ssh_config: Path | None) -> list[Found]:
    addresses = {h.alias: h.address for h in known}
    config = os.path.abspath(ssh_config) if ssh_config else None
    nodes: list[Found] = []
    for word in dict.fromkeys(wanted):
        user, at, host = word.rpartition("@")
        name = node_name(host, [n.name for n in nodes])
        address = addresses.get(host)
        nodes.append(Found(name, host, user if at else None, address, None if host == "local" else config))
    return nodes


async def _look(node: Found) -> None:
    from runners.flows.survey import survey
    from runners.nodes.link import open_link

    link = open_link(_spec(node))
    try:
        # ours too: where home folders are shared the nodes have it at the same path, with aiohttp
        node.survey = await survey(link, ("python3", sys.executable))
    finally:
        await link.close()


def _spec(node: Found) -> Any:
    from runners.spec import Node

    return Node(name=node.name, host=node.host, user=node.user, ssh_config=node.ssh_config)


async def _trust(node: Found, asker: Asker) -> None:
    """Show the host keys on the way, and look again once they are accepted."""
    from console.trust import trusting

    if await trusting(_spec(node), lambda question: asker.yes(question, default=False), say) == 0:
        await _look(node)


def summary(node: Found) -> str:
    """One line on a node, or why there is none."""
    s = node.survey
    if s.error is not None:
        return f"{node.name}: not reached. {plain(str(s.error)).removeprefix(f'{node.name}: ')}"
    gpus = f"{len(s.gpus)} x {s.gpu_name or s.vendor}" if s.gpus else "no GPU seen"
    rails = ", ".join(f"{r.netdev}/{r.hca}" + (f" {r.gbps:g}G" if r.gbps else "") for r in s.rails) or "none"
    engine = f"{s.container}, images: {len(s.images)}" if s.container else (s.refused or "no container engine")
    python = f"{s.python} with {', '.join(s.modules)}" if s.modules else f"{s.python or 'no python'} without aiohttp"
    return plain(f"{node.name}: {gpus}; rails: {rails}; {engine}; model folders: {len(s.models)}; {python}")


def _cure(node: Found) -> str:
    """What to do about a node that was not reached."""
    error = node.survey.error
    config = f" -F {node.ssh_config}" if node.ssh_config else ""
    login = f"{node.user}@{node.host}" if node.user else node.host
    match error.kind if error else "":
        case "hostkey":
            flag = f" --ssh-config {node.ssh_config}" if node.ssh_config else ""
            return f"`twinrail trust {login}{flag}` shows its key and asks"
        case "auth":
            return f"`ssh{config} -v {login} true` says which keys were tried; ssh-copy-id puts yours there"
        case _:
            return f"`ssh{config} {login} true` has to work first"


def _lacks(nodes: Sequence[Found], chosen: Proposal) -> list[str]:
    """What the written file still wants before a run, in words."""
    lines = []
    first = nodes[0].survey
    if chosen.image is None and "aiohttp" not in first.modules:
        python = first.python or "python3"
        lines.append(
            f"the load client on {nodes[0].name} needs aiohttp: `{python} -m pip install aiohttp` there, or set "
            "python = to an interpreter that has it"
        )
    if chosen.model == NO_MODEL:
        lines.append(f"no model folder was found: correct model = in [deployments.{chosen.name}]")
    if chosen.engine != "sim" and not any(n.survey.gpus for n in nodes):
        lines.append("no GPU was seen on any node: `nvidia-smi -L` there should list them")
    return lines


def _deployment(nodes: Sequence[Found], asker: Asker) -> Proposal:
    """The proposal, as the operator changes it."""
    chosen = propose(nodes)
    first = nodes[0].survey
    while (engine := asker.text(f"Engine ({', '.join(ENGINES)})", chosen.engine)) not in ENGINES:
        say(f'{plain(engine)} is none of {", ".join(ENGINES)}; a server of somebody else\'s is engine = "external"')
    if engine != chosen.engine:
        chosen = Proposal(engine=engine, tp=chosen.tp, model=NO_MODEL)
        chosen.image = next((i for i in first.images if engine in i.lower()), None)
    if engine == "sim":
        chosen.name, chosen.model = "sim", "sim-model"
        return chosen
    if first.container:
        if first.images:
            say("images: " + plain(", ".join(first.images[:12])))
        answer = asker.text("Image (- for none: the engine is installed on the nodes)", chosen.image or "-")
        chosen.image = None if answer == "-" else answer
    if first.models:
        say("models: " + plain(", ".join(first.models[:12])))
    chosen.model = asker.text("Model folder", chosen.model)
    return chosen


def _write(target: Path, text: str) -> None:
    """Whole or not at all. Raises OSError, and ConfigError if the text is not a configuration: never half a file."""
    from runners.spec import parse_inventory

    parse_inventory(text, target)
    part = target.with_name(f".{target.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _next(chosen: Proposal) -> list[str]:
    return ["`twinrail check`", f"`twinrail up {chosen.name}`", "`twinrail run quick`"]


def _document(target: Path, nodes: Sequence[Found], chosen: Proposal | None, *, written: bool) -> dict[str, Any]:
    return {
        "path": str(target),
        "written": written,
        "nodes": [_node_document(n) for n in nodes],
        "deployment": None
        if chosen is None
        else {"name": chosen.name, "engine": chosen.engine, "image": chosen.image, "model": chosen.model},
        "next": _next(chosen) if chosen else [],
    }


def _node_document(node: Found) -> dict[str, Any]:
    s = node.survey
    return {
        "name": node.name,
        "host": node.host,
        "reached": s.error is None,
        "error": str(s.error) if s.error else None,
        "vendor": s.vendor,
        "gpus": len(s.gpus),
        "gpu_name": s.gpu_name or None,
        "rails": [r.model_dump(mode="json") for r in s.rails],
        "container": s.container,
        "images": s.images,
        "models": s.models,
    }
