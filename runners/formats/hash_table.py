"""Tables under a `#` header, repeated every so often: nvidia-smi dmon and pmon, dcgmi dmon.

Columns are mapped by the header's names, since their number grows from version to version; `-` and `N/A` are null.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from runners.formats import text
from runners.formats.base import SKIP, Event, Item, Kind, Row, Value, columns
from runners.formats.nvidia_smi import sentence

_UNIT_SUFFIX: Final = {"W": "w", "C": "c", "%": "pct", "MHz": "mhz", "MB": "mb", "MB/s": "mb_per_s", "bool": "flag"}
_DMON: Final[dict[str, tuple[str, float]]] = {
    "gpu": ("index", 1),
    "pwr": ("power_w", 1),
    "gtemp": ("temp_c", 1),
    "temp": ("temp_c", 1),
    "mtemp": ("mem_temp_c", 1),
    "sm": ("sm_pct", 1),
    "mem": ("mem_util_pct", 1),
    "enc": ("enc_pct", 1),
    "dec": ("dec_pct", 1),
    "jpg": ("jpg_pct", 1),
    "ofa": ("ofa_pct", 1),
    "mclk": ("mem_clock_mhz", 1),
    "pclk": ("sm_clock_mhz", 1),
    "fb": ("mem_used_bytes", 1024**2),
    "bar1": ("bar1_used_bytes", 1024**2),
    "ccpm": ("protected_used_bytes", 1024**2),
    "rxpci": ("pcie_rx_bytes_per_s", 10**6),
    "txpci": ("pcie_tx_bytes_per_s", 10**6),
    "pviol": ("power_violation_pct", 1),
    "tviol": ("thermal_violation", 1),
    "sbecc": ("ecc_single_total", 1),
    "dbecc": ("ecc_double_total", 1),
    "pci": ("pcie_replay_errors", 1),
    "pid": ("pid", 1),
}
_WORDS: Final = {"type": "type", "command": "command", "name": "command", "date": "date", "time": "time"}


def _value(cell: str, factor: float) -> Value:
    value = text.number(cell)
    if value is None or factor == 1:
        return value
    return round(value * factor)


def _row(cells: list[str], names: list[str], units: list[str]) -> Row | None:
    if names and names[-1].lower() == "command" and len(cells) > len(names):
        cells = [*cells[: len(names) - 1], " ".join(cells[len(names) - 1 :])]
    if len(cells) != len(names):
        return None
    row: Row = {}
    for name, unit, cell in zip(names, units, cells, strict=True):
        key = name.lower()
        if key in _WORDS:
            row[_WORDS[key]] = None if cell in text.ABSENT else cell
            continue
        absent = cell in text.ABSENT
        if not absent and text.number(cell) is None:
            return None
        suffix = _UNIT_SUFFIX.get(unit)
        column, factor = _DMON.get(key, (f"{key}_{suffix}" if suffix else key, 1))
        row[column] = None if absent else _value(cell, factor)
    return row


def _tables(lines: Iterable[str]) -> Iterator[Item]:
    """Rows of dmon or pmon."""
    names: list[str] = []
    units: list[str] = []
    for line in text.cleaned(lines):
        if not line.strip():
            continue
        if line.startswith("#"):
            words = line.lstrip("#").split()
            if words and words[0].lower() in ("gpu", "date", "time"):
                names, units = words, [""] * len(words)
            elif names and words and words[0] in ("Idx", "YYYYMMDD", "HH:MM:SS"):
                units = words if len(words) == len(names) else units
            continue
        event = sentence(line.strip())
        if event is not None:
            yield event
            continue
        row = _row(line.split(), names, units) if names else None
        yield SKIP if row is None else row


def parse_dmon(lines: Iterable[str]) -> Iterator[Item]:
    """nvidia-smi dmon: one row per GPU and interval; MIG GPUs have null utilisation."""
    return _tables(lines)


def parse_pmon(lines: Iterable[str]) -> Iterator[Item]:
    """nvidia-smi pmon: one row per process; an idle GPU (a row of dashes) gives a row with pid null."""
    return _tables(lines)


# DCGM field mnemonics (dcgm_fields.h); profiling fields are ratios 0..1, device fields are absolute.
DCGM: Final = {
    "GRACT": "graphics_active_ratio",
    "SMACT": "sm_active_ratio",
    "SMOCC": "sm_occupancy_ratio",
    "TENSO": "tensor_active_ratio",
    "DRAMA": "dram_active_ratio",
    "FP64A": "fp64_active_ratio",
    "FP32A": "fp32_active_ratio",
    "FP16A": "fp16_active_ratio",
    "INTAC": "int_active_ratio",
    "PCITX": "pcie_tx_bytes_per_s",
    "PCIRX": "pcie_rx_bytes_per_s",
    "NVLTX": "nvlink_tx_bytes_per_s",
    "NVLRX": "nvlink_rx_bytes_per_s",
    "POWER": "power_w",
    "SMCLK": "sm_clock_mhz",
    "MMCLK": "mem_clock_mhz",
    "MCLK": "mem_clock_mhz",
    "GPUTL": "util_pct",
    "MCUTL": "mem_util_pct",
    "TMPTR": "temp_c",
    "MMTMP": "mem_temp_c",
    "FBUSD": "mem_used_bytes",
    "FBTTL": "mem_total_bytes",
    "FBFRE": "mem_free_bytes",
    "XIDER": "xid",
    "TOTEC": "energy_mj",
}
_ENTITY = re.compile(r"(GPU|GPU-I|GPU-CI|CPU|Switch|VGPU|Link)\s+(\d+(?:/\d+)*)\s+(\S.*)\Z")


def parse_dcgmi(lines: Iterable[str]) -> Iterator[Item]:
    """dcgmi dmon -e ...: one row per entity and sample. N/A: not sampled or profiling paused; N/W: not watched."""
    names: list[str] = []
    for line in text.cleaned(lines):
        bare = line.strip()
        if not bare or re.match(r"#? ?ID(?:\s|\Z)", bare):  # the second header line, with units in some versions
            continue
        if bare.startswith("#"):
            words = bare.lstrip("#").split()
            if words[:1] == ["Entity"]:
                names = words[1:]
            continue
        match = _ENTITY.match(bare)
        if match is None:
            if bare.lower().startswith(("error", "unable", "cannot")):
                yield Event("dcgm_error", detail={"line": text.shown(bare)})
            else:
                yield SKIP
            continue
        cells = match[3].split()
        if not names or len(cells) != len(names):
            yield SKIP
            continue
        row: Row = {"entity": match[1], "index": int(match[2].split("/")[0]), "entity_id": match[2]}
        missing: dict[str, str] = {}
        bad = False
        for name, cell in zip(names, cells, strict=True):
            column = DCGM.get(name, name.lower())
            value = text.number(cell)
            if value is not None and column.startswith("mem_") and column.endswith("_bytes"):
                value = round(value * 1024**2)  # DCGM counts frame buffer in MiB
            row[column] = value
            if value is None:
                bad = bad or cell not in text.ABSENT
                missing[column] = cell
        row["missing"] = missing
        yield SKIP if bad else row


def _sniff_dmon(head: str) -> int:
    return 95 if re.search(r"^#\s*(?:Date\s+Time\s+)?gpu\s+(?!.*\bpid\b)\w+", head, re.MULTILINE) else 0


def _sniff_pmon(head: str) -> int:
    return 96 if re.search(r"^#\s*(?:Date\s+Time\s+)?gpu\s+pid\s+type", head, re.MULTILINE) else 0


def _sniff_dcgmi(head: str) -> int:
    return 95 if re.search(r"^#\s*Entity\s+\w+", head, re.MULTILINE) else 0


_DMON_COLUMNS: Final = "\n".join(
    f"{column} {'int' if factor != 1 else 'float'} -"
    for column, factor in dict.fromkeys(_DMON.values())
    if column != "pid"
)
KIND_DMON: Final = Kind(
    "nvidia_smi_dmon",
    "nvidia-smi dmon",
    columns(_DMON_COLUMNS + "\ndate text -\ntime text -"),
    _sniff_dmon,
    parse_dmon,
    ("gpu_lost", "driver_mismatch"),
)
KIND_PMON: Final = Kind(
    "nvidia_smi_pmon",
    "nvidia-smi pmon",
    columns(
        "index int -\npid int - null on an idle GPU\ntype text - C compute, G graphics\n"
        "command text - cut by the tool\n"
        "sm_pct float %\nmem_util_pct float %\nenc_pct float %\ndec_pct float %\njpg_pct float %\nofa_pct float %\n"
        "mem_used_bytes int bytes"
    ),
    _sniff_pmon,
    parse_pmon,
    ("gpu_lost", "driver_mismatch"),
)
KIND_DCGMI: Final = Kind(
    "dcgmi_dmon",
    "dcgmi dmon",
    columns(
        "entity text -\nindex int -\nentity_id text - e.g. 0/1 for a MIG instance\n"
        + "\n".join(f"{column} float {_unit}" for column, _unit in ((c, c.rsplit("_", 1)[-1]) for c in DCGM.values()))
        + "\nmissing map - column -> N/A or N/W"
    ),
    _sniff_dcgmi,
    parse_dcgmi,
    ("dcgm_error",),
)
