#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gres=gpu:8
export HEAD=192.0.2.1
srun --nodes=2 --ntasks-per-node=1 bash -c 'python3 -m sglang.launch_server --model-path /m --tp 16 --nnodes 2 --node-rank $SLURM_NODEID --dist-init-addr '"$HEAD"':5000'
