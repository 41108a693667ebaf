"""Asks the nodes what the checks judge: one survey each, the model folder, the inside of the image, the rail matrix."""

from __future__ import annotations

import asyncio
import hashlib
import shlex
from collections.abc import Mapping
from pathlib import PurePosixPath

import orjson

from runners.engines import ENGINES
from runners.gates.preflight.base import Facts, Reached, Seen, parse_facts, script
from runners.gates.preflight.rails import addresses, mtu_of
from runners.launchers import LAUNCHERS
from runners.nodes.link import Link, NodeError
from runners.spec import Deployment

SURVEY_S = 90.0
INSIDE_S = 90.0
REACH_S = 30.0
HELP_S = 240.0
WEIGHTS_S = 80.0
SAMPLED_S = 120.0
FULL_S = 4 * 3600.0
_STATES = frozenset({"ok", "lost", "silent", "big_lost", "unknown"})


async def survey_node(link: Link, root: str, dep: Deployment | None, *, first: bool) -> Facts:
    """The facts of one node. Raises NodeError."""
    node = link.node
    containers = dep is None or dep.launcher == "docker"
    ports = [dep.port, dep.port + 1] if dep is not None and dep.engine != "external" and first else []
    args = [
        root,
        node.container if containers else "",
        node.devices.vendor if node.devices.count else "none",
        (dep.image or "") if dep is not None and containers else "",
        model_on_node(dep) if dep is not None and dep.model.startswith("/") else "",
        " ".join(r.hca for r in node.rails),
        " ".join(r.netdev for r in node.rails),
        " ".join(str(p) for p in ports),
    ]
    done = await link.run(shlex.join(["sh", "-c", script("survey.sh"), "survey", *args]), timeout=SURVEY_S)
    return parse_facts(done.stdout.decode("utf-8", "replace"))


async def ask_node(link: Link, root: str, dep: Deployment | None, *, first: bool, full: bool) -> Seen:
    """Everything about one node but whom it reaches. Raises NodeError when the survey could not be made."""
    seen = Seen(link.node, Facts())
    seen.facts, _, _ = await asyncio.gather(
        survey_node(link, root, dep, first=first), _model(link, root, dep, seen, full=full), _inside(link, dep, seen)
    )
    if first and dep is not None and dep.engine in ("sglang", "vllm"):
        await asyncio.gather(_help(link, root, dep, seen), _weights(link, dep, seen))
    return seen


async def _help(link: Link, root: str, dep: Deployment, seen: Seen) -> None:
    """The engine's own --help, which takes it tens of seconds to print: kept on the node by image or version."""
    if not dep.flags:
        return
    packages = dict(c[:2] for c in seen.inside.table("package") if len(c) >= 2) if seen.inside is not None else {}
    version = packages.get(dep.engine)
    if version is None and not dep.command:
        seen.help_why = seen.inside_why or f"{dep.engine} is not among the packages there"
        return
    python = (
        "python3" if dep.launcher == "docker" else dep.python or (link.node.python if dep.engine == "sglang" else "")
    )
    argv = ENGINES[dep.engine].help_argv(dep, python)
    of = [(seen.facts.blocks.get("image") or [""])[0], python, dep.engine, version, *argv]
    kept = shlex.quote(f"{root}/cache/help/{hashlib.sha256(repr(of).encode()).hexdigest()[:24]}")
    try:
        ask = await LAUNCHERS[dep.launcher].inside(link, dep, script("help.sh"), *argv)
        whole = f"case $(tail -n 1 {kept}.$$) in '#end') mv {kept}.$$ {kept} ;; *) rm -f {kept}.$$ ;; esac"
        make = f"mkdir -p {shlex.quote(root)}/cache/help; {ask} >{kept}.$$; cat {kept}.$$; {whole}"
        line = f"if [ -s {kept} ]; then cat {kept}; else {make}; fi"
        facts = parse_facts((await link.run(line, timeout=HELP_S)).stdout.decode("utf-8", "replace"))
    except NodeError as e:
        seen.help_why = str(e)
        return
    seen.help_text = "\n".join(facts.blocks["help"]) if "help" in facts.blocks else None
    seen.help_why = facts.why("help")


