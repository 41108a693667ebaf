RANK=0
for HOST in node1 node2; do
  ssh "$HOST" "docker exec -d sgl bash -c 'python3 -m sglang.launch_server --model-path /m --tp 16 --nnodes 2 --node-rank $RANK --dist-init-addr node1:5000'"
  RANK=$((RANK+1))
done
