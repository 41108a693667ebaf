#!/usr/bin/env bash
set -euo pipefail
export NCCL_DEBUG=INFO NCCL_IB_HCA="mlx5_0,mlx5_1"
export VLLM_USE_V1=1; export CUDA_VISIBLE_DEVICES=0,1,2,3
MODEL=/data/models/Qwen3-32B
PORT=${PORT:-8000}
ARGS=(
  --tensor-parallel-size 4   # four cards
  --max-model-len "32768"
  --port "$PORT"
  --served-model-name 'Qwen3 32B'
)
start_server() {
  local log=$1; shift
  echo "starting" >&2
  nohup vllm serve "$MODEL" "${ARGS[@]}" "$@" > "$log" 2>&1 &
  echo $! > server.pid
}
start_server /var/log/vllm.log --enable-prefix-caching
wait
