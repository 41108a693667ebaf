"""The closed list of kinds that `read` knows: one line each. Guessing goes by content, never by a file's name."""

from __future__ import annotations

from typing import Final

from runners.formats import (
    engine_log,
    nvidia_smi,
    proc,
    prometheus,
    sysfs,
)
from runners.formats.base import Kind

KINDS: Final[tuple[Kind, ...]] = (
    nvidia_smi.KIND,
    proc.KIND_STAT,
    proc.KIND_MEMINFO,
    proc.KIND_LOADAVG,
    proc.KIND_NET_DEV,
    proc.KIND_PID_STAT,
    sysfs.KIND,
    prometheus.KIND,
    engine_log.KIND_VLLM,
    engine_log.KIND_SGLANG,
    engine_log.KIND_NCCL,
    engine_log.KIND_TORCH,
)

BY_NAME: Final = {kind.name: kind for kind in KINDS}
THRESHOLD: Final = 20  # below this no guess is made


def guess(head: str) -> Kind | None:
    """The kind whose sniffer is surest about the first 64 KiB of a text; None when none is."""
    best, score = None, THRESHOLD
    for kind in KINDS:
        found = kind.sniff(head)
        if found > score:
            best, score = kind, found
    return best
