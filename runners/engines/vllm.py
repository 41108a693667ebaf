"""vLLM over several nodes: by its native multi-node start, by data-parallel ranks, or by Ray.

Native: every node runs `vllm serve` with its node rank; ranks above 0 are headless. Data-parallel groups that lie on
whole nodes (attention TP8/DP2 with experts over all 16) start as DP ranks. Ray: the nodes form a cluster, and rank 0
serves once all have joined.
"""

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
    without_flag,
)
from runners.spec import Deployment, Node

# sh -c THIS ray ADDRESS PORT NODES COMMAND...: the head of a Ray cluster, and in it the server
_RAY_HEAD = """
address=$1 port=$2 nodes=$3
shift 3
ray start --head --block --disable-usage-stats --node-ip-address="$address" --port="$port" &
tries=0
until [ "$(ray status 2>/dev/null | grep -c ' node_')" -ge "$nodes" ]; do
  kill -0 $! 2>/dev/null || { echo "twinrail: the Ray head has ended" >&2; exit 1; }
  tries=$((tries + 1))
  [ $tries -lt 300 ] || { echo "twinrail: not all $nodes nodes have joined the Ray cluster in 10 minutes" >&2; exit 1; }
  sleep 2
done
"$@"
"""


class Vllm:
    name = "vllm"
    simulated = False

    def commands(self, dep: Deployment, nodes: Sequence[Node], payload: Payload) -> list[RankCommand]:
        """`vllm serve MODEL` per node. Flags that the operator gave are not repeated.

        `dp_attention` has SGLang's meaning: TP ranks in all, of which each DP group takes its share for attention.
        """
        # A flag stands in every process list of the node, a variable does not (vllm.envs.VLLM_API_KEY).
        flags, key = without_flag(dep.flags, "--api-key")
        dep = dep.model_copy(update={"flags": flags}) if key else dep
        topo = dep.topology
        tp = max(1, topo.tp // topo.dp) if topo.dp_attention else topo.tp
        sizes = sizes_given(
            dep,
            (
                (tp, ("--tensor-parallel-size", "-tp")),
                (topo.pp, ("--pipeline-parallel-size", "-pp")),
                (topo.dp, ("--data-parallel-size", "-dp")),
            ),
        )
        if topo.ep > 1 and not flag_given(dep.flags, "--enable-expert-parallel", "-ep"):
            sizes.append("--enable-expert-parallel")
        many = len(nodes) > 1

        def argv(rank: int, node: Node) -> list[str]:
            head = rendezvous_address(nodes[0])
            if many and dep.distributed == "ray" and rank:
                join = ["ray", "start", f"--address={head}:{dep.port + 1}", "--block", "--disable-usage-stats"]
                return [*join, f"--node-ip-address={rendezvous_address(node)}"]
            spread: list[str] = []
            if many and dep.distributed == "ray":
                spread = ["--distributed-executor-backend", "ray"]
            elif many and topo.dp > 1 and topo.dp % len(nodes) == 0:
                spread = _data_parallel(dep, head, topo.dp // len(nodes), rank)
            elif many:
                spread = ["--nnodes", str(len(nodes)), "--node-rank", str(rank)]
                spread += ["--master-addr", head, "--master-port", str(dep.port + 1)]
                spread += ["--headless"] if rank else []
            served = [*_program(dep, dep.python), dep.model, "--port", str(dep.port), *sizes, *spread]
            if many and dep.distributed == "ray":
                return ["sh", "-c", _RAY_HEAD, "ray", head, str(dep.port + 1), str(len(nodes)), *served]
            return served

        def own(rank: int, node: Node) -> dict[str, str]:
            """Ray folds equal lines of several ranks into one, and then nobody can tell which ranks spoke."""
            secret = {"VLLM_API_KEY": key} if key else {}
            if many and dep.distributed == "ray":
                return {**secret, "RAY_DEDUP_LOGS": "0", "VLLM_HOST_IP": rendezvous_address(node)}
            return secret

        commands = per_rank(dep, nodes, argv, own)
        if many and dep.distributed == "ray":  # a node that only joins takes no flags of the server
            commands[1:] = [_joining(c, argv(c.rank, c.node)) for c in commands[1:]]
        return commands

    def url(self, dep: Deployment, nodes: Sequence[Node]) -> str:
        return local_url(dep)

    def info_paths(self) -> tuple[str, ...]:
        return ("/server_info", "/version")

    def help_argv(self, dep: Deployment, python: str) -> list[str]:
        return [*_program(dep, python), "--help=all"]


def _program(dep: Deployment, python: str | None) -> list[str]:
    return dep.command or ([python, "-m", "vllm.entrypoints.cli.main", "serve"] if python else ["vllm", "serve"])


def _data_parallel(dep: Deployment, head: str, local: int, rank: int) -> list[str]:
    flags = ["--data-parallel-size-local", str(local), "--data-parallel-address", head]
    flags += ["--data-parallel-rpc-port", str(dep.port + 1)]
    return [*flags, "--headless", "--data-parallel-start-rank", str(rank * local)] if rank else flags


def _joining(command: RankCommand, argv: list[str]) -> RankCommand:
    return RankCommand(command.node, command.rank, argv, command.env, command.payloads)
