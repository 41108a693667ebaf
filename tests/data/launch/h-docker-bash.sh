#!/bin/bash
IMAGE=lmsysorg/sglang:v0.5.9
NAME=sglang-${USER}
docker rm -f $NAME 2>/dev/null || true
docker run -itd \
  --name $NAME \
  --gpus '"device=0,1,2,3"' \
  --shm-size=32g --ipc=host --network=host --privileged \
  --ulimit memlock=-1 --ulimit stack=67108864 \
  --device=/dev/infiniband/rdma_cm \
  --device /dev/infiniband/uverbs0 \
  -v /data/models:/models:ro -v /tmp/x:/tmp/x \
  --mount type=bind,source=/opt/cache,target=/root/.cache \
  -e NCCL_SOCKET_IFNAME=eth0 -e "NCCL_IB_HCA=mlx5_0,mlx5_3" \
  --env GLOO_SOCKET_IFNAME=eth0 -e HF_TOKEN \
  $IMAGE \
  bash -lc "cd /workspace && \
    export NCCL_DEBUG=WARN && \
    exec python3 -m sglang.launch_server --model-path /models/X \
      --tp 16 --nnodes 2 --node-rank \${NODE_RANK:-1} --dist-init-addr 192.0.2.1:5000"
docker logs -f $NAME
