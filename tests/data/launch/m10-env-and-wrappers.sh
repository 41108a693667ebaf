case "${1:-head}" in
  head) ray start --head --port 6379 --num-gpus 8 ;;
  worker) ray start --address 192.0.2.1:6379 --num-gpus 8 --block; exit 0 ;;
esac
env -u HTTP_PROXY VLLM_HOST_IP=192.0.2.1 PYTHONUNBUFFERED=1 stdbuf -oL timeout 3600 numactl -N 0 -m 0 vllm serve /m --tensor-parallel-size 16 --distributed-executor-backend ray --speculative-config='{"method":"mtp","num_speculative_tokens":1}'
