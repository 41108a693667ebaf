"""The tool behind a load client, looked at on the node before the first attempt: its version, and whether it knows
every flag that it is going to be given."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from runners.clients.base import Client, ClientCommand, Module
from runners.flows.services import Services
from runners.launchers import LAUNCHERS
from runners.nodes.wire import printable
from runners.spec import ClientTool, Deployment, Node
from store.masking import is_secret, mask_text

HELP_S = 180.0  # these tools import for half a minute on a busy machine
_FLAG = re.compile(r"--[a-zA-Z][a-zA-Z0-9-]*")
_VERSION = "import importlib.metadata as m, sys; print('version', m.version(sys.argv[1]))"


class ToolError(Exception):
    """The tool cannot be used there. The text says what is missing and what to do."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the node's tool said of itself."""

    version: str
    flags: frozenset[str]
    tried: bool


_seen: dict[tuple[str, ...], Look] = {}  # for this owner's lifetime: the look costs up to half a minute


def with_tool(dep: Deployment, tool: ClientTool) -> Deployment:
    """The deployment as the tool's launcher sees it: with the tool's own interpreter or image where it has one."""
    if tool.python:
        return dep.model_copy(update={"python": tool.python})
    return dep.model_copy(update={"image": tool.image, "python": None}) if tool.image else dep


async def look(services: Services, node: Node, dep: Deployment, client: Client, command: ClientCommand) -> Look | None:
    """The tool's version, its flags checked; None for a client that is no tool. `dep` as of `with_tool`.

    Raises:
        ToolError: it is not there, or lacks a flag.
        NodeError: the node cannot be reached.
    """
    module = client.module
    if module is None:
        return None
    key = (node.name, dep.launcher, dep.python or node.python, dep.image or "", client.name)
    if key not in _seen:
        _seen[key] = await _ask(services, node, dep, module, {**node.env, **command.env})
    found = _seen[key]
    unknown = sorted({word.partition("=")[0] for word in command.argv if _FLAG.match(word)} - found.flags)
    if unknown:
        _seen.pop(key)  # another version may be installed before the next attempt
        raise ToolError(
            f"{client.name}: {module.package} {found.version} on {node.name} does not know {', '.join(unknown)}; "
            f"tried with {', '.join(module.tried)}. Name an interpreter with one of these as python = in "
            f"[clients.{client.name}]"
        )
    return found


async def _ask(services: Services, node: Node, dep: Deployment, module: Module, env: Mapping[str, str]) -> Look:
    link = await services.cluster.link(node.name)
    root = await services.cluster.root(node.name)
    said = ""
    texts = []
    # A secret would show in the list of processes, and no tool needs one to print its help.
    exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in env.items() if not is_secret(name))
    for argv in (["-c", _VERSION, module.package], list(module.help)):
        line = LAUNCHERS[dep.launcher].ask(dep, node, root, argv, as_client=True)
        done = await link.run(f"export COLUMNS=400 {exports}; {line}", timeout=HELP_S)
        texts.append((done.stdout + b"\n" + done.stderr).decode("utf-8", "replace"))
        said = printable((done.stderr or done.stdout)[-400:])
    version = re.search(r"^version (\S+)", texts[0], re.MULTILINE)
    flags = frozenset(_FLAG.findall(texts[1]))
    if version is None or not flags:
        where = dep.image if dep.launcher == "docker" and not dep.python else dep.python or node.python
        raise ToolError(
            f"no {module.package} that answers --help with {where} on {node.name}; name an interpreter that has it as "
            f"python = in the client's table of [clients]. It said: {mask_text(said)}"
        )
    return Look(printable(version[1].encode(), 40), flags, version[1].partition("+")[0] in module.tried)
