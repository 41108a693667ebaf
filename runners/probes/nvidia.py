"""GPUs by nvidia-smi: one short query a tick, so that a hung tool is killed and shown.

The driver is asked once which of our fields it knows (--help-query-gpu); a field that a query calls invalid all the
same is dropped. When the query fails (a lost GPU ends it for all), every GPU is asked by its own PCI address.
"""

from __future__ import annotations

from typing import Any, Final

from runners.formats import nvidia_smi, text
from runners.formats.base import Event, Skip
from runners.probes.base import Frame, Parsed, ProbeContext, event, parse_frames, sh_argv
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
)

# A failure is printed when it is new and once a minute, and is asked about every 5 s.
_SCRIPT: Final = r"""
limit=10
if ! command -v nvidia-smi >/dev/null 2>&1; then
  frame unavailable; printf 'nvidia-smi is not in PATH\n#end\n'; exit 0
fi
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
query() { timeout -k 2 $limit nvidia-smi --query-gpu="$fields" --format=csv,nounits "$@" 2>&1; }
if [ -n "$lacks" ]; then frame lacks; printf '%s\n#end\n' "$lacks"; fi
ids= last= n=0
for d in "${TWINRAIL_PROC:-/proc}"/driver/nvidia/gpus/*; do [ -d "$d" ] && ids="$ids ${d##*/}"; done
while :; do
  stamp
  out=$(query); rc=$?
  while :; do
    case $out in 'Field "'*) ;; *) break;; esac
    bad=${out#*\"}; bad=${bad%%\"*}
    case ,$fields, in *,"$bad",*) ;; *) break;; esac
    frame lacks; printf '%s\n#end\n' "$bad"
    rest=,$fields,; rest=${rest%%,"$bad",*},${rest#*,"$bad",}; rest=${rest#,}; fields=${rest%,}
    stamp; out=$(query); rc=$?
  done
  if [ $rc -eq 0 ]; then
    printf '#frame gpus %s %s\n%s\n#end\n' "$t" "$m" "$out"; last= n=0
  else
    if [ "$rc $out" != "$last" ] || [ $(( n % 12 )) -eq 0 ]; then
      printf '#frame failed %s %s\n#rc %s\n%s\n#end\n' "$t" "$m" $rc "$out"
    fi
    last="$rc $out"; n=$(( n + 1 ))
    rows=; case $out in *GPU-*-*-*) rows=1;; esac
    if [ -z "$rows" ] && [ $rc -ne 124 ] && [ $rc -ne 137 ]; then
      for id in $ids; do
        stamp; out=$(query -i "$id") && printf '#frame gpus %s %s\n%s\n#end\n' "$t" "$m" "$out"
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

    def argv(self, node: Node, interval_s: float = 1.0, url: str | None = None) -> list[str]:
        return sh_argv(_SCRIPT, self.name, interval_s, *_FIELDS)

    def parse(self, data: bytes, context: ProbeContext, final: bool = False) -> Parsed:
        return parse_frames(data, context, final, _rows)


def _rows(frame: Frame, context: ProbeContext) -> tuple[list[Record], int]:
    body = frame.text()
    if frame.kind == "unavailable":
        return [event(frame, context, "source_unavailable", "info", f"nvidia-smi: {body.strip()[:300]}")], 0
    if frame.kind == "lacks":
        return [event(frame, context, "probe_field_missing", "info", " ".join(body.split())[:1000])], 0
    if frame.kind not in ("gpus", "failed"):
        return [], 1
    records: list[Record] = []
    bad = 0
    status = None
    said: list[str] = []
    lines = body.splitlines()
    if frame.kind == "failed" and lines and lines[0].startswith("#rc "):
        status = text.integer(lines.pop(0)[4:])
        said = [clean for line in lines if (clean := text.clean(line))]
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
    if status in (124, 137):
        records.append(event(frame, context, "source_hung", "warn", "nvidia-smi did not answer in 10 s and was killed"))
    elif status is not None:
        detail = text.shown("; ".join(said)) or "no output"
        records.append(event(frame, context, "source_failed", "warn", f"nvidia-smi exit {status}: {detail}"))
        bad = 0  # what a failing tool says is in the event; it is no broken row
    return records, bad


def _gpu(row: dict[str, Any], frame: Frame, context: ProbeContext) -> GpuSample:
    reasons = row.get("throttle_reasons")
    return GpuSample(
        run_id=context.run_id,
        node=context.node,
        wall_ns=frame.wall_ns,
        mono_ns=frame.mono_ns,
        source="nvidia-smi",
        gpu=row["index"],
        uuid=row.get("uuid"),
        name=row.get("name"),
        util_pct=row.get("util_pct"),
        mem_util_pct=row.get("mem_util_pct"),
        mem_used_bytes=row.get("mem_used_bytes"),
        mem_total_bytes=row.get("mem_total_bytes"),
        power_w=row.get("power_w"),
        power_limit_w=row.get("power_limit_w"),
        temp_c=row.get("temp_c"),
        sm_mhz=row.get("sm_clock_mhz"),
        mem_mhz=row.get("mem_clock_mhz"),
        pstate=row.get("pstate"),
        throttle=None if reasons is None else ",".join(reasons),
        ecc_errors_total=row.get("ecc_uncorrected_total"),
    )
