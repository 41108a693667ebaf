"""Counter simulator of a lab node: the /sys/class/infiniband tree and mlx5-like
ethtool counters. Reads state/rdma_load (JSON, may be missing) five times a
second, for example

  {"mlx5_0": {"tx_bytes_per_s": 2e10, "rx_bytes_per_s": 1.9e10,
              "hw": {"np_cnp_sent": 120}, "counters": {"port_xmit_wait": 5000},
              "ethtool": {"rx_prio3_pause": 10}}}

Everything in it is a rate per second. A rail without carrier carries nothing.
port_xmit_data and port_rcv_data count 4-byte words, as on real hardware.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

STATE = "/run/lab/state"
ROOT = "/sys/class/infiniband"
NODE = os.environ.get("LAB_NODE", "node5")
HCAS = {"mlx5_0": ("eth0", 0), "mlx5_3": ("eth3", 1)}
COUNTERS = [
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
]
HW = [
    "duplicate_request",
    "implied_nak_seq_err",
    "lifespan",
    "local_ack_timeout_err",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "req_cqe_error",
    "req_cqe_flush_error",
    "req_remote_access_errors",
    "req_remote_invalid_request",
    "resp_cqe_error",
    "resp_cqe_flush_error",
    "resp_local_length_error",
    "resp_remote_access_errors",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    "roce_slow_restart_cnps",
    "roce_slow_restart_trans",
    "rp_cnp_handled",
    "rp_cnp_ignored",
    "rx_atomic_requests",
    "rx_icrc_encapsulated",
    "rx_read_requests",
    "rx_write_requests",
]
ETHTOOL = [
    "rx_packets",
    "rx_bytes",
    "tx_packets",
    "tx_bytes",
    "rx_out_of_buffer",
    "rx_discards_phy",
    "tx_discards_phy",
    "tx_errors_phy",
    "rx_errors_phy",
    "rx_crc_errors_phy",
    "rx_symbol_err_phy",
    "rx_vport_rdma_unicast_packets",
    "rx_vport_rdma_unicast_bytes",
    "tx_vport_rdma_unicast_packets",
    "tx_vport_rdma_unicast_bytes",
    "tx_packets_phy",
    "rx_packets_phy",
    "tx_bytes_phy",
    "rx_bytes_phy",
    "rx_pause_ctrl_phy",
    "tx_pause_ctrl_phy",
    "link_down_events_phy",
    "rx_prio3_bytes",
    "rx_prio3_packets",
    "rx_prio3_discards",
    "tx_prio3_bytes",
    "tx_prio3_packets",
    "rx_prio3_pause",
    "rx_prio3_pause_duration",
    "tx_prio3_pause",
    "tx_prio3_pause_duration",
    "rx_prio3_pause_transition",
    "rx_prio3_buf_discard",
    "rx_prio3_cong_discard",
    "rx_prio3_marked",
    "tx_pause_storm_warning_events",
    "tx_pause_storm_error_events",
]
PACKET = 4096.0  # RoCE payload of one packet


written: dict[str, str] = {}


def put(path: str, text: str) -> None:
    """Overwrite in place, in one write, so that a reader's open file stays good."""
    if written.get(path) == text:
        return
    written[path] = text
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o444)
    try:
        os.pwrite(fd, text.encode(), 0)
        os.ftruncate(fd, len(text))
    finally:
        os.close(fd)


def guid(hca: str) -> str:
    base = {"node5": "a088c203007e", "node7": "58a2e103002a"}.get(NODE, "020000000000")
    return ":".join((base + {"mlx5_0": "09b8", "mlx5_3": "0e38"}[hca])[i : i + 4] for i in (0, 4, 8, 12))


