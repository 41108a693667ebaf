"""A server that somebody else started: nothing to launch or stop, its life begins when first seen."""

from __future__ import annotations

from collections.abc import Sequence

from runners.engines.base import Payload, RankCommand
from runners.spec import Deployment, Node


class External:
    name = "external"
    simulated = False

    def commands(self, dep: Deployment, nodes: Sequence[Node], payload: Payload) -> list[RankCommand]:
        return []

    def url(self, dep: Deployment, nodes: Sequence[Node]) -> str:
        return (dep.url or "").rstrip("/")

    def info_paths(self) -> tuple[str, ...]:
        return ("/server_info", "/get_server_info", "/version")

    def help_argv(self, dep: Deployment, python: str) -> list[str]:
        return []
