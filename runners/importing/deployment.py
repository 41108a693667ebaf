"""Launches to a deployment in the words of twinrail.toml, and the commands it stands for, token by token."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from runners.importing.launches import Launch, Script, engine_at, engine_module
from store.masking import mask_argv, mask_env, mask_text

# option -> key of the deployment (the topology's keys are prefixed)
_OPTIONS: Final = {
    "--model-path": "model", "--model": "model",
    "--tp": "topology.tp", "--tp-size": "topology.tp", "--tensor-parallel-size": "topology.tp", "-tp": "topology.tp",
    "--pp": "topology.pp", "--pp-size": "topology.pp", "--pipeline-parallel-size": "topology.pp", "-pp": "topology.pp",
    "--dp": "topology.dp", "--dp-size": "topology.dp", "--data-parallel-size": "topology.dp", "-dp": "topology.dp",
    "--ep": "topology.ep", "--ep-size": "topology.ep", "--expert-parallel-size": "topology.ep",
    "--host": "host", "--port": "port", "--served-model-name": "served_model",
    "--nnodes": "nnodes", "--node-rank": "node_rank", "--dist-init-addr": "dist_init_addr",
    "--nccl-init-addr": "dist_init_addr", "--master-addr": "master_addr", "--master-port": "master_port",
}  # fmt: skip
_SWITCHES: Final = {"--enable-dp-attention": "topology.dp_attention", "--enable-expert-parallel": "expert_parallel"}
_UNDERSCORE = re.compile(r"--[a-z][a-z0-9_-]*\Z")


@dataclass(slots=True)
class Parsed:
    """An engine's arguments: what has a key of its own, and the flags that stay as they are."""

    program: list[str]
    keys: dict[str, str | bool] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)


def parse_argv(argv: Sequence[str], engine: str) -> Parsed:
    """Sort the words of one start."""
    words = list(argv)
    found = engine_at(words)
    cut = 0
    if found is not None:
        cut = found[0] + (2 if words[found[0] + 1 : found[0] + 2] == ["serve"] else 1)
        module = engine_module(words)
        if module is not None:
            cut = module + 2
        elif words[found[0] + 1 : found[0] + 2] != ["serve"]:
            cut = found[0] + 2
    parsed = Parsed(words[:cut])
    rest = words[cut:]
    served = words[cut - 1 : cut] == ["serve"]
    if served and engine == "vllm" and rest and not rest[0].startswith("-"):
        parsed.keys["model"] = rest.pop(0)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        plain = name.replace("_", "-") if _UNDERSCORE.match(name) else name
        if plain in _SWITCHES and not equals:
            parsed.keys[_SWITCHES[plain]] = True
        elif plain in _OPTIONS and (equals or rest):
            parsed.keys[_OPTIONS[plain]] = value if equals else rest.pop(0)
        else:
            parsed.flags.append(word)
    return parsed


def node_rank(launch: Launch) -> int | None:
    """The rank that the launch names; None when it names none or only a shell can tell."""
    value = parse_argv(launch.argv, launch.engine).keys.get("node_rank")
    return int(value) if isinstance(value, str) and value.isdecimal() else None


def _ranked(launches: Sequence[Launch]) -> tuple[list[tuple[int | None, Launch]], list[Launch]]:
    """(rank, launch) in order of ranks, and launches that are only another answer to an open question."""
    chosen: list[tuple[int | None, Launch]] = []
    others: list[Launch] = []
    for launch in launches:
        rank = node_rank(launch)
        named = "node_rank" in parse_argv(launch.argv, launch.engine).keys
        taken = [held for held, _ in chosen]
        if launch.path and (rank is None or rank in taken):
            others.append(launch)
            continue
        if rank is None and not named:
            rank = next(number for number in range(len(taken) + 1) if number not in taken)
        chosen.append((rank, launch))
    chosen.sort(key=lambda item: (item[0] is None, item[0] or 0))
    return chosen, others


def _number(value: Any) -> int | None:
    return int(value) if isinstance(value, str) and value.isdecimal() else None


