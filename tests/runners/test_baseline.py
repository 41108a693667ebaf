"""What a baseline must not have, from rows as a run leaves them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runners.flows.baseline import flags_of
from runners.flows.life import LifeHandle
from runners.spec import Case, Deployment, Node
from store.database import Store
from store.records import Attempt, EngineSample, Job, Life, Record, Request, Run, Variable

S = 1_000_000_000
ATTEMPT = Attempt(
    attempt_id="r.a1",
    run_id="r",
    ordinal=1,
    case_name="x-C1",
    life_id="r.L1",
    job_id="r.a1.client",
    started_wall_ns=50 * S,
)
RUN = Run(run_id="r", kind="run", spec='{"repeats": 3}')


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "s.duckdb") as opened:
        yield opened


def flags(
    store: Store, *rows: Record, run: Run = RUN, warmup: int | None = None, dep_flags: list[str] | None = None
) -> list[str]:
    store.write([ATTEMPT, run, *rows]).result()
    dep = Deployment(name="d", engine="vllm", nodes=["n"], flags=dep_flags or [])
    handle = LifeHandle(Life(life_id="r.L1", deployment="d"), dep, [Node(name="n", host="local")], [])
    return flags_of(store, ATTEMPT, Case(name="x", isl=100, osl=4, warmup=warmup), handle)


def request(number: int, kind: str = "load") -> Request:
    return Request(
        run_id="r", attempt_id="r.a1", request_id=number, kind=kind, phase="load", measured=kind == "load", status="ok",
        sent_ns=100 * S, sent_wall_ns=100 * S, first_ns=101 * S, last_ns=110 * S, end_ns=110 * S, prompt_tokens=100,
    )  # fmt: skip


def sample(second: int, queries: float, hits: float) -> EngineSample:
    return EngineSample(
        run_id="r", life_id="r.L1", node="n", wall_ns=second * S, source="metrics",
        prefix_queries_total=queries, prefix_hits_total=hits,
    )  # fmt: skip


def test_a_clean_attempt_of_three_breaks_no_rule(store: Store) -> None:
    assert flags(store, request(1), sample(99, 0, 0), sample(101, 500, 40), sample(109, 1500, 44)) == []


def test_hits_between_the_first_send_and_the_last_end_count_and_no_others(store: Store) -> None:
    warm = [sample(90, 0, 0), sample(101, 500, 400), sample(109, 1500, 420), sample(120, 3000, 3000)]
    assert flags(store, request(1), *warm) == ["cache_warm"]


def test_the_hit_of_a_first_prompt_that_the_warm_up_has_sent_is_known(store: Store) -> None:
    rows = [request(0, "filler"), request(1), sample(101, 500, 0), sample(109, 1500, 100)]
    assert flags(store, *rows) == []


def test_sglangs_cached_tokens_count_where_there_are_no_queries(store: Store) -> None:
    rows = [
        EngineSample(
            run_id="r", life_id="r.L1", node="n", wall_ns=at * S, source="metrics",
            prompt_tokens_total=prompt, cached_tokens_total=cached,
        )
        for at, prompt, cached in ((101, 0, 0), (109, 1000, 300))
    ]  # fmt: skip
    assert flags(store, request(1), *rows) == ["cache_warm"]


@pytest.mark.parametrize(
    "told",
    [
        Variable(run_id="r", life_id="r.L1", name="server.speculative_algorithm", value="EAGLE"),
        Variable(
            run_id="r", life_id="r.L1", name="server.vllm_config", value="model='m', speculative_config=Speculat..."
        ),
        EngineSample(run_id="r", life_id="r.L1", node="n", wall_ns=S, spec_drafts_total=3.0),
    ],
)
def test_an_engine_that_drafts_or_says_so_speculates(store: Store, told: Record) -> None:
    assert flags(store, told) == ["speculation"]


@pytest.mark.parametrize("value", [None, "None", "null", ""])
def test_an_engine_that_says_it_does_not_speculate_is_believed(store: Store, value: str | None) -> None:
    name = "server.speculative_algorithm"
    quiet = Variable(run_id="r", life_id="r.L1", name="server.vllm_config", value="speculative_config=None, x")
    assert flags(store, Variable(run_id="r", life_id="r.L1", name=name, value=value), quiet) == []


@pytest.mark.parametrize("flag", ["--speculative-config", "--speculative-config={}", "--speculative-algorithm"])
def test_a_server_started_with_speculation_speculates(store: Store, flag: str) -> None:
    assert flags(store, dep_flags=[flag]) == ["speculation"]


def test_no_warm_up_and_few_repeats_are_said(store: Store) -> None:
    assert flags(store, run=Run(run_id="r", kind="run", spec='{"repeats": 2}'), warmup=0) == [
        "no_warmup",
        "few_repeats",
    ]


def test_without_a_word_on_repeats_the_attempts_of_the_case_count(store: Store) -> None:
    others = [
        Attempt(attempt_id=f"r.a{n}", run_id="r", ordinal=n, case_name="x-C1", state=state)
        for n, state in ((2, "done"), (3, "planned"), (4, "void"))
    ]
    assert flags(store, run=Run(run_id="r", kind="run")) == ["few_repeats"]
    assert flags(store, *others, run=Run(run_id="r", kind="run")) == []


@pytest.mark.parametrize(("ended", "found"), [(None, ["profiled"]), (60 * S, ["profiled"]), (40 * S, [])])
def test_a_profiler_that_ran_meanwhile_is_said(store: Store, ended: int | None, found: list[str]) -> None:
    job = Job(job_id="r.p", run_id="r", life_id="r.L1", node="n", kind="profiler", folder="/f", ended_wall_ns=ended)
    assert flags(store, job) == found
