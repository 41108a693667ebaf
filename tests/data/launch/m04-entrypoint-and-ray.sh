docker run -d --gpus all --network host --ipc=host --shm-size 64g --entrypoint /bin/bash -v /models:/models \
  -e VLLM_HOST_IP=192.0.2.5 --env-file ./prod.env vllm/vllm-openai:v0.11.0 \
  -c "ray start --head --port=6379 && vllm serve /models/K2 --tensor-parallel-size 8 --pipeline-parallel-size 2 --distributed-executor-backend ray"
