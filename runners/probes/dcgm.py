"""DCGM where it runs: SM, tensor and memory activity, PCIe, by `dcgmi dmon`.

The profiling counters have one owner: while a profiler (Nsight) holds them every value is N/A, which is told as an
event and never shown as zero. The tool runs a minute at a time: one that hangs is killed and started again. The first
sample of each start is often N/A, since the fields have only begun to be watched.
"""

from __future__ import annotations

from typing import Any, Final

from runners.formats import hash_table, text
from runners.formats.base import Event, Skip
from runners.probes.base import Frame, Parsed, ProbeContext, event, parse_frames
from runners.probes.tool import reasons, tool_argv, trouble
from runners.spec import Node
from store.records import GpuSample, Record

FIELDS: Final = "1002,1003,1004,1005,1009,1010"  # SMACT SMOCC TENSO DRAMA PCITX PCIRX (dcgm_fields.h)

# A header begins each page of rows and says which columns there are; it is kept for the samples that follow.
_SCRIPT: Final = r"""
need dcgmi
count=60
emit() {
  [ -n "$rows" ] || return
  frame dcgm; printf '%s\n%s#end\n' "$head" "$rows"
  case $rows in *.*) empty=0;; *) empty=$(( empty + 1 ));; esac
  [ $empty -ne 3 ] || { frame paused; printf 'every counter is N/A\n#end\n'; }
  rows=
}
one_minute() {
  { timeout -k 2 $(( count * I / 1000000000 + 15 )) dcgmi dmon -e "$1" -d $(( I / 1000000 )) -c $count 2>&1 </dev/null
    echo "#rc $?"; } | {
    head= rows= first= bad= empty=0
    while IFS= read -r line; do
      case $line in
        '#rc '*) emit; rc=${line#\#rc }; out=$bad; stamp; [ "$rc" -eq 0 ] || { failed; sleep 45; };;
        '#'*Entity*) head=$line;;
        'GPU '*) key=${line#GPU }; key=${key%% *}
          [ -n "$first" ] || first=$key
          [ "$key" != "$first" ] || emit
          rows="$rows$line
";;
        ID*|'# ID'*|'#ID'*) ;;
        ?*) bad="$bad$line
";;
      esac
    done
  }
}
while :; do one_minute "$1"; pause; done
"""


class DcgmProbe:
    name = "dcgm"
    needs_server = False
    vendor = "nvidia"

    def argv(self, node: Node, interval_s: float = 1.0, url: str | None = None) -> list[str]:
        return tool_argv(_SCRIPT, self.name, interval_s, FIELDS)

    def parse(self, data: bytes, context: ProbeContext, final: bool = False) -> Parsed:
        return parse_frames(data, context, final, _rows)


def _rows(frame: Frame, context: ProbeContext) -> tuple[list[Record], int]:
    failed = trouble(frame, context, "dcgmi dmon")
    if failed is not None:
        return failed, 0
    if frame.kind == "paused":
        said = "dcgmi gives N/A for every profiling counter: a profiler holds them, or the GPU has none"
        return [event(frame, context, "profiling_paused", "info", said)], 0
    if frame.kind != "dcgm":
        return [], 1
    records: list[Record] = []
    bad = 0
    for item in hash_table.parse_dcgmi(frame.text().splitlines()):
        if isinstance(item, Event):
            records.append(event(frame, context, item.name, "warn", text.shown(str(item.detail.get("line", "")))))
        elif isinstance(item, Skip):
            bad += 1
        elif item["entity"] == "GPU":
            records.append(_gpu(item, frame, context))
    return records, bad


_SHARES: Final = {
    "sm_active_pct": "sm_active_ratio",
    "sm_occupancy_pct": "sm_occupancy_ratio",
    "tensor_active_pct": "tensor_active_ratio",
    "dram_active_pct": "dram_active_ratio",
}


def _gpu(row: dict[str, Any], frame: Frame, context: ProbeContext) -> GpuSample:
    shares = {column: None if (v := row.get(name)) is None else 100.0 * v for column, name in _SHARES.items()}
    return GpuSample(
        run_id=context.run_id,
        node=context.node,
        wall_ns=frame.wall_ns,
        mono_ns=frame.mono_ns,
        source="dcgm",
        gpu=row["index"],
        pcie_rx_bps=row.get("pcie_rx_bytes_per_s"),
        pcie_tx_bps=row.get("pcie_tx_bytes_per_s"),
        missing=reasons(row["missing"]),
        **shares,
    )
