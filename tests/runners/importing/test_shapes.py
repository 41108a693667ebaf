"""Launch scripts in the shapes that people write: the regenerated commands, word by word, and what is left over."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from runners.importing.files import import_files

DATA = Path(__file__).parents[2] / "data" / "launch"

# file -> (rank, environment and words as a shell would take them), and texts that must be listed
SHAPES: dict[str, tuple[list[tuple[int | None, str]], list[tuple[int, str]]]] = {
    "m01-arrays-in-a-function.sh": (
        [
            (
                0,
                "NCCL_DEBUG=INFO NCCL_IB_HCA=mlx5_0,mlx5_1 VLLM_USE_V1=1 CUDA_VISIBLE_DEVICES=0,1,2,3 nohup vllm serve "
                "/data/models/Qwen3-32B --tensor-parallel-size 4 --max-model-len 32768 --port 8000 "
                "--served-model-name 'Qwen3 32B' --enable-prefix-caching",
            )
        ],
        [(16, "output: > /var/log/vllm.log 2>&1"), (17, "echo $! > server.pid"), (20, "wait")],
    ),
    "m02-written-then-run.sh": (
        [
            (
                1,
                "SGLANG_X=1 exec python3 -m sglang.launch_server --model-path /models/DS --tp 16 --nnodes 2 "
                "--node-rank 1 --dist-init-addr 192.0.2.1:5000 --trust-remote-code",
            )
        ],
        [(6, "chmod +x /tmp/start_$$.sh")],
    ),
    "m03-typed-into-tmux.sh": (
        [(0, "NCCL_DEBUG=WARN vllm serve /models/L --tensor-parallel-size 8 --port 8001")],
        [(1, "tmux new-session -d -s vllm"), (3, "cd /opt")],
    ),
    "m04-entrypoint-and-ray.sh": (
        [
            (
                0,
                "VLLM_HOST_IP=192.0.2.5 vllm serve /models/K2 --tensor-parallel-size 8 --pipeline-parallel-size 2 "
                "--distributed-executor-backend ray",
            )
        ],
        [(1, "ray start --head --port=6379")],
    ),
    "m05-anchors-and-env-file.yml": (
        [
            (
                0,
                "NCCL_IB_GID_INDEX=3 NCCL_DEBUG=WARN SGLANG_HOST_IP=192.0.2.1 python3 -m sglang.launch_server "
                "--model-path /models/DS --tp 16 --nnodes 2 --node-rank 0 --dist-init-addr 192.0.2.1:5000",
            ),
            (
                1,
                "NCCL_IB_GID_INDEX=3 NCCL_DEBUG=WARN python3 -m sglang.launch_server --model-path /models/DS --tp 16 "
                "--nnodes 2 --node-rank 1 --dist-init-addr 192.0.2.1:5000",
            ),
        ],
        [(24, "depends_on: [head]")],
    ),
    "m06-srun.sh": (
        [
            (
                None,
                "HEAD=192.0.2.1 srun --nodes=2 --ntasks-per-node=1 python3 -m sglang.launch_server --model-path /m "
                "--tp 16 --nnodes 2 --node-rank '$SLURM_NODEID' --dist-init-addr 192.0.2.1:5000",
            )
        ],
        [],
    ),
    "m07-torchrun.sh": (
        [
            (
                0,
                "torchrun --nnodes 1 --nproc-per-node 1 --master-port 29501 -m sglang.launch_server --model-path /m "
                "--tp 8 --port 30000",
            )
        ],
        [],
    ),
    "m09-ssh-heredoc.sh": (
        [
            (
                0,
                "NCCL_DEBUG=INFO nohup vllm serve /m --tensor-parallel-size 8 --pipeline-parallel-size 2 --nnodes 2 "
                "--node-rank 0 --master-addr 192.0.2.1",
            ),
            (
                1,
                "NCCL_DEBUG=INFO nohup vllm serve /m --tensor-parallel-size 8 --pipeline-parallel-size 2 --nnodes 2 "
                "--node-rank 1 --master-addr 192.0.2.1 --headless",
            ),
        ],
        [(1, "source /opt/venv/bin/activate"), (2, "ulimit -l unlimited"), (3, "cd /w")],
    ),
    "m10-env-and-wrappers.sh": (
        [
            (
                0,
                "VLLM_HOST_IP=192.0.2.1 PYTHONUNBUFFERED=1 stdbuf -oL timeout 3600 numactl -N 0 -m 0 vllm serve /m "
                "--tensor-parallel-size 16 --distributed-executor-backend ray "
                """--speculative-config='{"method":"mtp","num_speculative_tokens":1}'""",
            )
        ],
        [(2, "ray start --head --port 6379 --num-gpus 8")],
    ),
    "m12-loop-over-hosts.sh": (
        [
            (
                rank,
                f"python3 -m sglang.launch_server --model-path /m --tp 16 --nnodes 2 --node-rank {rank} "
                "--dist-init-addr node1:5000",
            )
            for rank in (0, 1)
        ],
        [],
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_words_and_what_is_left(name: str) -> None:
    commands, left = SHAPES[name]
    found = import_files([DATA / name])
    rebuilt = [
        (
            item["node_rank"],
            [*(f"{key}={value}" for key, value in item["env"].items()), *item["wrapper"], *item["argv"]],
        )
        for item in found["commands"]
    ]
    assert rebuilt == [(rank, shlex.split(text)) for rank, text in commands]
    listed = [(item["line"], item["text"]) for item in found["unplaced"]]
    for entry in left:
        assert entry in listed


def test_env_files_and_entrypoints_stay_with_the_container() -> None:
    for name in ("m04-entrypoint-and-ray.sh", "m05-anchors-and-env-file.yml"):
        (first, *_) = import_files([DATA / name])["commands"]
        options = [name for name, _ in first["container"]["options"]]
        assert "--env-file" in options
