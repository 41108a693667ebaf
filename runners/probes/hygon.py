"""Hygon DCUs by hy-smi's table. Its average power is not believable on some cards: shown as it is, used for nothing."""

from __future__ import annotations

from typing import Final

from runners.formats import hy_smi
from runners.formats.base import Skip
from runners.probes.base import Frame, Parsed, ProbeContext, parse_frames
from runners.probes.tool import tool_argv, trouble
from runners.spec import Node
from store.records import GpuSample, Record

_SCRIPT: Final = r"""
need hy-smi
while :; do
  call hy-smi
  told dcus
  pause
done
"""


class HygonProbe:
    name = "hygon"
    needs_server = False
    vendor = "hygon"

    def argv(self, node: Node, interval_s: float = 1.0, url: str | None = None) -> list[str]:
        return tool_argv(_SCRIPT, self.name, interval_s)

    def parse(self, data: bytes, context: ProbeContext, final: bool = False) -> Parsed:
        return parse_frames(data, context, final, _rows)


def _rows(frame: Frame, context: ProbeContext) -> tuple[list[Record], int]:
    failed = trouble(frame, context, "hy-smi")
    if failed is not None:
        return failed, 0
    if frame.kind != "dcus":
        return [], 1
    records: list[Record] = []
    bad = 0
    for item in hy_smi.parse(frame.text().splitlines()):
        if isinstance(item, Skip):
            bad += 1
        elif isinstance(item, dict):
            records.append(
                GpuSample(
                    run_id=context.run_id,
                    node=context.node,
                    wall_ns=frame.wall_ns,
                    mono_ns=frame.mono_ns,
                    source="hy-smi",
                    gpu=item["index"],
                    util_pct=item.get("util_pct"),
                    mem_used_pct=item.get("mem_used_pct"),
                    power_w=item.get("power_w"),
                    power_limit_w=item.get("power_limit_w"),
                    temp_c=item.get("temp_c"),
                    sm_mhz=item.get("sm_clock_mhz"),
                    mem_mhz=item.get("mem_clock_mhz"),
                    pstate=item.get("perf_level"),
                )
            )
    return records, bad
