"""The host probe against this machine's own /proc, and against a recorded stream."""

from __future__ import annotations

import os
import time
from pathlib import Path

from runners.probes import PROBES
from store.records import CpuSample, HostSample, RailSample
from tests.runners.probes.running import CONTEXT, observe

RECORDED = (Path(__file__).parent.parent.parent / "data" / "probes" / "host.frames").read_bytes()


def test_this_machine_is_seen_as_proc_tells_it() -> None:
    before = time.time_ns()
    parsed = observe("host", lambda p: sum(isinstance(r, HostSample) for r in p.records) >= 3)
    assert parsed.skipped == 0
    hosts = [r for r in parsed.records if isinstance(r, HostSample)]
    memory_kb = int(next(x for x in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in x).split()[1])
    for sample in hosts:
        assert before <= sample.wall_ns <= time.time_ns()
        assert sample.mono_ns is not None
        assert abs(sample.mono_ns - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) < 30 * 10**9
        assert sample.mem_total_bytes == memory_kb * 1024
        assert sample.load1 is not None
        assert sample.probe_cpu_ticks is not None
    assert hosts[0].ctx_switches_total  # with the cores, every fifth tick
    assert hosts[1].ctx_switches_total is None
    assert hosts[0].disk_free_bytes  # asked at the start, then every tenth tick
    assert hosts[1].disk_free_bytes is None
    assert hosts[2].wall_ns > hosts[1].wall_ns > hosts[0].wall_ns
    cores = {r.cpu for r in parsed.records if isinstance(r, CpuSample)}
    assert cores == {None, *range(os.cpu_count() or 0)}


def test_ticks_fall_on_multiples_of_the_interval_and_do_not_drift() -> None:
    parsed = observe("host", lambda p: sum(isinstance(r, HostSample) for r in p.records) >= 6, interval_s=0.25)
    ticks = [r.wall_ns for r in parsed.records if isinstance(r, HostSample)][1:]
    late_ms = [wall % 250_000_000 / 1e6 for wall in ticks]
    assert sorted(late_ms)[len(late_ms) // 2] < 100, late_ms  # after the multiple, however long the machine takes
    assert len({wall // 250_000_000 for wall in ticks}) == len(ticks)


def test_recorded_stream_keeps_cpu_classes_and_real_netdevs_only() -> None:
    records = PROBES["host"].parse(RECORDED, CONTEXT, final=True).records
    cpu = next(r for r in records if isinstance(r, CpuSample) and r.cpu == 1)
    assert (cpu.user_ticks, cpu.system_ticks, cpu.idle_ticks) == (25591 + 16610, 7356, 122417)
    assert (cpu.iowait_ticks, cpu.irq_ticks, cpu.steal_ticks) == (879, 215, 14)
    host = next(r for r in records if isinstance(r, HostSample))
    assert (host.load1, host.runnable, host.threads) == (2.76, 2, 198)
    assert host.swap_used_bytes == 0
    assert host.disk_free_bytes == 78687392 * 1024
    assert host.mono_ns == 1736310000000
    netdevs = {r.device: r for r in records if isinstance(r, RailSample)}
    assert set(netdevs) == {"eth0"}  # neither lo nor veth0a1b nor ifb0
    assert (netdevs["eth0"].rx_bytes, netdevs["eth0"].door, netdevs["eth0"].state) == (993705701, "netdev", None)


def test_a_damaged_line_costs_that_line() -> None:
    damaged = RECORDED.replace(b"cpu1 25591 16610", b"cpu1 25591 !!", 1).replace(b"MemFree: ", b"Mem\x00Free; ", 1)
    parsed = PROBES["host"].parse(damaged, CONTEXT, final=True)
    whole = PROBES["host"].parse(RECORDED, CONTEXT, final=True)
    assert parsed.skipped == 2
    assert len(parsed.records) == len(whole.records) - 1