async def _weights(link: Link, dep: Deployment, seen: Seen) -> None:
    """Sizes of the tensors by kind, from their headers, read where a rank would read them."""
    if not dep.model.startswith("/"):
        seen.weights_why = f"{dep.model} is a name, not a folder"
        return
    try:
        line = await LAUNCHERS[dep.launcher].inside(link, dep, script("weights.sh"), dep.model)
        done = await link.run(line, timeout=WEIGHTS_S)
        found = orjson.loads(done.stdout.decode("utf-8", "replace").rpartition("weights\t")[2])
        seen.weights = found if isinstance(found, dict) else None
    except NodeError as e:
        seen.weights_why = str(e)
    except orjson.JSONDecodeError:
        seen.weights_why = f"{dep.model}: no answer about its headers"


async def _model(link: Link, root: str, dep: Deployment | None, seen: Seen, *, full: bool) -> None:
    if dep is None or dep.engine in ("external", "sim") or not dep.model.startswith("/") or len(dep.nodes) < 2:
        seen.model_why = "not asked"
        return
    how = "full" if full else "sampled"
    argv = ["sh", "-c", script("model.sh"), "model", root, model_on_node(dep), how]
    try:
        done = await link.run(shlex.join(argv), timeout=FULL_S if full else SAMPLED_S)
    except NodeError as e:
        seen.model_why = f"{e}; hashes made so far are kept, a second check goes on from there"
        return
    seen.model, seen.model_why = parse_model(done.stdout.decode("utf-8", "replace"))


def model_on_node(dep: Deployment) -> str:
    """The model's folder as the node has it: a mount may bring another folder of the node to that place."""
    model = PurePosixPath(dep.model)
    for mount in dep.mounts if dep.launcher == "docker" else ():
        source, target = mount.split(":")[:2]
        if model.is_relative_to(target):
            return str(PurePosixPath(source) / model.relative_to(target))
    return dep.model


def parse_model(text: str) -> tuple[dict[str, tuple[str, str]] | None, str]:
    """File -> (size, hash) of model.sh's answer, or None and why. An answer without its end is none."""
    files: dict[str, tuple[str, str]] = {}
    ended = False
    for line in text.splitlines():
        cells = line.split("\t")
        if cells[0] == "none" and len(cells) > 1:
            return None, cells[1]
        if cells[0] == "file" and len(cells) == 4:
            files[cells[1]] = (cells[2], cells[3])
        ended = ended or cells[0] == "end"
    if not ended:
        return None, "the look at the model folder was cut short"
    return (files, "") if files else (None, "the folder holds no files")


async def _inside(link: Link, dep: Deployment | None, seen: Seen) -> None:
    if dep is None or dep.engine == "external":
        seen.inside_why = "no server of ours was asked for"
        return
    try:
        line = await LAUNCHERS[dep.launcher].inside(link, dep, script("inside.sh"))
        done = await link.run(line, timeout=INSIDE_S)
    except NodeError as e:
        seen.inside_why = str(e)
        return
    facts = parse_facts(done.stdout.decode("utf-8", "replace"))
    if facts.complete:
        seen.inside = facts
    else:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        seen.inside_why = f"exit {done.exit_code}: {said[-1][:300] if said else 'no answer'}"


async def reach(link: Link, seen: Seen, others: Mapping[str, Seen]) -> None:
    """Fill `seen.reached`: every rail of this node to every rail of the others whose address is known."""
    targets: list[str] = []
    cells: list[tuple[str, str, str, str]] = []
    for rail in seen.node.rails:
        mtu = mtu_of(seen, rail)
        for name, far in others.items():
            if name == seen.node.name:
                continue
            for far_rail in far.node.rails:
                address = far_rail.address or addresses(far).get(far_rail.netdev, ("", 0))[0]
                if address:
                    targets.append(f"{rail.netdev},{mtu or ''},{address},{len(cells)}")
                    cells.append((rail.netdev, name, far_rail.netdev, address))
    if not targets:
        return
    try:
        argv = ["sh", "-c", script("reach.sh"), "reach", link.node.python, *targets]
        done = await link.run(shlex.join(argv), timeout=REACH_S)
    except NodeError as e:
        seen.reached = [Reached(*cell, "unknown", str(e)) for cell in cells]
        return
    said = parse_reach(done.stdout.decode("utf-8", "replace"))
    none = ("unknown", "no answer of the node")
    seen.reached = [Reached(*cell, *said.get(n, none)) for n, cell in enumerate(cells)]


def parse_reach(text: str) -> dict[int, tuple[str, str]]:
    """Number of the target -> (state, detail), of reach.sh's answer."""
    found = {}
    for line in text.splitlines():
        cells = line.split("\t")
        if len(cells) == 4 and cells[0] == "reach" and cells[1].isdigit() and cells[2] in _STATES:
            found[int(cells[1])] = (cells[2], cells[3][:300])
    return found
