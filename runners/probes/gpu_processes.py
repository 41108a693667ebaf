"""Which processes hold memory on NVIDIA GPUs. Whose they are follows from the threads probe: it knows our servers."""

from __future__ import annotations

from typing import Final

from runners.formats import nvidia_smi, text
from runners.formats.base import Event, Skip
from runners.probes.base import Frame, Parsed, ProbeContext, event, parse_frames
from runners.probes.tool import tool_argv, trouble
from runners.spec import Node
from store.records import GpuProcess, Record

EVERY: Final = 10  # intervals between two samples

_SCRIPT: Final = r"""
need nvidia-smi
while :; do
  call nvidia-smi --query-compute-apps=pid,process_name,gpu_uuid,used_memory --format=csv,nounits
  told processes
  pause
done
"""


class GpuProcessesProbe:
    name = "gpu_processes"
    needs_server = False
    vendor = "nvidia"

    def argv(self, node: Node, interval_s: float = 1.0, url: str | None = None) -> list[str]:
        return tool_argv(_SCRIPT, self.name, interval_s * EVERY)

    def parse(self, data: bytes, context: ProbeContext, final: bool = False) -> Parsed:
        return parse_frames(data, context, final, _rows)


def _rows(frame: Frame, context: ProbeContext) -> tuple[list[Record], int]:
    failed = trouble(frame, context, "nvidia-smi --query-compute-apps")
    if failed is not None:
        return failed, 0
    if frame.kind != "processes":
        return [], 1
    lines = frame.text().splitlines()
    records: list[Record] = []
    bad = 0
    for item in nvidia_smi.parse(lines):
        if isinstance(item, Event):
            if item.name != "nvidia_smi_message":  # "No running processes found" is an answer
                records.append(event(frame, context, item.name, "warn", text.shown(str(item.detail.get("line", "")))))
        elif isinstance(item, Skip) or item.get("pid") is None:
            bad += 1
        else:
            records.append(
                GpuProcess(
                    run_id=context.run_id,
                    node=context.node,
                    wall_ns=frame.wall_ns,
                    mono_ns=frame.mono_ns,
                    source="nvidia-smi",
                    pid=item["pid"],
                    gpu_uuid=item.get("gpu_uuid") or item.get("uuid"),
                    name=text.shown(item["process_name"], 80) if item.get("process_name") else None,
                    mem_used_bytes=item.get("mem_used_bytes"),
                )
            )
    return records, bad
