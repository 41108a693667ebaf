"""Two nodes of the simulated engine: they join, exchange every step, and feel each other's death."""

import asyncio
import contextlib
import http.client
import json
import re
import signal
import statistics
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.runners.sim_helper import Farm, Sim, farm, free_port, load

CHANNEL = re.compile(
    r"^\S+:\d+:\d+ \[\d+\] NCCL INFO Channel \d+/0 : (\d+)\[\d+\] -> (\d+)\[\d+\] \[(send|receive)\] via (NET/\S+)$",
    re.M,
)
COMPLETE = re.compile(r"ncclCommInitRank comm \S+ rank (\d+) nranks (\d+) .* commId (\S+) - Init COMPLETE$", re.M)
ENDLESS = {"prompt": "a", "max_tokens": 90000, "ignore_eos": True, "stream": True}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Farm]:
    yield from farm(tmp_path)


def busy(sim: Sim) -> http.client.HTTPResponse:
    """Keep the engine stepping: an endless stream."""
    request = urllib.request.Request(sim.url + "/v1/completions", data=json.dumps(ENDLESS).encode())
    response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=30)
    response.readline()
    return response


def test_nothing_is_served_until_all_nodes_have_joined(start: Farm) -> None:
    meet = ("--tp", "2", "--nnodes", "2", "--dist-init-addr", f"127.0.0.1:{free_port()}")
    rank0 = start(*meet)
    time.sleep(0.6)
    with pytest.raises(OSError, match="refused"):
        rank0.get("/health")
    start(*meet, "--node-rank", "1")
    rank0.ready()


def test_both_nodes_print_what_the_rdma_gate_reads(start: Farm) -> None:
    rank0, rank1 = start.two()
    rank0.ready()
    for sim, ranks, others in ((rank0, range(8), range(8, 16)), (rank1, range(8, 16), range(8))):
        assert sim.log.count("NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_3:1/RoCE [RO]; OOB eth0:127.0.0.1<0>") == 8
        seen = {(way, via) for _, _, way, via in CHANNEL.findall(sim.log)}
        assert seen == {(w, f"NET/IB/{i}/GDRDMA") for w in ("send", "receive") for i in (0, 1)}
        for source, target, way, _ in CHANNEL.findall(sim.log):
            mine, theirs = (source, target) if way == "send" else (target, source)
            assert int(mine) in ranks
            assert int(theirs) in others
        done = COMPLETE.findall(sim.log)
        assert sorted(int(rank) for rank, _, _ in done) == list(ranks)
        assert {n for _, n, _ in done} == {"16"}
        assert sim.log.rindex("Init COMPLETE") < sim.log.index("via NET/IB")
    assert len({c for s in (rank0, rank1) for _, _, c in COMPLETE.findall(s.log)}) == 1


@pytest.mark.parametrize(("net", "via"), [("socket", "NET/Socket/0"), ("ib-nogdr", "NET/IB/0")])
def test_a_wrong_transport_is_printed_as_nccl_does(start: Farm, net: str, via: str) -> None:
    rank0, _ = start.two("--nccl-net", net)
    rank0.ready()
    assert via in {found[3] for found in CHANNEL.findall(rank0.log)}
    assert "GDRDMA" not in rank0.log
    assert ("Using network Socket" in rank0.log) == (net == "socket")


