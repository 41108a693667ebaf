"""Torch traces in every layout and state of repair give the same events, or say what was lost."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.analysis import events
from store.analysis.bytestream import Packed
from store.analysis.events import EventStream
from store.analysis.report import analyze
from store.analysis.torch_trace import read_torch
from tests.store.analysis.builder import TRACES, annotation, call, copy, kernel, write

RAW = gzip.decompress((TRACES / "vllm-mi300x-decode-rank0.json.gz").read_bytes())
TRACE = json.loads(RAW)
KINETO = gzip.decompress((TRACES / "h800-deepseek-train.json.gz").read_bytes())


def figures(path: Path) -> tuple[Any, ...]:
    """What must not depend on how the file is written."""
    (rank,) = analyze([path])["ranks"]
    return tuple(rank[key] for key in ("wall_ns", "idle_ns", "compute_ns", "kernels", "launches"))


@pytest.fixture(scope="module")
def expected() -> tuple[Any, ...]:
    return figures(TRACES / "vllm-mi300x-decode-rank0.json.gz")


def changed(change: Any) -> bytes:
    """The real trace with every event passed through a function."""
    return json.dumps({**TRACE, "traceEvents": [change(dict(event)) for event in TRACE["traceEvents"]]}).encode()


LAYOUTS = {
    "as written": RAW,
    "indented": json.dumps(TRACE, indent=2).encode(),
    "compact": json.dumps(TRACE, separators=(",", ":")).encode(),
    "events first": json.dumps({"traceEvents": TRACE["traceEvents"], **TRACE}).encode(),
    "bare array": json.dumps(TRACE["traceEvents"]).encode(),
    "keys reversed": changed(lambda e: dict(reversed(list(e.items())))),
    "keys sorted": changed(lambda e: dict(sorted(e.items()))),
    "times as text": changed(lambda e: e | {k: f"{e[k]:.3f}" for k in ("ts", "dur") if k in e}),
    "objects in arguments": changed(
        lambda e: (
            e | {"args": e["args"] | {"more": [{"a": 1}, {"b": [{"c": 2}, {"d": 3}]}]}}
            if e.get("cat") == "kernel"
            else e
        )
    ),
    "capitalised categories": changed(lambda e: e | {"cat": e["cat"].capitalize()} if e.get("cat") == "kernel" else e),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_of_the_file_does_not_matter(layout: str, tmp_path: Path, expected: tuple[Any, ...]) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(LAYOUTS[layout])
    assert figures(path) == expected


@pytest.mark.parametrize("layout", ["as written", "indented", "keys sorted", "objects in arguments"])
@pytest.mark.parametrize("size", [1_000, 77_777])
def test_chunk_borders_do_not_matter(
    layout: str, size: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, expected: tuple[Any, ...]
) -> None:
    monkeypatch.setattr("store.analysis.bytestream.CHUNK", size)
    monkeypatch.setattr(events, "_SAMPLE", 5_000)
    path = tmp_path / "trace.json"
    path.write_bytes(LAYOUTS[layout])
    assert figures(path) == expected


@pytest.mark.parametrize("members", [1, 2, 5])
def test_gzip_of_any_number_of_members(members: int, tmp_path: Path, expected: tuple[Any, ...]) -> None:
    size = len(RAW) // members + 1
    path = tmp_path / "trace.json.gz"
    path.write_bytes(b"".join(gzip.compress(RAW[i : i + size]) for i in range(0, len(RAW), size)) + b"\0" * 512)
    assert figures(path) == expected


def test_kernel_names_with_bare_quotes_backslashes_and_control_characters(
    tmp_path: Path, expected: tuple[Any, ...]
) -> None:
    broken = RAW.replace(b'"name": "reduce_segments"', b'"name": "reduce_segments "x" \\q"')
    broken = broken.replace(b'"_topk_forward"', b'"_topk\x01\n\xff_forward"')
    assert broken != RAW
    path = tmp_path / "trace.json"
    path.write_bytes(broken)
    assert figures(path)[:2] == expected[:2]
    assert figures(path)[3:] == expected[3:]


def test_a_killed_writer_costs_only_what_it_had_not_written(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.json.tmp"
    path.write_bytes(KINETO[: int(len(KINETO) * 0.7)])
    report = analyze([path])
    (rank,) = report["ranks"]
    assert 0 < rank["kernels"] < 963
    assert any("ends before its event array" in problem for problem in report["problems"])
    assert not any("could not be read" in problem for problem in report["problems"])


def test_truncated_and_damaged_gzip(tmp_path: Path) -> None:
    packed = gzip.compress(KINETO)
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(packed[: int(len(packed) * 0.8)])
    report = analyze([cut])
    assert 0 < report["ranks"][0]["kernels"] < 963
    assert any("ends early" in problem for problem in report["problems"])
    bad = tmp_path / "bad.json.gz"
    bad.write_bytes(packed[:-200] + bytes(200))
    report = analyze([bad])
    assert report["ranks"][0]["kernels"] > 0
    assert any("damaged" in problem or "ends early" in problem for problem in report["problems"])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (b"hello\n" * 50, "no traceEvents array"),
        (bytes(range(256)) * 40, "no traceEvents array"),
        (b'{"a": 1}', "no traceEvents array"),
        (b'{"traceEvents": []}', "no device activity"),
        (b"[1, 2, 3]", "no device activity"),
        (b"PK\x03\x04rest", "unpack it"),
        (b"SQLite format 3\0" + bytes(200), "cannot be read"),
    ],
)
def test_files_that_are_no_trace_cost_one_sentence(content: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    report = analyze([path, TRACES / "mi250-toy.json.gz"])
    assert len(report["ranks"]) == 1
    assert any(problem.startswith("file.json: ") and sentence in problem for problem in report["problems"])


def test_a_host_only_trace_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "cpu.json", [call("cudaLaunchKernel", 1, 2), annotation("ProfilerStep#1", 0, 9)])
    report = analyze([path])
    assert report["ranks"] == []
    assert "CPU-only: host calls, but no device activity" in report["problems"][0]


def test_nanoseconds_of_old_absolute_times_survive(tmp_path: Path) -> None:
    """1.7e15 us with three decimals is more than a double holds: only the digits in the file have it."""
    path = tmp_path / "old.json"
    rows = [("1712195495505582.988", "0.013"), ("1712195495505583.002", "4.9"), ("1712195495505588", "1")]
    body = [
        f'{{"ph": "X", "cat": "kernel", "name": "a_gemm", "tid": 7, "ts": {ts}, "dur": {dur}, "args": {{"stream": 7}}}}'
        for ts, dur in rows
    ]
    path.write_text('{"traceEvents": [\n' + ",\n".join(body) + "\n]}")
    events_read = read_torch(path).timelines[0].events
    assert events_read.start.tolist() == [1712195495505582988, 1712195495505583002, 1712195495505588000]
    assert (events_read.end - events_read.start).tolist() == [13, 4900, 1000]


def test_old_times_survive_where_some_events_are_set_apart_differently(tmp_path: Path) -> None:
    """libkineto writes its metadata events with other line breaks than the rest."""
    rows = [
        f'{{"ph": "X", "cat": "kernel", "name": "a_gemm", "ts": {1712195495505582 + i}.123, "dur": 0.5}}'
        for i in range(9)
    ]
    rows[4] += ',\n  {"ph": "M", "name": "process_name", "ts": 1712195495505582.1, "pid": 0}'
    path = tmp_path / "old.json"
    path.write_text('{"traceEvents": [\n' + ",\n".join(rows) + "\n]}")
    read = read_torch(path)
    assert read.problems == []
    assert read.timelines[0].events.start.tolist() == [(1712195495505582 + i) * 1000 + 123 for i in range(9)]


@given(st.integers(0, 8_000_000_000_000_000), st.integers(0, 10_000_000))
@settings(max_examples=60, deadline=None)
def test_relative_times_keep_every_nanosecond(
    tmp_path_factory: pytest.TempPathFactory, start: int, length: int
) -> None:
    path = tmp_path_factory.mktemp("t") / "trace.json"
    write(path, [kernel("a_gemm", start / 1000, length / 1000)])
    read = read_torch(path).timelines[0].events
    assert (read.start[0], read.end[0]) == (start, start + length)


@pytest.mark.parametrize("shift", [0, 1_700_000_000_000_000_000])
def test_nanoseconds_where_microseconds_belong_are_noticed(shift: int, tmp_path: Path) -> None:
    rows = [kernel("a_gemm", shift + 10_000 * i, 5_000) for i in range(4)]
    rows += [copy(shift + 10_000 * i + 6_000, 2_000, size=4_000_000, gb_s=2_000.0) for i in range(4)]
    report = analyze([write(tmp_path / "ns.json", rows)])
    assert report["ranks"][0]["wall_ns"] == 38_000
    assert any("nanoseconds" in problem for problem in report["problems"])


def test_copies_whose_bandwidth_disagrees_raise_doubt_about_the_unit(tmp_path: Path) -> None:
    rows = [copy(10.0 * i, 2.0, size=4_000_000, gb_s=2.0) for i in range(4)]
    report = analyze([write(tmp_path / "ms.json", rows)])
    assert any("unit of time is doubtful" in problem for problem in report["problems"])


def test_events_with_nonsense_in_them_are_left_out_and_counted(tmp_path: Path) -> None:
    good = [kernel("a_gemm", 10, 5), kernel("b_gemm", 20, 5)]
    bad: list[dict[str, Any]] = [
        kernel("c", 1, 1) | {"ts": None},
        kernel("d", 1, 1) | {"dur": "x"},
        kernel("e", 1e300, 1),
        {k: v for k, v in kernel("f", 1, 1).items() if k != "ts"},
    ]
    odd = [kernel("g_gemm", 30, -5), kernel("h_gemm", 31, 1) | {"args": None, "name": None, "tid": "stream 7"}]
    report = analyze([write(tmp_path / "odd.json", [*bad, *good, *odd])])
    assert sum(rank["kernels"] for rank in report["ranks"]) == 4
    assert any("4 events without a usable time" in problem for problem in report["problems"])


def test_a_merged_trace_is_taken_apart_by_rank_label(tmp_path: Path) -> None:
    """SGLang's merge keeps ids as they were: the same correlation means another launch on each rank."""
    rows: list[dict[str, Any]] = []
    for rank in range(3):
        events_of = [
            call("cudaLaunchKernel", 0, 1, correlation=5),
            kernel("a_gemm", 10 + rank, 4, correlation=5),
        ]
        rows += [event | {"pid": f"[TP{rank:02d}-DP00] {event['pid']}"} for event in events_of]
    report = analyze([write(tmp_path / "merged-x.trace.json", rows)])
    assert [rank["rank"] for rank in report["ranks"]] == [0, 1, 2]
    assert [rank["launches"] for rank in report["ranks"]] == [1, 1, 1]
    assert any("merged trace of 3 ranks" in problem for problem in report["problems"])


