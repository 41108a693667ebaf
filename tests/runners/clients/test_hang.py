"""A tool tells nothing while it runs: that its server hangs is seen in the engine's own counts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from runners.cluster import Cluster
from runners.flows.attempt import AttemptFlow, Progress
from runners.flows.life import LifeHandle
from runners.flows.services import Services
from runners.ingest import Ingest
from runners.spec import Case, Deployment, Inventory, Node
from store.database import Store
from store.records import Attempt, EngineSample, Life

S = 1_000_000_000


def sample(second: int, running: float, tokens: float, rank: int | None = None) -> EngineSample:
    return EngineSample(
        run_id="r", life_id="r.L1", node="n", wall_ns=second * S, source="metrics", dp_rank=rank,
        running=running, prompt_tokens_total=100.0, generation_tokens_total=tokens,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("later", "hangs"),
    [
        ([sample(31, 4, 500)], True),
        ([sample(29, 4, 500)], False),  # not for so long yet
        ([sample(31, 4, 501)], False),  # a token came
        ([sample(31, 0, 500)], False),  # nothing to do
        ([sample(31, 4, 500, 1)], False),  # another rank had something to tell
        ([], False),  # a server without metrics: the budget ends it
    ],
)
def test_requests_in_flight_and_no_token_for_too_long_is_a_hang(
    tmp_path: Path, later: list[EngineSample], hangs: bool
) -> None:
    with Store.open(tmp_path / "s.duckdb") as store:
        case = Case(name="x", isl=8, osl=8, client="vllm_bench")
        attempt = Attempt(attempt_id="r.a1", run_id="r", ordinal=1, case_name="x", case_spec=case.model_dump_json())
        dep = Deployment(name="d", engine="vllm", nodes=["n"], hang_timeout=30)
        handle = LifeHandle(Life(life_id="r.L1", deployment="d"), dep, [Node(name="n", host="local")], [])
        services = Services(store, Cluster(Inventory(), store), Ingest(store))
        flow = AttemptFlow(services, attempt, handle, asyncio.Event())
        progress = Progress()
        if later:
            store.write([sample(0, 4, 500)]).result()
        assert not flow._hangs(progress)
        store.write(later).result()
        assert flow._hangs(progress) is hangs
