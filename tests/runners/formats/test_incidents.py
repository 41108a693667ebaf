"""Failures of real logs: typed, folded over ranks, causes apart from echoes and guesses."""

from __future__ import annotations

import pytest

from runners.formats import incidents
from runners.formats.base import Event, collect
from runners.formats.engine_log import parse_sglang, parse_torch, parse_vllm
from tests.runners.formats.samples import parsed


def folded(lines: list[str]) -> list[Event]:
    return incidents.fold(collect(parse_vllm(lines)).events)


def reason(lines: list[str]) -> str | None:
    found = incidents.stop_reason(folded(lines))
    return None if found is None else str(found["reason"])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[rank11]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.35 GiB.", "OOM"),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "OOM"),
        ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`", "OOM"),
        ("node-0:1:2 [3] NCCL WARN Cuda failure 'out of memory'", "OOM"),
        ("retract_decode: aborted last request abc due to OOM", "OOM"),
        ("(EngineCore pid=9) ERROR 04-28 02:37:03 [core.py:398] EngineCore encountered a fatal error.", "ENGINE_CRASH"),
        ("Worker proc VllmWorker-3 died unexpectedly (exit code: -9), shutting down executor.", "ENGINE_CRASH"),
        ("[2026-01-01 00:00:00 TP3] Scheduler hit an exception: Traceback (most recent call last):", "ENGINE_CRASH"),
        ("[2026-01-01 00:00:00] Subprocess scheduler (pid=77) crashed with exit code -9", "ENGINE_CRASH"),
        ("[2026-01-01 00:00:00 TP1] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
         "ENGINE_CRASH"),
        ("OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
         "START_FAILED"),
        ("ValueError: Free memory on device (1.0/79.1 GiB) on startup is less than desired GPU memory utilization",
         "START_FAILED"),
        ("INFO 04-28 02:37:03 [x.py:1] Set PYTORCH_CUDA_ALLOC_CONF to avoid out of memory errors", None),
        ("[2026-01-01 00:00:00] KV cache pool is full. Retract requests. #retracted_reqs: 4", None),
        ("[2026-01-01 00:00:00 TP1] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=True)", None),
        ("(raylet) A worker died or was killed while executing a task by an unexpected system error. There are some "
         "potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage.", None),
        ("node-0:1:2 [0] ras/client_support.cc:181 NCCL WARN Call to bind failed: Address already in use", None),
        ("WARNING 01-08 17:16:15 [x.py:1] Error in chat completion stream generator.", None),
    ],
)  # fmt: skip
def test_what_proves_which_stop_reason(line: str, expected: str | None) -> None:
    assert reason([line]) == expected


def test_host_memory_is_a_sub_type() -> None:
    (event,) = folded(["ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."])
    assert (event.name, event.detail["sub"]) == ("oom", "HOST_OOM")


def test_eight_watchdogs_and_their_echo_are_one_incident() -> None:
    lines = [
        f"[2025-03-09 00:57:1{rank % 3} TP{rank}] Watchdog timeout (self.watchdog_timeout=300)" for rank in range(8)
    ]
    lines += ["[2025-03-09 00:57:20] Received sigquit from a child proces. It usually means the child failed."]
    watchdog, echo = incidents.fold(collect(parse_sglang(lines)).events)
    assert (watchdog.detail["count"], watchdog.detail["ranks"]) == (8, list(range(8)))
    assert (echo.detail["role"], echo.detail["echo_of"]) == ("echo", "watchdog_timeout")


def test_an_echo_before_its_cause_is_moved_behind_it() -> None:
    lines = [
        "(APIServer pid=1) ERROR 01-08 17:16:15 [a.py:1] vllm.v1.engine.exceptions.EngineDeadError: EngineCore",
        "(EngineCore_DP0 pid=2) ERROR 01-08 17:16:15 [core.py:1] EngineCore encountered a fatal error.",
    ]
    assert [event.name for event in folded(lines)] == ["engine_crash", "engine_dead"]


def test_oom_inside_a_crash_is_the_stop_reason_and_both_are_kept() -> None:
    lines = [
        "(EngineCore pid=2) ERROR 01-08 17:16:15 [core.py:1] EngineCore encountered a fatal error.",
        "(EngineCore pid=2) ERROR 01-08 17:16:15 [core.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to",
    ]
    found = incidents.stop_reason(folded(lines))
    assert found is not None
    assert (found["reason"], found["all"]) == ("OOM", ["OOM", "ENGINE_CRASH"])


def test_requests_after_a_corruption_warning_are_tainted() -> None:
    lines = [
        "[rank3]:[E909 08:45:30.1 ProcessGroupNCCL.cpp:2252] [PG ID 2 PG GUID 3 Rank 3] Some NCCL operations have "
        "failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on "
        "corrupted/incomplete data.",
    ]
    events = collect(parse_torch(lines)).events
    assert incidents.tainted_after(events) == "09-09 08:45:30.1"
    assert events[0].rank == 3
    assert incidents.tainted_after([]) is None


WAIT = (
    "(EngineCore pid=1) INFO 01-11 01:{:02d}:59 [shm_broadcast.py:542] "
    "No available shared memory broadcast block found in 60 seconds."
)
READY = "INFO:     Application startup complete."
STATS = ("INFO 01-11 01:09:00 [loggers.py:1] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation "
         "throughput: 9.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%")  # fmt: skip


def test_waiting_for_shared_memory_is_a_hang_only_in_service_and_without_an_end() -> None:
    waits = [WAIT.format(minute) for minute in (1, 2, 3)]
    assert reason(waits) is None
    assert reason([*waits, READY]) is None
    assert reason([READY, waits[0]]) is None
    assert reason([READY, *waits]) == "ENGINE_CRASH"
    assert reason([READY, *waits, STATS]) is None
    (hang,) = [event for event in folded([READY, *waits]) if event.name != "ready"]
    assert (hang.detail["sub"], hang.detail["count"]) == ("hang", 3)


def test_equal_lines_far_apart_are_two_incidents() -> None:
    line = "[2025-03-09 {}:57:15 TP4] Watchdog timeout (self.watchdog_timeout=300)"
    assert len(incidents.fold(collect(parse_sglang([line.format("00"), line.format("05")])).events)) == 2


def test_a_collective_timeout_tells_its_sequence_number() -> None:
    events = incidents.fold(parsed("nccl-log/watchdog-caught-timeout-allgather.log").events)
    timeout = next(event for event in events if event.name == "collective_timeout")
    assert (timeout.rank, timeout.detail["seq"], timeout.detail["op"]) == (4, 1, "ALLGATHER")
    crash = next(event for event in parsed("nccl-log/sglang-tp16-crash-after-40k-collectives.log").events)
    assert (crash.detail["enqueued"], crash.detail["completed"]) == (40267, 40230)


def test_a_flood_costs_one_incident() -> None:
    line = "KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_token_ratio: 0.{} -> 0.5"
    events = incidents.fold(collect(parse_sglang([line.format(1000 + at) for at in range(20_000)])).events)
    assert len(events) == 1
    assert events[0].detail["count"] == 20_000
