"""Stores with something true in them: what a run on two nodes leaves when it goes well, loses a node, or fails."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from runners.spec import Inventory, parse_inventory
from store.database import Store
from store.records import (
    Attempt,
    ClockOffset,
    Command,
    Finding,
    Gate,
    Job,
    Life,
    LogEvent,
    NodeState,
    Note,
    Phase,
    Record,
    Run,
)
from tests.screens.samples import (
    MONO,
    NOW,
    OFFSETS,
    RUN,
    S,
    Scale,
    engine_samples,
    gpu_samples,
    host_samples,
    load_ticks,
    log_lines,
    rail_samples,
    requests,
)

PAST = "20260731-0910-d1"

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


CASE = json.dumps({"name": "D2", "isl": 1024, "osl": 64, "concurrency": 32, "requests": 80, "slo": "chat"})


def attempt(n: int, **more: Any) -> Attempt:
    """Repeat n of D2-C32 in the run at hand."""
    return Attempt(
        attempt_id=f"{RUN}-{n}",
        run_id=RUN,
        ordinal=n,
        repeat=n,
        case_name="D2-C32",
        isl=1024,
        osl=64,
        concurrency=32,
        life_id="life-1",
        node="node5",
        case_spec=CASE,
        **more,
    )


def phase(n: int, name: str, began_s: float, ended_s: float | None) -> Phase:
    """A phase of repeat n, so many seconds before NOW on node5's clocks."""
    wall = NOW + OFFSETS["node5"]
    return Phase(
        attempt_id=f"{RUN}-{n}",
        run_id=RUN,
        node="node5",
        name=name,
        start_wall_ns=int(wall - began_s * S),
        start_mono_ns=int(MONO - began_s * S),
        end_wall_ns=None if ended_s is None else int(wall - ended_s * S),
        end_mono_ns=None if ended_s is None else int(MONO - ended_s * S),
    )


def run_at_hand(**more: Any) -> Run:
    return Run(
        run_id=RUN,
        kind="run",
        deployment="tp16",
        plan="baseline",
        created_wall_ns=NOW - 560 * S,
        who="operator",
        why="baseline",
        simulated=True,
        clock_node="node5",
        **more,
    )


def life(**more: Any) -> Life:
    return Life(
        life_id="life-1",
        run_id=RUN,
        deployment="tp16",
        simulated=True,
        engine="sglang",
        version="0.5.23",
        url="http://192.0.2.5:30000",
        started_wall_ns=NOW - 550 * S,
        ready_wall_ns=NOW - 480 * S,
        **more,
    )


def past_run() -> list[Record]:
    began = NOW - 3 * 3600 * S
    return [
        Run(
            run_id=PAST,
            kind="run",
            deployment="tp16",
            who="operator",
            clock_node="node5",
            state="done",
            outcome="OK",
            created_wall_ns=began,
            ended_wall_ns=began + 300 * S,
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
            started_wall_ns=began,
            ended_wall_ns=began + 240 * S,
        ),
    ]


def job(name: str, node: str, kind: str, state: str, began_ns: int, **more: Any) -> Job:
    folder = f".twinrail/jobs/{name}"
    return Job(
        job_id=f"job-{name}",
        run_id=RUN,
        node=node,
        kind=kind,
        folder=folder,
        state=state,
        started_wall_ns=began_ns,
        ttl_s=7200,
        **more,
    )


