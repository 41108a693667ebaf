"""`nvidia-smi --query-gpu=... --format=csv` and `--query-compute-apps=...`: all variants of units and header.

Format: one header line (unless noheader), then one line per GPU, cells separated by ", ", never quoted. `nounits`
takes units from cells, not from the header. When the driver or a GPU is gone, stdout is an English sentence instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from runners.formats import text
from runners.formats.base import SKIP, Event, Item, Kind, Parsed, Row, Value, collect, columns

# Names that older or newer drivers use for the same field -> the name used below.
ALIASES: Final = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_serial": "serial",
    "gpu_bus_id": "pci.bus_id",
    "clocks.gr": "clocks.current.graphics",
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "clocks.video": "clocks.current.video",
    "clocks.max.gr": "clocks.max.graphics",
    "clocks.max.mem": "clocks.max.memory",
    "used_memory": "used_gpu_memory",
    "temperature": "temperature.gpu",
}

# field -> (column, unit of a cell that carries none)
_NUMERIC: Final[dict[str, tuple[str, str]]] = {
    "index": ("index", ""),
    "count": ("count", ""),
    "utilization.gpu": ("util_pct", "%"),
    "utilization.memory": ("mem_util_pct", "%"),
    "memory.total": ("mem_total_bytes", "MiB"),
    "memory.used": ("mem_used_bytes", "MiB"),
    "memory.free": ("mem_free_bytes", "MiB"),
    "memory.reserved": ("mem_reserved_bytes", "MiB"),
    "temperature.gpu": ("temp_c", "C"),
    "temperature.memory": ("mem_temp_c", "C"),
    "power.draw": ("power_w", "W"),
    "power.draw.average": ("power_avg_w", "W"),
    "power.draw.instant": ("power_instant_w", "W"),
    "power.limit": ("power_limit_w", "W"),
    "enforced.power.limit": ("power_enforced_limit_w", "W"),
    "power.default_limit": ("power_default_limit_w", "W"),
    "power.max_limit": ("power_max_limit_w", "W"),
    "clocks.current.sm": ("sm_clock_mhz", "MHz"),
    "clocks.current.graphics": ("graphics_clock_mhz", "MHz"),
    "clocks.current.memory": ("mem_clock_mhz", "MHz"),
    "clocks.max.sm": ("sm_clock_max_mhz", "MHz"),
    "clocks.max.graphics": ("graphics_clock_max_mhz", "MHz"),
    "clocks.max.memory": ("mem_clock_max_mhz", "MHz"),
    "fan.speed": ("fan_pct", "%"),
    "pcie.link.gen.current": ("pcie_gen", ""),
    "pcie.link.width.current": ("pcie_width", ""),
    "pcie.link.gen.max": ("pcie_gen_max", ""),
    "pcie.link.width.max": ("pcie_width_max", ""),
    "ecc.errors.uncorrected.volatile.total": ("ecc_uncorrected_total", ""),
    "ecc.errors.corrected.volatile.total": ("ecc_corrected_total", ""),
    "clocks_event_reasons_counters.sw_power_cap": ("throttle_sw_power_cap_us", "us"),
    "clocks_event_reasons_counters.sync_boost": ("throttle_sync_boost_us", "us"),
    "clocks_event_reasons_counters.sw_thermal_slowdown": ("throttle_sw_thermal_us", "us"),
    "clocks_event_reasons_counters.hw_thermal_slowdown": ("throttle_hw_thermal_us", "us"),
    "clocks_event_reasons_counters.hw_power_brake_slowdown": ("throttle_hw_power_brake_us", "us"),
    "pid": ("pid", ""),
    "used_gpu_memory": ("mem_used_bytes", "MiB"),
}
_TEXT: Final[dict[str, str]] = {
    "timestamp": "timestamp",
    "name": "name",
    "uuid": "uuid",
    "pci.bus_id": "pci_bus_id",
    "driver_version": "driver_version",
    "pstate": "pstate",
    "persistence_mode": "persistence_mode",
    "compute_mode": "compute_mode",
    "mig.mode.current": "mig_mode",
    "process_name": "process_name",
}
_MASK: Final = "clocks_event_reasons.active"

# NVML clock event reasons (nvml.h, nvmlClocksEventReason*).
THROTTLE_BITS: Final = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
_FLAGS: Final = {f"clocks_event_reasons.{name}": name for name in THROTTLE_BITS.values()}

_FIELD = re.compile(r"([a-zA-Z][\w]*(?:\.\w+)*)(?: \[([^\]]{1,20})\])?\Z")
_BRACKETED = re.compile(r"\[[A-Za-z /]+\]\Z")
_LOST = re.compile(r"Unable to determine the device handle for (?:GPU|gpu)\s*([0-9A-Fa-f:.]+): (.+)")
_NO_NVML = re.compile(r"Failed to initialize NVML: (.+)|NVIDIA-SMI has failed because (.+)")
_BAD_FIELD = re.compile(r'Field "([^"]*)" is not a valid field to query')
_NO_DEVICES = re.compile(r"No devices were found|No running processes found|NVML library version: (\S+)")


@dataclass(frozen=True, slots=True)
class Field:
    """One column of the CSV: canonical field name and the unit that its header gives ("" for none)."""

    name: str
    unit: str


def field_of(header_cell: str) -> Field | None:
    """`power.draw [W]` -> Field("power.draw", "W"); None when the cell is no field name."""
    match = _FIELD.match(header_cell.strip())
    if match is None:
        return None
    name = match[1].replace("clocks_throttle_reasons", "clocks_event_reasons")
    return Field(ALIASES.get(name, name), match[2] or "")


def header_of(line: str) -> list[Field] | None:
    """The fields of a header line; None when the line is data."""
    fields = [field_of(part) for part in line.split(",")]
    if any(item is None for item in fields):
        return None
    known = [item for item in fields if item is not None]
    telling = sum(
        item.name in _NUMERIC or item.name in _TEXT or item.name in _FLAGS or "." in item.name or bool(item.unit)
        for item in known
    )
    return known if telling * 2 >= len(known) else None


def sentence(line: str) -> Event | None:
    """The event of an English sentence that nvidia-smi prints instead of data."""
    if match := _LOST.match(line):
        lost = "lost" in match[2].lower() or "unknown error" in match[2].lower()
        return Event("gpu_lost" if lost else "gpu_unreachable", detail={"pci_bus_id": match[1], "line": line})
    if match := _NO_NVML.match(line):
        name = "driver_mismatch" if "version mismatch" in line else "driver_unavailable"
        return Event(name, detail={"line": line})
    if match := _BAD_FIELD.match(line):
        return Event("invalid_field", detail={"field": match[1], "line": line})
    if match := _NO_DEVICES.match(line):
        return Event("nvidia_smi_message", detail={"line": line, "nvml_version": match[1]})
    return None


class BadCellError(ValueError):
    """A cell of a known numeric column that is neither a number nor a mark for "not available"."""


def _number(cell: str, field: Field, default_unit: str) -> int | float | None:
    found = text.quantity(cell)
    if found is None:
        raise BadCellError(cell)
    value, unit = found
    unit = unit or field.unit or default_unit
    if unit and unit not in text.UNITS:
        raise BadCellError(cell)
    return text.scaled(value, unit)


def _extra(cell: str, field: Field) -> tuple[str, Value]:
    """Name with unit suffix, and value, of a field that has no column of its own."""
    found = text.quantity(cell)
    name = re.sub(r"\W+", "_", field.name)
    coded = len(cell) > 1 and cell[0] == "0" and cell[1].isdigit()  # a serial number, not a quantity
    if coded or found is None or (found[1] and found[1] not in text.UNITS):
        return name, cell
    unit = found[1] or field.unit
    suffix = text.UNITS.get(unit, (1, ""))[1]
    return (f"{name}_{suffix}" if suffix else name), text.scaled(found[0], unit)


def _row(cells: Sequence[str], fields: Sequence[Field]) -> Row:
    """One CSV line as a row. Raises BadCellError."""
    row: Row = {}
    missing: dict[str, str] = {}
    extra: dict[str, Value] = {}
    active: list[str] | None = None
    for cell, field in zip(cells, fields, strict=True):
        absent = cell in text.ABSENT or _BRACKETED.match(cell) is not None
        if field.name in _NUMERIC:
            column, unit = _NUMERIC[field.name]
            row[column] = None if absent else _number(cell, field, unit)
        elif field.name in _TEXT:
            column = _TEXT[field.name]
            row[column] = None if absent else cell
        elif field.name == _MASK:
            column = "throttle_mask"
            row[column] = None if absent else _mask(cell)
            if row[column] is not None:
                active = [name for bit, name in THROTTLE_BITS.items() if row[column] & bit]
        elif field.name in _FLAGS:
            column = field.name
            if not absent:
                active = active if active is not None else []
                if cell == "Active" and _FLAGS[field.name] not in active:
                    active.append(_FLAGS[field.name])
        else:
            column, value = _extra(cell, field)
            extra[column] = None if absent else value
        if absent:
            missing[column] = cell.strip("[]") or "empty cell"
    if active is not None:
        row["throttle_reasons"] = [name for name in active if name != "gpu_idle"]
    row["extra"] = extra
    row["missing"] = missing
    return row


def _mask(cell: str) -> int:
    try:
        return int(cell, 16)
    except ValueError:
        raise BadCellError(cell) from None


def parse(lines: Iterable[str], fields: Sequence[str] | None = None) -> Iterator[Item]:
    """Rows of a query, one per GPU and sample.

    fields  the field list of the query, needed for noheader output; a header in the text wins over it. Without
            either, rows hold `cells` only (values in order, units removed to base units).
    """
    header = [field_of(name) or Field(name, "") for name in fields] if fields else None
    merged = _merge_index(header)
    for line in text.cleaned(lines):
        if not line:
            continue
        event = sentence(line)
        if event is not None:
            yield event
            continue
        found = header_of(line)
        if found is not None:
            header, merged = found, _merge_index(found)
            continue
        cells = [part.strip() for part in line.split(",")]
        if header is None:
            yield {"cells": [_bare(part) for part in cells], "extra": {}, "missing": {}} if len(cells) > 1 else SKIP
            continue
        surplus = len(cells) - len(header)
        if surplus > 0 and merged is not None:  # a process name may hold commas
            cells[merged : merged + surplus + 1] = [", ".join(cells[merged : merged + surplus + 1])]
        if len(cells) != len(header):
            yield SKIP
            continue
        try:
            yield _row(cells, header)
        except BadCellError:
            yield SKIP


def _merge_index(header: Sequence[Field] | None) -> int | None:
    names = [field.name for field in header or ()]
    return names.index("process_name") if "process_name" in names else None


def _bare(cell: str) -> Value:
    if cell in text.ABSENT or _BRACKETED.match(cell):
        return None
    found = text.quantity(cell)
    if found is None or (found[1] and found[1] not in text.UNITS):
        return cell
    return text.scaled(*found)


def parse_csv(output: str, fields: Sequence[str] | None = None) -> Parsed:
    """`parse` over a whole text."""
    return collect(parse(output.splitlines(), fields))


def sniff(head: str) -> int:
    """A header of field names, or lines of cells with a mark or unit that nvidia-smi prints."""
    lines = [text.clean(line) for line in head.splitlines()[:20]]
    lines = [line for line in lines if line]
    if not lines:
        return 0
    if any(sentence(line) for line in lines):
        return 90
    header = header_of(lines[0])
    if header and any(item.name in _NUMERIC or item.name in _TEXT for item in header) and "," in lines[0]:
        return 95 if any((item.name in _NUMERIC and item.unit) or item.name == "uuid" for item in header) else 70
    cells = [part.strip() for part in lines[0].split(",")]
    if len(cells) < 2 or "=" in lines[0] or "{" in lines[0]:
        return 0
    same = all(line.count(",") == lines[0].count(",") for line in lines)
    marks = sum(bool(_MARK.match(part)) for part in cells)
    name = lines[0].startswith(("NVIDIA", "GeForce", "Tesla", "Quadro"))
    if same and (marks or name):
        return 60
    bare = len(cells) > 2 and ", " in lines[0] and all(text.number(part) is not None for part in cells)
    return 25 if same and bare else 0


_MARK = re.compile(
    r"\[(?:N/A|Not Supported|Unknown Error|GPU is lost)\]\Z|[\d.]+ (?:W|%|MHz|MiB)\Z|GPU-[0-9a-f-]{8,}\Z"
)

KIND: Final = Kind(
    name="nvidia_smi_csv",
    title="nvidia-smi --query-gpu / --query-compute-apps, CSV",
    columns=columns(
        """
        index                   int   -     position while all GPUs are healthy; use uuid or pci_bus_id as key
        uuid                    text  -
        name                    text  -
        pci_bus_id              text  -
        timestamp               text  -     node's local time, no zone
        driver_version          text  -
        count                   int   -
        util_pct                float %     share of time in which any kernel ran
        mem_util_pct            float %
        mem_total_bytes         int   bytes
        mem_used_bytes          int   bytes of the process, in compute-apps
        mem_free_bytes          int   bytes
        mem_reserved_bytes      int   bytes
        temp_c                  float C
        mem_temp_c              float C
        power_w                 float W
        power_avg_w             float W
        power_instant_w         float W
        power_limit_w           float W
        power_enforced_limit_w  float W
        power_default_limit_w   float W
        power_max_limit_w       float W
        sm_clock_mhz            float MHz
        graphics_clock_mhz      float MHz
        mem_clock_mhz           float MHz
        sm_clock_max_mhz        float MHz
        graphics_clock_max_mhz  float MHz
        mem_clock_max_mhz       float MHz
        fan_pct                 float %
        pstate                  text  -
        pcie_gen                int   -
        pcie_width              int   -
        pcie_gen_max            int   -
        pcie_width_max          int   -
        ecc_uncorrected_total   int   -     volatile: since the driver was loaded
        ecc_corrected_total     int   -
        throttle_mask           int   -     bits of nvmlClocksEventReason
        throttle_reasons        list  -     active reasons without gpu_idle
        throttle_sw_power_cap_us    int us  cumulative, as are the next four
        throttle_sync_boost_us      int us
        throttle_sw_thermal_us      int us
        throttle_hw_thermal_us      int us
        throttle_hw_power_brake_us  int us
        persistence_mode        text  -
        compute_mode            text  -
        mig_mode                text  -
        pid                     int   -
        process_name            text  -
        extra                   map   -     every other field, named with its unit
        missing                 map   -     column -> why it is null
        cells                   list  -     only without a header and without a field list
        """
    ),
    sniff=sniff,
    parse=parse,
    events=(
        "gpu_lost",
        "gpu_unreachable",
        "driver_mismatch",
        "driver_unavailable",
        "invalid_field",
        "nvidia_smi_message",
    ),
)
