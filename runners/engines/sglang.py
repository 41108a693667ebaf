"""SGLang: `python -m sglang.launch_server` on every node with the same rendezvous and its node rank."""

from __future__ import annotations

from collections.abc import Sequence

from runners.engines.base import (
    Payload,
    RankCommand,
    flag_given,
    local_url,
    per_rank,
    rendezvous_address,
    sizes_given,
)
from runners.spec import Deployment, Node


class Sglang:
    name = "sglang"
    simulated = False

    def commands(self, dep: Deployment, nodes: Sequence[Node], payload: Payload) -> list[RankCommand]:
        """One `launch_server` per node. Flags that the operator gave are not repeated."""
        topo = dep.topology
        sizes = sizes_given(
            dep,
            (
                (topo.tp, ("--tp", "--tp-size", "--tensor-parallel-size")),
                (topo.pp, ("--pp-size", "--pipeline-parallel-size")),
                (topo.dp, ("--dp", "--dp-size", "--data-parallel-size")),
                (topo.ep, ("--ep", "--ep-size", "--expert-parallel-size")),
            ),
        )
        if topo.dp_attention and not flag_given(dep.flags, "--enable-dp-attention"):
            sizes.append("--enable-dp-attention")
        # /metrics is off by default, and without it the engine's queue is invisible
        metrics = [] if flag_given(dep.flags, "--enable-metrics") else ["--enable-metrics"]

        def argv(rank: int, node: Node) -> list[str]:
            spread: list[str] = []
            if len(nodes) > 1:
                head = f"{rendezvous_address(nodes[0])}:{dep.port + 1}"
                spread = ["--dist-init-addr", head, "--nnodes", str(len(nodes)), "--node-rank", str(rank)]
            program = dep.command or [dep.python or node.python, "-m", "sglang.launch_server"]
            return [*program, "--model-path", dep.model, "--port", str(dep.port), *sizes, *spread, *metrics]

        return per_rank(dep, nodes, argv)

    def url(self, dep: Deployment, nodes: Sequence[Node]) -> str:
        return local_url(dep)

    def info_paths(self) -> tuple[str, ...]:
        return ("/server_info", "/get_server_info")

    def help_argv(self, dep: Deployment, python: str) -> list[str]:
        return [*(dep.command or [python, "-m", "sglang.launch_server"]), "--help"]