def _topology(keys: dict[str, str | bool]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("tp", "pp", "dp", "ep"):
        number = _number(keys.get(f"topology.{name}"))
        if number is not None:
            found[name] = number
    if keys.get("topology.dp_attention"):
        found["dp_attention"] = True
    if keys.get("expert_parallel"):
        found["ep"] = found.get("tp", 1) * found.get("dp", 1)
    return found


def _unresolved(commands: Sequence[dict[str, Any]]) -> list[str]:
    """Words that only a shell on the node can expand."""
    words = [word for item in commands for word in [*item["argv"], *item["env"].values()]]
    return list(dict.fromkeys(word for word in words if re.search(r"\$[({A-Za-z_0-9]|`", word)))


def build(script: Script, name: str) -> dict[str, Any]:
    """{deployment, commands, unplaced} of a script. `deployment` is None when no engine is started.

    Secrets in argv and environment are masked.
    """
    ranked, others = _ranked(script.launches)
    commands = [_command(rank, launch) for rank, launch in ranked]
    unplaced = [{**item, "text": mask_text(item["text"])} for item in script.unplaced]
    unplaced += [{"line": item.line, "text": "another branch: " + " ".join(mask_argv(item.argv))} for item in others]
    for _, launch in ranked:
        if launch.redirects:
            unplaced.append({"line": launch.line, "text": "output: " + " ".join(launch.redirects)})
    return {
        "deployment": _deployment(name, [launch for _, launch in ranked], commands) if ranked else None,
        "commands": commands,
        "unplaced": sorted(unplaced, key=lambda item: int(item["line"])),
    }


def _command(rank: int | None, launch: Launch) -> dict[str, Any]:
    made: dict[str, Any] = {
        "node_rank": rank,
        "argv": mask_argv(launch.argv),
        "env": _masked_env(launch.env),
        "line": launch.line,
        "host": launch.host,
        "wrapper": launch.wrapper,
        "background": launch.background,
    }
    if launch.container is not None:
        inner = launch.container
        made["container"] = {
            "program": launch.program,
            "verb": inner.verb,
            "image" if inner.verb != "exec" else "name": inner.target,
            "options": [[key, None if value is None else mask_text(value)] for key, value in inner.options],
            "mounts": inner.mounts,
        }
    return made


def _masked_env(env: dict[str, str]) -> dict[str, str]:
    """Masked, except for values that only name another variable."""
    hidden = mask_env(env)
    return {name: value if re.fullmatch(r"\$\{?\w+\}?", value) else hidden[name] for name, value in env.items()}


def _deployment(name: str, launches: Sequence[Launch], commands: Sequence[dict[str, Any]]) -> dict[str, Any]:
    first = launches[0]
    parsed = parse_argv(mask_argv(first.argv), first.engine)
    keys = parsed.keys
    container = first.container
    entered = container is not None and container.verb == "exec"
    made: dict[str, Any] = {
        "name": name,
        "engine": first.engine,
        "launcher": "docker" if container is not None else "process",
        "image": container.target if container is not None and not entered else None,
        "model": keys.get("model"),
        "served_model": keys.get("served_model"),
        "nodes": list(dict.fromkeys(item.host for item in launches if item.host)),
        "nnodes": _number(keys.get("nnodes")) or len(launches),
        "topology": _topology(keys),
        "host": keys.get("host"),
        "port": _number(keys.get("port")) if _number(keys.get("port")) is not None else keys.get("port"),
        "dist_init_addr": keys.get("dist_init_addr"),
        "command": parsed.program,
        "flags": parsed.flags,
        "env": _common_env(commands),
        "mounts": container.mounts if container is not None else [],
        "container": commands[0].get("container"),
        "unresolved": _unresolved(commands),
    }
    return made


def _common_env(commands: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Variables that every node gets with the same value; others stay with their command."""
    first: dict[str, str] = commands[0]["env"]
    return {key: value for key, value in first.items() if all(item["env"].get(key) == value for item in commands)}
