"""Our own readers of real engines' logs and metrics find in the simulated engine's what they find in those."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from runners.formats.base import Event, Item
from runners.formats.engine_log import parse_nccl, parse_sglang, parse_vllm
from runners.formats.prometheus import parse_page
from tests.runners.sim_helper import Farm, farm, load

PARSERS: dict[str, Callable[[Iterable[str]], Iterator[Item]]] = {"vllm": parse_vllm, "sglang": parse_sglang}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Farm]:
    yield from farm(tmp_path)


@pytest.mark.parametrize("style", ["vllm", "sglang"])
async def test_stages_batches_transport_and_death_are_read(start: Farm, style: str) -> None:
    quick = ("--log-stats-interval", "0.2", "--decode-log-interval", "10")
    rank0, rank1 = start.two("--style", style, "--clock-scale", "5", *quick)
    rank0.ready()
    await load(rank0.url, 4, 8, isl=50, osl=60)
    rank1.process.kill()
    rank0.wait()
    items = list(PARSERS[style](rank0.log.split("\n")))
    events = Counter(item.name for item in items if isinstance(item, Event))
    assert events["start_stage"] > 8
    assert events["ready"] == 1
    assert events["engine_crash"] >= 1
    assert events["rdma_completion_error"] >= 1
    assert 4 in {item.get("running") for item in items if isinstance(item, dict)}
    for log in (rank0.log, rank1.log):
        rows = [item for item in parse_nccl(log.split("\n")) if isinstance(item, dict)]
        channels = [row for row in rows if row["record"] == "channel" and row["transport"] == "NET"]
        assert {row["from_rank"] for row in channels} == {0, 4, 8, 12}
        assert all(row["gdrdma"] for row in channels)
        assert {(row["net_index"], row["direction"]) for row in channels} == {
            (index, way) for index in (0, 1) for way in ("send", "receive")
        }


@pytest.mark.parametrize("style", ["vllm", "sglang"])
async def test_the_metrics_page_is_read(start: Farm, style: str) -> None:
    sim = start("--style", style).ready()
    await load(sim.url, 2, 4, isl=50, osl=10)
    row = parse_page(sim.get("/metrics")[1])
    assert row is not None
    assert (row["running"], row["waiting"], row["kv_usage"]) == (0, 0, 0)
    assert (row["prompt_tokens_total"], row["generation_tokens_total"]) == (200, 40)
    assert row["kv_total_tokens"] == 400000
    times = ("ttft_seconds_count", "e2e_seconds_count", "tpot_seconds_count", "queue_seconds_count")
    assert [row[name] for name in times] == [4, 4, 4, 4]
    assert row["itl_seconds_count"] == 4 * 9
