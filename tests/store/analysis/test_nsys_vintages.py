"""Exports as each year's Nsight Systems writes them, made from its schema: the same work must give the same report.

Real exports of 2021 to 2026 are read in test_nsys and test_real_traces; none of those at hand holds NCCL's payloads, so
their form is pinned here from what is written down of it, and anything else must cost the sizes and no more.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.analysis.report import analyze
from tests.store.analysis.builder import nsys

TID = (1 << 56) | (4242 << 24) | 4242
PID = TID & ~0xFFFFFF
ALL_REDUCE, SEND, INIT = 16777223, 16777225, 16777218
COMMUNICATOR = 0xABCDEF0123456789
TEXTS = {
    1: "a_gemm",
    2: "cudaLaunchKernel_v7000",
    3: "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    4: "step[DECODE bs=8]",
    5: "ncclAllReduce",
    6: "ncclSend",
    7: "ncclDevKernel_SendRecv",
    8: "ncclCommInitRank",
}
ENTRIES = [
    {"domainId": 1, "schemaId": schema, "idx": i, "type": kind, "name": name, "offset": offset}
    for schema, fields in {
        ALL_REDUCE: [(18, "NCCL communicator ID", None), (22, "Message size [bytes]", 8), (99, "Reduction op", 16)],
        SEND: [(18, "NCCL communicator ID", None), (22, "Message size [bytes]", 8), (5, "Peer rank", 16)],
        INIT: [(18, "NCCL communicator ID", None), (5, "No. of ranks", 8), (5, "Rank", 12), (5, "CUDA device", 16)],
    }.items()
    for i, (kind, name, offset) in enumerate(fields)
]


def payload(schema: int, body: bytes) -> bytes:
    """A payload with its header."""
    return struct.pack("<IIIIQQ", 1, 0, schema, 0, len(body), 32 + len(body)) + body


def sized(schema: int, size: int) -> bytes:
    return payload(schema, struct.pack("<QQQ", COMMUNICATOR, size, 0))


def nvtx(text: int, start: int, end: int, blob: object = None) -> dict[str, Any]:
    row = {"start": start, "end": end, "eventType": 59, "globalTid": TID, "text": None, "textId": text}
    return row | {"domainId": 1, "binaryData": blob}


def tables() -> dict[str, list[dict[str, Any]]]:
    """One step: a GEMM, an all-reduce of 64 KiB, two sends of 1000 bytes in one kernel, as of 2026."""
    kernels = [(1, 1000, 3000), (3, 2500, 6000), (7, 7000, 8000)]
    return {
        "META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.25.0"}],
        "StringIds": [{"id": key, "value": text} for key, text in TEXTS.items()],
        "TARGET_INFO_GPU": [{"id": 0, "name": "NVIDIA H100", "smCount": 132}],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 1_764_000_000_000_000_000}],
        "CUPTI_ACTIVITY_KIND_KERNEL": [
            {
                **{"start": start, "end": end, "deviceId": 0, "contextId": 1, "greenContextId": None, "streamId": 7},
                **{"correlationId": i, "globalPid": PID, "demangledName": name, "shortName": name, "mangledName": name},
                **{"graphNodeId": None, "graphId": None, "clusterX": 1, "tensorSizeMinusOneElements": None},
            }
            for i, (name, start, end) in enumerate(kernels, 1)
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [
            {"start": at, "end": at + 50, "eventClass": 0, "globalTid": TID, "correlationId": i, "nameId": 2}
            for i, at in enumerate((100, 400, 800), 1)
        ],
        "NVTX_PAYLOAD_SCHEMAS": [{"domainId": 1, "schemaId": s, "payloadSize": 24} for s in (ALL_REDUCE, SEND, INIT)],
        "NVTX_PAYLOAD_SCHEMA_ENTRIES": [*ENTRIES, *ENTRIES],
        "NVTX_EVENTS": [
            nvtx(8, 10, 20, payload(INIT, struct.pack("<QIIQ", COMMUNICATOR, 16, 3, 0))),
            nvtx(4, 50, 1000),
            nvtx(5, 300, 450, sized(ALL_REDUCE, 65_536)),
            nvtx(6, 600, 640, sized(SEND, 1000)),
            nvtx(6, 650, 690, sized(SEND, 1000)),
        ],
    }


def without(found: dict[str, list[dict[str, Any]]], table: str, *columns: str) -> None:
    found[table] = [{key: value for key, value in row.items() if key not in columns} for row in found[table]]


def of_year(year: int) -> dict[str, list[dict[str, Any]]]:
    """The same work in the tables of a year."""
    found = tables()
    if year < 2026:
        without(
            found, "CUPTI_ACTIVITY_KIND_KERNEL", "greenContextId", "graphId", "clusterX", "tensorSizeMinusOneElements"
        )
    if year < 2024:  # payloads came later, and their schemas with them
        without(found, "NVTX_EVENTS", "binaryData")
        del found["NVTX_PAYLOAD_SCHEMAS"], found["NVTX_PAYLOAD_SCHEMA_ENTRIES"]
        found["EXPORT_META_DATA"] = found.pop("META_DATA_EXPORT")
    if year < 2022:
        del found["EXPORT_META_DATA"], found["TARGET_INFO_SESSION_START_TIME"]
        without(found, "CUPTI_ACTIVITY_KIND_KERNEL", "graphNodeId", "mangledName")
        found["TARGET_INFO_CUDA_GPU"] = [{"deviceId": 0, "name": "Tesla V100"}]
        del found["TARGET_INFO_GPU"]
        # Texts stood in the row, and in no table.
        found["NVTX_EVENTS"] = [row | {"text": TEXTS[row["textId"]]} for row in found["NVTX_EVENTS"]]
        without(found, "NVTX_EVENTS", "textId")
    return found


@pytest.mark.parametrize("year", range(2021, 2027))
def test_the_same_work_of_any_year_gives_the_same_report(year: int, tmp_path: Path) -> None:
    report = analyze([nsys(tmp_path / "r.sqlite", of_year(year))])
    (rank,) = report["ranks"]
    assert report["problems"] == []
    assert (rank["wall_ns"], rank["compute_ns"], rank["overlap_ns"]) == (7000, {"GEMM": 1500}, 500)
    assert (rank["communication_exposed_ns"], rank["idle_ns"]) == (4000, 1000)
    assert [(step["kind"], step["tokens"], step["kernels"]) for step in rank["steps"]] == [("decode", 8, 3)]
    assert rank["facts"]["device_name"] is not None
    sizes = {row["operation"]: row["bytes"] for row in rank["collectives"]}
    assert sizes == ({"all_reduce": 65_536, "send_recv": 2_000} if year >= 2024 else dict.fromkeys(sizes))
    if year >= 2024:
        assert {row["group"] for row in rank["collectives"]} == {f"{COMMUNICATOR:#x}"}


@pytest.mark.parametrize(
    "blob", [b"", b"\0" * 31, payload(99, b"\0" * 24), payload(ALL_REDUCE, b"\0" * 24)[:-1], "no hex", 17, None]
)
def test_a_payload_of_another_form_costs_the_size_and_no_more(blob: object, tmp_path: Path) -> None:
    found = tables()
    found["NVTX_EVENTS"][2]["binaryData"] = blob
    report = analyze([nsys(tmp_path / "r.sqlite", found)])
    (rank,) = report["ranks"]
    assert (rank["communication_exposed_ns"], rank["idle_ns"]) == (4000, 1000)
    assert {row["operation"]: row["bytes"] for row in rank["collectives"]} == {"all_reduce": None, "send_recv": 2_000}
    assert any("1 payloads of NCCL's ranges" in problem for problem in report["problems"]) == (blob is not None)


def test_payloads_as_hex_text_are_read_too(tmp_path: Path) -> None:
    found = tables()
    for row in found["NVTX_EVENTS"]:
        row["binaryData"] = row["binaryData"].hex() if row["binaryData"] else None
    (rank,) = analyze([nsys(tmp_path / "r.sqlite", found)])["ranks"]
    assert {row["bytes"] for row in rank["collectives"]} == {65_536, 2_000}


def test_sizes_of_two_nodes_match_by_communicator_and_size(tmp_path: Path) -> None:
    paths = [nsys(tmp_path / f"n{n}.sqlite", tables()) for n in range(2)]
    report = analyze(paths)
    assert [rank["rank"] for rank in report["ranks"]] == [0, 1]
    assert {(row["operation"], row["bytes"], row["collectives"]) for row in report["collectives"]} == {
        ("all_reduce", 65_536, 1)
    }


@pytest.mark.parametrize("column", ["start", "end", "globalTid", "textId"])
@pytest.mark.parametrize("nonsense", [None, "text", 1.5])
def test_ranges_that_make_no_sense_are_left_out(column: str, nonsense: object, tmp_path: Path) -> None:
    found = tables()
    for row in found["NVTX_EVENTS"]:
        row[column] = nonsense
    (rank,) = analyze([nsys(tmp_path / "r.sqlite", found)])["ranks"]
    assert (rank["communication_exposed_ns"], rank["steps"]) == (4000, [])


@given(st.sampled_from(sorted(tables())), st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_table_or_column_may_be_missing_or_hold_nonsense(
    tmp_path_factory: pytest.TempPathFactory, table: str, data: st.DataObject
) -> None:
    found = tables()
    column = data.draw(st.sampled_from(["", *found[table][0]]))
    nonsense = data.draw(st.sampled_from([None, "text", b"\xff\xfe", -1, 2**62, 1.5]))
    if not column:
        del found[table]
    else:
        for row in found[table]:
            row[column] = nonsense
    report = analyze([nsys(tmp_path_factory.mktemp("n") / "r.sqlite", found)])
    assert report["ranks"] or report["problems"]
