"""AMD GPUs by amd-smi, or by rocm-smi where only that is there."""

from __future__ import annotations

from typing import Any, Final

from runners.formats import amd
from runners.formats.base import Skip
from runners.probes.base import Frame, Parsed, ProbeContext, parse_frames
from runners.probes.tool import reasons, tool_argv, trouble
from runners.spec import Node
from store.records import GpuSample, Record

_SCRIPT: Final = r"""
need amd-smi rocm-smi
while :; do
  case $tool in
    amd-smi) call amd-smi metric --json;;
    *) call rocm-smi --showuse --showmemuse --showmeminfo vram --showpower --showmaxpower --showtemp --showclocks \
         --showperflevel --showbus --showuniqueid --json;;
  esac
  told "${tool%-smi}"
  pause
done
"""


class AmdProbe:
    name = "amd"
    needs_server = False
    vendor = "amd"

    def argv(self, node: Node, interval_s: float = 1.0, url: str | None = None) -> list[str]:
        return tool_argv(_SCRIPT, self.name, interval_s)

    def parse(self, data: bytes, context: ProbeContext, final: bool = False) -> Parsed:
        return parse_frames(data, context, final, _rows)


def _rows(frame: Frame, context: ProbeContext) -> tuple[list[Record], int]:
    failed = trouble(frame, context, "amd-smi or rocm-smi")
    if failed is not None:
        return failed, 0
    parse = {"amd": amd.parse_amd, "rocm": amd.parse_rocm}.get(frame.kind)
    if parse is None:
        return [], 1
    records: list[Record] = []
    bad = 0
    for item in parse(frame.text().splitlines()):
        if isinstance(item, Skip) or (isinstance(item, dict) and item.get("index") is None):
            bad += 1
        elif isinstance(item, dict):
            records.append(_gpu(item, frame, context))
    return records, bad


def _gpu(row: dict[str, Any], frame: Frame, context: ProbeContext) -> GpuSample:
    throttle = row.get("throttle_status")
    known = {"UNTHROTTLED": "", "THROTTLED": "throttled"}.get(str(throttle).upper(), throttle)
    temp = row.get("temp_c") if isinstance(row.get("temp_c"), int | float) else row.get("temp_junction_c")
    return GpuSample(
        run_id=context.run_id,
        node=context.node,
        wall_ns=frame.wall_ns,
        mono_ns=frame.mono_ns,
        source=f"{frame.kind}-smi",
        gpu=row["index"],
        uuid=row.get("unique_id"),
        pci_bus_id=row.get("pci_bus_id"),
        mem_util_pct=_number(row.get("mem_activity_pct")),
        sm_mhz=_number(row.get("sm_clock_mhz")),
        mem_mhz=_number(row.get("mem_clock_mhz")),
        pstate=row.get("perf_level"),
        throttle=known if isinstance(known, str) else None,
        missing=reasons(row.get("missing", {})),
        name=row.get("name"),
        util_pct=_number(row.get("util_pct")),
        mem_used_pct=_number(row.get("mem_used_pct")),
        mem_used_bytes=None if (used := _number(row.get("mem_used_bytes"))) is None else round(used),
        mem_total_bytes=None if (total := _number(row.get("mem_total_bytes"))) is None else round(total),
        power_w=_number(row.get("power_w")),
        power_limit_w=_number(row.get("power_limit_w")),
        temp_c=_number(temp),
    )


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None
