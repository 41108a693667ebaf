source /opt/venv/bin/activate
ulimit -l unlimited
ssh node1 "cd /w; NCCL_DEBUG=INFO nohup vllm serve /m --tensor-parallel-size 8 --pipeline-parallel-size 2 --nnodes 2 --node-rank 0 --master-addr 192.0.2.1 > a.log 2>&1 &"
ssh -p 2222 root@node2 <<EOF
export NCCL_DEBUG=INFO
nohup vllm serve /m --tensor-parallel-size 8 --pipeline-parallel-size 2 --nnodes 2 --node-rank 1 --master-addr 192.0.2.1 --headless > b.log 2>&1 &
EOF
