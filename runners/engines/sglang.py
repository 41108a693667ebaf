"""SGLang: `python -m sglang.launch_server` on every node with the same rendezvous and its node rank."""

from __future__ import annotations

from collections.abc import Sequence

from runners.engines.base import (
    Payload,
    RankCommand,
    flag_given,
    local_url,
    merged_env,
    nccl_env,
    rendezvous_address,
)
from runners.spec import Deployment, Node


class Sglang:
    name = "sglang"
    simulated = False

    def commands(self, dep: Deployment, nodes: Sequence[Node], payload: Payload) -> list[RankCommand]:
        """One `launch_server` per node. Flags that the operator gave are not repeated."""
        topo = dep.topology
        sizes: list[str] = []
        for value, *names in (
            (topo.tp, "--tp", "--tp-size", "--tensor-parallel-size"),
            (topo.pp, "--pp-size", "--pipeline-parallel-size"),
            (topo.dp, "--dp", "--dp-size", "--data-parallel-size"),
            (topo.ep, "--ep", "--ep-size", "--expert-parallel-size"),
        ):
            if value > 1 and not flag_given(dep.flags, *names):
                sizes += [names[0], str(value)]
        if topo.dp_attention and not flag_given(dep.flags, "--enable-dp-attention"):
            sizes.append("--enable-dp-attention")
        # /metrics is off by default, and without it the engine's queue is invisible
        metrics = [] if flag_given(dep.flags, "--enable-metrics") else ["--enable-metrics"]
        out = []
        for rank, node in enumerate(nodes):
            spread: list[str] = []
            if len(nodes) > 1:
                head = f"{rendezvous_address(nodes[0])}:{dep.port + 1}"
                spread = ["--dist-init-addr", head, "--nnodes", str(len(nodes)), "--node-rank", str(rank)]
            program = dep.command or [dep.python or node.python, "-m", "sglang.launch_server"]
            argv = [*program, "--model-path", dep.model, "--port", str(dep.port), *sizes, *spread, *metrics]
            argv += ["--host", dep.host] if dep.host else []
            argv += ["--served-model-name", dep.served_model] if dep.served_model else []
            own = nccl_env(dep, node, len(nodes))
            out.append(RankCommand(node, rank, [*argv, *dep.flags], merged_env(dep, node, own)))
        return out

    def url(self, dep: Deployment, nodes: Sequence[Node]) -> str:
        return local_url(dep)

    def info_paths(self) -> tuple[str, ...]:
        return ("/server_info", "/get_server_info")