def test_nccl_lines_go_to_a_file_per_rank_when_asked(
    start: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_DEBUG_FILE", f"{tmp_path}/nccl.%h.%p")
    sim = start("--tp", "4").ready()
    files = sorted(tmp_path.glob("nccl.*"))
    assert len(files) == 4
    assert all("Init COMPLETE" in f.read_text() for f in files)
    assert "NCCL INFO" not in sim.log


@pytest.mark.parametrize("style", ["vllm", "sglang"])
def test_a_killed_node_ends_the_engine_within_two_seconds_with_a_line_that_names_it(start: Farm, style: str) -> None:
    rank0, rank1 = start.two("--style", style)
    rank0.ready()
    stream = busy(rank0)
    rank1.process.kill()
    begin = time.monotonic()
    assert rank0.wait() == 1
    assert time.monotonic() - begin < 2
    text = rank0.log
    assert re.search(r"NCCL WARN NET/IB : Got completion from peer 127.0.0.1<\d+> with status=\S+\(12\)", text)
    assert "torch.distributed.DistBackendError: NCCL error" in text
    assert re.search(r"node rank 1 \(\S+, 127.0.0.1\) is lost", text)
    assert {"vllm": "EngineDeadError", "sglang": "Scheduler hit an exception: Traceback"}[style] in text
    try:
        rest = stream.read()
    except http.client.IncompleteRead as error:
        rest = error.partial
    assert (b'"error"' in rest) == (style == "vllm")


def test_an_idle_engine_feels_a_killed_node_too(start: Farm) -> None:
    rank0, rank1 = start.two("--nccl-net", "socket")
    rank0.ready()
    rank1.process.kill()
    assert rank0.wait(2) == 1
    assert re.search(r"NCCL WARN socketProgress: Connection closed by remote peer \S+<\d+>", rank0.log)


def test_a_frozen_node_is_found_by_the_watchdog(start: Farm) -> None:
    rank0, rank1 = start.two("--watchdog-timeout", "1")
    rank0.ready()
    with busy(rank0):
        begin = time.monotonic()
        rank1.process.send_signal(signal.SIGSTOP)
        assert rank0.wait() == 1
    assert 0.9 < time.monotonic() - begin < 2.5
    assert re.search(
        r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=\d+, .*Timeout\(ms\)=1000\)", rank0.log
    )
    assert re.search(r"node rank 1 \(\S+, 127.0.0.1\) is lost: no answer for 1 s", rank0.log)
    rank1.process.send_signal(signal.SIGCONT)
    assert rank1.wait() == 1


def test_a_short_freeze_is_a_long_step_and_no_more(start: Farm) -> None:
    rank0, rank1 = start.two("--watchdog-timeout", "5")
    rank0.ready()
    with busy(rank0) as stream:
        rank1.process.send_signal(signal.SIGSTOP)
        time.sleep(0.7)
        held = rank0.metric("vllm:generation_tokens_total")
        time.sleep(0.2)
        assert rank0.metric("vllm:generation_tokens_total") == held, "the node's absence must stop the engine"
        rank1.process.send_signal(signal.SIGCONT)
        stream.readline()
        time.sleep(0.3)
        assert rank0.process.poll() is None
        assert rank0.metric("vllm:generation_tokens_total") > held + 20


def test_when_rank_0_dies_its_workers_do_not_stay(start: Farm) -> None:
    rank0, rank1 = start.two()
    rank0.ready()
    rank0.process.kill()
    assert rank1.wait(2) == 1
    assert "node rank 0" in rank1.log


@pytest.mark.parametrize("loaded", [False, True])
def test_sigterm_stops_all_nodes_cleanly_within_a_second(start: Farm, loaded: bool) -> None:
    rank0, rank1 = start.two()
    rank0.ready()
    with busy(rank0) if loaded else contextlib.nullcontext():
        begin = time.monotonic()
        rank0.process.terminate()
        assert (rank0.wait(), rank1.wait()) == (0, 0)
        assert time.monotonic() - begin < 1
    assert "Traceback" not in rank0.log + rank1.log


def test_both_stopped_at_once_is_clean_and_a_worker_alone_is_not(start: Farm) -> None:
    rank0, rank1 = start.two()
    rank0.ready()
    rank1.process.terminate()
    time.sleep(0.3)
    rank0.process.terminate()
    assert (rank0.wait(), rank1.wait()) == (0, 0)
    rank0, rank1 = start.two()
    rank0.ready()
    rank1.process.terminate()
    assert (rank1.wait(), rank0.wait()) == (0, 1)
    assert "node rank 1" in rank0.log


def test_sigterm_during_start_stops_too(start: Farm) -> None:
    rank0 = start("--tp", "2", "--nnodes", "2", "--dist-init-addr", f"127.0.0.1:{free_port()}")
    rank0.until("sim engine")
    rank0.process.terminate()
    assert rank0.wait(1) == 0


def test_a_node_that_does_not_come_ends_the_start(start: Farm) -> None:
    meet = ("--tp", "2", "--nnodes", "2", "--dist-init-addr", f"127.0.0.1:{free_port()}", "--rendezvous-timeout", "0.5")
    assert start(*meet).wait() == 1
    assert "DistStoreError: Timed out after 0.5 seconds waiting for clients. 1/2 clients joined." in start.sims[0].log
    assert start(*meet, "--node-rank", "1").wait() == 1
    assert "DistNetworkError" in start.sims[1].log


