"""Commands per rank, from the deployment alone."""

import subprocess
from pathlib import Path

from runners.engines import ENGINES
from runners.engines.base import fingerprint
from runners.gates.preflight.base import parse_facts
from runners.launchers.surroundings import rail_env
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
[deployments.ep]
base = "vl"
flags = []
topology = { tp = 16, dp = 2, ep = 16, dp_attention = true }
[deployments.sgep]
base = "sg"
topology = { tp = 16, dp = 2, ep = 16, dp_attention = true, pp = 1 }
[deployments.ray]
base = "vl"
flags = ["--max-model-len", "8192"]
served_model = "m"
topology = { tp = 8, pp = 2 }
distributed = "ray"
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


def test_attention_tp8_dp2_with_experts_over_all_is_said_in_each_engines_words() -> None:
    """One topology: 16 ranks, attention in two groups of 8, experts over all 16."""
    _, sglang, _ = _commands("sgep")
    assert " ".join(sglang[1]).count("--tp 16 --dp 2 --ep 16 --enable-dp-attention") == 1
    _, vllm, _ = _commands("ep")
    for one in vllm:
        text = " ".join(one)
        assert "--tensor-parallel-size 8 --data-parallel-size 2 --enable-expert-parallel" in text
        assert "--data-parallel-size-local 1 --data-parallel-address 198.18.1.5 --data-parallel-rpc-port 30001" in text
        assert "--nnodes" not in text
    assert "--headless --data-parallel-start-rank 1" in " ".join(vllm[1])
    assert "--headless" not in vllm[0]


def test_vllm_by_ray_serves_from_the_head_once_all_nodes_have_joined() -> None:
    _, argv, env = _commands("ray")
    head, join = argv
    assert head[:2] == ["sh", "-c"]
    assert head[3:8] == ["ray", "198.18.1.5", "30001", "2", "vllm"]
    assert "--distributed-executor-backend ray" in " ".join(head)
    assert head[-4:] == ["--served-model-name", "m", "--max-model-len", "8192"]
    assert join[:3] == ["ray", "start", "--address=198.18.1.5:30001"]
    assert "--max-model-len" not in join
    assert [e["VLLM_HOST_IP"] for e in env] == ["198.18.1.5", "198.18.1.7"]
    assert {e["RAY_DEDUP_LOGS"] for e in env} == {"0"}  # a folded line would hide which ranks spoke


def test_the_ray_head_waits_for_its_nodes_and_ends_with_its_cluster(tmp_path: Path) -> None:
    """The shell around the head, with a `ray` whose status counts up."""
    ray = tmp_path / "ray"
    ray.write_text(
        f"""#!/bin/sh
case $1 in
  start) echo "$@" >{tmp_path}/started; sleep ${{LIVES-5}} ;;
  status) n=$(cat {tmp_path}/n 2>/dev/null || echo 0); n=$((n + 1)); echo $n >{tmp_path}/n
    i=0; while [ $i -lt $n ]; do echo " 1 node_$i"; i=$((i + 1)); done ;;
esac
"""
    )
    ray.chmod(0o755)
    _, argv, _ = _commands("ray")
    command = [*argv[0][:7], "sh", "-c", f"cat {tmp_path}/n"]
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "2")
    assert "--head --block" in (tmp_path / "started").read_text()
    (tmp_path / "n").unlink()
    command[6] = "9"
    done = subprocess.run(command, env={**env, "LIVES": "0"}, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, "the Ray head has ended" in done.stderr) == (1, True)


GIDS = "".join(
    f"#row\tgid\t{hca}\t{index}\t{kind}\t0000:0000:0000:0000:0000:ffff:c613:0105\n"
    for hca, index, kind in (("mlx5_0", 2, "IB/RoCE v1"), ("mlx5_0", 3, "RoCE v2"), ("mlx5_3", 5, "RoCE v2"))
)


def test_the_gid_index_is_the_nodes_own_and_one_that_fits_not_all_rails_is_left_to_nccl() -> None:
    node = INVENTORY.node("node5")
    assert rail_env(node, parse_facts(GIDS.replace("\t5\t", "\t3\t"))) == {"NCCL_IB_GID_INDEX": "3"}
    assert rail_env(node, parse_facts(GIDS)) == {"NCCL_IB_ROCE_VERSION_NUM": "2", "NCCL_IB_ADDR_FAMILY": "AF_INET"}
    assert rail_env(node, parse_facts(GIDS.replace("mlx5_3", "mlx5_9"))) == {}  # a rail without one: nothing is guessed


def test_vllms_key_is_a_variable_and_in_no_process_list() -> None:
    for words in (["--api-key", "sk-x"], ["--api-key=sk-x"]):
        dep = INVENTORY.deployment("one").model_copy(update={"flags": ["--enforce-eager", *words, "--port", "1"]})
        (command,) = ENGINES["vllm"].commands(dep, INVENTORY.nodes_of(dep), _path)
        assert command.argv[-3:] == ["--enforce-eager", "--port", "1"]
        assert "sk-x" not in " ".join(command.argv)
        assert command.env["VLLM_API_KEY"] == "sk-x"
