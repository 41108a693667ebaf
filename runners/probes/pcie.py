"""PCIe traffic of NVIDIA GPUs by `nvidia-smi dmon -s t`: no query field tells it. The driver looks at 20 ms of it."""

from __future__ import annotations

from typing import Final

from runners.formats import hash_table, text
from runners.formats.base import Event, Skip
from runners.probes.base import Frame, Parsed, ProbeContext, event, parse_frames
from runners.probes.tool import reasons, tool_argv, trouble
from runners.spec import Node
from store.records import GpuSample, Record

EVERY: Final = 2  # intervals between two samples: each call wakes the driver

_SCRIPT: Final = r"""
need nvidia-smi
while :; do
  call nvidia-smi dmon -s t -c 1
  told pcie
  pause
done
"""


class PcieProbe:
    name = "pcie"
    needs_server = False
    vendor = "nvidia"

    def argv(self, node: Node, interval_s: float = 1.0, url: str | None = None) -> list[str]:
        return tool_argv(_SCRIPT, self.name, interval_s * EVERY)

    def parse(self, data: bytes, context: ProbeContext, final: bool = False) -> Parsed:
        return parse_frames(data, context, final, _rows)


def _rows(frame: Frame, context: ProbeContext) -> tuple[list[Record], int]:
    failed = trouble(frame, context, "nvidia-smi dmon")
    if failed is not None:
        return failed, 0
    if frame.kind != "pcie":
        return [], 1
    records: list[Record] = []
    bad = 0
    for item in hash_table.parse_dmon(frame.text().splitlines()):
        if isinstance(item, Event):
            records.append(event(frame, context, item.name, "warn", text.shown(str(item.detail.get("line", "")))))
        elif isinstance(item, Skip) or item.get("index") is None:
            bad += 1
        else:
            rx, tx = item.get("pcie_rx_bytes_per_s"), item.get("pcie_tx_bytes_per_s")
            absent = {name: "-" for name, value in (("pcie_rx_bps", rx), ("pcie_tx_bps", tx)) if value is None}
            records.append(
                GpuSample(
                    run_id=context.run_id,
                    node=context.node,
                    wall_ns=frame.wall_ns,
                    mono_ns=frame.mono_ns,
                    source="nvidia-smi dmon",
                    gpu=item["index"],
                    pcie_rx_bps=rx,
                    pcie_tx_bps=tx,
                    missing=reasons(absent),
                )
            )
    return records, bad
