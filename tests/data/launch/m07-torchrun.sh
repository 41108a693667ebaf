torchrun --nnodes 1 --nproc-per-node 1 --master-port 29501 -m sglang.launch_server --model-path /m --tp 8 --port 30000
