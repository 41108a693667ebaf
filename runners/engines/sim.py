"""The engine `sim`: runners/payload/sim.py, started on the nodes like any engine. Results say "simulated"."""

from __future__ import annotations

from collections.abc import Sequence

from runners.engines.base import Payload, RankCommand, local_url, merged_env, rendezvous_address
from runners.spec import Deployment, Node


class Sim:
    name = "sim"
    simulated = True

    def commands(self, dep: Deployment, nodes: Sequence[Node], payload: Payload) -> list[RankCommand]:
        """One process a node; rank 0 serves HTTP, the others exchange every step with it."""
        head = f"{rendezvous_address(nodes[0])}:{dep.port + 1}"
        topo = dep.topology
        out = []
        for rank, node in enumerate(nodes):
            per_node = max(1, topo.ranks // len(nodes))
            argv = [
                *(dep.command or [dep.python or node.python, payload(node, "sim.py")]),
                *("--host", dep.host or "0.0.0.0", "--port", str(dep.port), "--model", dep.model),
                *("--tp", str(topo.tp), "--pp", str(topo.pp)),
                *("--nnodes", str(len(nodes)), "--node-rank", str(rank), "--dist-init-addr", head),
                *("--gpus-per-node", str(per_node)),
                *(("--hca", ",".join(r.hca for r in node.rails)) if node.rails else ()),
                *dep.flags,
            ]
            out.append(RankCommand(node, rank, argv, merged_env(dep, node), ("sim.py",)))
        return out

    def url(self, dep: Deployment, nodes: Sequence[Node]) -> str:
        return local_url(dep)

    def info_paths(self) -> tuple[str, ...]:
        return ("/server_info",)

    def help_argv(self, dep: Deployment, python: str) -> list[str]:
        return []
