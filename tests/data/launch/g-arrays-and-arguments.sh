#!/usr/bin/env bash
set -euo pipefail
# ---- settings ----
export NCCL_DEBUG=INFO NCCL_IB_HCA="mlx5_0,mlx5_3"   # two rails
export PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True'
MODEL_DIR=${MODEL_DIR:-/data/models}
MODEL="${MODEL_DIR}/DeepSeek-V4-Pro"
NNODES=2; NODE_RANK=${1:-0}
MASTER=${2:-198.51.100.1}
PORT=30000
TP=$((8 * NNODES))
EXTRA_ARGS="--trust-remote-code --mem-fraction-static 0.88"
COMMON=(
  --model-path "$MODEL"
  --tp "$TP"        # tensor parallel
  --nnodes $NNODES
  # --disable-radix-cache
  --host 0.0.0.0
)
if [[ "$NODE_RANK" == "0" ]]; then
  echo "head"
  COMMON+=(--enable-metrics)
else
  COMMON+=(--log-level warning)
fi
[ -n "${DEBUG:-}" ] && COMMON+=(--debug)
cd /workspace || exit 1
SGLANG_ENABLE_X=1 numactl --cpunodebind=0 --membind=0 \
  python3 -u -m sglang.launch_server "${COMMON[@]}" $EXTRA_ARGS \
    --node-rank "$NODE_RANK" --dist-init-addr "$MASTER:20000" \
    --port ${PORT} --json-model-override-args '{"a": 1, "b": "x y"}' \
    --served-model-name "my \"model\"" \
    2>&1 | tee /var/log/sglang_${NODE_RANK}.log &
wait
