"""Nsight Systems exports: old and new tables, Parquet folders, two nodes, what is missing and what is never read."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from store.analysis.report import analyze
from tests.store.analysis.builder import TRACES, nsys

PID = 281_476_838_981_632
TEXTS = {
    1: "a_gemm",
    2: "cudaLaunchKernel_v7000",
    3: "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    4: "step[DECODE bs=8]",
}
STRINGS = [{"id": key, "value": text} for key, text in TEXTS.items()]


def kernels(*rows: tuple[int, int, int], device: int = 0, pid: int = PID) -> list[dict[str, Any]]:
    """Kernel rows of (name, start, end), correlation counting from 1."""
    return [
        {
            "start": start,
            "end": end,
            "deviceId": device,
            "streamId": 7,
            "correlationId": i,
            "globalPid": pid,
            "demangledName": name,
            "graphNodeId": None,
        }
        for i, (name, start, end) in enumerate(rows, 1)
    ]


def test_missing_columns_and_tables_are_done_without(tmp_path: Path) -> None:
    rows = [{"start": 10, "end": 20, "shortName": 1}, {"start": 30, "end": 45, "shortName": 1}]
    path = nsys(tmp_path / "r.sqlite", {"CUPTI_ACTIVITY_KIND_KERNEL": rows, "StringIds": STRINGS})
    (rank,) = analyze([path])["ranks"]
    assert (rank["wall_ns"], rank["idle_ns"], rank["kernels"], rank["launches"]) == (35, 10, 2, 0)
    assert rank["host"]["idle_by_cause_ns"]["unknown"] == 10


def test_steps_from_nvtx_by_text_or_by_id(tmp_path: Path) -> None:
    launches = [
        {"start": 100 * i, "end": 100 * i + 5, "globalTid": PID + 9, "correlationId": i, "nameId": 2} for i in (1, 2)
    ]
    ranges: list[dict[str, Any]] = [
        {"start": 90, "end": 150, "eventType": 59, "globalTid": PID + 9, "text": None, "textId": 4},
        {
            "start": 190,
            "end": 250,
            "eventType": 59,
            "globalTid": PID + 9,
            "text": "step[EXTEND bs=1 toks=64]",
            "textId": None,
        },
        {"start": 191, "end": 192, "eventType": 59, "globalTid": PID + 9, "text": "aten::mm", "textId": None},
    ]
    tables: dict[str, list[dict[str, Any]]] = {
        "CUPTI_ACTIVITY_KIND_KERNEL": kernels((1, 1_000, 1_010), (1, 1_020, 1_030)),
        "CUPTI_ACTIVITY_KIND_RUNTIME": launches,
        "NVTX_EVENTS": ranges,
        "StringIds": STRINGS,
    }
    (rank,) = analyze([nsys(tmp_path / "r.sqlite", tables)])["ranks"]
    assert [(step["kind"], step["tokens"], step["start_ns"]) for step in rank["steps"]] == [
        ("decode", 8, 1_000),
        ("prefill", 64, 1_020),
    ]


def test_two_nodes_are_counted_up_and_meet_on_the_wall_clock(tmp_path: Path) -> None:
    """Each export counts its devices from 0 and its time from its own start."""
    paths = []
    for node, (epoch, start) in enumerate([(1_000_000, 500), (1_000_200, 450)]):
        tables: dict[str, list[dict[str, Any]]] = {
            "CUPTI_ACTIVITY_KIND_KERNEL": kernels((3, start, 1_000 - 200 * node)),
            "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": epoch}],
            "StringIds": STRINGS,
        }
        paths.append(nsys(tmp_path / f"node{node}.sqlite", tables))
    report = analyze(paths)
    assert [rank["rank"] for rank in report["ranks"]] == [0, 1]
    assert [rank["communication_wait_ns"] for rank in report["ranks"]] == [150, 0]
    assert any("counted up in the order given" in problem for problem in report["problems"])


@pytest.mark.parametrize("name", ["nsys-2026-h100-2gpu-nccl.sqlite.gz"])
def test_a_parquet_folder_gives_what_its_sqlite_twin_gives(name: str, tmp_path: Path) -> None:
    import duckdb

    path = tmp_path / "report.sqlite"
    path.write_bytes(gzip.decompress((TRACES / name).read_bytes()))
    folder = tmp_path / "report.parquetdir"
    folder.mkdir()
    with sqlite3.connect(path) as db, duckdb.connect() as out:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            columns = [row[1] for row in db.execute(f'PRAGMA table_info("{table}")')]
            rows = db.execute(f'SELECT * FROM "{table}"').fetchall()
            body = "\n".join(json.dumps(dict(zip(columns, row, strict=True))) for row in rows)
            (tmp_path / "rows.json").write_text(body or "{}")
            if rows:
                source = f"read_json('{tmp_path / 'rows.json'}', format='newline_delimited', sample_size=-1)"
                out.execute(f"COPY (SELECT * FROM {source}) TO '{folder / (table + '.parquet')}' (FORMAT parquet)")
    twins = analyze([path]), analyze([folder])
    for a, b in zip(twins[0]["ranks"], twins[1]["ranks"], strict=True):
        assert {**a, "file": None} == {**b, "file": None}
    assert twins[0]["kernels"] == twins[1]["kernels"]


def test_dropped_events_are_told_without_paths(tmp_path: Path) -> None:
    said = "CUDA events were dropped, see /home/someone/secret/log for 'node7'"
    tables: dict[str, list[dict[str, Any]]] = {
        "CUPTI_ACTIVITY_KIND_KERNEL": kernels((1, 10, 20)),
        "DIAGNOSTIC_EVENT": [{"severity": 2, "text": said}, {"severity": 1, "text": "fine"}],
        "StringIds": STRINGS,
    }
    (problem,) = analyze([nsys(tmp_path / "r.sqlite", tables)])["problems"]
    assert "CUDA events were dropped" in problem
    assert "someone" not in problem
    assert "node7" not in problem
    assert "fine" not in problem


def test_the_environment_of_the_profiled_process_is_never_read(tmp_path: Path) -> None:
    tables: dict[str, list[dict[str, Any]]] = {
        "CUPTI_ACTIVITY_KIND_KERNEL": kernels((1, 10, 20)),
        "META_DATA_CAPTURE": [{"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": "HF_TOKEN=hf_secret"}],
        "StringIds": [*STRINGS, {"id": 99, "value": "HF_TOKEN=hf_secret"}],
    }
    assert "hf_secret" not in json.dumps(analyze([nsys(tmp_path / "r.sqlite", tables)]))


def test_an_export_without_gpu_work_says_so(tmp_path: Path) -> None:
    calls = [{"start": 1, "end": 2, "globalTid": PID, "correlationId": 1, "nameId": 2}]
    path = nsys(tmp_path / "r.sqlite", {"CUPTI_ACTIVITY_KIND_RUNTIME": calls, "StringIds": STRINGS})
    report = analyze([path])
    assert report["ranks"] == []
    assert "the export holds host calls" in report["problems"][0]


def test_a_damaged_database_costs_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    whole = gzip.decompress((TRACES / "nsys-2022-t4.sqlite.gz").read_bytes())
    path.write_bytes(whole[: len(whole) // 2])
    report = analyze([path])
    assert report["problems"]
    assert all("r.sqlite: " in problem for problem in report["problems"])