def frame() -> list[Record]:
    """A past run with one attempt, and the run at hand: attempt 1 done, 2 in steady, 3 planned."""
    began, first, ended = NOW - 550 * S, NOW - 470 * S, NOW - 250 * S
    return [
        *past_run(),
        run_at_hand(state="running"),
        life(state="ready"),
        attempt(
            1,
            state="done",
            outcome="TPOT_SLO_EXCEEDED",
            detail="TPOT P95 54.1 ms of 50",
            started_wall_ns=first,
            ended_wall_ns=ended,
        ),
        attempt(2, state="running", started_wall_ns=NOW - 200 * S),
        attempt(3),
        phase(1, "warmup", 400, 390),
        phase(1, "ramp", 390, 360),
        phase(1, "steady", 360, 270),
        phase(1, "drain", 270, 255),
        phase(2, "warmup", 88, 80),
        phase(2, "ramp", 80, 66),
        phase(2, "steady", 66, None),
        NodeState(node="node5", state="up", rtt_ms=0.4, boot_id="b5", wall_ns=NOW - 2 * S),
        NodeState(node="node7", state="up", rtt_ms=0.6, boot_id="b7", wall_ns=NOW - 2 * S),
        *(
            ClockOffset(run_id=RUN, node=n, wall_ns=NOW - 30 * S, offset_ns=o, error_ns=150_000)
            for n, o in OFFSETS.items()
        ),
        job("server-node5", "node5", "server", "running", began, rank=0, pid=4200),
        job("server-node7", "node7", "server", "running", began, rank=1, pid=4300),
        job("client", "node5", "client", "exited", first, pid=5000, exit_code=0, ended_wall_ns=ended),
        Command(
            command_id="c1",
            run_id=RUN,
            life_id="life-1",
            node="node5",
            purpose="server",
            started_wall_ns=began,
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
            started_wall_ns=first,
            ended_wall_ns=ended,
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
        Gate(run_id=RUN, node="node7", name="rdma", status="unknown", detail="no NCCL line yet", wall_ns=NOW - 100 * S),
        log_event("kv_cache_full", "warn", 66, "retracting one request"),
        Note(run_id=RUN, wall_ns=NOW - 60 * S, who="operator", text="fan of node7 replaced yesterday"),
    ]


def log_event(name: str, severity: str, ago_s: int, detail: str) -> LogEvent:
    return LogEvent(
        run_id=RUN,
        job_id="job-server-node7",
        node="node7",
        rank=12,
        offset=1000 - ago_s,
        wall_ns=NOW - ago_s * S,
        name=name,
        severity=severity,
        detail=detail,
    )


def write_all(store: Store, records: Iterable[Record]) -> None:
    store.write(list(records), urgent=True).result()


def live(store: Store, scale: Scale | None = None) -> None:
    """Attempt 2 of 3 is in steady."""
    scale = scale or Scale()
    rng = random.Random(7)
    end = NOW + OFFSETS["node5"]
    write_all(store, frame())
    write_all(store, [*gpu_samples(scale, rng), *rail_samples(scale, rng)])
    write_all(store, [*engine_samples(scale), *host_samples(scale, rng), *load_ticks(scale), *log_lines(scale)])
    write_all(store, requests(RUN, f"{RUN}-2", scale.requests, end, 80.0, 64, rng))
    write_all(store, requests(RUN, f"{RUN}-1", 20, end - 260 * S, 120.0, 64, rng))
    write_all(store, requests(PAST, f"{PAST}-1", 20, end - 10_600 * S, 120.0, 64, rng))


def lost(store: Store, scale: Scale | None = None) -> None:
    """As `live`, but node7 has not been heard of for 40 s; what it wrote since is not here."""
    live(store, scale)
    cursor = store.connection.cursor()
    for table in ("gpu_samples", "rail_samples", "log_lines", "host_samples", "cpu_samples", "thread_samples"):
        cursor.execute(f"DELETE FROM {table} WHERE node = 'node7' AND wall_ns > {NOW - 40 * S}")
    why = "no answer for 40 s: connection timed out"
    write_all(store, [NodeState(node="node7", state="lost", detail=why, boot_id="b7", wall_ns=NOW - 28 * S)])


def error(store: Store, scale: Scale | None = None) -> None:
    """The engine ran out of memory: attempt 2 ended typed, the run is over."""
    live(store, scale)
    why = "node7 rank 12: torch.OutOfMemoryError"
    over = {"outcome": "OOM", "detail": why, "ended_wall_ns": NOW - 2 * S}
    write_all(
        store,
        [
            run_at_hand(state="done", **over),
            attempt(2, state="done", started_wall_ns=NOW - 200 * S, **over),
            life(state="gone", **over),
            phase(2, "steady", 66, 3),
            log_event("oom", "fatal", 3, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
        ],
    )


def empty(store: Store) -> None:
    """A configured project in which nothing was ever run."""
