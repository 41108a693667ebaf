"""Transport errors in NCCL and NVSHMEM lines, with the broken link of the chain named.

Links: `device node` (no /dev/infiniband or no access), `memlock` (locked-memory limit), `gid` (wrong GID index or
unreachable subnet pair), `subnet` (the peer's address cannot be reached at all), `driver module` (peer memory,
DMA-BUF), `wire` (loss, retries exceeded), `peer` (the other side went first: an echo).
"""

from __future__ import annotations

import re
from typing import Final

from runners.formats.base import Event, Value
from runners.formats.text import shown

_QP = re.compile(
    r"Call to ibv_modify_qp failed with (?:error )?(?P<error>.+?)"
    r"(?:, on dev (?P<hca>[\w.+-]+):(?P<port>\d+)?.*?"
    r"local GID index (?P<gid_index>\d+), local GID (?P<local_gid>\S+?), remote GID (?P<remote_gid>\S+))?"
    r"(?:$|, | retry)"
)
_COMPLETION = re.compile(
    r"Got completion (?:from peer (?P<peer>\S+) )?with (?:error|status)\D*(?P<status>\d+)"
    r"(?:.*?opcode[ =](?P<opcode>\d+))?"
    r"(?:.*?vendor err[ =](?P<vendor_error>\d+))?(?:.*?\((?P<kind>Send|Recv)\))?"
    r"(?:.*?local ?G[Ii][Dd] ?(?P<local_gid>[0-9a-fA-F:.]+))?"
    r"(?:.*?remote ?G[Ii][Dd]s? ?(?P<remote_gid>[0-9a-fA-F:.]+))?"
    r"(?:.*?hca (?P<hca>[\w.+-]+))?"
)
# ibv_wc_status (verbs.h): 5 flushed follows an earlier error of the same queue; 12 and 13 are causes on the wire.
STATUS_NAMES: Final = {
    4: "local protection error",
    5: "flushed (follows an earlier error)",
    9: "remote invalid request",
    10: "remote access error",
    11: "remote operation error",
    12: "transport retry counter exceeded",
    13: "receiver-not-ready retry counter exceeded",
}

# name, link, role, pattern
_RULES: Final = tuple(
    (name, re.compile(pattern), link, role)
    for name, link, role, pattern in (
        ("no_rdma_device", "device node", "cause", r"NET/IB : No device found"),
        (
            "rdma_device_unavailable",
            "device node",
            "cause",
            r"ibv_open_device failed|Unable to open device (?P<hca>[\w.+-]+)",
        ),
        (
            "rdma_memlock",
            "memlock",
            "cause",
            r"(?:ibv_reg_\w+|ibv_create_\w+|ibv_alloc_pd\w*)\b.*(?:Cannot allocate memory|failed with error 12\b)",
        ),
        (
            "rdma_call_failed",
            None,
            "cause",
            r"Call to (?P<call>ibv_\w+) failed(?: with (?:error )?(?P<error>.{1,80}))?",
        ),
        (
            "peer_memory_missing",
            "driver module",
            "cause",
            r"neither nv_peer_mem, or nvidia_peermem detected|"
            r"(?:nv_peer_mem|nvidia[-_]peermem|[Pp]eer ?mem\w*) (?:is )?(?:not|un)\w*|"
            r"No module present for GPU Direct RDMA",
        ),
        ("rdma_async_event", "wire", "cause", r"Got async (?:error )?event : (?P<error>.{1,80})"),
        (
            "peer_unreachable",
            "subnet",
            "cause",
            r"[Cc]onnect(?:ing)? to (?P<peer>\S+?) (?:returned|failed).{0,40}?"
            r"(?P<error>No route to host|Network is unreachable|Connection timed out)",
        ),
        (
            "peer_connection_lost",
            "peer",
            "echo",
            r"Connection closed by remote peer|Connection (?:refused|reset)|socketProgress(?:Opt)?: |Accept failed|"
            r"Socket recv failed",
        ),
        (
            "nvshmem_transport_failed",
            None,
            "cause",
            r"init failed for (?:remote )?transport: (?P<transport>\w+)|Unable to initialize any transports",
        ),
        (
            "nvshmem_device_unusable",
            "driver module",
            "cause",
            r"device (?P<hca>[\w.+-]+) (?:cannot allocate buffer on the specified memory type|"
            r"is not enumerated as an mlx5 device)",
        ),
        (
            "nvshmem_error",
            "gid",
            "cause",
            r"ibv_modify_qp failed|ep_connect failed|connect EPS failed|nvshmem setup connections failed|"
            r"nvshmem detect topo failed|nvshmemi_common_init failed|Unable to create ah",
        ),
    )
)


def error_of(message: str, level: str, where: str | None) -> Event | None:
    """The typed event of a transport error; any other WARN becomes `nccl_warn`; None for plain information."""
    detail: dict[str, Value] = {"line": shown(message), "level": level, "where": where}
    qp = _QP.search(message)
    if qp:
        _groups(detail, qp)
        local, remote = str(detail.get("local_gid") or ""), str(detail.get("remote_gid") or "")
        detail["link"] = "gid"
        if local and remote:
            detail["pair"] = f"{local} -> {remote}"
        detail["role"] = "note" if level == "INFO" and "retry" in message else "cause"
        return Event("rdma_qp_error", detail=detail)
    completion = _COMPLETION.search(message)
    if completion:
        _groups(detail, completion)
        status = int(completion["status"][:9])
        detail.update(
            status=status, meaning=STATUS_NAMES.get(status), link="wire", role="echo" if status == 5 else "cause"
        )
        return Event("rdma_completion_error", detail=detail)
    for name, pattern, link, role in _RULES:
        match = pattern.search(message)
        if match:
            _groups(detail, match)
            detail.update(link=link, role=role)
            return Event(name, detail=detail)
    if level != "WARN" or not message:
        return None
    if "out of memory" in message:
        return None  # the engine rules type it as OOM
    detail["role"] = "note"
    return Event("nccl_warn", detail=detail)


def _groups(detail: dict[str, Value], match: re.Match[str]) -> None:
    for name, value in match.groupdict().items():
        if value is not None:
            detail[name] = int(value[:18]) if value.isdecimal() else shown(value, 120)


NAMES: Final = (
    "rdma_qp_error",
    "rdma_completion_error",
    *(rule[0] for rule in _RULES),
    "nccl_warn",
)
