"""A day of telemetry of 16 nodes x 8 GPUs at 1 Hz: ingest, file size, and the time of every live and history query.

    python -m tests.benchmarks.telemetry_day [--nodes 16] [--hours 24] [--live 60] [--keep FILE]

History is made by SELECTs in hour pieces in the order in which it would have come,
        and rolled up as the owner does it.
Then `live` seconds of all nodes' records go through the store as the owner writes them (one commit a node and second),
and every query that a screen asks is timed on the full store with one DuckDB thread, three times.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from runners.alerts import RULES
from runners.flows.rollups import Rollups
from runners.flows.services import Services
from store.database import Store
from store.queries import call
from store.records import (
    CpuSample,
    EngineSample,
    GpuProcess,
    GpuSample,
    HostSample,
    RailSample,
    Record,
    Run,
    ThreadSample,
)

S = 10**9
RUN = "20260101-000000-day"
GPUS, CORES, THREADS = 8, 192, 30
END = 1_800_000_000 * S


def fill(store: Store, nodes: int, start: int, seconds: int) -> None:
    """One piece of history, all tables, as the probes would have left it."""
    c = store.connection.cursor()
    every = f"range({seconds}) t(s), range({nodes}) n(k)"
    at = (
        f"'{RUN}' AS run_id, 'node' || k AS node, {start} + s * {S} + k * 1000 AS wall_ns, "
        f"{start - END + 10**15} + s * {S} AS mono_ns"
    )
    c.execute(f"""INSERT INTO gpu_samples BY NAME SELECT {at}, 'nvidia-smi' AS source, g AS gpu,
        'GPU-' || k || '-' || g AS uuid,
        'NVIDIA RTX PRO 6000' AS name, round(90 + 9 * random()) AS util_pct,
        round(40 + 9 * random()) AS mem_util_pct, 88 * 2^30::BIGINT AS mem_used_bytes,
        96 * 2^30::BIGINT AS mem_total_bytes, round(400 + 50 * random(), 2) AS power_w, 600.0 AS power_limit_w,
        round(60 + 5 * random()) AS temp_c,
        2400 + round(30 * random()) AS sm_mhz, 12481.0 AS mem_mhz, 'P1' AS pstate, '' AS throttle,
        0 AS ecc_errors_total,
        '00000000:16:00.0' AS pci_bus_id, 5 AS pcie_gen, 16 AS pcie_width, s * 10 AS throttled_us_total,
        0 AS ecc_corrected_total
        FROM {every}, range({GPUS}) x(g) ORDER BY s, k, g""")
    c.execute(f"""INSERT INTO gpu_samples BY NAME SELECT {at}, 'nvidia-smi dmon' AS source, g AS gpu,
        round(1e9 * random()) AS pcie_rx_bps,
        round(1e9 * random()) AS pcie_tx_bps FROM {every}, range({GPUS}) x(g) WHERE s % 2 = 0 ORDER BY s, k, g""")
    counter = f"(({start - END} // {S} + 90000 + s) * 11e9)::BIGINT"
    c.execute(f"""INSERT INTO rail_samples BY NAME SELECT {at}, 'sysfs' AS source, d AS device, 1 AS port,
        'rdma' AS door, 'ACTIVE' AS state,
        400.0 AS rate_gbps, {counter} + (1e8 * random())::BIGINT AS tx_bytes,
        {counter} + (1e8 * random())::BIGINT AS rx_bytes,
        {counter} // 4096 AS tx_packets, {counter} // 4096 AS rx_packets, 0 AS errors_total, 0 AS drops_total,
        3 AS retransmits_total,
        0 AS timeouts_total, 0 AS out_of_sequence_total, CASE WHEN s % 5 = 0 THEN s END AS rx_pause_total
        FROM {every}, (VALUES ('mlx5_0'), ('mlx5_3')) x(d) ORDER BY s, k, d""")
    c.execute(f"""INSERT INTO host_samples BY NAME SELECT {at}, 'proc' AS source, round(20 * random(),
        2) AS load1, 20 AS runnable, 4000 AS threads,
        s * 100000 AS ctx_switches_total, 2^40::BIGINT AS mem_total_bytes, 2^39::BIGINT AS mem_available_bytes,
        CASE WHEN s % 10 = 0 THEN 2^40::BIGINT END AS disk_free_bytes,
        CASE WHEN s % 10 = 0 THEN 2^41::BIGINT END AS disk_total_bytes
        FROM {every} ORDER BY s, k""")
    c.execute(f"""INSERT INTO cpu_samples BY NAME SELECT {at}, 'proc' AS source,
        CASE WHEN cpu >= 0 THEN cpu END AS cpu,
        s * 50 + (9 * random())::BIGINT AS user_ticks, s * 5 AS system_ticks, s * 45 AS idle_ticks,
        0 AS iowait_ticks, 0 AS irq_ticks, 0 AS steal_ticks
        FROM {every}, range(-1, {CORES}) x(cpu) WHERE cpu < 0 OR s % 5 = 0 ORDER BY s, k, cpu""")
    c.execute(f"""INSERT INTO thread_samples BY NAME SELECT {at}, 'proc' AS source, 1000 + h % 10 AS pid,
        1000 + h AS tid, 'python3' AS name, 'S' AS state,
        s * 50 AS user_ticks, 'VLLM::Worker_TP' || h % 8 AS process, 'worker' AS role,
        (s * {S} * 0.6)::BIGINT AS run_ns_total, s * 1000 AS wait_ns_total,
        s AS voluntary_switches_total, s AS involuntary_switches_total, (h * 7 + s) % {CORES} AS last_cpu
        FROM {every}, range({THREADS}) x(h) WHERE s % 5 = 0 ORDER BY s, k, h""")
    c.execute(f"""INSERT INTO gpu_processes BY NAME SELECT {at}, 'nvidia-smi' AS source, 1000 + g AS pid,
        'GPU-' || k || '-' || g AS gpu_uuid,
        'VLLM::Worker' AS name, 88 * 2^30::BIGINT AS mem_used_bytes, true AS ours FROM {every},
        range({GPUS}) x(g) WHERE s % 10 = 0 ORDER BY s, k, g""")
    tokens = f"(({start - END} // {S} + 90000 + s) * 776.0)"
    c.execute(f"""INSERT INTO engine_samples BY NAME SELECT {at}, 'metrics' AS source, 'vllm' AS engine,
        32.0 AS running, 0.0 AS waiting, 0.6 AS kv_usage,
        {tokens} AS prompt_tokens_total, {tokens} AS generation_tokens_total, 0.0 AS preemptions_total,
        {tokens} / 900 AS queue_count,
        {tokens} / 90000 AS queue_sum_s FROM {every} WHERE k = 0 ORDER BY s""")


def second_of(node: int, s: int) -> Iterator[Record]:
    """What one node's probes bring in one second, as records."""
    at: dict[str, Any] = {"run_id": RUN, "node": f"node{node}", "wall_ns": END + s * S, "mono_ns": 10**15 + s * S}
    for g in range(GPUS):
        uuid = f"GPU-{node}-{g}"
        figures: dict[str, Any] = {"util_pct": 90.0 + g, "mem_util_pct": 40.0, "power_w": 400.5, "power_limit_w": 600.0}
        clocks: dict[str, Any] = {"temp_c": 61.0, "sm_mhz": 2400.0 + g, "mem_mhz": 12481.0, "pstate": "P1"}
        memory: dict[str, Any] = {"mem_used_bytes": 88 << 30, "mem_total_bytes": 96 << 30, "ecc_errors_total": 0}
        bus: dict[str, Any] = {"pci_bus_id": "00000000:16:00.0", "pcie_gen": 5, "pcie_width": 16, "throttle": ""}
        named: dict[str, Any] = {"gpu": g, "uuid": uuid, "name": "NVIDIA RTX PRO 6000"}
        yield GpuSample(**at, source="nvidia-smi", **named, **figures, **clocks, **memory, **bus)
        if s % 2 == 0:
            yield GpuSample(**at, source="nvidia-smi dmon", gpu=g, pcie_rx_bps=1e9, pcie_tx_bps=1e9)
        if s % 10 == 0:
            yield GpuProcess(**at, pid=1000 + g, gpu_uuid=uuid, name="VLLM::Worker", mem_used_bytes=88 << 30, ours=True)
    moved = (90000 + s) * 11 * 10**9
    packets = moved // 4096
    counters: dict[str, Any] = {"tx_bytes": moved, "rx_bytes": moved, "tx_packets": packets, "rx_packets": packets}
    for device in ("mlx5_0", "mlx5_3"):
        kind: dict[str, Any] = {"source": "sysfs", "port": 1, "door": "rdma", "state": "ACTIVE", "rate_gbps": 400.0}
        yield RailSample(**at, device=device, **kind, **counters, errors_total=0, drops_total=0, retransmits_total=3)
    host: dict[str, Any] = {"mem_total_bytes": 1 << 40, "mem_available_bytes": 1 << 39}
    yield HostSample(**at, source="proc", load1=3.0, runnable=3, threads=4000, **host)
    for cpu in (None, *(range(CORES) if s % 5 == 0 else ())):
        yield CpuSample(**at, source="proc", cpu=cpu, user_ticks=s * 50, system_ticks=s * 5, idle_ticks=s * 45)
    for h in range(THREADS if s % 5 == 0 else 0):
        who: dict[str, Any] = {"pid": 1000 + h % 10, "tid": 1000 + h, "process": "VLLM::Worker_TP1", "role": "worker"}
        yield ThreadSample(**at, **who, name="python3", state="S", run_ns_total=s * S // 2, wait_ns_total=s)
    if node == 0:
        tokens = (90000.0 + s) * 776
        gauges: dict[str, Any] = {"running": 32.0, "waiting": 0.0, "kv_usage": 0.6}
        totals: dict[str, Any] = {"prompt_tokens_total": tokens, "generation_tokens_total": tokens}
        yield EngineSample(**at, source="metrics", engine="vllm", **gauges, **totals)


async def live(store: Store, nodes: int, seconds: int) -> tuple[float, float, int]:
    """(wall s, CPU s of this process, rows) of writing so many seconds as fast as they go."""
    await store.commit([r for k in range(nodes) for r in second_of(k, 0)])
    wall, cpu, rows = time.perf_counter(), time.process_time(), 0
    for s in range(1, seconds + 1):
        batches = [list(second_of(k, s)) for k in range(nodes)]
        rows += sum(map(len, batches))
        await asyncio.gather(*(store.commit(b) for b in batches))
    return time.perf_counter() - wall, time.process_time() - cpu, rows


def queries(nodes: int, now: int, hours: float) -> dict[str, str]:
    """Name -> SQL of what screens and the alert watch ask."""
    asked = {}
    for name in ("live_gpus", "live_rails", "live_engine"):
        asked[name] = call(name, RUN, now - 64 * S, now)
    asked["live_findings"] = call("live_findings", RUN)
    asked["live_nodes"] = call("live_nodes")
    asked["screen_host"] = call("screen_host", now - 120 * S, now)
    asked["screen_threads"] = call("screen_threads", "node0", now - 120 * S, now)
    asked["thread_top, 2 min"] = call("thread_top", RUN, now - 120 * S, now)
    asked["thread_top, one node, 1 h"] = call("thread_top", RUN, now - 3600 * S, now, of_node="node0")
    for span, step in ((300, 2), (900, 5), (3600, 20), (6 * 3600, 120), (hours * 3600, 600)):
        label = f"{span / 60:.0f} min" if span < 3600 else f"{span / 3600:.0f} h"
        t0 = now - int(span) * S
        asked[f"gpu_history, one node, {label}"] = call("gpu_history", RUN, t0, now, step, of_node="node0")
        asked[f"gpu_history, all nodes, {label}"] = call("gpu_history", RUN, t0, now, step)
        asked[f"rail_history, all nodes, {label}"] = call("rail_history", RUN, t0, now, step)
        asked[f"engine_history, {label}"] = call("engine_history", RUN, t0, now, step)
    for rule in RULES:
        asked[f"alert_{rule.name}"] = call(f"alert_{rule.name}", RUN, now - 65 * S, now)
    asked["all alerts of one look"] = ""
    return asked


def size_of(path: Path) -> int:
    return path.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--live", type=int, default=60)
    parser.add_argument("--keep", type=Path, help="keep the store there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep or Path(folder) / "day.duckdb"
        with Store.open(path, threads=1) as store:
            asyncio.run(measure(store, path, options))


async def measure(store: Store, path: Path, options: argparse.Namespace) -> None:
    nodes, hours = options.nodes, options.hours
    await store.commit([Run(run_id=RUN, kind="run", state="running", created_wall_ns=END - int(hours * 3600) * S)])
    begun = time.perf_counter()
    pieces = max(1, round(hours))
    for k in range(pieces):
        seconds = round(hours * 3600 / pieces)
        await asyncio.to_thread(fill, store, nodes, END - (pieces - k) * seconds * S, seconds)
        store.connection.execute("CHECKPOINT")
    print(f"history of {nodes} nodes x {GPUS} GPUs, {hours:g} h made in {time.perf_counter() - begun:.0f} s")
    before = size_of(path)
    rolls = Rollups(cast(Services, SimpleNamespace(store=store)), RUN)
    begun, cpu = time.perf_counter(), time.process_time()
    count = 0
    while await rolls.roll():
        count += 1
    took, cpu = time.perf_counter() - begun, time.process_time() - cpu
    store.connection.execute("CHECKPOINT")
    size, gpu_days = size_of(path), nodes * GPUS * hours / 24
    print(
        f"rolled up in {count + 1} pieces: {took:.1f} s, {cpu:.1f} s CPU = "
        f"{100 * cpu / (hours * 3600):.2f} % of a core over the time"
    )
    share = size / 2**20 / gpu_days
    print(
        f"file: {size / 2**20:,.0f} MiB, {(size - before) / 2**20:,.0f} of it roll-ups: {share:.2f} MiB a GPU and day"
    )
    for name, rows in store.query(
        "SELECT table_name, estimated_size FROM duckdb_tables() WHERE estimated_size > 0 ORDER BY 2 DESC LIMIT 8"
    ).rows:
        print(f"  {name:<16} {rows:>12,} rows")
    wall, used, rows = await live(store, nodes, options.live)
    print(f"live: {rows:,} rows of {options.live} s stored in {wall:.1f} s: {rows / wall:,.0f} rows/s")
    share = 100 * used / options.live
    print(f"  {options.live / wall:.1f} x as fast as they come; {share:.1f} % of a core to make, encode and store them")
    now = END + options.live * S
    whole = 0.0
    print("query, ms (median of 3), rows")
    for name, sql in queries(nodes, now, hours).items():
        if not sql:
            print(f"  {name:<36} {whole:8.1f}")
            continue
        times = []
        for _ in range(3):
            begun = time.perf_counter()
            table = store.query(sql)
            times.append(1e3 * (time.perf_counter() - begun))
        whole += statistics.median(times) if name.startswith("alert_") else 0
        print(f"  {name:<36} {statistics.median(times):8.1f} {len(table.rows):>8}")


if __name__ == "__main__":
    main()
