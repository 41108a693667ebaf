#!/bin/bash
HOSTS=(node5 node7)
MODEL=/models/DeepSeek-V4-Pro
for i in "${!HOSTS[@]}"; do echo $i; done
i=0
for h in node5 node7; do
  ssh -o StrictHostKeyChecking=no root@$h "export NCCL_IB_HCA=mlx5_0; nohup vllm serve $MODEL --tensor-parallel-size 16 --nnodes 2 --node-rank $i --master-addr 192.0.2.1 > /tmp/vllm.log 2>&1 &"
  i=$((i+1))
done
ssh node9 'bash -s' <<'REMOTE'
export A=1
vllm serve /m --port 9000
REMOTE
start() {
  local rank=$1; shift
  python3 -m vllm.entrypoints.openai.api_server --model $MODEL --node-rank $rank "$@"
}
start 0 --port 8000
start 1 --headless
