"""The simulated rails of one lab node: a tree like /sys/class/infiniband; its counters follow the engine's traffic.

The simulated engine writes `rdma_load` into the node's state folder: {"mlx5_0": {"tx_bytes_per_s": n,
"rx_bytes_per_s": n}}. Data counters have units of 4 bytes, as on real ports.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

from runners.lab.scenarios import Scenario

RAILS: Final = (("eth0", "mlx5_0"), ("eth3", "mlx5_3"))
RATE_GBPS: Final = 400
_COUNTERS: Final = (
    "port_xmit_data",
    "port_rcv_data",
    "port_xmit_packets",
    "port_rcv_packets",
    "port_rcv_errors",
    "port_xmit_discards",
    "port_xmit_wait",
    "symbol_error",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
)
_HW: Final = (
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "implied_nak_seq_err",
    "duplicate_request",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "np_cnp_sent",
    "rp_cnp_handled",
    "np_ecn_marked_roce_packets",
    "out_of_buffer",
)
_PACKET: Final = 4096.0  # bytes of payload in one RoCE packet


class Rails:
    """Counters of one node. `advance` is called a few times a second; only files whose value moved are written."""

    def __init__(self, sys_root: Path, state: Path, index: int, scenario: Scenario) -> None:
        self.base = sys_root / "class" / "infiniband"
        self.state = state
        self.index = index
        self.scenario = scenario
        self.values: dict[Path, float] = {}
        self.then = time.monotonic()
        for netdev, hca in RAILS:
            self._build(netdev, hca)

    def _build(self, netdev: str, hca: str) -> None:
        """Counters go on from what an earlier lab in this folder left, as hardware's would."""
        port = self.base / hca / "ports" / "1"
        for group, names in (("counters", _COUNTERS), ("hw_counters", _HW)):
            (port / group).mkdir(parents=True, exist_ok=True)
            for name in names:
                path = port / group / name
                before = path.read_text().strip() if path.exists() else ""
                self.values[path] = float(before) if before.isdecimal() else 0.0
                path.write_text(f"{int(self.values[path])}\n")
        facts = {
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "rate": f"{RATE_GBPS} Gb/sec (4X NDR)",
            "link_layer": "Ethernet",
        }
        for name, text in facts.items():
            (port / name).write_text(text + "\n")
        (self.base / hca / "device" / "net" / netdev).mkdir(parents=True, exist_ok=True)

    def _load(self) -> dict[str, Any]:
        try:
            value = json.loads((self.state / "rdma_load").read_text())
        except (OSError, ValueError):
            return {}
        return value if isinstance(value, dict) else {}

    def advance(self) -> None:
        """Move the counters by what the engine sent since the last call."""
        now = time.monotonic()
        span, self.then = now - self.then, now
        load = self._load()
        before = dict(self.values)
        for _, hca in RAILS:
            rates = load.get(hca)
            if not isinstance(rates, dict):
                continue
            key = (self.index, hca)
            share = self.scenario.rail_share.get(key, 1.0)
            port = self.base / hca / "ports" / "1"
            moved = 0.0
            for rate, data, packets in (
                ("tx_bytes_per_s", "port_xmit_data", "port_xmit_packets"),
                ("rx_bytes_per_s", "port_rcv_data", "port_rcv_packets"),
            ):
                value = rates.get(rate, 0)
                size = float(value) * share * span if isinstance(value, (int, float)) else 0.0
                moved += size
                self._add(port / "counters" / data, size / 4)
                self._add(port / "counters" / packets, size / _PACKET)
            if moved > 0:
                for name, per_s in self.scenario.rail_rates.get(key, {}).items():
                    self._add(port / "hw_counters" / name, per_s * span)

        for path, value in self.values.items():  # all at once: the ports of a node stay in step
            if int(before[path]) != int(value):
                path.write_text(f"{int(value)}\n")

    def _add(self, path: Path, amount: float) -> None:
        self.values[path] += amount


def write_devices(state: Path, node: str, index: int, scenario: Scenario) -> None:
    """What the stand-in of nvidia-smi must know besides the engine's load."""
    throttle = {str(gpu): reason for (n, gpu), reason in scenario.throttle.items() if n == index}
    (state / "devices").write_text(json.dumps({"node": node, "throttle": throttle}))
