"""The rail probe on a tree like /sys/class/infiniband."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from store.records import HostSample, LogEvent, RailSample
from tests.runners.probes.running import observe, tool

DATA = Path(__file__).parent.parent.parent / "data" / "probes"


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


def with_ethtool(tmp_path: Path, sample: str) -> dict[str, str]:
    port(tmp_path / "sys", "mlx5_0", {"counters/port_xmit_data": "1", "hw_counters/local_ack_timeout_err": "9"})
    device = tmp_path / "sys" / "class" / "infiniband" / "mlx5_0" / "device"
    (device / "net" / "eth0").mkdir(parents=True)
    (device / "numa_node").write_text("1\n")
    tool(tmp_path / "bin", "ethtool", f"cat {DATA / sample}\n")
    return {"TWINRAIL_SYS": str(tmp_path / "sys"), "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}


def first_rail(env: dict[str, str]) -> RailSample:
    return next(r for r in observe("rails", lambda p: bool(p.records), env=env).records if isinstance(r, RailSample))


def test_pauses_come_from_the_driver_by_direction(tmp_path: Path) -> None:
    rail = first_rail(with_ethtool(tmp_path, "ethtool-pfc.txt"))
    assert (rail.netdev, rail.numa, rail.pfc, rail.busiest_priority) == ("eth0", 1, "configured", 3)
    assert (rail.rx_pause_total, rail.tx_pause_total) == (41927, 1290418)
    assert (rail.rx_pause_us_total, rail.tx_pause_us_total) == (8134, 2914772)
    assert rail.timeouts_total == rail.retransmits_total == 9


def test_a_port_without_pfc_is_not_a_port_without_pauses(tmp_path: Path) -> None:
    rail = first_rail(with_ethtool(tmp_path, "ethtool-no-pfc.txt"))
    assert rail.pfc == "not configured"
    assert (rail.rx_pause_total, rail.rx_drops_total) == (0, 0)


def test_without_ethtool_pauses_are_null_with_the_reason(tmp_path: Path) -> None:
    env = with_ethtool(tmp_path, "ethtool-pfc.txt")
    (tmp_path / "bin" / "ethtool").unlink()
    for name in ("sh", "date", "sleep", "head", "timeout"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "")
    rail = first_rail({**env, "PATH": str(tmp_path / "bin")})
    assert (rail.rx_pause_total, rail.missing) == (None, "pauses: no ethtool on the node")