def test_a_node_of_another_deployment_is_refused(start: Farm) -> None:
    where = ("--nnodes", "2", "--dist-init-addr", f"127.0.0.1:{free_port()}")
    rank0 = start("--tp", "4", *where)
    stranger = start("--tp", "2", *where, "--node-rank", "1")
    assert stranger.wait() == 1
    assert "refused this node: rank 0 has 2 nodes and a world of 4" in stranger.log
    start("--tp", "4", *where, "--node-rank", "1")
    rank0.ready()


@contextlib.asynccontextmanager
async def slow_link(target: int, delay: float) -> AsyncIterator[int]:
    """A port that leads to another one, `delay` seconds later in either direction."""
    loop = asyncio.get_running_loop()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            loop.call_later(delay, writer.write, data)
        loop.call_later(delay, writer.close)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def test_a_slow_network_slows_every_step(start: Farm) -> None:
    port = free_port()
    shape = ("--tp", "2", "--nnodes", "2")
    rank0 = start(*shape, "--dist-init-addr", f"127.0.0.1:{port}")
    rank0.until("sim engine")
    async with slow_link(port, 0.025) as detour:
        start(*shape, "--dist-init-addr", f"127.0.0.1:{detour}", "--node-rank", "1")
        await asyncio.to_thread(rank0.ready)
        answer = (await load(rank0.url, 1, 1, isl=8, osl=20))[0]
        gaps = [b - a for a, b in zip(answer.times[:-2], answer.times[1:-1], strict=True)]
        assert statistics.median(gaps) > 0.045, "a step cannot be shorter than its exchange with the other node"


async def test_a_slow_node_slows_every_step(start: Farm) -> None:
    spans = []
    for fault in ("", "slow-rank=1:3"):
        rank0, _ = start.two("--fault", fault, "--ms-per-seq", "0", "--clock-scale", "5")
        rank0.ready()
        answer = (await load(rank0.url, 1, 1, isl=8, osl=100))[0]
        spans.append(answer.times[-2] - answer.times[0])
    assert spans[1] / spans[0] == pytest.approx(3, rel=0.25)


def test_devices_follow_the_load(start: Farm, tmp_path: Path) -> None:
    meet = ("--tp", "4", "--nnodes", "2", "--dist-init-addr", f"127.0.0.1:{free_port()}")
    folders = [tmp_path / "node5", tmp_path / "node7"]
    for rank, folder in enumerate(folders):
        folder.mkdir()
        start(*meet, "--node-rank", str(rank), "--state-dir", str(folder))
    rank0, rank1 = start.sims
    rank0.ready()
    with busy(rank0):
        time.sleep(2.2)
        for folder in folders:
            gpu = json.loads((folder / "gpu_load").read_text())
            assert set(gpu["gpus"]) == {"0", "1"}
            assert all(g["util"] > 50 and g["mem_used"] > 80000 for g in gpu["gpus"].values())
            assert len(gpu["procs"]) == 2
            rails = json.loads((folder / "rdma_load").read_text())
            assert set(rails) == {"mlx5_0", "mlx5_3"}
            assert all(r["tx_bytes_per_s"] > 1e6 for r in rails.values())
    rank0.process.terminate()
    assert (rank0.wait(), rank1.wait()) == (0, 0)
    assert json.loads((folders[1] / "rdma_load").read_text()) == {}
    assert "gpus" not in json.loads((folders[0] / "gpu_load").read_text())
    assert [p.name for p in folders[0].iterdir() if p.name not in ("gpu_load", "rdma_load")] == []


def test_three_nodes(start: Farm) -> None:
    meet = ("--tp", "6", "--nnodes", "3", "--dist-init-addr", f"127.0.0.1:{free_port()}")
    sims = [start(*meet, "--node-rank", str(rank)) for rank in range(3)]
    sims[0].ready()
    assert sims[0].post("/v1/completions", {"prompt": "a", "max_tokens": 4, "ignore_eos": True})[0] == 200
    sims[0].process.terminate()
    assert [s.wait() for s in sims] == [0, 0, 0]


def test_plain_isolated_python_runs_it(start: Farm) -> None:
    sim = start("--tp", "2", python=(sys.executable, "-I", "-S")).ready()
    assert sim.post("/v1/completions", {"prompt": "a", "max_tokens": 4, "ignore_eos": True})[0] == 200
