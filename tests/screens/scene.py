"""Stores with something true in them, made of records: what a run on two nodes writes, on fixed clocks and seeds."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from runners.spec import Inventory, parse_inventory
from store.database import Store
from store.records import (
    Attempt,
    ClockOffset,
    Command,
    CpuSample,
    EngineSample,
    Finding,
    Gate,
    GpuSample,
    HostSample,
    Job,
    Life,
    LoadTick,
    LogEvent,
    LogLine,
    NodeState,
    Note,
    Phase,
    RailSample,
    Record,
    Request,
    Run,
    ThreadSample,
)

S = 1_000_000_000
NOW = 1_785_500_000 * S  # the owner's clock when the screens look: 2026-07-31 12:13:20 UTC
MONO = 500_000 * S  # node5's monotonic clock at NOW
RUN = "20260731-1204-d2"
PAST = "20260731-0910-d1"
OFFSETS = {"node5": 200_000, "node7": 1_400_000}  # node clock minus owner clock, ns

CONFIG = """
[project]
name = "two-by-eight"

[[nodes]]
name = "node5"
host = "192.0.2.5"
rails = [{ netdev = "eth0", hca = "mlx5_0", gbps = 400 }, { netdev = "eth3", hca = "mlx5_3", gbps = 400 }]

[[nodes]]
name = "node7"
host = "192.0.2.7"
rails = [{ netdev = "eth0", hca = "mlx5_0", gbps = 400 }, { netdev = "eth3", hca = "mlx5_3", gbps = 400 }]

[deployments.tp16]
engine = "sglang"
nodes = ["node5", "node7"]
model = "/models/big"
topology = { tp = 16 }

[deployments.tp8pp2]
base = "tp16"
topology = { tp = 8, pp = 2 }

[slo.chat]
ttft_ms = { p95 = 2000 }
tpot_ms = { p95 = 50 }

[cases.D2]
isl = 1024
osl = 64
concurrency = [16, 32, 64]
slo = "chat"

