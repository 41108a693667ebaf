"""rocm-smi --json and amd-smi (JSON and text): one row per card.

rocm-smi writes every value as a string and renames keys from version to version; amd-smi writes {"value", "unit"} or
"N/A". Warnings may stand before the JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from runners.formats import jsontext, text
from runners.formats.base import SKIP, Item, Kind, Row, Value, columns

# column -> keys, any of them, old and new (rocm-smi)
_ROCM: Final[dict[str, tuple[str, ...]]] = {
    "name": ("Device Name", "Card Series", "Card series", "Card model", "Card Model"),
    "unique_id": ("Unique ID",),
    "pci_bus_id": ("PCI Bus",),
    "util_pct": ("GPU use (%)",),
    "mem_used_pct": ("GPU Memory Allocated (VRAM%)", "GPU memory use (%)"),
    "mem_activity_pct": ("GPU Memory Read/Write Activity (%)",),
    "mem_total_bytes": ("VRAM Total Memory (B)",),
    "mem_used_bytes": ("VRAM Total Used Memory (B)",),
    "temp_c": ("Temperature (Sensor edge) (C)", "Temperature (Sensor #1) (C)"),
    "temp_junction_c": ("Temperature (Sensor junction) (C)", "Temperature (Sensor hotspot) (C)"),
    "mem_temp_c": ("Temperature (Sensor memory) (C)", "Temperature (Sensor HBM 0) (C)"),
    "power_w": (
        "Current Socket Graphics Package Power (W)",
        "Average Graphics Package Power (W)",
        "Current Graphics Package Power (W)",
    ),
    "power_limit_w": ("Max Graphics Package Power (W)",),
    "fan_pct": ("Fan speed (%)", "Fan Speed (%)"),
    "perf_level": ("Performance Level",),
}
_ROCM_CLOCKS: Final = {"sm_clock_mhz": "sclk clock speed:", "mem_clock_mhz": "mclk clock speed:"}
_TEXTS: Final = frozenset({"name", "unique_id", "pci_bus_id", "perf_level"})
_CLOCK = re.compile(r"\(?(\d+(?:\.\d+)?)\s*[Mm][Hh]z\)?\Z")


def parse_rocm(lines: Iterable[str]) -> Iterator[Item]:
    """rocm-smi --json: one row per card; what has no column goes to `extra` as written."""
    loaded = jsontext.document(lines)
    if not isinstance(loaded, dict):
        yield SKIP
        return
    system = loaded.get("system")
    driver = system.get("Driver version") if isinstance(system, dict) else None
    for card, values in loaded.items():
        if not re.fullmatch(r"card\d{1,6}", str(card)) or not isinstance(values, dict):
            if card != "system":
                yield SKIP
            continue
        yield _rocm_row(int(card[4:]), values, driver)


def _rocm_row(index: int, values: dict[str, Any], driver: Any) -> Row:
    row: Row = {"index": index, "driver_version": driver if isinstance(driver, str) else None}
    used: set[str] = set()
    missing: dict[str, str] = {}
    for column, keys in _ROCM.items():
        key = next((key for key in keys if key in values), None)
        cell = str(values[key]).strip() if key is not None else None
        if key is not None:
            used.add(key)
        if cell is None or cell in text.ABSENT:
            row[column] = None
            missing[column] = cell or "no such key"
        else:
            row[column] = cell if column in _TEXTS else text.number(cell)
    for column, key in _ROCM_CLOCKS.items():
        match = _CLOCK.match(str(values.get(key, "")))
        row[column] = text.number(match[1]) if match else None
        used.add(key)
    row["extra"] = {key: value for key, value in values.items() if key not in used}
    row["missing"] = missing
    return row


# amd-smi: path of keys -> column
_AMD: Final[dict[tuple[str, ...], str]] = {
    ("usage", "gfx_activity"): "util_pct",
    ("usage", "umc_activity"): "mem_activity_pct",
    ("power", "socket_power"): "power_w",
    ("power", "average_socket_power"): "power_w",
    ("power", "current_socket_power"): "power_w",
    ("power", "throttle_status"): "throttle_status",
    ("power", "gfx_voltage"): "gfx_voltage_mv",
    ("temperature", "edge"): "temp_c",
    ("temperature", "hotspot"): "temp_junction_c",
    ("temperature", "mem"): "mem_temp_c",
    ("mem_usage", "total_vram"): "mem_total_bytes",
    ("mem_usage", "used_vram"): "mem_used_bytes",
    ("mem_usage", "free_vram"): "mem_free_bytes",
    ("clock", "gfx_0", "clk"): "sm_clock_mhz",
    ("clock", "mem_0", "clk"): "mem_clock_mhz",
}


def _amd_value(value: Any) -> Value:
    """`{"value": 20, "unit": "W"}`, `20 W`, `N/A` -> the number in the base unit, else None; MB mean MiB here."""
    unit = ""
    if isinstance(value, dict):
        unit, value = str(value.get("unit") or ""), value.get("value")
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        if value.strip() in text.ABSENT:
            return None
        found = text.quantity(value)
        if found is None:
            return value.strip()
        value, unit = found[0], found[1] or unit
    if not isinstance(value, int | float):
        return None
    return text.scaled(value, {"MB": "MiB", "GB": "GiB"}.get(unit, unit))


def _amd_row(index: int | None, flat: dict[tuple[str, ...], Any]) -> Row:
    row: Row = {"index": index, **dict.fromkeys(_AMD.values())}
    extra: dict[str, Value] = {}
    for path, value in flat.items():
        column = _AMD.get(path)
        if column is None:
            extra[".".join(path)] = (
                [_amd_value(item) for item in value] if isinstance(value, list) else _amd_value(value)
            )
        elif row[column] is None:
            row[column] = _amd_value(value)
    return {**row, "extra": extra}


def _flatten(value: dict[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, item in value.items():
        path = (*at, str(key).lower())
        if isinstance(item, dict) and not ({"value", "unit"} >= set(item)) and len(path) < 8:
            yield from _flatten(item, path)
        else:
            yield path, item


def parse_amd_json(source: str) -> Iterator[Item]:
    """amd-smi metric --json: a list of GPUs, or {"gpu_data": [...]} in newer versions."""
    loaded = jsontext.salvage(source)
    if isinstance(loaded, dict):
        loaded = loaded.get("gpu_data", [loaded])
    for gpu in loaded if isinstance(loaded, list) else [None]:
        if not isinstance(gpu, dict) or "gpu" not in gpu:
            yield SKIP
            continue
        flat = dict(_flatten({key: value for key, value in gpu.items() if key != "gpu"}))
        yield _amd_row(gpu["gpu"] if isinstance(gpu["gpu"], int) else None, flat)


_INDENTED = re.compile(r"( *)([\w /%().-]+?):(?: (.*))?\Z")


def parse_amd_text(lines: Iterable[str]) -> Iterator[Item]:
    """amd-smi metric, text: indented keys; a list may wrap over lines."""
    index: int | None = None
    flat: dict[tuple[str, ...], Any] = {}
    path: list[tuple[int, str]] = []
    open_key: tuple[str, ...] | None = None
    started = False
    for line in text.cleaned(lines):
        if open_key is not None:
            flat[open_key] = f"{flat[open_key]} {line.strip()}"[: text.MAX_LINE]
            if line.rstrip().endswith("]"):
                flat[open_key], open_key = _listed(flat[open_key]), None
            continue
        match = _INDENTED.match(line[: text.MATCHED])
        if match is None:
            if line.strip():
                yield SKIP
            continue
        depth, key, value = len(match[1]), match[2].strip().lower(), match[3]
        if depth == 0 and key == "gpu":
            if started:
                yield _amd_row(index, flat)
            index, flat, path, started = text.integer(value or ""), {}, [], True
            continue
        path = [part for part in path if part[0] < depth]
        full = (*(name for _, name in path), key)
        if value is None or not value.strip():
            path.append((depth, key))
        elif value.startswith("[") and not value.endswith("]"):
            flat[full], open_key = value, full
        else:
            flat[full] = _listed(value) if value.startswith("[") else value
    if started:
        yield _amd_row(index, flat)


def _listed(value: str) -> list[str]:
    return [part.strip() for part in value.strip("[] ").split(",")]


def parse_amd(lines: Iterable[str]) -> Iterator[Item]:
    """amd-smi metric in either form."""
    whole = text.document(lines) or ""
    if re.search(r"^[ \t]*[\[{]", whole, re.MULTILINE) and "GPU: " not in whole[:200]:
        return parse_amd_json(whole)
    return parse_amd_text(whole.splitlines())


def _sniff_rocm(head: str) -> int:
    return 95 if re.search(r'"card\d{1,4}": \{', head) else 0


def _sniff_amd(head: str) -> int:
    if re.search(r"^GPU: \d+\s*$", head, re.MULTILINE) and re.search(r"^ {4}[A-Z_]+:\s*$", head, re.MULTILINE):
        return 92
    return 90 if re.search(r'"gpu": \d+', head) and re.search(r'"(?:gfx_activity|socket_power|mem_usage)"', head) else 0


KIND_ROCM: Final = Kind(
    "rocm_smi",
    "rocm-smi --json",
    columns(
        "index int -\nname text -\nunique_id text -\npci_bus_id text -\ndriver_version text -\nutil_pct float %\n"
        "mem_used_pct float %\nmem_activity_pct float %\nmem_total_bytes int bytes\nmem_used_bytes int bytes\n"
        "temp_c float C\ntemp_junction_c float C\nmem_temp_c float C\npower_w float W\npower_limit_w float W\n"
        "fan_pct float %\nsm_clock_mhz float MHz\nmem_clock_mhz float MHz\nperf_level text -\n"
        "extra map - as written\nmissing map - column -> why it is null"
    ),
    _sniff_rocm,
    parse_rocm,
    long_lines=True,
)
KIND_AMD: Final = Kind(
    "amd_smi",
    "amd-smi metric (text or --json)",
    columns(
        "index int -\nutil_pct float %\nmem_activity_pct float %\npower_w float W\nthrottle_status text -\n"
        "gfx_voltage_mv float mV\ntemp_c float C\ntemp_junction_c float C\nmem_temp_c float C\n"
        "mem_total_bytes int bytes\nmem_used_bytes int bytes\nmem_free_bytes int bytes\nsm_clock_mhz float MHz\n"
        "mem_clock_mhz float MHz\nextra map - path of keys -> value in base units"
    ),
    _sniff_amd,
    parse_amd,
    long_lines=True,
)