def test_labels_that_share_a_tensor_rank_are_counted(tmp_path: Path) -> None:
    rows = [kernel("a_gemm", 10, 4) | {"pid": f"[TP{tp:02d}-DP{dp:02d}] 0"} for dp in range(2) for tp in range(2)]
    report = analyze([write(tmp_path / "merged.json", rows)])
    assert [(rank["rank"], rank["label"]) for rank in report["ranks"]] == [
        (0, "TP00-DP00"),
        (1, "TP00-DP01"),
        (2, "TP01-DP00"),
        (3, "TP01-DP01"),
    ]


def test_two_files_of_one_rank_are_named(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, [kernel("a_gemm", 1, 2)], rank=3, world=8) for name in ("a.json", "b.json")]
    report = analyze(paths)
    assert len(report["ranks"]) == 2
    assert any("rank 3 comes 2 times (a.json, b.json)" in problem for problem in report["problems"])


def test_ascend_views_are_read_by_their_task_type(tmp_path: Path) -> None:
    rows = [
        {
            "ph": "X",
            "name": "MatMulV2",
            "pid": 9,
            "tid": 2,
            "ts": "100.120",
            "dur": 5.0,
            "args": {"Task Type": "AI_CORE"},
        },
        {
            "ph": "X",
            "name": "hcom_allReduce__1",
            "pid": 9,
            "tid": 3,
            "ts": "104.120",
            "dur": 4.0,
            "args": {"Task Type": "HCCL"},
        },
    ]
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps(rows))
    (rank,) = analyze([path])["ranks"]
    assert rank["compute_ns"] == {"GEMM": 4000}
    assert (rank["overlap_ns"], rank["communication_exposed_ns"]) == (1000, 3000)