[plans.baseline]
deployment = "tp16"
cases = ["P1", "D1", "D2"]
repeats = 3
"""


def config() -> Inventory:
    return parse_inventory(CONFIG, Path("twinrail.toml"))


@dataclass(frozen=True)
class Scale:
    """How much is in a scene. `seconds` of history at 1 Hz."""

    seconds: int = 90
    gpus: int = 8
    requests: int = 60
    log_lines: int = 120


def gpu_samples(scale: Scale, rng: random.Random) -> Iterator[Record]:
    for node, offset in OFFSETS.items():
        for second in range(scale.seconds):
            wall = NOW - (scale.seconds - 1 - second) * S + offset
            for gpu in range(scale.gpus):
                slow = node == "node7" and gpu == 4
                yield GpuSample(
                    run_id=RUN,
                    node=node,
                    wall_ns=wall,
                    source="nvidia-smi",
                    gpu=gpu,
                    name="RTX PRO 6000",
                    util_pct=float(41 + rng.randrange(3) if slow else 96 + rng.randrange(4)),
                    mem_used_bytes=int((88 + gpu % 2) * 2**30),
                    mem_total_bytes=int(95.6 * 2**30),
                    power_w=float(round(250 + 40 * rng.random() + (0 if slow else 180), 1)),
                    power_limit_w=600.0,
                    temp_c=float(84 if slow else 60 + gpu % 6),
                    sm_mhz=float(1410 if slow else 2430),
                    throttle="hw_thermal_slowdown" if slow else "",
                )


def rail_samples(scale: Scale, rng: random.Random) -> Iterator[Record]:
    for node, offset in OFFSETS.items():
        moved = {"mlx5_0": [10**12, 10**12], "mlx5_3": [10**9, 10**9]}
        for second in range(scale.seconds):
            for device, sums in moved.items():
                if device == "mlx5_0":
                    sums[0] += int((11 + math.sin(second / 7)) * 1e9)
                    sums[1] += int((11 + rng.random()) * 1e9)
                yield RailSample(
                    run_id=RUN,
                    node=node,
                    wall_ns=NOW - (scale.seconds - 1 - second) * S + offset,
                    mono_ns=MONO - (scale.seconds - 1 - second) * S,
                    source="sysfs",
                    device=device,
                    port=1,
                    door="rdma",
                    state="ACTIVE",
                    rate_gbps=400.0,
                    tx_bytes=sums[0],
                    rx_bytes=sums[1],
                    errors_total=0,
                    drops_total=3 if node == "node7" and device == "mlx5_0" and second > 40 else 0,
                    rx_pause_total=0,
                    tx_pause_total=0,
                )


def engine_samples(scale: Scale) -> Iterator[Record]:
    for second in range(scale.seconds):
        yield EngineSample(
            run_id=RUN,
            node="node5",
            wall_ns=NOW - (scale.seconds - 1 - second) * S + OFFSETS["node5"],
            source="metrics",
            life_id="life-1",
            engine="sglang",
            running=float(min(second, 32)),
            waiting=float(4 if second % 20 == 0 else 0),
            kv_usage=min(0.1 + second / 150, 0.61),
            preemptions_total=0.0,
            prompt_tokens_total=float(750 * second),
            generation_tokens_total=float(776 * second),
            prefix_queries_total=float(1000 * second),
            prefix_hits_total=0.0,
            ttft_sum_s=0.8 * second,
            ttft_count=float(second),
            itl_sum_s=0.04 * 700 * second,
            itl_count=700.0 * second,
            queue_sum_s=0.01 * second,
            queue_count=float(second),
        )


def host_samples(scale: Scale, rng: random.Random) -> Iterator[Record]:
    for node, offset in OFFSETS.items():
        for second in range(0, scale.seconds, 2):
            wall = NOW - (scale.seconds - 1 - second) * S + offset
            common = {"run_id": RUN, "node": node, "wall_ns": wall, "source": "proc"}
            for cpu in (None, 0, 1, 2, 3):
                cores = 4 if cpu is None else 1
                busy = 100 if cpu == 2 else 30 + rng.randrange(5)
                yield CpuSample(
                    **common,
                    cpu=cpu,
                    user_ticks=busy * second * cores,
                    system_ticks=0,
                    idle_ticks=(100 - busy) * second * cores,
                )
            yield HostSample(
                **common,
                load1=4.2,
                threads=900,
                mem_total_bytes=512 * 2**30,
                mem_available_bytes=380 * 2**30,
                swap_used_bytes=0,
                disk_free_bytes=900 * 2**30,
            )
            for tid, name, pct in ((4242, "sglang::scheduler", 98), (4243, "sglang::detokenizer", 21)):
                yield ThreadSample(
                    **common,
                    pid=4200,
                    tid=tid,
                    name=name,
                    state="R",
                    user_ticks=pct * second,
                    system_ticks=0,
                    last_cpu=2,
                    involuntary_switches_total=second,
                )


def requests(
    run_id: str, attempt: str, n: int, end_ns: int, span_s: float, osl: int, rng: random.Random
) -> Iterator[Request]:
    """Closed-loop requests that all end before `end_ns` (client's wall clock); the fifth fails, the ninth is late."""
    for i in range(n):
        sent = int(end_ns - span_s * S + i * (span_s - 6) * S / n)
        mono = MONO + (sent - NOW - OFFSETS["node5"])
        first = int((0.7 + rng.random() * 0.7) * S)
        gaps = [int((0.036 + rng.random() * 0.012) * S) for _ in range(osl - 1)]
        chunks = [first]
        for gap in gaps:
            chunks.append(chunks[-1] + gap)
        steady = i >= n // 5
        base = Request(
            run_id=run_id,
            attempt_id=attempt,
            request_id=i,
            kind="load",
            phase="steady" if steady else "ramp",
            measured=True,
            status="ok",
            isl=1024,
            osl=osl,
            sent_ns=mono,
            sent_wall_ns=sent,
            first_ns=mono + chunks[0],
            last_ns=mono + chunks[-1],
            end_ns=mono + chunks[-1] + 1_000_000,
            prompt_tokens=1024,
            output_tokens=osl,
            tokens_per_chunk="counted",
            chunk_ns=chunks,
            chunk_tokens=[1] * osl,
        )
        if i == n // 2:
            yield replace(
                base,
                status="failed",
                error="http",
                error_text="503 overloaded",
                http_status=503,
                first_ns=None,
                last_ns=None,
                output_tokens=None,
                chunk_ns=None,
                chunk_tokens=None,
            )
        elif i == n // 2 + 4:
            yield replace(base, status="timed_out", error="deadline")
        else:
            yield base


def load_ticks(scale: Scale) -> Iterator[Record]:
    for second in range(scale.seconds):
        wall = NOW - (scale.seconds - 1 - second) * S + OFFSETS["node5"]
        yield LoadTick(
            run_id=RUN,
            attempt_id=f"{RUN}-2",
            node="node5",
            wall_ns=wall,
            mono_ns=MONO - (scale.seconds - 1 - second) * S,
            in_flight=min(second, 32),
            sent=second,
            done=max(second - 32, 0),
            failed=0,
            input_tokens=750 * second,
            output_tokens=750 * second + (second % 5) * 20,
            loop_lag_ms=0.4,
            cpu_pct=12.0,
        )


HOSTILE = "\x1b[2J\x1b]0;owned\x07 [bold red]not markup[/] \u202eevil"


def log_lines(scale: Scale) -> Iterator[Record]:
    for i in range(scale.log_lines):
        node = ("node5", "node7")[i % 2]
        back = (scale.log_lines - i) * 60 * S // scale.log_lines
        text = f"Decode batch, #running-req: 32, #token: {61000 + i}, gen throughput: 771.2, #queue-req: 0"
        level = "INFO"
        if i % 40 == 17:
            text, level = "KV cache pool is almost full, retracting one request", "WARNING"
        if i == scale.log_lines - 3:
            text, level = HOSTILE, "ERROR"
        yield LogLine(
            run_id=RUN,
            job_id=f"job-server-{node}",
            node=node,
            rank=(i % 2) * 8,
            offset=i * 100,
            wall_ns=NOW - back + OFFSETS[node],
            level=level,
            text=text,
        )


def frame(state: str = "running") -> list[Record]:
    """A past run with one attempt, and the run at hand: attempt 1 done, 2 running, 3 planned."""
    case = json.dumps({"name": "D2", "isl": 1024, "osl": 64, "concurrency": 32, "requests": 80, "slo": "chat"})
    past = {"run_id": PAST, "kind": "run", "deployment": "tp16", "who": "operator", "clock_node": "node5"}
    attempt = {
        "case_name": "D2-C32",
        "isl": 1024,
        "osl": 64,
        "concurrency": 32,
        "life_id": "life-1",
        "node": "node5",
        "case_spec": case,
    }
    w = NOW + OFFSETS["node5"]
    phase = {"run_id": RUN, "attempt_id": f"{RUN}-2", "node": "node5"}
    mono = MONO

    def phases(*parts: tuple[str, float, float | None]) -> list[Record]:
        return [
            Phase(
                **phase,
                name=name,
                start_wall_ns=int(w - a * S),
                start_mono_ns=int(mono - a * S),
                end_wall_ns=None if b is None else int(w - b * S),
                end_mono_ns=None if b is None else int(mono - b * S),
            )
            for name, a, b in parts
        ]

    return [
        Run(
            **past,
            state="done",
            outcome="OK",
            created_wall_ns=NOW - 3 * 3600 * S,
            ended_wall_ns=NOW - 3 * 3600 * S + 300 * S,
        ),
        Attempt(
            attempt_id=f"{PAST}-1",
            run_id=PAST,
            ordinal=1,
            case_name="D1-C1",
            isl=1024,
            osl=64,
            concurrency=1,
            life_id="life-0",
            node="node5",
            state="done",
            outcome="OK",
            started_wall_ns=NOW - 3 * 3600 * S,
            ended_wall_ns=NOW - 3 * 3600 * S + 240 * S,
        ),
        Run(
            run_id=RUN,
            kind="run",
            deployment="tp16",
            plan="baseline",
            state=state,
            created_wall_ns=NOW - 560 * S,
            who="operator",
            why="baseline",
            simulated=True,
            clock_node="node5",
        ),
        Life(
            life_id="life-1",
            run_id=RUN,
            deployment="tp16",
            state="ready",
            simulated=True,
            engine="sglang",
            version="0.5.23",
            url="http://192.0.2.5:30000",
            started_wall_ns=NOW - 550 * S,
            ready_wall_ns=NOW - 480 * S,
        ),
        Attempt(
            **attempt,
            attempt_id=f"{RUN}-1",
            run_id=RUN,
            ordinal=1,
            repeat=1,
            state="done",
            outcome="TPOT_SLO_EXCEEDED",
            detail="TPOT P95 54.1 ms of 50",
            started_wall_ns=NOW - 470 * S,
            ended_wall_ns=NOW - 250 * S,
        ),
        Attempt(
            **attempt,
            attempt_id=f"{RUN}-2",
            run_id=RUN,
            ordinal=2,
            repeat=2,
            state="running",
            started_wall_ns=NOW - 200 * S,
        ),
        Attempt(**{**attempt, "life_id": None}, attempt_id=f"{RUN}-3", run_id=RUN, ordinal=3, repeat=3),
        *phases(("warmup", 88, 80), ("ramp", 80, 66), ("steady", 66, None)),
        NodeState(node="node5", state="up", rtt_ms=0.4, boot_id="b5", wall_ns=NOW - 2 * S),
        NodeState(node="node7", state="up", rtt_ms=0.6, boot_id="b7", wall_ns=NOW - 2 * S),
        *(
            ClockOffset(run_id=RUN, node=n, wall_ns=NOW - 30 * S, offset_ns=o, error_ns=150_000)
            for n, o in OFFSETS.items()
        ),
        Job(
            job_id="job-server-node5",
            run_id=RUN,
            life_id="life-1",
            node="node5",
            kind="server",
            folder=".twinrail/jobs/s5",
            rank=0,
            pid=4200,
            state="running",
            started_wall_ns=NOW - 550 * S,
            ttl_s=7200,
        ),
        Job(
            job_id="job-server-node7",
            run_id=RUN,
            life_id="life-1",
            node="node7",
            kind="server",
            folder=".twinrail/jobs/s7",
            rank=1,
            pid=4300,
            state="running",
            started_wall_ns=NOW - 550 * S,
            ttl_s=7200,
        ),
        Job(
            job_id="job-client",
            run_id=RUN,
            attempt_id=f"{RUN}-1",
            node="node5",
            kind="client",
            folder=".twinrail/jobs/c1",
            pid=5000,
            state="exited",
            exit_code=0,
            started_wall_ns=NOW - 470 * S,
            ended_wall_ns=NOW - 250 * S,
        ),
        Command(
            command_id="c1",
            run_id=RUN,
            life_id="life-1",
            node="node5",
            purpose="server",
            started_wall_ns=NOW - 550 * S,
            text="python3 -m sglang.launch_server --model-path /models/big --tp 16 --nnodes 2 --node-rank 0",
        ),
        Command(
            command_id="c2",
            run_id=RUN,
            attempt_id=f"{RUN}-1",
            node="node5",
            purpose="bench",
            exit_code=0,
            text="loadgen.py --concurrency 32",
            started_wall_ns=NOW - 470 * S,
            ended_wall_ns=NOW - 250 * S,
        ),
        Finding(
            finding_id="f1",
            run_id=RUN,
            rule="idle-rail",
            severity="warn",
            title="rail 2 idle on both nodes",
            detail="tx 0.0 of 11.2 GB/s on rail 1: NCCL uses one HCA",
            next_ab="NCCL_IB_HCA, NCCL_CROSS_NIC",
            first_wall_ns=NOW - 180 * S,
            last_wall_ns=NOW - 5 * S,
        ),
        Gate(
            run_id=RUN,
            node="node7",
            name="rdma",
            status="unknown",
            detail="no NCCL line seen yet",
            wall_ns=NOW - 100 * S,
        ),
        LogEvent(
            run_id=RUN,
            job_id="job-server-node7",
            node="node7",
            rank=12,
            offset=5,
            wall_ns=NOW - 66 * S,
            name="kv_cache_full",
            severity="warn",
            detail="retracting one request",
        ),
        Note(run_id=RUN, wall_ns=NOW - 60 * S, who="operator", text="fan of node7 replaced yesterday"),
    ]


def write_all(store: Store, records: list[Record]) -> None:
    store.write(records, urgent=True).result()


def live(store: Store, scale: Scale | None = None) -> None:
    """Attempt 2 of 3 is in steady."""
    scale = scale or Scale()
    rng = random.Random(7)
    write_all(store, frame())
    write_all(
        store, [*gpu_samples(scale, rng), *rail_samples(scale, rng), *engine_samples(scale), *host_samples(scale, rng)]
    )
    end = NOW + OFFSETS["node5"]
    write_all(store, [*requests(RUN, f"{RUN}-2", scale.requests, end, 80.0, 64, rng), *load_ticks(scale)])
    write_all(store, list(requests(RUN, f"{RUN}-1", 20, end - 260 * S, 120.0, 64, rng)))
    write_all(store, list(requests(PAST, f"{PAST}-1", 20, end - 10_600 * S, 120.0, 64, rng)))
    write_all(store, list(log_lines(scale)))


def lost_node(store: Store, scale: Scale | None = None) -> None:
    """As `live`, but node7 has not been heard of for 40 s; what it wrote since is not here."""
    live(store, scale)
    cut = NOW - 40 * S
    cursor = store.connection.cursor()
    for table in ("gpu_samples", "rail_samples", "log_lines", "host_samples", "cpu_samples", "thread_samples"):
        cursor.execute(f"DELETE FROM {table} WHERE node = 'node7' AND wall_ns > {cut}")
    lost = NodeState(
        node="node7",
        state="lost",
        detail="no answer for 40 s: connection timed out",
        boot_id="b7",
        wall_ns=NOW - 28 * S,
    )
    write_all(store, [lost])


def error(store: Store, scale: Scale | None = None) -> None:
    """The engine ran out of memory: attempt 2 ended typed, the run is over."""
    live(store, scale)
    done = [r for r in frame("done") if isinstance(r, (Run, Attempt, Life))]
    changed: list[Record] = []
    for r in done:
        if isinstance(r, Run) and r.run_id == RUN:
            changed.append(
                replace(r, outcome="OOM", detail="node7 rank 12: torch.OutOfMemoryError", ended_wall_ns=NOW - S)
            )
        elif isinstance(r, Attempt) and r.attempt_id == f"{RUN}-2":
            changed.append(
                replace(
                    r,
                    state="done",
                    outcome="OOM",
                    detail="node7 rank 12: torch.OutOfMemoryError",
                    ended_wall_ns=NOW - 2 * S,
                )
            )
        elif isinstance(r, Life):
            changed.append(replace(r, state="gone", outcome="OOM", ended_wall_ns=NOW - 2 * S))
    fatal = LogEvent(
        run_id=RUN,
        job_id="job-server-node7",
        node="node7",
        rank=12,
        offset=9,
        wall_ns=NOW - 3 * S,
        name="oom",
        severity="fatal",
        detail="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    )
    write_all(store, [*changed, fatal])
