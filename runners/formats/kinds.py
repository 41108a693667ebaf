"""The closed list of kinds that `read` knows: one line each. Guessing goes by content, never by a file's name."""

from __future__ import annotations

from typing import Final

from runners.formats import (
    aiperf,
    amd,
    bench_serving,
    client_text,
    csv_maps,
    engine_log,
    ethtool,
    hash_table,
    hy_smi,
    kernel_log,
    nccl_tests,
    ncu,
    numastat,
    nvidia_smi,
    nvidia_smi_q,
    nvidia_smi_text,
    nvidia_smi_topo,
    other_clients,
    proc,
    prometheus,
    rdma_statistic,
    rdma_tools,
    sysfs,
    sysstat,
)
from runners.formats.base import Kind

KINDS: Final[tuple[Kind, ...]] = (
    nvidia_smi.KIND,
    nvidia_smi_text.KIND_LIST,
    nvidia_smi_text.KIND_TABLE,
    nvidia_smi_text.KIND_NVLINK,
    nvidia_smi_text.KIND_HELP,
    nvidia_smi_q.KIND,
    hash_table.KIND_DMON,
    hash_table.KIND_PMON,
    hash_table.KIND_DCGMI,
    nvidia_smi_topo.KIND,
    nvidia_smi_topo.KIND_P2P,
    hy_smi.KIND,
    amd.KIND_ROCM,
    amd.KIND_AMD,
    kernel_log.KIND,
    proc.KIND_STAT,
    proc.KIND_MEMINFO,
    proc.KIND_LOADAVG,
    proc.KIND_NET_DEV,
    proc.KIND_PID_STAT,
    sysstat.KIND_MPSTAT,
    sysstat.KIND_PIDSTAT,
    sysstat.KIND_SAR,
    sysfs.KIND,
    numastat.KIND,
    ethtool.KIND,
    rdma_tools.KIND_LINK,
    rdma_statistic.KIND,
    rdma_tools.KIND_DEVINFO,
    rdma_tools.KIND_IBDEV,
    rdma_tools.KIND_GIDS,
    nccl_tests.KIND,
    nccl_tests.KIND_JSON,
    ncu.KIND,
    prometheus.KIND,
    engine_log.KIND_VLLM,
    engine_log.KIND_SGLANG,
    engine_log.KIND_NCCL,
    engine_log.KIND_TORCH,
    bench_serving.KIND_VLLM,
    bench_serving.KIND_SGLANG,
    client_text.KIND_TABLE,
    client_text.KIND_SWEEP,
    aiperf.KIND_SUMMARY,
    aiperf.KIND_RECORDS,
    aiperf.KIND_SEARCH,
    aiperf.KIND_SWEEP,
    aiperf.KIND_SERVER,
    csv_maps.KIND_AIPERF,
    csv_maps.KIND_GUIDELLM,
    client_text.KIND_AIPERF_CSV,
    other_clients.KIND_GUIDELLM,
    other_clients.KIND_GENAI,
    other_clients.KIND_PERF,
    other_clients.KIND_INFERENCEX,
    client_text.KIND_SSE,
    client_text.KIND_STACK,
)

BY_NAME: Final = {kind.name: kind for kind in KINDS}
THRESHOLD: Final = 20  # below this no guess is made


def guess(head: str) -> Kind | None:
    """The kind whose sniffer is surest about the first 64 KiB of a text; None when none is."""
    head = head.lstrip("\ufeff\r\n")
    best, score = None, THRESHOLD
    for kind in KINDS:
        found = kind.sniff(head)
        if found > score:
            best, score = kind, found
    return best
