"""The RDMA gate refuses unless everything that the topology asks for is proved."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.formats.base import Parsed, collect
from runners.formats.engine_log import parse_nccl
from runners.gates.rdma import Expectation, Verdict, judge, overridden
from tests.runners.gates.nccl_text import HCAS, NODES, tp8pp2, tp16

TP16 = Expectation(NODES, 8, tp=16, hcas=dict.fromkeys(NODES, HCAS))
TP8PP2 = Expectation(NODES, 8, tp=8, pp=2, hcas=dict.fromkeys(NODES, HCAS))


def verdict(lines: Iterable[str], expect: Expectation | None = None) -> Verdict:
    parsed: Parsed = collect(parse_nccl(lines))
    return judge(parsed.rows, parsed.events, expect)


def without(lines: list[str], drop: Callable[[str], bool]) -> list[str]:
    kept = [line for line in lines if not drop(line)]
    assert len(kept) < len(lines)
    return kept


@pytest.mark.parametrize("expect", [TP16, None])
def test_complete_tp16_passes_with_and_without_the_topology(expect: Expectation | None) -> None:
    found = verdict(tp16().all(), expect)
    assert found.gate == "PASS", found.reasons
    assert found.matrix["node-b"]["3"] == {"rank": 11, "nranks": 16, "state": "COMPLETE"}
    assert sum(len(row) for row in found.matrix.values()) == 16


@pytest.mark.parametrize("expect", [TP16, None])
def test_a_lost_rank_fails_and_names_it(expect: Expectation | None) -> None:
    lines = without(tp16().all(), lambda line: "node-b:1003:" in line)
    found = verdict(lines, expect)
    assert found.gate == "FAIL"
    assert any("ranks 11 are missing" in reason for reason in found.reasons)
    if expect:
        assert found.matrix["node-b"]["3"]["state"] == "MISSING"


@pytest.mark.parametrize("expect", [TP16, None])
def test_a_rank_that_started_and_never_completed_fails(expect: Expectation | None) -> None:
    lines = without(tp16().all(), lambda line: "rank 11 " in line and "COMPLETE" in line)
    found = verdict(lines, expect)
    assert found.gate == "FAIL"
    assert found.matrix["node-b"]["3"]["state"] == "START"


@pytest.mark.parametrize("expect", [TP16, None])
def test_a_missing_node_is_unknown_not_pass(expect: Expectation | None) -> None:
    found = verdict(tp16().lines["node-a"], expect)
    assert found.gate == "UNKNOWN"
    assert any("node" in reason for reason in found.reasons)


@pytest.mark.parametrize("expect", [TP16, None])
@pytest.mark.parametrize("word", ["[send]", "[receive]"])
@pytest.mark.parametrize("node", NODES)
def test_a_missing_direction_is_unknown(expect: Expectation | None, word: str, node: str) -> None:
    lines = without(tp16().all(), lambda line: word in line and line.startswith(node))
    found = verdict(lines, expect)
    assert found.gate == "UNKNOWN", found.reasons


@pytest.mark.parametrize("expect", [TP16, None])
def test_one_channel_without_gdrdma_fails(expect: Expectation | None) -> None:
    lines = tp16().all()
    at = next(index for index, line in enumerate(lines) if "15[7] -> 0[0] [receive]" in line)
    lines[at] = lines[at].replace("/GDRDMA", "")
    found = verdict(lines, expect)
    assert found.gate == "FAIL"
    assert any("host memory" in reason and "node-a" in reason for reason in found.reasons)


def test_a_socket_channel_on_one_node_fails_and_names_the_node() -> None:
    lines = [line.replace("NET/IB/1/GDRDMA", "NET/Socket/0") if "node-b" in line else line for line in tp16().all()]
    found = verdict(lines, TP16)
    assert found.gate == "FAIL"
    assert any(reason.startswith("node-b:") and "socket" in reason for reason in found.reasons)


def test_an_idle_rail_fails_when_no_line_is_missing() -> None:
    found = verdict(tp16(via=("NET/IB/0/GDRDMA", "NET/IB/0/GDRDMA")).all(), TP16)
    assert found.gate == "FAIL"
    assert any("mlx5_3" in reason for reason in found.reasons)


def test_lost_lines_of_one_rail_are_unknown() -> None:
    lines = without(tp16().all(), lambda line: "NET/IB/1/" in line)
    assert verdict(lines, TP16).gate == "UNKNOWN"


def test_a_fused_device_counts_as_both_rails() -> None:
    assert verdict(tp16(via=("NET/IB/2/GDRDMA", "NET/IB/2/GDRDMA")).all(), TP16).gate == "PASS"


def test_an_expected_hca_that_was_not_opened_fails() -> None:
    expect = Expectation(NODES, 8, tp=16, hcas={"node-a": ("mlx5_0", "mlx5_9"), "node-b": HCAS})
    found = verdict(tp16().all(), expect)
    assert found.gate == "FAIL"
    assert any("mlx5_9 was not opened" in reason for reason in found.reasons)


def test_init_without_channel_lines_is_unknown() -> None:
    lines = without(tp16().all(), lambda line: "Channel" in line)
    found = verdict(lines, TP16)
    assert found.gate == "UNKNOWN"
    assert any("NCCL_DEBUG_SUBSYS" in reason for reason in found.reasons)


@pytest.mark.parametrize("expect", [TP8PP2, None])
def test_pipeline_pairs_pass_one_way(expect: Expectation | None) -> None:
    found = verdict(tp8pp2().all(), expect)
    assert found.gate == "PASS", found.reasons


@pytest.mark.parametrize("expect", [TP8PP2, None])
def test_a_pipeline_pair_without_its_receive_line_is_unknown(expect: Expectation | None) -> None:
    lines = without(tp8pp2().all(), lambda line: "node-b:1005:" in line and "[receive]" in line)
    found = verdict(lines, expect)
    assert found.gate == "UNKNOWN"
    assert any("GPU 5" in reason for reason in found.reasons)


def test_a_missing_pipeline_pair_is_unknown_when_the_topology_is_known() -> None:
    lines = without(tp8pp2().all(), lambda line: "0xcc03" in line)
    found = verdict(lines, TP8PP2)
    assert found.gate == "UNKNOWN"
    assert any("7 of 8" in reason for reason in found.reasons)


def test_one_node_is_not_applicable() -> None:
    assert verdict([], Expectation(("node-a",), 8, tp=8)).gate == "NOT_APPLICABLE"
    lines = without(tp8pp2().lines["node-a"], lambda line: "0xcc" in line or "NET/IB/" in line)
    assert verdict(lines).gate == "NOT_APPLICABLE"


def test_a_lone_node_without_rdma_devices_is_not_applicable() -> None:
    lines = [
        line.replace("Using network IB", "Using network Socket").replace("Using [0]mlx5_0:1/RoCE", "No device found. ")
        for line in without(tp8pp2().lines["node-a"], lambda line: "0xcc" in line or "NET/IB/" in line)
    ]
    assert any("No device found" in line for line in lines)
    assert verdict(lines).gate == "NOT_APPLICABLE"
    assert (
        verdict([*lines, "node-a:1:1 [0] x.cc:1 NCCL WARN NET/IB : Got completion with error 12, opcode 1"]).gate
        == "FAIL"
    )


def test_no_lines_at_all_are_unknown() -> None:
    assert verdict([], TP16).gate == "UNKNOWN"


@pytest.mark.parametrize(
    ("line", "link"),
    [
        ("NCCL WARN NET/IB : Unable to open device mlx5_0", "device node"),
        ("NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", "memlock"),
        (
            "NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_3:1, curr state INIT, "
            "next state RTR, local GID index 3, local GID ::ffff:192.0.2.5, remote GID ::ffff:198.51.100.6",
            "gid",
        ),
        ("NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129", "wire"),
    ],
)
def test_a_transport_error_fails_with_the_broken_link(line: str, link: str) -> None:
    found = verdict([*tp16().all(), f"node-b:1001:1 [1] misc/x.cc:1 {line}"], TP16)
    assert found.gate == "FAIL"
    assert link in found.broken
    assert found.reasons[0].startswith("node-b: ")


def test_unreachable_subnet_pair_is_named() -> None:
    line = (
        "node-a:1001:1 [1] misc/ibvwrap.cc:262 NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, "
        "on dev mlx5_3:1, curr state INIT, next state RTR, local GID index 3, local GID ::ffff:192.0.2.5, "
        "remote GID ::ffff:198.51.100.6"
    )
    found = verdict([line], TP16)
    assert any("::ffff:192.0.2.5 -> ::ffff:198.51.100.6" in reason for reason in found.reasons)


def test_deepep_needs_nvshmem_lines_of_every_node() -> None:
    expect = Expectation(NODES, 8, tp=16, ep=16, hcas=dict.fromkeys(NODES, HCAS), deepep=True)
    lines = tp16().all()
    assert verdict(lines, expect).gate == "UNKNOWN"
    opened = "NVSHMEM INFO Successfully initialized the transport: IBGDA. It will be used for device-side APIs over IB."
    said = [f"{name}:{1000 + gpu}:1 [{gpu}] {opened}" for name in NODES for gpu in range(8)]
    assert verdict([*lines, *said], expect).gate == "PASS"
    assert verdict([*lines, *said[:-1]], expect).gate == "UNKNOWN"
    failed = "/x/nvshmem/src/host/transport/transport.cpp:nvshmemi_transport_init:275: init failed for transport: IBGDA"
    assert verdict([*lines, *said, failed], expect).gate == "FAIL"


def test_with_deepep_alone_over_the_nodes_nccl_needs_no_channels() -> None:
    expect = Expectation(NODES, 8, tp=8, ep=16, hcas=dict.fromkeys(NODES, HCAS), deepep=True)
    lines = without(tp8pp2().all(), lambda line: "0xcc" in line or "NET/IB/" in line)
    opened = "NVSHMEM INFO Selected remote transport: ibrc"
    said = [f"{name}:{1000 + gpu}:1 [{gpu}] {opened}" for name in NODES for gpu in range(8)]
    assert verdict(lines, expect).gate == "UNKNOWN"
    assert verdict([*lines, *said], expect).gate == "PASS"


def test_only_the_newest_server_life_counts() -> None:
    old = tp16(via=("NET/Socket/0", "NET/Socket/0")).all()
    new = [line.replace("0xaa01", "0xaa02") for line in tp16(pid_base=5000).all()]
    old = [line for line in old if "Using network" not in line]
    assert verdict([*old, *new], TP16).gate == "PASS"
    assert verdict([*new, *old], TP16).gate == "FAIL"


def test_ray_folded_lines_are_unknown_not_missing() -> None:
    lines = without(tp16().all(), lambda line: "COMPLETE" in line and "rank 0 " not in line)
    lines = [line + " [repeated 15x across cluster]" if "COMPLETE" in line else line for line in lines]
    found = verdict(lines, TP16)
    assert found.gate == "UNKNOWN"
    assert any("RAY_DEDUP_LOGS=0" in reason for reason in found.reasons)


def test_an_override_needs_a_reason_in_words() -> None:
    found = verdict([], TP16)
    assert not found.allows
    with pytest.raises(ValueError, match="reason in words"):
        overridden(found, "ok 1")
    assert overridden(found, "rail 2 is down until Monday").allows
    assert found.gate == "UNKNOWN"


def test_port_counters_make_no_verdict() -> None:
    parsed = collect(parse_nccl(tp16().all()))
    moved = {"node-a": {"mlx5_0": (10**12, 10**12), "mlx5_3": (0, 0)}}
    found = judge(parsed.rows, parsed.events, TP16, moved)
    assert found.gate == "PASS"
    assert "mlx5_3 0%" in found.notes[0]
    assert judge([], [], TP16, moved).gate == "UNKNOWN"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_dropping_any_line_never_turns_a_refusal_into_a_pass_by_chance(data: st.DataObject) -> None:
    lines = tp16().all()
    kept = data.draw(st.lists(st.sampled_from(range(len(lines))), max_size=len(lines) // 2, unique=True))
    found = verdict([lines[at] for at in sorted(kept)], TP16)
    assert found.gate in ("FAIL", "UNKNOWN")
