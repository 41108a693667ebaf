"""GPUs by nvidia-smi: one short query a tick, so that a hung tool is killed and shown.

The driver is asked once which of our fields it knows (--help-query-gpu); a field that a query calls invalid all the
same is dropped. When the query fails (a lost GPU ends it for all), every GPU is asked by its own PCI address.
"""

from __future__ import annotations

import re
from typing import Any, Final

from runners.formats import nvidia_smi, text
from runners.formats.base import Event, Skip
from runners.probes.base import Frame, Parsed, ProbeContext, event, parse_frames
from runners.probes.tool import answer, reasons, tool_argv, trouble
from runners.spec import Node
from store.records import GpuSample, Record

_FIELDS: Final = (
    "index",
    "uuid",
    "pci.bus_id",
    "name",
    "pstate",
    "utilization.gpu",
    "utilization.memory",
    "memory.used",
    "memory.total",
    "power.draw",
    "power.limit",
    "temperature.gpu",
    "clocks.sm",
    "clocks.mem",
    "clocks_event_reasons.active|clocks_throttle_reasons.active",  # the name before driver 535
    "ecc.errors.uncorrected.volatile.total",
    "ecc.errors.corrected.volatile.total",
    "pcie.link.gen.current",
    "pcie.link.width.current",
    *(
        f"clocks_event_reasons_counters.{name}|clocks_throttle_reasons_counters.{name}"
        for name in ("sw_power_cap", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
    ),
)

# A failure is printed when it is new and once a minute, and is asked about every 5 s. `map` remembers which index each
# PCI address had: a GPU that does not answer any more keeps its place, as a row without figures.
_SCRIPT: Final = r"""
need nvidia-smi
help=$(timeout -k 2 30 nvidia-smi --help-query-gpu 2>&1)
fields= lacks=
IFS='|'
for f in "$@"; do
  pick=
  for a in $f; do
    case $help in
      *'"index"'*) [ -z "$pick" ] && case $help in *"\"$a\""*) pick=$a;; esac;;
      *) pick=$a;;
    esac
  done
  if [ -n "$pick" ]; then fields=$fields,$pick; else lacks="$lacks $f"; fi
done
unset IFS
fields=${fields#,}
query() { call nvidia-smi --query-gpu="$fields" --format=csv,nounits "$@"; }
if [ -n "$lacks" ]; then frame lacks; printf '%s\n#end\n' "$lacks"; fi
ids= map=
for d in "${TWINRAIL_PROC:-/proc}"/driver/nvidia/gpus/*; do [ -d "$d" ] && ids="$ids ${d##*/}"; done
i=0; for id in $ids; do map="$map $i=$id"; i=$(( i + 1 )); done
remember() { # INDEX, UUID, PCI address: the first three cells of each row
  seen=
  IFS='
'
  for line in $out; do
    i=${line%%, *}; bus=${line#*, *, }; bus=${bus%%, *}
    case $i in ''|*[!0-9]*) continue;; esac
    case $bus in ''|*[!0-9A-Fa-f:.]*) continue;; esac
    seen="$seen $i=$bus"
  done
  unset IFS
  [ -z "$seen" ] || map=$seen
}
while :; do
  query
  while :; do
    case $out in 'Field "'*) ;; *) break;; esac
    bad=${out#*\"}; bad=${bad%%\"*}
    case ,$fields, in *,"$bad",*) ;; *) break;; esac
    frame lacks; printf '%s\n#end\n' "$bad"
    rest=,$fields,; rest=${rest%%,"$bad",*},${rest#*,"$bad",}; rest=${rest#,}; fields=${rest%,}
    query
  done
  if [ $rc -eq 0 ]; then
    case $map in '') remember;; esac
    told gpus
  else
    failed
    rows=; case $out in *GPU-*-*-*) rows=1;; esac
    if [ -z "$rows" ] && [ $rc -ne 124 ] && [ $rc -ne 137 ]; then
      for pair in $map; do
        query -i "${pair#*=}"
        if [ $rc -eq 0 ]; then printf '#frame gpus %s %s\n%s\n#end\n' "$t" "$m" "$out"
        else printf '#frame gone %s %s\n%s\n%s\n#end\n' "$t" "$m" "$pair" "$out"; fi
      done
    fi
    sleep 4
  fi
  pause
done
"""


class NvidiaProbe:
    name = "nvidia"
    needs_server = False
    vendor = "nvidia"

    def argv(self, node: Node, interval_s: float = 1.0, url: str | None = None) -> list[str]:
        return tool_argv(_SCRIPT, self.name, interval_s, *_FIELDS)

    def parse(self, data: bytes, context: ProbeContext, final: bool = False) -> Parsed:
        return parse_frames(data, context, final, _rows)


def _rows(frame: Frame, context: ProbeContext) -> tuple[list[Record], int]:
    body = frame.text()
    if frame.kind == "lacks":
        return [event(frame, context, "probe_field_missing", "info", " ".join(body.split())[:1000])], 0
    if frame.kind == "gone":
        return _gone(frame, context)
    failed = trouble(frame, context, "nvidia-smi")
    if frame.kind != "gpus" and failed is None:
        return [], 1
    records: list[Record] = []
    bad = 0
    lines = body.splitlines() if failed is None else answer(body)[1]
    for item in nvidia_smi.parse(lines):
        if isinstance(item, Event):
            severity = "fatal" if item.name == "gpu_lost" else "warn"
            records.append(event(frame, context, item.name, severity, text.shown(str(item.detail.get("line", "")))))
        elif isinstance(item, Skip):
            bad += 1
        elif item.get("index") is not None:
            records.append(_gpu(item, frame, context))
        elif "cells" not in item:
            bad += 1
    if failed is not None:
        records += failed
        bad = 0  # what a failing tool says is in the event; it is no broken row
    return records, bad


_ADDRESS = re.compile(r"GPU ?(?:\d*: ?)?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f.]+): ?")


def _gone(frame: Frame, context: ProbeContext) -> tuple[list[Record], int]:
    """A GPU that did not answer: a row without figures at its old index, with what the tool said."""
    lines = frame.text().splitlines()
    index, _, bus = lines[0].partition("=") if lines else ("", "", "")
    number = text.integer(index)
    if number is None or number > 4096:
        return [], 1
    said = text.shown("; ".join(filter(None, map(text.clean, lines[1:])))[:300])
    named = _ADDRESS.search(said)
    other = named is not None and named[1].upper()[-10:] != bus.upper()[-10:]  # domains are written with 4 or 8 digits
    why = {"figures": f"nvidia-smi fails for another GPU, {named[1]}"} if named is not None and other else {}
    row = {
        "index": number,
        "pci_bus_id": text.shown(bus, 32),
        "missing": why or {"all": said[named.end() :] if named is not None else said or "no answer"},
    }
    return [_gpu(row, frame, context)], 0


# row of nvidia_smi.parse -> column, where the names differ
_COLUMNS: Final = {
    "uuid": "uuid",
    "name": "name",
    "pci_bus_id": "pci_bus_id",
    "util_pct": "util_pct",
    "mem_util_pct": "mem_util_pct",
    "mem_used_bytes": "mem_used_bytes",
    "mem_total_bytes": "mem_total_bytes",
    "power_w": "power_w",
    "power_limit_w": "power_limit_w",
    "temp_c": "temp_c",
    "sm_mhz": "sm_clock_mhz",
    "mem_mhz": "mem_clock_mhz",
    "pstate": "pstate",
    "pcie_gen": "pcie_gen",
    "pcie_width": "pcie_width",
    "ecc_errors_total": "ecc_uncorrected_total",
    "ecc_corrected_total": "ecc_corrected_total",
}
_HELD_BACK: Final = (
    "throttle_sw_power_cap_us",
    "throttle_sw_thermal_us",
    "throttle_hw_thermal_us",
    "throttle_hw_power_brake_us",
)


def _gpu(row: dict[str, Any], frame: Frame, context: ProbeContext) -> GpuSample:
    """The counters of throttled time overlap (a hot card is also power-capped), so the largest stands for all."""
    active = row.get("throttle_reasons")
    held = [v for name in _HELD_BACK if (v := row.get(name)) is not None]
    return GpuSample(
        run_id=context.run_id,
        node=context.node,
        wall_ns=frame.wall_ns,
        mono_ns=frame.mono_ns,
        source="nvidia-smi",
        gpu=row["index"],
        throttle=None if active is None else ",".join(active),
        throttled_us_total=max(held) if held else None,
        missing=reasons(row.get("missing", {})),
        **{column: row.get(name) for column, name in _COLUMNS.items()},
    )
