"""Our own readers of real engines' logs and metrics find in the simulated engine's what they find in those."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from runners.formats.base import Event, Item
from runners.formats.engine_log import parse_nccl, parse_sglang, parse_vllm
from runners.formats.prometheus import parse_page
from runners.gates.rdma import Expectation, judge
from runners.payload import sim
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


def verdict(*flags: str, tp: int, pp: int = 1, nodes: int = 2) -> str:
    """The gate's word over what all nodes of a deployment print."""
    rows: list[dict[str, object]] = []
    shape = ["--tp", str(tp), "--pp", str(pp), "--nnodes", str(nodes), *flags]
    for rank in range(nodes):
        node = sim.Node(sim.parse([*shape, "--node-rank", str(rank)]))
        node.host, node.comm_id = f"node{rank}", "0x1234567890abcdef"
        printed = (node.init_lines, node.complete_lines, node.channel_lines)
        lines = [line for part in printed for gpu in range(node.local) for line in part(gpu)]
        rows += [row for row in parse_nccl(lines) if isinstance(row, dict)]
    names = tuple(f"node{rank}" for rank in range(nodes))
    hcas = dict.fromkeys(names, ("mlx5_0", "mlx5_3"))
    return judge(rows, expect=Expectation(names, tp * pp // nodes, tp=tp, pp=pp, hcas=hcas)).gate


@pytest.mark.parametrize(("tp", "pp", "nodes"), [(16, 1, 2), (8, 2, 2), (4, 4, 2), (2, 1, 2), (2, 2, 2), (6, 1, 3)])
def test_the_rdma_gate_passes_a_right_transport_in_every_topology(tp: int, pp: int, nodes: int) -> None:
    assert verdict(tp=tp, pp=pp, nodes=nodes) == "PASS"


@pytest.mark.parametrize("flags", [("--nccl-net", "socket"), ("--nccl-net", "ib-nogdr"), ("--hca", "mlx5_0")])
def test_the_rdma_gate_refuses_a_wrong_one(flags: tuple[str, ...]) -> None:
    assert verdict(*flags, tp=16) == "FAIL"
    assert verdict(*flags, tp=8, pp=2) == "FAIL"


@pytest.mark.parametrize("style", ["vllm", "sglang"])
async def test_the_metrics_page_is_read(start: Farm, style: str) -> None:
    server = start("--style", style).ready()
    await load(server.url, 2, 4, isl=50, osl=10)
    row = parse_page(server.get("/metrics")[1])
    assert row is not None
    assert (row["running"], row["waiting"], row["kv_usage"]) == (0, 0, 0)
    assert (row["prompt_tokens_total"], row["generation_tokens_total"]) == (200, 40)
    assert row["kv_total_tokens"] == 400000
    times = ("ttft_seconds_count", "e2e_seconds_count", "tpot_seconds_count", "queue_seconds_count")
    assert [row[name] for name in times] == [4, 4, 4, 4]
    assert row["itl_seconds_count"] == 4 * 9
