"""nvidia-smi's listings for people: -L, the default table, nvlink -s, --help-query-gpu."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from runners.formats import text
from runners.formats.base import SKIP, Event, Item, Kind, Row, columns
from runners.formats.nvidia_smi import sentence

_MIB: Final = 1024**2
_GPU = re.compile(r"GPU (\d+): (.+?) \(UUID: (GPU-[\w-]+)\)\Z")
_MIG = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[\w/-]+)\)\Z")


def parse_list(lines: Iterable[str]) -> Iterator[Item]:
    """nvidia-smi -L: one row per GPU and per MIG device (with its GPU's index and uuid)."""
    gpu: Row | None = None
    for line in text.cleaned(lines):
        if not line.strip():
            continue
        if match := _GPU.match(line.strip()):
            gpu = {"index": int(match[1][:9]), "name": match[2], "uuid": match[3], "mig_profile": None,
                   "mig_device": None, "mig_uuid": None}  # fmt: skip
            yield gpu
        elif (match := _MIG.match(line)) and gpu is not None:
            yield {**gpu, "mig_profile": match[1], "mig_device": int(match[2][:9]), "mig_uuid": match[3]}
        else:
            yield sentence(line) or SKIP


_LINK = re.compile(r"\s+Link (\d+): (.+)\Z")


_SECTION = re.compile(r"#{20,}\Z")


def parse_nvlink(lines: Iterable[str]) -> Iterator[Item]:
    """nvidia-smi nvlink -s: one row per link; a GPU without links gives an event with the reason."""
    gpu: Row = {}
    for line in text.cleaned(lines):
        if not line.strip():
            continue
        if match := _GPU.match(line.strip()):
            gpu = {"index": int(match[1][:9]), "name": match[2], "uuid": match[3]}
        elif gpu and (match := _LINK.match(line)):
            speed = text.quantity(match[2])
            active = speed is not None and speed[1] == "GB/s"
            yield {**gpu, "link": int(match[1][:9]), "gbytes_per_s": speed[0] if active and speed else None,
                   "state": "active" if active else match[2].strip("<>")}  # fmt: skip
        elif gpu and re.search(r"[Nn]v[Ll]ink", line):
            yield Event("nvlink_unavailable", detail={"index": gpu["index"], "line": text.shown(line.strip())})
        elif _SECTION.match(line):  # a collection of captures goes on with another tool
            return
        else:
            yield SKIP


_VERSIONS = re.compile(r"NVIDIA-SMI\s+(\S+)\s+Driver Version: (\S+)\s+CUDA Version: (\S+)")
_FIRST = re.compile(
    r"\|\s+(\d+)\s+(\S.*?)\s+(On|Off|N/A)\s*\|\s*([0-9A-Fa-f:.]{7,16})\s+(On|Off|N/A)\s*\|\s*(\S+)\s*\|"
)
_SECOND = re.compile(
    r"\|\s*(\S+)\s+(\S+)\s+(P\d+|N/A|\?+|ERR!)\s+(\S+)\s*/\s*(\S+)\s*\|\s*(\S+?)(?:MiB)?\s*/\s*(\S+?)(?:MiB)?\s*\|\s*(\S+)\s+(.*?)\s*\|"
)
_PROCESS = re.compile(
    r"\|\s+(\d+)\s+(?:(\d+|N/A)\s+(\d+|N/A)\s+)?(\d+)\s+(C\+G|C|G|M\+C)\s+(\S.*?)\s+(\d+MiB|N/A)\s*\|"
)
_MIG_ROW = re.compile(r"\|\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s*\|\s*(\d+)MiB\s*/\s*(\d+)MiB\s*\|\s*(\d+)\s+(\S+)\s*\|")


def _strip(cell: str, unit: str) -> int | float | None:
    return text.number(cell.removesuffix(unit))


def parse_table(lines: Iterable[str]) -> Iterator[Item]:
    """The default table: rows `gpu`, `mig` and `process` (column record)."""
    versions: dict[str, str | None] = {"driver_version": None, "cuda_version": None}
    gpu: Row | None = None
    for line in text.cleaned(lines):
        if match := _VERSIONS.search(line):
            versions = {"driver_version": match[2], "cuda_version": match[3]}
        elif match := _FIRST.match(line):
            gpu = {
                "record": "gpu",
                "index": int(match[1][:9]),
                "name": match[2],
                "pci_bus_id": match[4],
                "ecc_uncorrected": _strip(match[6], ""),
                **versions,
            }
        elif gpu is not None and (match := _SECOND.match(line)):
            used, total = text.integer(match[6]), text.integer(match[7])
            gpu.update(
                fan_pct=_strip(match[1], "%"),
                temp_c=_strip(match[2], "C"),
                pstate=match[3] if match[3].startswith("P") else None,
                power_w=_strip(match[4], "W"),
                power_limit_w=_strip(match[5], "W"),
                mem_used_bytes=None if used is None else used * _MIB,
                mem_total_bytes=None if total is None else total * _MIB,
                util_pct=_strip(match[8], "%"),
                compute_mode=match[9] or None,
            )
            yield gpu
            gpu = None
        elif match := _MIG_ROW.match(line):
            yield {"record": "mig", "index": int(match[1][:9]), "mig_device": int(match[4][:9]),
                   "mem_used_bytes": int(match[5][:15]) * _MIB, "mem_total_bytes": int(match[6][:15]) * _MIB,
                   "sm_count": int(match[7][:9])}  # fmt: skip
        elif match := _PROCESS.match(line):
            memory = _strip(match[7], "MiB")
            yield {"record": "process", "index": int(match[1][:9]), "pid": int(match[4][:18]), "type": match[5],
                   "process_name": match[6],
                   "mem_used_bytes": None if memory is None else round(memory * _MIB)}  # fmt: skip
        elif event := sentence(line):
            yield event


_HELP = re.compile(r'"([\w.]+)"(?: or "([\w.]+)")?\Z')


def parse_help(lines: Iterable[str]) -> Iterator[Item]:
    """nvidia-smi --help-query-gpu: one row per field that this driver knows, with its aliases."""
    for line in text.cleaned(lines):
        found = re.findall(r'"([\w.]+)"', line) if line.startswith('"') and _HELP.match(line) else []
        if found:
            yield {"field": found[0], "aliases": found[1:]}


def _sniff_list(head: str) -> int:
    if not re.search(r"^GPU \d+: .+ \(UUID: GPU-", head, re.MULTILINE):
        return 0
    return 0 if re.search(r"Link \d+:|[Nn]v[Ll]ink", head) else 95


def _sniff_nvlink(head: str) -> int:
    found = re.search(r"^GPU \d+: .+ \(UUID: GPU-", head, re.MULTILINE) and re.search(r"Link \d+:|[Nn]v[Ll]ink", head)
    return 96 if found else 0


def _sniff_table(head: str) -> int:
    return 96 if "| NVIDIA-SMI " in head else 0


def _sniff_help(head: str) -> int:
    return 95 if "List of valid properties to query" in head else 0


_GPU_LIST: Final = "index int -\nname text -\nuuid text -\n"
KIND_LIST: Final = Kind(
    "nvidia_smi_list",
    "nvidia-smi -L",
    columns(_GPU_LIST + "mig_profile text -\nmig_device int -\nmig_uuid text -"),
    _sniff_list,
    parse_list,
    ("gpu_lost", "driver_mismatch"),
)
KIND_NVLINK: Final = Kind(
    "nvidia_smi_nvlink",
    "nvidia-smi nvlink -s",
    columns(_GPU_LIST + "link int -\ngbytes_per_s float GB/s\nstate text -"),
    _sniff_nvlink,
    parse_nvlink,
    ("nvlink_unavailable",),
)
KIND_TABLE: Final = Kind(
    "nvidia_smi_table",
    "nvidia-smi (default table)",
    columns(
        "record text - gpu, mig or process\nindex int -\nname text -\npci_bus_id text -\ndriver_version text -\n"
        "cuda_version text -\nfan_pct float %\ntemp_c float C\npstate text -\npower_w float W\npower_limit_w float W\n"
        "mem_used_bytes int bytes\nmem_total_bytes int bytes\nutil_pct float %\ncompute_mode text -\n"
        "ecc_uncorrected int -\nmig_device int -\nsm_count int -\npid int -\ntype text -\nprocess_name text -"
    ),
    _sniff_table,
    parse_table,
    ("gpu_lost", "driver_mismatch"),
)
KIND_HELP: Final = Kind(
    "nvidia_smi_help",
    "nvidia-smi --help-query-gpu",
    columns("field text -\naliases list -"),
    _sniff_help,
    parse_help,
)
