"""Simulated devices: counters follow the engine's traffic, and a scenario shows where it should and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runners.lab import SCENARIOS, Scenario
from runners.lab.devices import Rails, write_devices

LOAD = {hca: {"tx_bytes_per_s": 1e9, "rx_bytes_per_s": 2e9} for hca in ("mlx5_0", "mlx5_3")}


class Clock:
    """A monotonic clock that the test moves."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("runners.lab.devices.time", clock)
    return clock


def counter(root: Path, hca: str, name: str) -> int:
    return int((root / "sys" / "class" / "infiniband" / hca / "ports" / "1" / name).read_text())


def after_ten_seconds(root: Path, clock: Clock, scenario: Scenario, index: int = 0, load: str | None = None) -> Rails:
    (root / "state").mkdir(exist_ok=True)
    rails = Rails(root / "sys", root / "state", index, scenario)
    (root / "state" / "rdma_load").write_text(json.dumps(LOAD) if load is None else load)
    clock.now += 10
    rails.advance()
    return rails


def test_data_counters_move_in_units_of_four_bytes(tmp_path: Path, clock: Clock) -> None:
    after_ten_seconds(tmp_path, clock, SCENARIOS["healthy"])
    for hca in LOAD:
        assert counter(tmp_path, hca, "counters/port_xmit_data") == 10e9 / 4
        assert counter(tmp_path, hca, "counters/port_rcv_data") == 20e9 / 4
        assert counter(tmp_path, hca, "hw_counters/packet_seq_err") == 0


def test_counters_go_on_where_an_earlier_lab_left_them(tmp_path: Path, clock: Clock) -> None:
    after_ten_seconds(tmp_path, clock, SCENARIOS["healthy"])
    after_ten_seconds(tmp_path, clock, SCENARIOS["healthy"])
    assert counter(tmp_path, "mlx5_0", "counters/port_xmit_data") == 20e9 / 4


def test_an_idle_rail_stands_still_and_its_traffic_takes_the_other(tmp_path: Path, clock: Clock) -> None:
    after_ten_seconds(tmp_path, clock, SCENARIOS["idle-rail"])
    assert counter(tmp_path, "mlx5_0", "counters/port_xmit_data") == 20e9 / 4
    assert counter(tmp_path, "mlx5_3", "counters/port_xmit_data") == 0


@pytest.mark.parametrize(("index", "retransmits"), [(0, 0), (1, 400)])
def test_a_lossy_rail_is_lossy_on_its_node_only(tmp_path: Path, clock: Clock, index: int, retransmits: int) -> None:
    after_ten_seconds(tmp_path, clock, SCENARIOS["lossy-rail"], index)
    assert counter(tmp_path, "mlx5_3", "hw_counters/packet_seq_err") == retransmits
    assert counter(tmp_path, "mlx5_0", "hw_counters/packet_seq_err") == 0


@pytest.mark.parametrize("load", ["", "{", "[]", '{"mlx5_0": 3}', '{"mlx5_0": {"tx_bytes_per_s": "much"}}', "{}"])
def test_a_load_file_that_makes_no_sense_moves_nothing(tmp_path: Path, clock: Clock, load: str) -> None:
    after_ten_seconds(tmp_path, clock, SCENARIOS["healthy"], load=load)
    assert counter(tmp_path, "mlx5_0", "counters/port_xmit_data") == 0


def test_a_slow_rank_is_throttled_on_one_node(tmp_path: Path) -> None:
    for index, wanted in ((0, {}), (1, {"3": "sw_thermal_slowdown"})):
        write_devices(tmp_path, "node7", index, SCENARIOS["slow-rank"])
        assert json.loads((tmp_path / "devices").read_text())["throttle"] == wanted
