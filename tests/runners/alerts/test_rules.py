"""Each rule's query on figures as a run leaves them: trouble is found with its numbers, health is not trouble."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from runners.alerts import RULES
from store.database import Store
from store.queries import call
from store.records import (
    ClockOffset,
    EngineSample,
    GpuProcess,
    GpuRollup,
    GpuSample,
    HostSample,
    Job,
    LogEvent,
    RailRollup,
    RailSample,
    Record,
    ThreadSample,
)

S = 10**9
T0 = 1_800_000_000 * S
SECONDS = 60
GB = 10**9
Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(tmp_path_factory.mktemp("alerts") / "s.duckdb") as found:
        yield found


@pytest.fixture
def store(opened: Store) -> Store:
    """Empty again; opening one takes longer than most of these tests."""
    for (table,) in opened.query("SELECT table_name FROM duckdb_tables() WHERE table_name <> 'schema_version'").rows:
        opened.connection.execute(f"DELETE FROM {table}")
    return opened


def told(store: Store, records: Sequence[Record]) -> Rows:
    """Rule -> rows, for those rules that have something to say."""
    store.write(list(records)).result()
    out: Rows = {}
    for rule in RULES:
        rows = store.query(call(f"alert_{rule.name}", "r", T0, T0 + SECONDS * S)).dicts()
        if rows:
            out[rule.name] = rows
            for row in rows:
                assert rule.title(row)
                assert rule.detail(row)
                assert T0 <= row["first_ns"] <= row["last_ns"] <= T0 + SECONDS * S
    return out


def at(second: float, node: str = "node5") -> dict[str, Any]:
    return {"run_id": "r", "node": node, "wall_ns": T0 + int(second * S), "mono_ns": int(second * S)}


def gpu(second: int, index: int, **changes: Any) -> GpuSample:
    values = {"source": "nvidia-smi", "util_pct": 95.0, "sm_mhz": 2400.0, "throttle": "", "temp_c": 60.0, **changes}
    return GpuSample(**at(second), gpu=index, **values)


def rail(second: int, device: str, moved: float, **changes: Any) -> RailSample:
    values = {
        "tx_bytes": int(moved),
        "rx_bytes": int(moved),
        "tx_packets": int(moved / 4096),
        "rx_packets": 0,
        **changes,
    }
    return RailSample(**at(second), device=device, port=1, door="rdma", **{"state": "ACTIVE", **values})


def engine(second: int, **changes: Any) -> EngineSample:
    values = {
        "running": 8.0,
        "kv_usage": 0.6,
        "generation_tokens_total": 100.0 * second,
        "prompt_tokens_total": 100.0 * second,
        "preemptions_total": 0.0,
        **changes,
    }
    return EngineSample(**at(second), source="metrics", **values)


def healthy() -> list[Record]:
    records: list[Record] = []
    for s in range(SECONDS):
        records += [gpu(s, i) for i in range(8)]
        records += [rail(s, device, s * GB) for device in ("mlx5_0", "mlx5_3")]
        records.append(engine(s))
        records.append(HostSample(**at(s), source="proc", disk_free_bytes=90 * GB, disk_total_bytes=100 * GB))
    records += [thread(s, 100, "worker", share=0.99) for s in range(0, SECONDS, 5)]  # workers spin beside busy GPUs
    records += [thread(s, 200, "front end", share=0.4) for s in range(0, SECONDS, 5)]
    records += [GpuProcess(**at(s), pid=100, name="VLLM::Worker", mem_used_bytes=GB) for s in range(0, 60, 10)]
    records += [
        ClockOffset(run_id="r", node="node5", wall_ns=T0 + s * S, offset_ns=s * 1000, error_ns=10**6) for s in (1, 50)
    ]
    return records


def thread(second: int, tid: int, role: str, share: float) -> ThreadSample:
    ran = int(second * S * share)
    return ThreadSample(**at(second), source="proc", pid=tid, tid=tid, name="t", role=role, run_ns_total=ran)


def test_a_healthy_minute_is_no_trouble(store: Store) -> None:
    assert told(store, healthy()) == {}


def test_heat_is_throttling_with_the_clocks_to_prove_it(store: Store) -> None:
    hot = [gpu(s, 8, throttle="sw_thermal_slowdown", sm_mhz=1410.0, temp_c=88.0) for s in range(20, 30)]
    capped = [gpu(s, 9, throttle="sw_power_cap", sm_mhz=2390.0) for s in range(SECONDS)]  # hardly slower: no trouble
    found = told(store, [*healthy(), *hot, *capped])
    assert list(found) == ["throttle"]
    (row,) = found["throttle"]
    assert (row["subject"], row["reason"], row["n"], row["temp_c"]) == ("GPU 8", "sw_thermal_slowdown", 10, 88.0)
    assert (row["sm_mhz"], row["free_mhz"]) == (1410.0, 2400.0)
    assert (row["first_ns"], row["last_ns"]) == (T0 + 20 * S, T0 + 29 * S)


def test_a_lost_gpu_is_told_once_whoever_tells_it(store: Store) -> None:
    gone = [GpuSample(**at(s), source="nvidia-smi", gpu=5, missing="all: GPU is lost") for s in (30, 35)]
    event = LogEvent(run_id="r", job_id="j", node="node5", offset=0, wall_ns=T0 + 30 * S, name="gpu_lost", detail="x")
    found = told(store, [*healthy(), *gone, event])
    assert [(r["subject"], r["n"]) for r in found["gpu_lost"]] == [("GPU 5", 2)]
    assert list(found) == ["gpu_lost"]


def test_an_xid_is_told_by_number_and_address(store: Store) -> None:
    said = "NVRM: Xid (PCI:0000:05:00): 94, Contained ECC error"
    events: list[Record] = [
        LogEvent(
            run_id="r",
            job_id="j",
            node="node5",
            offset=i,
            wall_ns=T0 + i * S,
            name="xid",
            severity="fatal",
            detail=said,
        )
        for i in (3, 9)
    ]
    (row,) = told(store, events)["xid"]
    assert (row["subject"], row["xid"], row["n"]) == ("Xid 94 PCI:0000:05:00", 94, 2)


@pytest.mark.parametrize(("share", "idle"), [(0.0, True), (0.3, False)])
def test_a_rail_that_carries_too_little_is_named(store: Store, share: float, idle: bool) -> None:
    records = [rail(s, "mlx5_0", s * 10 * GB) for s in range(SECONDS)] + [
        rail(s, "mlx5_3", s * 10 * GB * share) for s in range(SECONDS)
    ]
    (row,) = told(store, records)["rail_unequal"]
    assert (row["device"], row["idle"]) == ("mlx5_3", idle)
    assert row["share_pct"] == pytest.approx(100 * share / (1 + share), abs=0.5)


def test_other_adapters_than_the_operators_rails_may_idle(store: Store) -> None:
    records = [rail(s, d, s * GB * f) for s in range(SECONDS) for d, f in (("mlx5_0", 1), ("mlx5_3", 1), ("mlx5_9", 0))]
    store.write(records).result()
    rails = ["node5 mlx5_0", "node5 mlx5_3"]
    assert store.query(call("alert_rail_unequal", "r", T0, T0 + SECONDS * S, rails=rails)).rows == []
    assert len(store.query(call("alert_rail_unequal", "r", T0, T0 + SECONDS * S)).rows) == 1


def test_a_reset_counter_is_no_traffic(store: Store) -> None:
    records = [
        rail(s, d, (s % 30) * GB + (0 if s >= 30 else 10**15)) for s in range(SECONDS) for d in ("mlx5_0", "mlx5_3")
    ]
    assert told(store, records) == {}


def test_a_rail_that_goes_down_is_named(store: Store) -> None:
    records = [
        rail(s, "mlx5_0", 0, state="ACTIVE" if s < 30 else "DOWN", link_downs_total=int(s >= 30)) for s in range(40)
    ]
    (row,) = told(store, records)["rail_down"]
    assert (row["device"], row["downs"], row["state"], row["first_ns"]) == ("mlx5_0", 1, "DOWN", T0 + 30 * S)


def test_retransmissions_and_pauses_are_told_by_rail_and_direction(store: Store) -> None:
    records = [
        rail(s, "mlx5_0", s * GB, retransmits_total=7 + s * 40, timeouts_total=s // 20, out_of_sequence_total=s)
        for s in range(SECONDS)
    ] + [
        rail(s, "mlx5_3", s * GB, rx_pause_total=10**9 + s * 50, tx_pause_total=3, rx_pause_us_total=s * 1000)
        for s in range(SECONDS)
    ]
    found = told(store, records)
    (again,) = found["retransmits"]
    assert (again["device"], again["retransmits"], again["timeouts"]) == ("mlx5_0", 59 * 40, 2)
    (paused,) = found["pause"]
    assert (paused["device"], paused["rx_frames"], paused["tx_frames"]) == ("mlx5_3", 59 * 50, 0)
    assert paused["rx_pct"] == pytest.approx(0.1, rel=0.1)


def test_a_full_kv_cache_preemptions_and_a_stall_come_from_the_engine(store: Store) -> None:
    records = [engine(s, kv_usage=0.99, preemptions_total=float(s), waiting=3.0) for s in range(20)]
    records += [
        engine(s, generation_tokens_total=1900.0, prompt_tokens_total=1900.0, preemptions_total=19.0)
        for s in range(20, SECONDS)
    ]
    found = told(store, records)
    assert found["kv_full"][0]["kv_pct"] == pytest.approx(99.0)
    assert found["preemptions"][0]["preempted"] == 19
    assert found["stalled"][0]["still_s"] == pytest.approx(39, abs=1.5)
    assert found["stalled"][0]["running"] == 8


def test_without_a_counter_retractions_of_the_log_count(store: Store) -> None:
    events: list[Record] = [
        LogEvent(run_id="r", job_id="j", node="node5", offset=i, wall_ns=T0 + i * S, name="retract") for i in range(6)
    ]
    assert told(store, events)["preemptions"][0]["preempted"] == 6


def test_a_full_core_is_trouble_for_a_front_end_always_and_for_a_scheduler_beside_idle_gpus(store: Store) -> None:
    records = [*healthy(), *(thread(s, 300, "detokenizer", 0.99) for s in range(0, SECONDS, 5))]
    assert [r["role"] for r in told(store, records)["pinned_thread"]] == ["detokenizer"]
    idle = [gpu(s, i, util_pct=5.0) for s in range(SECONDS) for i in range(8, 24)]
    roles = {
        r["role"]
        for r in told(store, [*idle, *(thread(s, 400, "scheduler", 1.0) for s in range(0, 60, 5))])["pinned_thread"]
    }
    assert roles == {"detokenizer", "scheduler", "worker"}


def test_clock_disk_tools_and_strangers(store: Store) -> None:
    records: list[Record] = [
        ClockOffset(run_id="r", node="node7", wall_ns=T0 + s * S, offset_ns=o, error_ns=10**6)
        for s, o in ((1, 0), (40, 90 * 10**6))
    ]
    records.append(HostSample(**at(5), source="proc", disk_free_bytes=GB, disk_total_bytes=100 * GB))
    records.append(Job(job_id="r.hygon.node5", run_id="r", node="node5", kind="probe.hygon", folder="/x"))
    said = LogEvent(
        run_id="r",
        job_id="r.hygon.node5",
        node="node5",
        offset=0,
        wall_ns=T0 + 9 * S,
        name="source_hung",
        detail="killed",
    )
    records.append(said)
    records += [GpuProcess(**at(s), pid=99, name="./burn", gpu_uuid="a", mem_used_bytes=GB) for s in (10, 20, 30, 40)]
    records += [thread(s, 100, "worker", share=0.5) for s in range(0, SECONDS, 5)]
    found = told(store, records)
    assert set(found) == {"clock", "disk", "probe_broken", "other_process"}
    assert found["clock"][0]["moved_ms"] == 90
    assert found["probe_broken"][0]["subject"] == "probe hygon"
    assert found["other_process"][0]["process"] == "./burn"


def test_samples_that_stay_away_are_told_and_the_gap_stays_a_gap(store: Store) -> None:
    records = [r for r in healthy() if not (isinstance(r, HostSample) and 20 <= (r.wall_ns - T0) / S < 45)]
    (row,) = told(store, records)["probe_slow"]
    assert (row["subject"], row["longest_s"]) == ("host samples", 26.0)


def test_clocks_that_are_apart_are_brought_together(store: Store) -> None:
    ahead = [
        RailSample(
            **{**at(s), "wall_ns": T0 + (s + 1000) * S},
            device=d,
            port=1,
            door="rdma",
            state="ACTIVE",
            tx_bytes=int(s * GB * f),
            rx_bytes=0,
        )
        for s in range(SECONDS)
        for d, f in (("mlx5_0", 1), ("mlx5_3", 0))
    ]
    store.write(ahead).result()
    asked = call("alert_rail_unequal", "r", T0, T0 + SECONDS * S, names=["node5"], shifts=[1000 * S])
    (row,) = store.query(asked).dicts()
    assert T0 <= row["first_ns"] <= row["last_ns"] <= T0 + SECONDS * S


def test_a_counter_that_a_port_lacks_is_missing_and_not_zero(store: Store) -> None:
    bare = [rail(s, "mlx5_0", s * GB) for s in range(SECONDS)]  # no error counter, no pauses
    nothing = [rail(s, "mlx5_7", 0, tx_bytes=None, rx_bytes=None, tx_packets=None) for s in range(SECONDS)]
    assert told(store, [*bare, *nothing]) == {}
    row, none = store.query(call("rail_window", "r", T0, T0 + SECONDS * S, "node5")).dicts()
    assert row["tx_gbs"] == pytest.approx(1.0)
    absent = ("errors", "drops", "retransmits", "timeouts", "cnp", "ecn", "rx_pauses", "tx_pauses")
    assert {row[k] for k in absent} == {None}
    assert (none["tx_gbs"], none["node_pct"]) == (None, None)
    steps = store.query(call("rail_history", "r", T0, T0 + SECONDS * S, 10, "node5")).dicts()
    assert {(r["errors"], r["retransmits"], r["pauses"]) for r in steps} == {(None, None, None)}
    rolled = store.query(call("rollup_rail", "r", T0, T0 + SECONDS * S, 10)).dicts()
    assert {r["errors"] for r in rolled} == {None}


def test_histories_by_roll_ups_are_those_of_the_samples(store: Store) -> None:
    records: list[Record] = []
    for s in range(SECONDS * 2):
        records += [gpu(s, g, util_pct=float((s * 7 + g) % 100)) for g in range(2)]
        records += [rail(s, "mlx5_0", s * GB + (s % 3) * 10**8, errors_total=s // 10)]
    store.write(records).result()
    t1 = T0 + 2 * SECONDS * S

    def histories() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        gpus = store.query(call("gpu_history", "r", T0, t1, 20, "node5")).dicts()
        return gpus, store.query(call("rail_history", "r", T0, t1, 20, "node5")).dicts()

    before = histories()
    rolled: list[Record] = [GpuRollup(**r) for r in store.query(call("rollup_gpu", "r", T0, T0 + 80 * S, 10)).dicts()]
    rolled += [RailRollup(**r) for r in store.query(call("rollup_rail", "r", T0, T0 + 80 * S, 10)).dicts()]
    store.write(rolled).result()
    after = histories()
    for old, new in zip(before[0], after[0], strict=True):
        assert (new["gpu"], new["at_ns"], new["n"]) == (old["gpu"], old["at_ns"], old["n"])
        assert new["util_pct"] == pytest.approx(old["util_pct"])
        assert (new["util_min"], new["util_max"]) == (old["util_min"], old["util_max"])
    for old, new in zip(before[1], after[1], strict=True):
        assert (new["at_ns"], new["errors"]) == (old["at_ns"], old["errors"])
        assert new["tx_gbs"] == pytest.approx(old["tx_gbs"], rel=1e-6)
