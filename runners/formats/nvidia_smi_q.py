"""`nvidia-smi -q`, as XML (-x) and as indented text: one row per GPU, in the columns of the CSV query."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from runners.formats import text
from runners.formats.base import SKIP, Item, Kind, Row, Value, columns

# column -> paths in the XML; later schemas renamed some
_PATHS: Final[dict[str, tuple[str, ...]]] = {
    "name": ("product_name",),
    "uuid": ("uuid",),
    "persistence_mode": ("persistence_mode",),
    "mig_mode": ("mig_mode/current_mig",),
    "pstate": ("performance_state",),
    "fan_pct": ("fan_speed",),
    "pcie_gen": ("pci/pci_gpu_link_info/pcie_gen/current_link_gen",),
    "pcie_gen_max": ("pci/pci_gpu_link_info/pcie_gen/max_link_gen",),
    "pcie_width": ("pci/pci_gpu_link_info/link_widths/current_link_width",),
    "pcie_width_max": ("pci/pci_gpu_link_info/link_widths/max_link_width",),
    "pcie_tx_bytes_per_s": ("pci/tx_util",),
    "pcie_rx_bytes_per_s": ("pci/rx_util",),
    "mem_total_bytes": ("fb_memory_usage/total",),
    "mem_used_bytes": ("fb_memory_usage/used",),
    "mem_free_bytes": ("fb_memory_usage/free",),
    "util_pct": ("utilization/gpu_util",),
    "mem_util_pct": ("utilization/memory_util",),
    "temp_c": ("temperature/gpu_temp",),
    "mem_temp_c": ("temperature/memory_temp",),
    "power_w": (
        "gpu_power_readings/power_draw",
        "gpu_power_readings/instant_power_draw",
        "power_readings/power_draw",
        "gpu_power_readings/average_power_draw",
    ),
    "power_limit_w": (
        "gpu_power_readings/current_power_limit",
        "power_readings/power_limit",
        "gpu_power_readings/enforced_power_limit",
    ),
    "sm_clock_mhz": ("clocks/sm_clock",),
    "graphics_clock_mhz": ("clocks/graphics_clock",),
    "mem_clock_mhz": ("clocks/mem_clock",),
    "ecc_uncorrected_total": (
        "ecc_errors/volatile/sram_uncorrectable",
        "ecc_errors/volatile/double_bit/total",
    ),
}
# the same by the words of the text form: section, key
_WORDS: Final[dict[tuple[str, str], str]] = {
    ("", "Product Name"): "name",
    ("", "GPU UUID"): "uuid",
    ("", "Persistence Mode"): "persistence_mode",
    ("MIG Mode", "Current"): "mig_mode",
    ("", "Performance State"): "pstate",
    ("", "Fan Speed"): "fan_pct",
    ("FB Memory Usage", "Total"): "mem_total_bytes",
    ("FB Memory Usage", "Used"): "mem_used_bytes",
    ("FB Memory Usage", "Free"): "mem_free_bytes",
    ("Utilization", "Gpu"): "util_pct",
    ("Utilization", "GPU"): "util_pct",
    ("Utilization", "Memory"): "mem_util_pct",
    ("Temperature", "GPU Current Temp"): "temp_c",
    ("Temperature", "Memory Current Temp"): "mem_temp_c",
    ("Power Readings", "Power Draw"): "power_w",
    ("GPU Power Readings", "Power Draw"): "power_w",
    ("GPU Power Readings", "Instantaneous Power Draw"): "power_w",
    ("GPU Power Readings", "Average Power Draw"): "power_w",
    ("Power Readings", "Power Limit"): "power_limit_w",
    ("GPU Power Readings", "Current Power Limit"): "power_limit_w",
    ("Clocks", "SM"): "sm_clock_mhz",
    ("Clocks", "Graphics"): "graphics_clock_mhz",
    ("Clocks", "Memory"): "mem_clock_mhz",
    ("PCIe Generation", "Current"): "pcie_gen",
    ("PCIe Generation", "Max"): "pcie_gen_max",
    ("Link Width", "Current"): "pcie_width",
    ("Link Width", "Max"): "pcie_width_max",
    ("PCI", "Tx Throughput"): "pcie_tx_bytes_per_s",
    ("PCI", "Rx Throughput"): "pcie_rx_bytes_per_s",
}
_TEXTS: Final = frozenset({"name", "uuid", "persistence_mode", "mig_mode", "pstate"})


def _value(column: str, cell: str) -> Value:
    if cell in text.ABSENT:
        return None
    if column in _TEXTS:
        return cell
    if column.startswith("pcie_width"):
        cell = cell.removesuffix("x")
    found = text.quantity(cell)
    if found is None:
        return None
    if found[1] == "KB/s":
        return round(found[0] * 1000)
    return text.scaled(*found)


def _row(cells: Mapping[str, str], top: Mapping[str, Value]) -> Row:
    row: Row = dict(top)
    missing: dict[str, str] = {}
    for column in _PATHS:
        cell = cells.get(column)
        row[column] = None if cell is None else _value(column, cell)
        if row[column] is None:
            missing[column] = cell or "not in the output"
    return {**row, "missing": missing}


def _parse_xml(source: str) -> Iterator[Item]:
    if "<!ENTITY" in source:  # nvidia-smi defines none; expansion could eat the memory
        yield SKIP
        return
    try:
        root = ElementTree.fromstring(source[source.find("<") :])
    except (ElementTree.ParseError, ValueError):
        yield SKIP
        return
    top = {name: root.findtext(name) for name in ("timestamp", "driver_version", "cuda_version")}
    for index, gpu in enumerate(root.findall("gpu")):
        cells = {}
        for column, paths in _PATHS.items():
            values = [value.strip() for value in (gpu.findtext(path) for path in paths) if value is not None]
            real = next((value for value in values if value not in text.ABSENT), values[0] if values else None)
            if real is not None:
                cells[column] = real
        yield {"index": index, "pci_bus_id": gpu.get("id"), **_row(cells, top)}


_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+)\Z")
_TOP: Final = {"Timestamp": "timestamp", "Driver Version": "driver_version", "CUDA Version": "cuda_version"}


def _parse_text(lines: Iterable[str]) -> Iterator[Item]:
    top: dict[str, Value] = {}
    cells: dict[str, str] | None = None
    bus: str | None = None
    index = -1
    sections: list[tuple[int, str]] = []
    for line in text.cleaned(lines):
        match = _GPU.match(line)
        if match:
            if cells is not None:
                yield {"index": index, "pci_bus_id": bus, **_row(cells, top)}
            cells, bus, index, sections = {}, match[1], index + 1, []
            continue
        key, colon, value = line.strip().partition(" : ")
        key, value = key.strip(), value.strip()
        depth = len(line) - len(line.lstrip())
        if cells is None:
            if colon and key in _TOP:
                top[_TOP[key]] = value
            continue
        sections = [item for item in sections if item[0] < depth]
        if not colon:
            sections.append((depth, key))
        else:
            column = _WORDS.get((sections[-1][1] if sections else "", key))
            if column and (column not in cells or cells[column] in text.ABSENT):
                cells[column] = value
    if cells is not None:
        yield {"index": index, "pci_bus_id": bus, **_row(cells, top)}


def parse(lines: Iterable[str]) -> Iterator[Item]:
    """Rows of either form."""
    whole = text.document(lines)
    if whole is None:
        yield SKIP
    elif "<nvidia_smi_log>" in whole:
        yield from _parse_xml(whole)
    else:
        yield from _parse_text(whole.splitlines())


def sniff(head: str) -> int:
    """The root element, or the title of the text form."""
    return 97 if "<nvidia_smi_log>" in head or "==============NVSMI LOG==============" in head else 0


KIND: Final = Kind(
    "nvidia_smi_q",
    "nvidia-smi -q (text) and -q -x (XML)",
    columns(
        "index int - order in the output\npci_bus_id text -\ntimestamp text -\ndriver_version text -\n"
        "cuda_version text -\n"
        + "\n".join(
            f"{column} {'text' if column in _TEXTS else 'int' if column.endswith('bytes') else 'float'} "
            f"{'-' if column in _TEXTS else column.rsplit('_', 1)[-1]}"
            for column in _PATHS
        )
        + "\nmissing map - column -> why it is null"
    ),
    sniff,
    parse,
    long_lines=True,
)