def build(hca: str, dev: str, numa: int) -> None:
    port = f"{ROOT}/{hca}/ports/1"
    for sub in ("counters", "hw_counters", "gids", "gid_attrs/types", "gid_attrs/ndevs"):
        os.makedirs(f"{port}/{sub}", exist_ok=True)
    os.makedirs(f"{ROOT}/{hca}/device/net/{dev}", exist_ok=True)
    last = {"node5": 5, "node7": 7}.get(NODE, 9)
    rail = {"eth0": 1, "eth3": 2}[dev]
    v4 = f"0000:0000:0000:0000:0000:ffff:c613:{rail:02x}{last:02x}"
    gids = ["fe80:0000:0000:0000:" + guid(hca).replace("a088", "a288")] * 2 + [v4] * 2
    for i in range(16):
        put(f"{port}/gids/{i}", (gids[i] if i < 4 else ":".join(["0000"] * 8)) + "\n")
        if i < 4:
            put(f"{port}/gid_attrs/types/{i}", ("RoCE v2" if i % 2 else "IB/RoCE v1") + "\n")
            put(f"{port}/gid_attrs/ndevs/{i}", dev + "\n")
    for name, text in {
        "node_guid": guid(hca),
        "sys_image_guid": guid(hca),
        "fw_ver": "28.42.1000",
        "hca_type": "MT4129",
        "hw_rev": "0",
        "board_id": "MT_0000000838",
        "node_type": "1: CA",
        "node_desc": f"{NODE} {hca}",
        "ports/1/link_layer": "Ethernet",
        "ports/1/rate": "400 Gb/sec (4X NDR)",
        "ports/1/lid": "0x0",
        "ports/1/lid_mask_count": "0",
        "ports/1/sm_lid": "0x0",
        "ports/1/sm_sl": "0",
        "ports/1/cap_mask": "0x00010000",
        "device/numa_node": str(numa),
        "device/vendor": "0x15b3",
        "device/device": "0x1021",
    }.items():
        put(f"{ROOT}/{hca}/{name}", text + "\n")


def carrier(dev: str) -> bool:
    try:
        with open(f"/sys/class/net/{dev}/carrier") as f:
            return f.read().strip() == "1"
    except OSError:
        return False


def main() -> None:
    values = {
        h: {"c": dict.fromkeys(COUNTERS, 0.0), "h": dict.fromkeys(HW, 0.0), "e": dict.fromkeys(ETHTOOL, 0.0)}
        for h in HCAS
    }
    was_up = dict.fromkeys(HCAS, True)
    for hca, (dev, numa) in HCAS.items():
        values[hca]["h"]["lifespan"] = 10.0
        build(hca, dev, numa)
    then = time.monotonic()
    stamp: int | None = None
    load: dict[str, Any] = {}
    while True:
        now = time.monotonic()
        step, then = now - then, now
        try:
            seen = os.stat(f"{STATE}/rdma_load").st_mtime_ns
            if seen != stamp:
                with open(f"{STATE}/rdma_load") as f:
                    load, stamp = json.load(f), seen
        except FileNotFoundError:
            load, stamp = {}, None
        except ValueError:
            pass  # half-written: keep the last good one
        for hca, (dev, _) in HCAS.items():
            v, want = values[hca], load.get(hca, {})
            up = carrier(dev)
            if was_up[hca] and not up:
                v["c"]["link_downed"] += 1
                v["e"]["link_down_events_phy"] += 1
            was_up[hca] = up
            if up:
                for way, data, pkts, uni, eth in (
                    ("tx", "port_xmit_data", "port_xmit_packets", "unicast_xmit_packets", "tx"),
                    ("rx", "port_rcv_data", "port_rcv_packets", "unicast_rcv_packets", "rx"),
                ):
                    n = float(want.get(f"{way}_bytes_per_s", 0)) * step
                    v["c"][data] += n / 4
                    v["c"][pkts] += n / PACKET
                    v["c"][uni] += n / PACKET
                    for name in (f"{eth}_bytes_phy", f"{eth}_prio3_bytes", f"{eth}_vport_rdma_unicast_bytes"):
                        v["e"][name] += n
                    for name in (f"{eth}_packets_phy", f"{eth}_prio3_packets", f"{eth}_vport_rdma_unicast_packets"):
                        v["e"][name] += n / PACKET
                for group, key in (("c", "counters"), ("h", "hw"), ("e", "ethtool")):
                    for name, rate in want.get(key, {}).items():
                        v[group][name] = v[group].get(name, 0.0) + float(rate) * step
            port = f"{ROOT}/{hca}/ports/1"
            put(f"{port}/state", "4: ACTIVE\n" if up else "1: DOWN\n")
            put(f"{port}/phys_state", "5: LinkUp\n" if up else "3: Disabled\n")
            for group, sub in (("c", "counters"), ("h", "hw_counters")):
                for name, value in v[group].items():
                    put(f"{port}/{sub}/{name}", f"{int(value)}\n")
            put(
                f"{STATE}/ethtool_{dev}",
                "NIC statistics:\n" + "".join(f"     {k}: {int(x)}\n" for k, x in v["e"].items()),
            )
        time.sleep(0.2)


main()
