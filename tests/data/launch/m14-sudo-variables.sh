sudo -u svc -H --preserve-env=CUDA_VISIBLE_DEVICES CUDA_VISIBLE_DEVICES=0,1 vllm serve /models/x -tp 2
