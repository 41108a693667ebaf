"""Each scenario of the embedded lab shows what its title says: in the store, after a run like any other.

One runs always; the rest (`pytest -m slow`, on a machine with a core to spare) wait for a worker's crash, a hang's
patience or a slow start, or have figures that other work on the machine blurs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from runners.lab import SCENARIOS
from runners.lab.control import start, stop
from runners.session import Session, foreground
from runners.spec import load_inventory

pytestmark = [pytest.mark.xdist_group("search"), pytest.mark.timeout(300)]
HEALTHY_TPOT_MS = 7.0  # of C 8, on the lab's clock: 27 simulated ms a step at five times the speed, and some room


@dataclass
class Seen:
    """What a run of one case left in the store."""

    document: dict[str, Any]
    gpus: list[dict[str, Any]]
    rails: dict[tuple[str, str], dict[str, Any]]  # by node and device
    engine: dict[str, Any]
    events: set[tuple[str, str]]  # severity, name
    life: dict[str, Any]
    figures: dict[str, Any] = field(default_factory=dict)  # answers to the scenario's own questions

    @property
    def attempt(self) -> dict[str, Any]:
        (case,) = self.document["cases"]
        (attempt,) = case["attempts"]
        return dict(attempt)

    @property
    def quiet(self) -> bool:
        """No GPU held back, no rail in trouble, nobody preempted."""
        calm = all(not g["throttle"] for g in self.gpus)
        clean = all(not r["retransmits"] and not r["out_of_sequence"] for r in self.rails.values())
        return calm and clean and not self.engine.get("preemptions")


@dataclass(frozen=True)
class Expected:
    """A load, questions to the store (RUN stands for the run's id), and what must hold."""

    holds: Callable[[Seen], None]
    outcome: str = "OK"
    concurrency: int = 8
    requests: int = 80
    osl: int = 64
    ask: dict[str, str] = field(default_factory=dict)


def healthy(seen: Seen) -> None:
    assert seen.quiet
    assert seen.attempt["all"]["tpot_ms"]["p50"] < HEALTHY_TPOT_MS
    for node in ("node5", "node7"):
        both = [seen.rails[node, hca]["tx_mean_gbs"] for hca in ("mlx5_0", "mlx5_3")]
        assert min(both) > 0.5 * max(both) > 0  # a sample may fall between the two counters of the lab
    assert all(g["util_max_pct"] > 50 for g in seen.gpus)


def idle_rail(seen: Seen) -> None:
    assert seen.quiet
    for node in ("node5", "node7"):
        assert seen.rails[node, "mlx5_0"]["tx_mean_gbs"] > 0
        assert seen.rails[node, "mlx5_3"]["tx_mean_gbs"] == 0


def lossy_rail(seen: Seen) -> None:
    lossy = {key for key, r in seen.rails.items() if r["retransmits"] or r["out_of_sequence"]}
    assert lossy == {("node7", "mlx5_3")}


def slow_rank(seen: Seen) -> None:
    held = {(g["node"], g["gpu"]): g["throttle"] for g in seen.gpus if g["throttle"]}
    assert list(held) == [("node7", 3)]
    clocks = {(g["node"], g["gpu"]): g["sm_min_busy_mhz"] for g in seen.gpus}
    assert clocks.pop(("node7", 3)) < 0.7 * min(clocks.values())
    assert seen.attempt["all"]["tpot_ms"]["p50"] > 1.2 * 27 / 5


def kv_pressure(seen: Seen) -> None:
    assert seen.engine["preemptions"] > 0
    assert seen.engine["kv_usage_max"] > 0.9
    assert seen.engine["waiting_max"] > 0


def oom(seen: Seen) -> None:
    assert ("fatal", "oom") in seen.events
    assert "memory" in seen.attempt["detail"]


def crash(seen: Seen) -> None:
    assert any(severity == "fatal" for severity, _ in seen.events)
    assert ("fatal", "oom") not in seen.events
    assert seen.figures["failed"][0][0] > 0


def worker_crash(seen: Seen) -> None:
    assert any(severity == "fatal" for severity, _ in seen.events)
    assert "rank 1 on node7" in seen.attempt["detail"]


def hang(seen: Seen) -> None:
    assert seen.attempt["detail"].startswith("hang: no token for 20 s")


def slow_start(seen: Seen) -> None:
    assert (seen.life["ready_wall_ns"] - seen.life["started_wall_ns"]) / 1e9 > 60
    assert seen.quiet


def host_bound(seen: Seen) -> None:
    assert seen.attempt["all"]["tpot_ms"]["p50"] > 1.5 * HEALTHY_TPOT_MS
    ((low, high),) = seen.figures["util"]
    assert high - low > 30  # the saw-tooth
    shares = dict(seen.figures["threads"])
    scheduler = shares.pop("sglang::scheduler_TP0")
    assert scheduler > 80
    assert all(share < scheduler for title, share in shares.items() if "VLLM" not in title)  # no other server's
    assert seen.engine["waiting_max"] == 0


def prefill_storm(seen: Seen) -> None:
    itl = seen.attempt["all"]["itl_ms"]
    assert itl["p99"] > 8 * itl["p50"]
    assert seen.engine["waiting_max"] >= 1
    ((chunks, most),) = seen.figures["chunks"]
    assert chunks >= 16
    assert most >= 1  # waited beside them, by the scheduler's own lines
    asked = seen.attempt["all"]["tokens"]["input"]
    assert seen.engine["prompt_tokens"] > 3 * asked  # somebody else's


UTIL = """select min(util), max(util) from (
    select wall_ns // 1000000000, avg(util_pct) util from gpu_samples where run_id = 'RUN' and node = 'node5' group by 1
) where util > 0"""
# On a core or waiting for one: a thread that never sleeps has 100, however busy the machine is with other work.
THREADS = """select any_value(process), max(share) from (
    select process, pid, tid, run_ns_total + wait_ns_total as awake,
        100 * (awake - lag(awake) over w) / (wall_ns - lag(wall_ns) over w) as share
    from thread_samples where run_id = 'RUN' and node = 'node5' window w as (partition by pid, tid order by wall_ns)
    ) where share is not null group by pid, tid order by 2"""
CHUNKS = """select count(*) filter (where contains(text, '#new-token: 2048,')),
    max(regexp_extract(text, '#queue-req: (\\d+)', 1)::int)
    from log_lines where run_id = 'RUN' and contains(text, 'Prefill batch')"""
FAILED = "select count(*) from requests where run_id = 'RUN' and status = 'failed'"
TABLE = {
    "healthy": Expected(healthy),
    "idle-rail": Expected(idle_rail, requests=20),
    "lossy-rail": Expected(lossy_rail),
    "slow-rank": Expected(slow_rank),
    "host-bound": Expected(host_bound, requests=64, ask={"util": UTIL, "threads": THREADS}),
    "prefill-storm": Expected(prefill_storm, requests=40, ask={"chunks": CHUNKS}),
    "kv-pressure": Expected(kv_pressure, concurrency=16, requests=80),
    "oom-at-48": Expected(oom, "OOM", concurrency=48, requests=60),
    "crash": Expected(crash, "ENGINE_CRASH", ask={"failed": FAILED}),
    "worker-crash": Expected(worker_crash, "ENGINE_CRASH", requests=4000),
    "hang": Expected(hang, "ENGINE_CRASH"),
    "slow-start": Expected(slow_start),
}
CHEAP = ("idle-rail",)  # what a loaded machine cannot blur


def test_every_scenario_is_in_the_table() -> None:
    assert TABLE.keys() == SCENARIOS.keys()


@pytest.mark.parametrize("name", [n if n in CHEAP else pytest.param(n, marks=pytest.mark.slow) for n in TABLE])
async def test_a_scenario_shows_what_its_title_says(tmp_path: Path, name: str) -> None:
    expected = TABLE[name]
    path = tmp_path / "scenario.toml"
    path.write_text(
        f"{start(tmp_path, name)}\n[cases.it]\nisl = 256\nosl = {expected.osl}\nconcurrency = {expected.concurrency}\n"
        f'requests = {expected.requests}\nbudget = "90s"\n',
        encoding="utf-8",
    )
    try:
        async with foreground(load_inventory(path)) as session:
            seen = await _seen(session, expected)
    finally:
        stop(tmp_path)
    assert seen.attempt["outcome"] == expected.outcome, seen.attempt["detail"]
    expected.holds(seen)


async def _seen(session: Session, expected: Expected) -> Seen:
    run_id = str((await session.order("start_run", what=["it"]))["run_id"])
    deadline = time.monotonic() + 240
    while (await session.rows("run_progress", run_id))[0]["state"] != "done":
        assert time.monotonic() < deadline, "the run did not end"
        await asyncio.sleep(0.3)
    rails = await session.rows("summary_rails", run_id)
    engine = await session.rows("summary_engine", run_id)
    return Seen(
        document=await session.document(run_id),
        gpus=await session.rows("summary_gpus", run_id),
        rails={(r["node"], r["device"]): r for r in rails if r["door"] == "rdma"},
        engine=engine[0] if engine else {},
        events={(e["severity"], e["name"]) for e in await session.rows("summary_events", run_id)},
        life=(await session.rows("deployment_life", "sim"))[0],
        figures={k: (await session.sql(q.replace("RUN", run_id))).rows for k, q in expected.ask.items()},
    )
