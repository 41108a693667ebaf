tmux new-session -d -s vllm
tmux send-keys -t vllm "export NCCL_DEBUG=WARN" C-m
tmux send-keys -t vllm "cd /opt && vllm serve /models/L --tensor-parallel-size 8 --port 8001" C-m
