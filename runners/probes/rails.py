"""Port counters of every RDMA device from /sys/class/infiniband (RoCE bypasses the kernel's netdev counters).

Files and units: Linux Documentation/ABI/stable/sysfs-class-infiniband; NVIDIA's list of mlx5 hw_counters. The base
path is TWINRAIL_SYS (default /sys), so that simulated nodes can show a tree of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from runners.formats import sysfs
from runners.formats.base import Skip
from runners.probes.base import Frame, Parsed, ProbeContext, event, parse_frames, sections, sh_argv
from runners.spec import Node
from store.records import RailSample, Record

_ERRORS: Final = ("port_rcv_errors", "symbol_error", "local_link_integrity_errors", "link_error_recovery")
_DROPS: Final = ("port_xmit_discards", "out_of_buffer")
# One lost packet shows in several of these; they say that the wire or the peer made us send again.
_RETRANSMITS: Final = (
    "local_ack_timeout_err",
    "packet_seq_err",
    "implied_nak_seq_err",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
)
_COUNTERS: Final = (
    "port_xmit_data",
    "port_rcv_data",
    "port_xmit_packets",
    "port_rcv_packets",
    *_ERRORS,
    *_DROPS,
    *_RETRANSMITS,
    "out_of_sequence",
    "np_cnp_sent",
    "rp_cnp_handled",
    "np_ecn_marked_roce_packets",
    "port_xmit_wait",
    "link_downed",
)

# The list of files is made anew every 30 ticks: a port may come up late. One `head -v` reads them all.
_SCRIPT: Final = r"""
base=${TWINRAIL_SYS:-/sys}/class/infiniband; n=0 said=
while :; do
  if [ $(( n % 30 )) -eq 0 ]; then
    files=
    if cd "$base" 2>/dev/null; then
      for port in */ports/*; do
        for f in state phys_state rate link_layer; do [ -r "$port/$f" ] && files="$files $port/$f"; done
        for f in "$@"; do
          for g in counters hw_counters; do [ -r "$port/$g/$f" ] && files="$files $port/$g/$f"; done
        done
      done
    fi
  fi
  n=$(( n + 1 ))
  if [ -n "$files" ]; then
    frame rails; head -v -n 1 $files 2>/dev/null; printf '#end\n'; said=
  elif [ -z "$said" ]; then
    frame unavailable; printf 'no port below %s\n#end\n' "$base"; said=1
  fi
  pause
done
"""


class RailsProbe:
    name = "rails"
    needs_server = False

    def argv(self, node: Node, interval_s: float = 1.0, url: str | None = None) -> list[str]:
        return sh_argv(_SCRIPT, self.name, interval_s, *_COUNTERS)

    def parse(self, data: bytes, context: ProbeContext, final: bool = False) -> Parsed:
        return parse_frames(data, context, final, _rows)


def _rows(frame: Frame, context: ProbeContext) -> tuple[list[Record], int]:
    if frame.kind == "unavailable":
        return [event(frame, context, "source_unavailable", "info", f"rails: {frame.text().strip()[:300]}")], 0
    if frame.kind != "rails":
        return [], 1
    found = sections(frame.text())
    lines: Iterator[str] = (f"class/infiniband/{path}:{next(iter(v), '')}" for path, v in found.items())
    records: list[Record] = []
    bad = 0
    for item in sysfs.parse(lines):
        if isinstance(item, dict):
            records.append(_port(item, frame, context))
        elif isinstance(item, Skip):
            bad += 1
    return records, bad


def _sum(counts: Mapping[str, int | None], names: tuple[str, ...]) -> int | None:
    """The sum over the counters that the port has; None when it has none of them."""
    known = [v for name in names if (v := counts.get(name)) is not None]
    return sum(known) if known else None


def _port(row: dict[str, Any], frame: Frame, context: ProbeContext) -> RailSample:
    counts: dict[str, int | None] = {**row["counters"], **row["hw_counters"]}
    return RailSample(
        run_id=context.run_id,
        node=context.node,
        wall_ns=frame.wall_ns,
        mono_ns=frame.mono_ns,
        source="sysfs",
        device=row["hca"],
        port=row["port"],
        door="rdma",
        state=row["state"],
        rate_gbps=row["rate_gbps"],
        rx_bytes=row["rcv_bytes"],
        tx_bytes=row["xmit_bytes"],
        rx_packets=row["rcv_packets"],
        tx_packets=row["xmit_packets"],
        errors_total=_sum(counts, _ERRORS),
        drops_total=_sum(counts, _DROPS),
        retransmits_total=_sum(counts, _RETRANSMITS),
        out_of_sequence_total=counts.get("out_of_sequence"),
        cnp_total=_sum(counts, ("np_cnp_sent", "rp_cnp_handled")),
        ecn_total=counts.get("np_ecn_marked_roce_packets"),
    )
