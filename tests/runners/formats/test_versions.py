"""Other versions and makers than those of the captures: one small text for each thing that they write differently."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.formats import incidents, kinds, nccl_log
from runners.formats.base import Parsed, collect
from runners.formats.incidents import fold
from runners.importing.reading import open_file
from tests.runners.formats.samples import CAPTURES


def read(text: str, kind: str) -> Parsed:
    """The text by the kind that its content tells, which must be this one."""
    found = kinds.guess(text)
    assert found is not None
    assert found.name == kind
    return collect(found.parse(text.splitlines()))


def known(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value not in (None, {}, [])}


QUOTED = [
    "INFO 05-11 18:04:22 [logger.py:39] Received request chatcmpl-1: prompt: 'Why {words}?', params: SamplingParams()",
    "(APIServer pid=1) INFO 05-11 18:04:23 [logger.py:70] Generated response chatcmpl-1: output: '{words}'",
    "[2026-01-02 03:04:05 TP0] Receive: obj=GenerateReqInfo(rid='a', text='{words}')",
    "[2026-01-02 03:04:05] Finish: obj=GenerateReqInfo(rid='a', text='{words}'), out={{}}",
]
WORDS = [
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
    "n:1:2 [0] a.cc:3 NCCL WARN NET/IB : Got completion with error 12",
    "EngineDeadError: EngineCore encountered an issue",
    "Avg prompt throughput: 9.0 tokens/s",
]


@pytest.mark.parametrize("line", QUOTED)
@pytest.mark.parametrize("words", WORDS)
def test_what_a_user_wrote_is_no_evidence(line: str, words: str) -> None:
    kind = kinds.BY_NAME["sglang_log" if line.startswith("[") else "vllm_log"]
    assert collect(kind.parse([line.format(words=words)])) == Parsed()


def test_only_stop_reasons_are_stop_reasons() -> None:
    text = (
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw "
        "#wrong\n     8388608       4194304  bfloat16     sum      -1   301.2   27.85   48.74     12   299.1   28.05   "
        "49.08      0\n# Out of bounds values : 12 FAILED\n"
    )
    events = read(text, "nccl_tests").events
    assert [event.name for event in events].count("invalid_result") > 0
    assert incidents.stop_reason(fold(events)) is None


def test_a_lost_worker_of_ray_is_a_crash_and_its_list_of_guesses_is_none() -> None:
    lines = [
        "(raylet, ip=192.0.2.7) A worker died or was killed while executing a task. Common causes include: (1) OOM",
        "(EngineCore pid=9) ERROR 03-01 10:00:00 [core.py:900] ray.exceptions.ActorDiedError: The actor died",
    ]
    events = fold(collect(kinds.BY_NAME["vllm_log"].parse(lines)).events)
    assert [event.name for event in events] == ["possible_cause", "process_died"]
    found = incidents.stop_reason(events)
    assert found is not None
    assert found["all"] == ["ENGINE_CRASH"]


def test_a_kernel_log_says_nothing_of_the_transport(tmp_path: Any) -> None:
    path = tmp_path / "dmesg.txt"
    path.write_text(
        "[ 12.5] NVRM: Xid (PCI:0000:1b:00): 43, pid=9, name=w, channel 0x16\n"
        "[ 13.5] mlx5_core 0000:5a:00.0 enp90s0f0np0: Link down\n"
    )
    reading = open_file(path)
    list(reading.rows())
    assert {event.name for event in reading.events} == {"xid", "rdma_link"}
    assert reading.verdict is None


def test_units_below_the_second_header_of_dcgmi() -> None:
    text = (
        "#Entity   SMACT        POWER\nID                     W\nGPU 0     0.902        671.241\nGPU-I 0   N/A  N/A\n"
    )
    found = read(text, "dcgmi_dmon")
    assert found.skipped == 0
    assert found.rows[0]["power_w"] == 671.241
    assert found.rows[1]["missing"] == {"sm_active_ratio": "N/A", "power_w": "N/A"}


def test_one_device_made_of_two_ports_is_both_rails() -> None:
    line = "a:1:2 [0] NCCL INFO NET/IB : Using [0]={[0] mlx5_0:1/RoCE, [1] mlx5_3:1/RoCE} [RO]; OOB bond0:192.0.2.1<0>"
    (row,) = read(line, "nccl_log").rows
    assert row["merged"] == {"0": ["mlx5_0", "mlx5_3"]}
    assert [item["hca"] for item in row["hcas"]] == ["mlx5_0", "mlx5_3"]


def test_rccl_names_the_communicator_behind_a_channel() -> None:
    line = "a:1:2 [0] NCCL INFO Channel 03/0 : 0[0] -> 8[0] [send] via NET/IB/1/GDRDMA comm 0x7f3a44 nRanks 16"
    (row,) = read(line, "nccl_log").rows
    assert (row["network"], row["net_index"], row["gdrdma"]) == ("IB", 1, True)


@pytest.mark.parametrize(
    ("line", "name", "link"),
    [
        ("a:1:2 [2] misc/socket.cc:58 NCCL WARN socketPollConnect: Connect to 192.0.2.4<5> returned 113(No route to "
         "host) errno 115(Operation now in progress)", "peer_unreachable", "subnet"),
        ("/opt/x/nvshmem/ibgda.cpp:nvshmemt_init:3673: neither nv_peer_mem, or nvidia_peermem detected. Skipping "
         "transport.", "peer_memory_missing", "driver module"),
        ("a:1:2 [1] misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
         "rdma_memlock", "memlock"),
    ],
)  # fmt: skip
def test_the_broken_link_is_named(line: str, name: str, link: str) -> None:
    (event,) = collect(kinds.BY_NAME["nccl_log"].parse([line])).events
    assert (event.name, event.detail["link"], event.detail["role"]) == (name, link, "cause")


def test_results_of_older_vllm_clients() -> None:
    source = {
        "backend": "vllm",
        "model_id": "m",
        "tokenizer_id": "m",
        "num_prompts": 100,
        "duration": 20.0,
        "request_rate": "inf",
        "max_concurrency": 16,
        "completed": 100,
        "total_input_tokens": 102400,
        "total_output_tokens": 12800,
        "request_goodput:": 4.5,
        "mean_ttft_ms": 120.5,
        "p99_ttft_ms": 300.0,
    }
    (row,) = read(json.dumps(source), "vllm_bench").rows
    assert (row["requests_ok"], row["requests_failed"], row["output_tps"]) == (100, None, 640.0)
    assert row["own"]["goodput"] == 4.5
    assert "metadata" not in known(row["extra"])


def test_a_limit_that_is_not_set_is_no_damage() -> None:
    text = (
        "============ Serving Benchmark Result ============\nMax request concurrency:                 not set   \n"
        "Successful requests:                     768       \nBenchmark duration (s):                  43.81     \n"
    )
    found = read(text, "bench_serving_text")
    assert (found.skipped, found.rows[0]["concurrency"], found.rows[0]["requests_ok"]) == (0, None, 768)


METRIC = {"unit": "ms", "avg": 44.0, "p50": 43.0, "p99": 60.0}


@pytest.mark.parametrize(
    ("config", "client"),
    [
        ({"endpoint": {"model_names": ["m"]}, "loadgen": {"concurrency": 4}}, "aiperf"),
        ({"model": ["m"], "concurrency": 4, "service_kind": "openai"}, "genai_perf"),
    ],
)
def test_summaries_without_a_version(config: dict[str, Any], client: str) -> None:
    source = {
        "request_throughput": {"unit": "requests/sec", "avg": 1.5},
        "request_count": {"unit": "requests", "avg": 80},
        "time_to_first_token": METRIC,
        "input_config": config,
    }
    (row,) = read(json.dumps(source), "aiperf").rows
    assert (row["client"], row["model"], row["concurrency"], row["requests_ok"]) == (client, "m", 4, 80)
    assert row["own"]["ttft_ms"] == {"mean": 44.0, "p50": 43.0, "p99": 60.0}
    assert row["ttft_ms"] is None or not row["ttft_ms"]


def test_counts_of_guidellm_before_0_4() -> None:
    latency = {"successful": {"mean": 4.5, "median": 4.5, "count": 50, "percentiles": {"p99": 5.0}}}
    source = {
        "benchmarks": [
            {
                "args": {"strategy": {"type_": "concurrent", "streams": 4}},
                "duration": 60.0,
                "run_stats": {"requests_made": {"successful": 50, "errored": 1, "incomplete": 2}},
                "metrics": {"request_latency": latency},
                "requests": {"successful": []},
            }
        ]
    }
    (row,) = collect(kinds.BY_NAME["guidellm"].parse([json.dumps(source)])).rows
    assert (row["requests_ok"], row["requests_failed"], row["concurrency"]) == (50, 1, 4)


def test_a_batch_line_with_fields_of_tomorrow() -> None:
    line = (
        "[2026-09-01 10:00:01 DP2 TP2 EP2] Decode batch [1234], #running-req: 10, #token: 88123, token usage: 0.44, "
        "pre-allocated usage: 0.01, #retracted-req: 2, cuda graph: True, gen throughput (token/s): 512.01, "
        "#queue-req: 5, #paused-req: 0, fwd occupancy: 97.31%"
    )
    (row,) = read(line, "sglang_log").rows
    assert (row["iteration"], row["dp_rank"], row["retracted"], row["generation_tps"]) == (1234, 2, 2, 512.01)
    assert row["extra"] == {"pre-allocated usage": 0.01, "#paused-req": 0, "fwd occupancy": "97.31%"}


def test_topology_of_grace_with_memory_nodes_in_its_lists() -> None:
    text = (
        "        GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
        "GPU0     X      NV18    NODE    0-71    0,3-9,11-17             2\n"
        "GPU1    NV18     X      SYS     72-143  1,19-25,27-33           18\nNIC0    NODE    SYS      X \n"
        "\nNIC Legend:\n\n  NIC0: mlx5_3\n"
    )
    first = read(text, "nvidia_smi_topo").rows[0]
    assert (first["numa_affinity"], first["gpu_numa_id"], first["best_nics"]) == ("0,3-9,11-17", "2", ["mlx5_3"])


CHANNELS = [
    line
    for path in sorted((CAPTURES / "nccl-log").glob("*.log"))
    for line in path.read_text(errors="replace").splitlines()
    if "Channel" in line
] + [
    "a-1:1:2 [0] NCCL INFO Channel 03/0 : 0[0] -> 8[0] [send] via NET/IB/1(3)/GDRDMA(PCI)/Shared comm 0x7f3a nRanks 16"
]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_fast_way_to_a_channel_gives_the_same_row(data: st.DataObject) -> None:
    line = data.draw(st.sampled_from(CHANNELS))
    at = data.draw(st.integers(0, len(line)))
    junk = data.draw(st.text(alphabet="0123456789[]:/ -.aRG()\té", max_size=4))
    line = line[:at] + junk + line[at + data.draw(st.integers(0, 3)) :]
    row = nccl_log.fast_row(line)
    assert row is None or row == nccl_log.parse_line(line)


def test_a_channel_of_today_goes_the_fast_way() -> None:
    assert nccl_log.fast_row(CHANNELS[-1]) is not None
