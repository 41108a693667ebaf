"""Commands per rank, from the deployment alone."""

from runners.engines import ENGINES
from runners.engines.base import fingerprint
from runners.spec import Deployment, Inventory, Node, parse_inventory

TEXT = """
[[nodes]]
name = "node5"
host = "node5"
python = "/opt/py"
rails = [ { netdev = "eth0", hca = "mlx5_0", address = "198.18.1.5" }, { netdev = "eth3", hca = "mlx5_3" } ]
[[nodes]]
name = "node7"
host = "node7"
rails = [ { netdev = "eth0", hca = "mlx5_0", address = "198.18.1.7" }, { netdev = "eth3", hca = "mlx5_3" } ]
[deployments.sg]
engine = "sglang"
model = "/models/m"
nodes = ["node5", "node7"]
topology = { tp = 8, pp = 2 }
flags = ["--mem-fraction-static", "0.88"]
env = { NCCL_CROSS_NIC = "0" }
[deployments.vl]
engine = "vllm"
model = "/models/m"
nodes = ["node5", "node7"]
topology = { tp = 16 }
flags = ["--tensor-parallel-size=16"]
[deployments.one]
base = "vl"
nodes = ["node5"]
topology = { tp = 8 }
flags = []
[deployments.s]
engine = "sim"
nodes = ["node5", "node7"]
topology = { tp = 16 }
[deployments.x]
engine = "external"
url = "http://192.0.2.9:8000/"
"""
INVENTORY: Inventory = parse_inventory(TEXT)


def _path(node: Node, script: str) -> str:
    return f"/home/{node.name}/{script}"


def _commands(name: str) -> tuple[Deployment, list[list[str]], list[dict[str, str]]]:
    dep = INVENTORY.deployment(name)
    found = ENGINES[dep.engine].commands(dep, INVENTORY.nodes_of(dep), _path)
    return dep, [c.argv for c in found], [c.env for c in found]


def test_sglang_ranks_share_a_rendezvous_and_differ_by_rank_alone() -> None:
    _, argv, env = _commands("sg")
    assert argv[0][:3] == ["/opt/py", "-m", "sglang.launch_server"]
    for rank, one in enumerate(argv):
        assert one[one.index("--dist-init-addr") + 1] == "198.18.1.5:30001"
        assert one[one.index("--node-rank") + 1] == str(rank)
        assert one[one.index("--tp") + 1] == "8"
        assert one[one.index("--pp-size") + 1] == "2"
        assert one[-2:] == ["--mem-fraction-static", "0.88"]
    assert env[0]["NCCL_IB_HCA"] == "mlx5_0,mlx5_3"
    assert env[0]["NCCL_CROSS_NIC"] == "0"
    assert env[0]["NCCL_DEBUG"] == "INFO"


def test_vllm_does_not_repeat_what_the_operator_gave_and_ranks_above_0_are_headless() -> None:
    _, argv, _ = _commands("vl")
    assert [sum(a.startswith("--tensor-parallel-size") for a in one) for one in argv] == [1, 1]
    assert ["--headless" in one for one in argv] == [False, True]


def test_one_node_needs_no_rendezvous_and_no_rails() -> None:
    _, argv, env = _commands("one")
    assert "--nnodes" not in argv[0]
    assert "NCCL_IB_HCA" not in env[0]


def test_the_simulator_names_the_rails_that_its_transport_lines_print() -> None:
    _, argv, _ = _commands("s")
    assert argv[0][argv[0].index("--hca") + 1] == "mlx5_0,mlx5_3"
    assert argv[0][argv[0].index("--gpus-per-node") + 1] == "8"


def test_an_external_server_is_not_ours_to_start() -> None:
    dep, argv, _ = _commands("x")
    assert argv == []
    assert ENGINES["external"].url(dep, INVENTORY.nodes_of(dep)) == "http://192.0.2.9:8000"


def test_another_flag_is_another_server() -> None:
    dep = INVENTORY.deployment("sg")
    nodes = INVENTORY.nodes_of(dep)
    changed = dep.model_copy(update={"flags": ["--mem-fraction-static", "0.9"]})
    same, other = (fingerprint(ENGINES["sglang"].commands(d, nodes, _path)) for d in (dep, changed))
    assert same != other
    assert same == fingerprint(ENGINES["sglang"].commands(dep, nodes, _path))
