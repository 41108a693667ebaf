"""The start-up tracker: stages of every rank from the engines' lines, and who holds a start up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runners.flows.startup import Watch, hanging
from runners.probes.base import ProbeContext
from runners.probes.logs import LogReader
from store.database import Store
from store.queries import call
from store.records import Job, Life

S = 1_000_000_000
T0 = 1_795_980_000 * S
NODES = ("node5", "node7")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "s.duckdb") as s:
        yield s


def start(store: Store, life: str, logs: dict[str, list[tuple[float, str]]], ready_s: float | None = None) -> None:
    """A life whose ranks have printed these lines, (seconds since the start, text), node by node."""
    row = Life(
        life_id=life,
        deployment="d",
        state="starting" if ready_s is None else "gone",
        started_wall_ns=T0,
        ready_wall_ns=None if ready_s is None else T0 + int(ready_s * S),
    )
    store.write([row]).result()
    for number, (node, lines) in enumerate(logs.items()):
        job = f"{life}.r{number}"
        store.write(
            [Job(job_id=job, life_id=life, node=node, kind="server", folder="/", rank=number, started_wall_ns=T0)]
        )
        for n, (at, text) in enumerate(lines):
            context = ProbeContext(
                run_id="r", node=node, job_id=job, engine="sglang", stream="stdout", offset=n, wall_ns=T0 + int(at * S)
            )
            store.write(LogReader().parse(text.encode() + b"\n", context).records).result()


def nccl(rank: int, phase: str, nranks: int = 4, gpu: int | None = None) -> str:
    gpu = rank % 2 if gpu is None else gpu
    return (
        f"host:{100 + rank}:{200 + rank} [{gpu}] NCCL INFO ncclCommInitRank comm 0x{rank + 1:x} "
        f"rank {rank} nranks {nranks} "
        f"cudaDev {gpu} nvmlDev {gpu} busId {rank}000 commId 0xabc - Init {phase}"
    )


def tp(rank: int, text: str) -> str:
    return f"[TP{rank}] {text}"


def logs(*, silent: int | None = None, stuck: int | None = None) -> dict[str, list[tuple[float, str]]]:
    """Two nodes of two ranks: NCCL at 5 s, through it at 9 s; one rank may never begin, or never end."""
    out: dict[str, list[tuple[float, str]]] = {}
    for number, node in enumerate(NODES):
        ranks = [r for r in (2 * number, 2 * number + 1) if r != silent]
        lines = [(5.0, nccl(r, "START")) for r in ranks]
        lines += [(9.0, nccl(r, "COMPLETE")) for r in ranks if silent is None and r != stuck]
        out[node] = lines
    return out


def rows(store: Store, life: str) -> list[dict[str, Any]]:
    return store.query(call("startup_ranks", life)).dicts()


def test_a_stage_has_its_begin_and_end_for_each_rank(store: Store) -> None:
    start(store, "l", logs())
    found = {
        (r["rank"], r["stage"]): (r["node"], r["begin_s"], r["end_s"]) for r in rows(store, "l") if r["stage"] == "nccl"
    }
    assert found == {(r, "nccl"): (NODES[r // 2], 5.0, 9.0) for r in range(4)}


def test_the_rank_that_never_began_is_named_with_its_node(store: Store) -> None:
    start(store, "l", logs(silent=3))
    assert (
        hanging(rows(store, "l"), NODES, 4) == "hangs in NCCL init: rank 3 on node7 never began it, 3 of 4 ranks have"
    )


def test_the_rank_that_never_came_through_is_named_beside_what_is_usual(store: Store) -> None:
    start(store, "past", logs(), ready_s=60.0)
    start(store, "l", logs(stuck=2))
    said = hanging(rows(store, "l"), NODES, 4)
    assert said == "hangs in NCCL init: rank 2 on node7 not through it, 3 of 4 ranks are; usually over after 9 s"


def test_ranks_of_small_communicators_are_told_apart_by_their_gpu(store: Store) -> None:
    """TP2 x PP2: each node numbers its ranks from 0 in its own communicator, beside one of all."""
    lines = {
        node: [(5.0, nccl(r, "START", 2, r)) for r in (0, 1)] + [(6.0, nccl(r, "COMPLETE", 2, r)) for r in (0, 1)]
        for node in NODES
    }
    lines["node7"].pop()
    for number, node in enumerate(NODES):
        lines[node] += [(7.0, nccl(2 * number + g, p, 4, g)) for g in (0, 1) for p in ("START", "COMPLETE")]
    start(store, "l", lines)
    assert hanging(rows(store, "l"), NODES, 4) == "hangs in NCCL init: rank 3 on node7 not through it, 3 of 4 ranks are"


def test_an_engine_that_speaks_for_its_node_only_is_judged_node_by_node(store: Store) -> None:
    told = [(1.0, tp(0, "Load weight begin. avail mem=90.00 GB")), (50.0, tp(0, "Load weight end. elapsed=49 s"))]
    start(store, "l", {"node5": told, "node7": told[:1]})
    said = hanging([{**r, "rank": None} for r in rows(store, "l")], NODES, 4)
    assert said == "stands still (node5: after loading weights; node7: in loading weights; node7 is behind)"


def test_nothing_said_is_said(store: Store) -> None:
    assert hanging([], NODES, 4) == "no rank has said anything of its start"


def test_the_stages_show_where_each_node_is_and_what_is_usual(store: Store) -> None:
    start(store, "past", logs(), ready_s=60.0)
    start(store, "l", logs(stuck=2))
    found = {(r["node"], r["stage"]): r for r in store.query(call("startup_stages", "l")).dicts()}
    assert found["node5", "nccl"]["state"] == "done"
    stuck = found["node7", "nccl"]
    assert (stuck["state"], stuck["ended"], stuck["waiting"], stuck["typical_s"]) == ("now", 1, [2], 9.0)
    assert found["node7", "weights"]["state"] == "to come"
    assert found[None, "ready"]["typical_s"] == 60.0


def test_a_start_stands_when_nothing_moves_for_longer_than_usual() -> None:
    watch = Watch()
    row = {"end_s": None, "typical_s": None}
    assert [watch.due(t) for t in (0.0, 5.0, 10.0)] == [True, False, True]
    assert not watch.stands([row], 0.0)
    assert not watch.stands([row], 59.0)
    assert watch.stands([row], 61.0)
    assert not watch.stands([{**row, "end_s": 3.0}], 62.0)  # a stage has ended
    slow = {"end_s": None, "typical_s": 100.0}
    assert not watch.stands([slow, row], 63.0)
    assert not watch.stands([slow, row], 250.0)  # twice the usual time is allowed
    assert watch.stands([slow, row], 270.0)
