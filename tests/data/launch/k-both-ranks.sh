#!/bin/bash
# one script for both nodes: the rank comes from the host name
if [ "$(hostname)" = "node5" ]; then
  RANK=0
else
  RANK=1
fi
export NCCL_CROSS_NIC=0
sglang serve --model-path /models/X --tp-size=16 --nnodes 2 --node-rank $RANK --dist-init-addr 192.0.2.1:20000