def test_what_names_people_and_machines_does_not_come_along(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.json", [kernel("a_gemm", 1, 2)], username="someone", host_name="box7", traceName="/home/x/t.json"
    )
    text = json.dumps(analyze([path]))
    assert not any(secret in text for secret in ("someone", "box7", "/home/x"))


@given(st.binary(max_size=400))
@settings(max_examples=150, deadline=None)
def test_any_bytes_in_the_event_array_are_survived(noise: bytes) -> None:
    text = b'{"traceEvents": [\n' + noise + b',\n{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1}\n]}'
    for batch in EventStream([text]):
        assert all(isinstance(event, dict) for event in batch.events)


@given(st.binary(max_size=300))
@settings(max_examples=80, deadline=None)
def test_any_bytes_as_a_file_are_survived(tmp_path_factory: pytest.TempPathFactory, noise: bytes) -> None:
    path = tmp_path_factory.mktemp("f") / "file.json.gz"
    path.write_bytes(b"\x1f\x8b" + noise)
    assert isinstance(b"".join(Packed(path)), bytes)
    assert analyze([path])["ranks"] == []


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([2**80, -1, 0, "7"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
KEYS = ["device", "stream", "correlation", "bytes", "Collective name", "Seq", "In msg nelems", "dtype", "kind"]


@given(
    st.lists(
        st.fixed_dictionaries(
            {"ph": st.just("X"), "cat": st.sampled_from(["kernel", "gpu_memcpy", "cuda_runtime", "user_annotation"])},
            optional={
                "name": ANYTHING | st.sampled_from(["step[DECODE bs=1]", "cudaGraphLaunch", "ncclDevKernel_AllReduce"]),
                "ts": ANYTHING | st.integers(0, 1000),
                "dur": ANYTHING | st.integers(0, 1000),
                "pid": ANYTHING,
                "tid": ANYTHING,
                "args": ANYTHING | st.dictionaries(st.sampled_from(KEYS), ANYTHING | st.integers(0, 3), max_size=5),
            },
        ),
        max_size=6,
    )
)
@settings(max_examples=120, deadline=None)
def test_any_value_in_any_field_is_survived(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    path = write(tmp_path_factory.mktemp("v") / "t.json", rows, world=2)
    for rank in analyze([path, path])["ranks"]:
        rest = ("overlap_ns", "communication_exposed_ns", "copy_exposed_ns", "idle_ns")
        assert sum(rank["compute_ns"].values()) + sum(rank[part] for part in rest) == rank["wall_ns"]


def test_a_name_without_end_costs_no_time(tmp_path: Path) -> None:
    """Rules, screens and tables are made for names of some thousand characters."""
    path = write(tmp_path / "t.json", [kernel("x" * 5_000_000 + "_gemm", 0, 5), kernel("b_gemm", 10, 5)])
    report = analyze([path])
    assert sum(row["count"] for row in report["kernels"]) == 2
    assert max(len(row["name"]) for row in report["kernels"]) <= 16_384


@pytest.mark.parametrize("ts", ["1712195495505582987.0", "1712195495505582987.250"])
def test_nanoseconds_with_a_point_are_read_as_nanoseconds(ts: str, tmp_path: Path) -> None:
    events = [
        json.dumps(kernel("a_gemm", 77, 500.0)).replace(": 77,", f": {at},") for at in (ts, "1712195495505583987.0")
    ]
    path = tmp_path / "t.json"
    path.write_text(f'{{"traceEvents": [{", ".join(events)}]}}')
    report = analyze([path])
    assert report["ranks"][0]["wall_ns"] == 1_500
    assert any("times are nanoseconds" in problem for problem in report["problems"])


def test_what_is_no_file_of_text_is_said(tmp_path: Path) -> None:
    (tmp_path / "wide.json").write_text('{"traceEvents": []}', "utf-16")
    os.mkfifo(tmp_path / "pipe.json")
    report = analyze([tmp_path / "wide.json", tmp_path / "pipe.json"])
    assert any("wide.json: the text is UTF-16" in problem for problem in report["problems"])
    assert any("pipe.json: no regular file" in problem for problem in report["problems"])


def test_events_without_a_usable_time_are_not_called_absent(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [kernel("a_gemm", float("nan"), 5)])
    assert any("no device event with a usable time" in problem for problem in analyze([path])["problems"])
