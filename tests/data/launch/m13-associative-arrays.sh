declare -A RANK=([node-a]=0 [node-b]=1)
declare -A IPS
IPS[node-a]=192.0.2.10
IPS["node-b"]=192.0.2.11
MASTER=${IPS[node-a]}
for host in "${!RANK[@]}"; do
  ssh "$host" "VLLM_HOST_IP=${IPS[$host]} python3 -m sglang.launch_server --model-path /m --tp 16 --nnodes 2 --node-rank ${RANK[$host]} --dist-init-addr ${MASTER}:5000"
done
