"""Start-up lines of SGLang 0.2 to 0.5.23, in the order of a start. Its "GB" are GiB (bytes / 2**30).

`Application startup complete` comes before the warm-up request here, so it is no readiness; node 1 of two never
prints the ready line.
"""

from __future__ import annotations

import re
from typing import Final

from runners.formats.stages import Stages, table

_TAIL: Final = (
    r"(?:.*?elapsed[=:] ?(?P<elapsed_s>[\d.]+))?"
    r"(?:.*?avail mem=(?P<avail_gib>[\d.]+) GB)?(?:.*?mem usage=(?P<used_gib>-?[\d.]+) GB)?"
)

TABLE: Final = Stages(
    re.compile(
        r"server_args=|begin|end\b|ends|KV Cache|max_total_num_tokens|graph|fired up|Application startup|mem usage="
    ),
    table(
        ("arguments", r"server_args=(?:ServerArgs\(|\{)"),
        ("distributed_init_begin", r"Init (?:torch distributed|parallel|distributed) begin"),
        ("distributed_init", rf"Init (?:torch distributed|parallel|distributed) ends?{_TAIL}"),
        ("load_weights_begin", r"Load weight begin(?:.*avail mem=(?P<avail_gib>[\d.]+) GB)?"),
        (
            "load_weights_end",
            r"Load weight end\.(?:.*?elapsed=(?P<load_s>[\d.]+) s)?(?:.*?type=(?P<model_type>\w+))?"
            r"(?:.*?dtype=(?P<dtype>[\w.]+))?(?:.*?avail mem=(?P<avail_gib>[\d.]+) GB)?"
            r"(?:.*?mem usage=(?P<used_gib>-?[\d.]+) GB)?",
        ),
        (
            "kv_cache",
            r"KV Cache is allocated\.(?:.*?dtype: (?P<dtype>[\w.]+))?.*?#tokens: (?P<kv_tokens>[\d,]+)"
            r"(?:.*?KV size: (?P<kv_gib>[\d.]+) GB)?"
            r"(?:.*?\bK size: (?P<k_gib>[\d.]+) GB, V size: (?P<v_gib>[\d.]+) GB)?",
        ),
        ("memory_pool_end", r"Memory pool end\.(?:.*?avail mem=(?P<avail_gib>[\d.]+) GB)?"),
        (
            "limits",
            r"max_total_num_tokens=(?P<kv_tokens>\d+)(?:.*?chunked_prefill_size=(?P<chunked_prefill_tokens>-?\d+))?"
            r"(?:.*?max_prefill_tokens=(?P<max_prefill_tokens>\d+))?"
            r"(?:.*?max_running_requests=(?P<max_running>\d+))?(?:.*?context_len=(?P<context_tokens>\d+))?"
            r"(?:.*?available_(?:gpu|cpu)_mem=(?P<avail_gib>[\d.]+) GB)?",
        ),
        (
            "graph_capture_end",
            r"Capture (?:\w+ )*(?i:graph) end\.(?:.*?[Tt]ime elapsed: (?P<graph_s>[\d.]+) s)?"
            r"(?:.*?mem usage=(?P<used_gib>-?[\d.]+) GB)?(?:.*?avail mem=(?P<avail_gib>[\d.]+) GB)?",
        ),
        ("graph_capture_begin", r"Capture (?:\w+ )*(?i:graph) begin(?:.*?avail mem=(?P<avail_gib>[\d.]+) GB)?"),
        ("http_start", r"Application startup complete\."),
        ("ready", r"The server is fired up and ready to roll"),
    ),
)
