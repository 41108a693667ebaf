"""What an engine must be able to say. One file per engine implements `Engine`; the package lists them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import orjson

from runners.spec import Deployment, Node


@dataclass(frozen=True, slots=True)
class RankCommand:
    """One process of a server: what runs on which node. `rank` is the node rank (0 serves HTTP)."""

    node: Node
    rank: int
    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    payloads: tuple[str, ...] = ()  # scripts of runners/payload that must be on the node first


Payload = Callable[[Node, str], str]  # (node, script) -> path on that node


class Engine(Protocol):
    """Knows one kind of server. Stateless: everything follows from the deployment and its nodes."""

    name: str
    simulated: bool

    def commands(self, dep: Deployment, nodes: Sequence[Node], payload: Payload) -> list[RankCommand]:
        """Commands in rank order. Empty for a server that is not ours to start."""

    def url(self, dep: Deployment, nodes: Sequence[Node]) -> str:
        """Where the load client on rank 0's node reaches the server."""

    def info_paths(self) -> tuple[str, ...]:
        """GET paths whose JSON describes the running server, best first."""

    def help_argv(self, dep: Deployment, python: str) -> list[str]:
        """The command that lists all flags of this engine's version; empty when it has no such command."""


def rendezvous_address(node: Node) -> str:
    """How the other nodes reach `node`: its own word, its first rail's address, else its host name."""
    if node.address:
        return node.address
    for rail in node.rails:
        if rail.address:
            return rail.address
    return "127.0.0.1" if node.host == "local" else node.host


def nccl_env(dep: Deployment, node: Node, count: int) -> dict[str, str]:
    """NCCL settings that every run of ours carries; what the operator set stays.

    INFO with INIT,NET is cheap and the RDMA gate reads it. On one node no rail matters.
    """
    env = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
    if count > 1 and node.rails:
        env["NCCL_IB_HCA"] = ",".join(r.hca for r in node.rails)
        env["NCCL_SOCKET_IFNAME"] = env["GLOO_SOCKET_IFNAME"] = node.rails[0].netdev
    return {k: v for k, v in env.items() if k not in dep.env}


def merged_env(dep: Deployment, node: Node, own: dict[str, str] | None = None) -> dict[str, str]:
    """Engine defaults, then the node's, then the deployment's: the operator has the last word."""
    return {"PYTHONUNBUFFERED": "1", **(own or {}), **node.env, **dep.env}


def sizes_given(dep: Deployment, table: Sequence[tuple[int, tuple[str, ...]]]) -> list[str]:
    """Flags of the parallel sizes above 1: (size, names of its flag, the one to use first). What the operator gave is
    not repeated."""
    flags: list[str] = []
    for size, names in table:
        if size > 1 and not flag_given(dep.flags, *names):
            flags += [names[0], str(size)]
    return flags


def per_rank(
    dep: Deployment,
    nodes: Sequence[Node],
    argv: Callable[[int, Node], Sequence[str]],
    own: Callable[[int, Node], Mapping[str, str]] | None = None,
) -> list[RankCommand]:
    """One command a node: the engine's words for it, then address, served name and the operator's flags; NCCL's
    settings and the engine's `own` variables below what node and deployment set."""
    tail = ["--host", dep.host] if dep.host else []
    tail += ["--served-model-name", dep.served_model] if dep.served_model else []
    commands = []
    for rank, node in enumerate(nodes):
        env = {**nccl_env(dep, node, len(nodes)), **(own(rank, node) if own else {})}
        commands.append(RankCommand(node, rank, [*argv(rank, node), *tail, *dep.flags], merged_env(dep, node, env)))
    return commands


def local_url(dep: Deployment) -> str:
    """The server as seen from rank 0's own node."""
    return f"http://127.0.0.1:{dep.port}"


def flag_given(flags: Sequence[str], *names: str) -> bool:
    """Whether the operator gave one of these flags himself, as `--x v` or `--x=v`."""
    return any(f.split("=", 1)[0] in names for f in flags)


def flag_value(flags: Sequence[str], *names: str) -> str | None:
    """The value that the operator gave one of these flags, as `--x v` or `--x=v`; the last one counts."""
    found = None
    for at, word in enumerate(flags):
        name, eq, value = word.partition("=")
        if name in names:
            found = value if eq else flags[at + 1] if at + 1 < len(flags) else None
    return found


def without_flag(flags: Sequence[str], name: str) -> tuple[list[str], str | None]:
    """The flags without `name` and its value, and that value: for one that an environment variable can carry unseen."""
    kept: list[str] = []
    value = None
    words = iter(flags)
    for word in words:
        given, eq, after = word.partition("=")
        if given == name:
            value = after if eq else next(words, None)
        else:
            kept.append(word)
    return kept, value


def fingerprint(commands: Sequence[RankCommand]) -> str:
    """Hash of everything that makes a server what it is: the same fingerprint may serve on, another needs a restart."""
    parts = [[c.node.name, c.rank, c.argv, dict(sorted(c.env.items()))] for c in commands]
    return hashlib.sha256(orjson.dumps(parts)).hexdigest()[:16]
