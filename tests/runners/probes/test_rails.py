"""The rail probe on a tree like /sys/class/infiniband."""

from __future__ import annotations

import shutil
from pathlib import Path

from store.records import HostSample, LogEvent, RailSample
from tests.runners.probes.running import observe


def port(root: Path, hca: str, values: dict[str, str]) -> None:
    base = root / "class" / "infiniband" / hca / "ports" / "1"
    for name, value in {
        "state": "4: ACTIVE",
        "rate": "400 Gb/sec (4X NDR)",
        "link_layer": "Ethernet",
        **values,
    }.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value + "\n")


def test_ports_are_read_in_their_own_units_and_followed(tmp_path: Path) -> None:
    port(
        tmp_path,
        "mlx5_0",
        {
            "counters/port_xmit_data": "1000",
            "counters/port_rcv_data": "2000",
            "counters/port_xmit_packets": "7",
            "counters/port_xmit_discards": "3",
            "hw_counters/out_of_buffer": "4",
            "hw_counters/packet_seq_err": "5",
            "hw_counters/out_of_sequence": "6",
            "hw_counters/np_cnp_sent": "8",
            "hw_counters/lifespan": "10",
        },
    )
    port(tmp_path, "mlx5_3", {"state": "1: DOWN", "counters/port_xmit_data": "N/A (no PMA)"})
    env = {"TWINRAIL_SYS": str(tmp_path)}
    parsed = observe("rails", lambda p: len(p.records) >= 4, env=env)
    assert parsed.skipped == 0
    rails = [r for r in parsed.records if isinstance(r, RailSample)]
    first = next(r for r in rails if r.device == "mlx5_0")
    assert (first.door, first.port, first.state, first.rate_gbps) == ("rdma", 1, "ACTIVE", 400.0)
    assert (first.tx_bytes, first.rx_bytes, first.tx_packets, first.rx_packets) == (4000, 8000, 7, None)
    assert (first.drops_total, first.retransmits_total, first.out_of_sequence_total, first.cnp_total) == (7, 5, 6, 8)
    assert (first.errors_total, first.ecn_total, first.rx_pause_total) == (None, None, None)
    down = next(r for r in rails if r.device == "mlx5_3")
    assert (down.state, down.tx_bytes, down.rx_bytes) == ("DOWN", None, None)


def test_a_node_without_rdma_devices_says_so_once(tmp_path: Path) -> None:
    parsed = observe("rails", lambda p: bool(p.records), env={"TWINRAIL_SYS": str(tmp_path)})
    assert [type(r) for r in parsed.records] == [LogEvent]
    event = parsed.records[0]
    assert isinstance(event, LogEvent)
    assert event.name == "source_unavailable"
    assert str(tmp_path) in (event.detail or "")


def test_coreutils_and_sh_are_enough(tmp_path: Path) -> None:
    port(tmp_path / "sys", "mlx5_0", {"counters/port_xmit_data": "1"})
    bare = tmp_path / "bin"
    bare.mkdir()
    for name in ("sh", "date", "sleep", "head", "df", "timeout"):
        (bare / name).symlink_to(shutil.which(name) or "")
    env = {"PATH": str(bare), "TWINRAIL_SYS": str(tmp_path / "sys")}
    assert observe("rails", lambda p: bool(p.records), env=env).skipped == 0
    host = observe("host", lambda p: any(isinstance(r, HostSample) for r in p.records), env=env)
    assert next(r for r in host.records if isinstance(r, HostSample)).disk_free_bytes
