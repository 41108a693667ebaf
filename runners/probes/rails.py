"""Port counters of every RDMA device from /sys/class/infiniband (RoCE bypasses the kernel's netdev counters), and PFC
pauses from the driver by ethtool where that is installed: nothing else tells them.

Files and units: Linux Documentation/ABI/stable/sysfs-class-infiniband; NVIDIA's list of mlx5 hw_counters. The base
path is TWINRAIL_SYS (default /sys), so that simulated nodes can show a tree of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from runners.formats import ethtool, sysfs
from runners.formats.base import Skip
from runners.probes.base import Frame, Parsed, ProbeContext, event, parse_frames, sections, sh_argv
from runners.spec import Node
from store.records import RailSample, Record

_RX_ERRORS: Final = (
    "port_rcv_errors",
    "symbol_error",
    "local_link_integrity_errors",
    "port_rcv_remote_physical_errors",
    "excessive_buffer_overrun_errors",
    "rx_icrc_encapsulated",
    "resp_cqe_error",
)
_TX_ERRORS: Final = ("link_error_recovery", "req_cqe_error", "port_xmit_constraint_errors")
_ERRORS: Final = (*_RX_ERRORS, *_TX_ERRORS)
_RX_DROPS: Final = ("out_of_buffer",)
_TX_DROPS: Final = ("port_xmit_discards",)
_DROPS: Final = (*_RX_DROPS, *_TX_DROPS)
_TIMEOUTS: Final = ("local_ack_timeout_err", "roce_adp_retrans_to")
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
    "rp_cnp_ignored",
    "np_ecn_marked_roce_packets",
    "port_xmit_wait",
    "link_downed",
)

# What `ethtool -S` is kept for: hundreds of lines a port, a few of which nothing else tells (prio: PFC has a class).
_KEPT: Final = (
    "*_pause*|*_prio[0-7]_bytes:*|*_discards_phy:*|*out_of_buffer:*|*_crc_errors_phy:*|*symbol_err_phy:*|"
    "*link_down_events_phy:*|' rx_packets:'*|*_discard:*"
)

# The list of files is made anew every 30 ticks: a port may come up late. The shell reads them itself, which costs
# less than a fork. Pauses are asked of the driver every fifth tick, where ethtool is there.
_SCRIPT: Final = r"""
base=${TWINRAIL_SYS:-/sys}/class/infiniband; n=0 said= tool=
command -v ethtool >/dev/null 2>&1 && tool=1
pauses() {
  for pair in $nets; do
    dev=${pair#*=}; out=$(timeout -k 1 5 ethtool -S "$dev" 2>/dev/null </dev/null) || continue
    printf '\n==> ethtool %s <==\n' "$dev"
    IFS='
'
    for line in $out; do case $line in KEPT) printf '%s\n' "$line";; esac; done
    unset IFS
  done
}
while :; do
  if [ $(( n % 30 )) -eq 0 ]; then
    files= nets=
    if cd "$base" 2>/dev/null; then
      for port in */ports/*; do
        hca=${port%%/*}
        for f in state phys_state rate link_layer; do [ -r "$port/$f" ] && files="$files $port/$f"; done
        for f in "$@"; do
          for g in counters hw_counters; do [ -r "$port/$g/$f" ] && files="$files $port/$g/$f"; done
        done
        [ -r "$hca/device/numa_node" ] && files="$files $hca/device/numa_node"
        for f in "$hca"/device/net/*; do [ -e "$f" ] && nets="$nets $hca=${f##*/}"; done
      done
    fi
  fi
  if [ -n "$files" ]; then
    said=; for f in $files; do
      { read -r v <"$f"; } 2>/dev/null && said="$said==> $f <==
$v
"
    done
    frame rails; printf '%s' "$said"
    for pair in $nets; do printf '\n==> %s/device/net/%s <==\n' "${pair%%=*}" "${pair#*=}"; done
    if [ -z "$tool" ]; then printf '\n==> lacks <==\nethtool\n'; elif [ $(( n % 5 )) -eq 0 ]; then pauses; fi
    printf '\n#end\n'; said=
  elif [ -z "$said" ]; then
    frame unavailable; printf 'no port below %s\n#end\n' "$base"; said=1
  fi
  n=$(( n + 1 ))
  pause
