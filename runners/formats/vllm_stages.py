"""Start-up lines of vLLM 0.3 to 0.33, in the order of a start."""

from __future__ import annotations

import re
from typing import Final

from runners.formats.stages import Stages, table

_CONCURRENCY: Final = (
    r"Maximum concurrency for (?P<context_tokens>[\d,]+) tokens per request: (?P<max_concurrency>[\d.]+)x"
)

TABLE: Final = Stages(
    re.compile(
        r"took|takes|KV cache|concurrency|non-default|Initializing|nccl==|world[_ ]size|load model|startup|graph|"
        r"Capturing|Starting vLLM|blocks: "
    ),
    table(
        ("arguments", r"non-default args: "),
        (
            "engine_init",
            r"Initializing a V[01] LLM engine \(v(?P<version>[^)]+)\)|"
            r"Initializing an LLM engine \(v(?P<version2>[^)]+)\)",
        ),
        ("nccl_version", r"vLLM is using nccl==(?P<nccl_version>[\d.]+)"),
        (
            "distributed_init",
            r"world_size=(?P<world_size>\d+) rank=(?P<rank>\d+) local_rank=(?P<local_rank>\d+)"
            r"(?:.*backend=(?P<backend>\w+))?",
        ),
        ("rank_assigned", r"rank (?P<rank>\d+) in world size (?P<world_size>\d+) is assigned as DP rank"),
        ("load_weights_begin", r"Starting to load model (?P<model>\S+?)(?:\.\.\.)?$"),
        ("load_weights", r"Loading weights took (?P<load_s>[\d.]+) seconds"),
        (
            "load_weights_end",
            r"Model loading took (?P<weights_gib>[\d.]+) Gi?B(?: memory)? and (?P<load_s>[\d.]+) seconds|"
            r"Loading model weights took (?P<weights2_gib>[\d.]+) GB",
        ),
        (
            "compile",
            r"torch\.compile (?:takes|took) (?P<compile_s>[\d.]+) s in total|"
            r"Compiling a graph for .*takes (?P<compile2_s>[\d.]+) s",
        ),
        (
            "memory_profile",
            r"Free memory on device (?:\S+ )?\((?P<free_gib>[\d.]+)/(?P<total_gib>[\d.]+) GiB\) on startup\. "
            r"Desired GPU memory utilization is \((?P<utilization>[\d.]+), (?P<desired_gib>[\d.]+) GiB\)\. "
            r"Actual usage is (?P<used_gib>[\d.]+) GiB for .*?(?P<activation_gib>[\d.]+) GiB for peak activation",
        ),
        ("memory_profile", r"Memory profiling (?:takes|took) (?P<profile_s>[\d.]+) seconds"),
        ("kv_memory", r"Available KV cache memory: (?P<kv_gib>-?[\d.]+) GiB"),
        ("kv_cache", rf"(?P<device>[\w+ ]+?) KV cache size: (?P<kv_tokens>[\d,]+) tokens(?:, {_CONCURRENCY})?"),
        ("kv_cache", _CONCURRENCY),
        ("kv_cache", r"# (?:GPU|cuda) blocks: (?P<gpu_blocks>\d+), # CPU blocks: (?P<cpu_blocks>\d+)"),
        ("graph_capture_begin", r"Capturing the model for CUDA graphs|Capturing cudagraphs for decoding"),
        ("graph_memory", r"CUDA graph pool memory: (?P<graph_gib>[\d.]+) GiB"),
        (
            "graph_capture_end",
            r"Graph capturing finished in (?P<graph_s>[\d.]+) secs?, took (?P<graph_gib>-?[\d.]+) GiB",
        ),
        ("engine_ready", r"init engine \(.*?\) took (?P<init_s>[\d.]+) s"),
        ("http_start", r"Starting vLLM (?:API )?server(?: \d+)? on (?P<url>\S+)"),
        ("ready", r"Application startup complete\."),
    ),
)
