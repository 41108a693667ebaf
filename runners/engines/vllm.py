"""vLLM by its native multi-node start: every node runs `vllm serve` with its node rank; ranks above 0 are headless."""

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


class Vllm:
    name = "vllm"
    simulated = False

    def commands(self, dep: Deployment, nodes: Sequence[Node], payload: Payload) -> list[RankCommand]:
        """`vllm serve MODEL` per node. Flags that the operator gave are not repeated."""
        topo = dep.topology
        sizes: list[str] = []
        for flag, short, value in (
            ("--tensor-parallel-size", "-tp", topo.tp),
            ("--pipeline-parallel-size", "-pp", topo.pp),
            ("--data-parallel-size", "-dp", topo.dp),
        ):
            if value > 1 and not flag_given(dep.flags, flag, short):
                sizes += [flag, str(value)]
        if topo.ep > 1 and not flag_given(dep.flags, "--enable-expert-parallel"):
            sizes.append("--enable-expert-parallel")
        out = []
        for rank, node in enumerate(nodes):
            spread: list[str] = []
            if len(nodes) > 1:
                spread = ["--nnodes", str(len(nodes)), "--node-rank", str(rank)]
                spread += ["--master-addr", rendezvous_address(nodes[0]), "--master-port", str(dep.port + 1)]
                spread += ["--headless"] if rank else []
            program = dep.command or (
                [dep.python, "-m", "vllm.entrypoints.cli.main", "serve"] if dep.python else ["vllm", "serve"]
            )
            argv = [*program, dep.model, "--port", str(dep.port), *sizes, *spread]
            argv += ["--host", dep.host] if dep.host else []
            argv += ["--served-model-name", dep.served_model] if dep.served_model else []
            own = nccl_env(dep, node, len(nodes))
            out.append(RankCommand(node, rank, [*argv, *dep.flags], merged_env(dep, node, own)))
        return out

    def url(self, dep: Deployment, nodes: Sequence[Node]) -> str:
        return local_url(dep)

    def info_paths(self) -> tuple[str, ...]:
        return ("/server_info", "/version")
