python3 -m sglang.launch_server \
  --model-path /m \
  --tp 8 \
  # --disable-cuda-graph \
  --port 30000
vllm serve /m2 --max-model-len 8192 \ # long
  --port 1
cat > /tmp/run.sh <<EOT
#!/bin/bash
export FOO=bar
vllm serve /m3 --port 8003
EOT
bash /tmp/run.sh
docker run --rm vllm/vllm-openai:v0.11.0 --model Qwen/Qwen3 --tensor-parallel-size 2
tmux new-session -d -s srv 'CUDA_VISIBLE_DEVICES=0 vllm serve /m4 --port 8004'
env A=1 B="x y" taskset -c 0-31 vllm serve /m5
sudo -E docker exec -d -e Z=1 cont bash -c 'sglang serve --model-path /m6'
while ! curl -s localhost:30000/health; do sleep 5; done