done
""".replace("KEPT", _KEPT)


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
    listings = {path[8:]: lines for path, lines in found.items() if path.startswith("ethtool ")}
    no_tool = "pauses: no ethtool on the node" if "lacks" in found else None
    paths = [path for path in found if "/" in path]
    lines: Iterator[str] = (f"class/infiniband/{path}:{next(iter(found[path]), '')}" for path in paths)
    records: list[Record] = []
    bad = 0
    for item in sysfs.parse(lines):
        if isinstance(item, dict):
            pauses = _pauses(listings.get(item["netdev"] or "", ()))
            records.append(_port(item, frame, context, pauses, no_tool))
        elif isinstance(item, Skip):
            bad += 1
    return records, bad


def _pauses(lines: Iterable[str]) -> dict[str, Any]:
    """Pause frames and time by direction, drops of the port, PFC: from `ethtool -S`. {} when it was not asked."""
    row = next((item for item in ethtool.parse(lines) if isinstance(item, dict)), None)
    if row is None:
        return {}
    out: dict[str, Any] = {"pfc": row["pfc"], "busiest_priority": row["busiest_priority"]}
    prio: list[dict[str, int]] = list(row["priorities"].values())
    for side in ("rx", "tx"):
        frames = [v for values in prio if (v := values.get(f"{side}_pause")) is not None]
        spent = [v for values in prio if (v := values.get(f"{side}_pause_duration")) is not None]
        port = row[f"{side}_pause_frames"]
        port = row["counters"].get(f"{side}_global_pause") if port is None else port
        out[f"{side}_pause_total"] = sum(frames) if frames else port
        out[f"{side}_pause_us_total"] = sum(spent) if spent else row["counters"].get(f"{side}_global_pause_duration")
    out["rx_discards"], out["tx_discards"] = row["rx_discards"], row["tx_discards"]
    return out


def _sum(counts: Mapping[str, int | None], names: tuple[str, ...]) -> int | None:
    """The sum over the counters that the port has; None when it has none of them."""
    known = [v for name in names if (v := counts.get(name)) is not None]
    return sum(known) if known else None


def _port(
    row: dict[str, Any], frame: Frame, context: ProbeContext, pauses: dict[str, Any], no_tool: str | None
) -> RailSample:
    counts: dict[str, int | None] = {**row["counters"], **row["hw_counters"]}
    numa = row["extra"].get("device/numa_node")
    absent = [f"{name}: {word}" for name, word in row["missing"].items()]
    return RailSample(
        run_id=context.run_id,
        node=context.node,
        wall_ns=frame.wall_ns,
        mono_ns=frame.mono_ns,
        source="sysfs and ethtool" if pauses else "sysfs",
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
        rx_pause_total=pauses.get("rx_pause_total"),
        tx_pause_total=pauses.get("tx_pause_total"),
        netdev=row["netdev"],
        numa=numa if isinstance(numa, int) and numa >= 0 else None,  # -1: the machine has no NUMA nodes
        rx_errors_total=_sum(counts, _RX_ERRORS),
        tx_errors_total=_sum(counts, _TX_ERRORS),
        rx_drops_total=_sum({**counts, "port": pauses.get("rx_discards")}, (*_RX_DROPS, "port")) if pauses else None,
        tx_drops_total=_sum(counts, _TX_DROPS),
        tx_wait_total=counts.get("port_xmit_wait"),
        timeouts_total=_sum(counts, _TIMEOUTS),
        link_downs_total=counts.get("link_downed"),
        cnp_ignored_total=counts.get("rp_cnp_ignored"),
        rx_pause_us_total=pauses.get("rx_pause_us_total"),
        tx_pause_us_total=pauses.get("tx_pause_us_total"),
        pfc=pauses.get("pfc"),
        busiest_priority=pauses.get("busiest_priority"),
        missing="; ".join(filter(None, [*absent, no_tool]))[:600] or None,
    )
