"""What the probes, the load client and the logs of a run write, second by second, on fixed clocks and seeds."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from store.records import (
    CpuSample,
    EngineSample,
    GpuSample,
    HostSample,
    LoadTick,
    LogLine,
    RailSample,
    Record,
    Request,
    ThreadSample,
)

S = 1_000_000_000
NOW = 1_785_500_000 * S  # the owner's clock when the screens look: 2026-07-31 12:13:20 UTC
MONO = 500_000 * S  # node5's monotonic clock at NOW
RUN = "20260731-1204-d2"
OFFSETS = {"node5": 200_000, "node7": 1_400_000}  # node clock minus owner clock, ns


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
            for cpu, load in ((None, 47), (0, 30), (1, 30), (2, 100), (3, 30)):
                cores = 4 if cpu is None else 1
                user = load * second * cores + (rng.randrange(8) if cpu is None else 0)
                yield CpuSample(
                    run_id=RUN,
                    node=node,
                    wall_ns=wall,
                    source="proc",
                    cpu=cpu,
                    user_ticks=user,
                    system_ticks=0,
                    idle_ticks=100 * second * cores - user,
                )
            yield HostSample(
                run_id=RUN,
                node=node,
                wall_ns=wall,
                source="proc",
                load1=4.2,
                threads=900,
                mem_total_bytes=512 * 2**30,
                mem_available_bytes=380 * 2**30,
                swap_used_bytes=0,
                disk_free_bytes=900 * 2**30,
            )
            for tid, name, pct in ((4242, "sglang::scheduler", 98), (4243, "sglang::detokenizer", 21)):
                yield ThreadSample(
                    run_id=RUN,
                    node=node,
                    wall_ns=wall,
                    source="proc",
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
