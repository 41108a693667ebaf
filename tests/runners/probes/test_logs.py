"""Server logs: every line kept, the telling ones typed, a flood affordable."""

from __future__ import annotations

import calendar
import json
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.probes import Parsed, ProbeContext
from runners.probes.logs import LogReader
from runners.probes.logtime import wall_ns
from store.records import EngineSample, LogEvent, LogLine

SHARED = Path(__file__).parents[4] / "shared" / "fixtures"
ARRIVAL = calendar.timegm((2026, 11, 29, 12, 0, 30)) * 10**9

VLLM = b"""\
(APIServer pid=1) INFO 11-29 12:00:01 [api_server.py:1] vLLM API server version 0.11.0
(Worker_TP3 pid=9) INFO 11-29 12:00:05 [gpu_model_runner.py:2] Model loading took 75.79 GiB memory and 130.17 seconds
(EngineCore_DP0 pid=5) INFO 11-29 12:00:20 [loggers.py:3] Engine 000: Avg prompt throughput: 12.5 tokens/s, \
Avg generation throughput: 99.0 tokens/s, Running: 4 reqs, Waiting: 2 reqs, GPU KV cache usage: 1.5%, \
Prefix cache hit rate: 50.0%
INFO:     127.0.0.1:52100 - "POST /v1/completions HTTP/1.1" 200 OK

(EngineCore_DP0 pid=5) ERROR 11-29 12:00:25 [core.py:4] EngineCore encountered a fatal error.
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 94.97 GiB
"""

SGLANG = b"""\
[2026-11-29 12:00:10 DP0 TP0] Decode batch, #running-req: 4, #token: 1200, token usage: 0.31, cuda graph: True, \
gen throughput (token/s): 212.10, #queue-req: 1,
[2026-11-29 12:00:10 DP1 TP4] Decode batch, #running-req: 3, #token: 900, token usage: 0.20, cuda graph: True, \
gen throughput (token/s): 150.00, #queue-req: 0,
[2026-11-29 12:00:11 TP1] Decode batch, #running-req: 4, #token: 1200, token usage: 0.31, cuda graph: True, \
gen throughput (token/s): 212.10, #queue-req: 1,
[2026-11-29 12:00:12 TP2] KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_token_ratio: 0.5 -> 0.7
[2026-11-29 12:00:13 TP3] Scheduler hit an exception: Traceback (most recent call last):
"""


def read(data: bytes, engine: str | None = "vllm", utc_offset_s: int | None = 0) -> Parsed:
    context = ProbeContext(
        run_id="r", node="node7", job_id="j", engine=engine, wall_ns=ARRIVAL, utc_offset_s=utc_offset_s, rank=1
    )
    return LogReader().parse(data, context, final=True)


def lines(parsed: Parsed) -> list[LogLine]:
    return [r for r in parsed.records if isinstance(r, LogLine)]


def events(parsed: Parsed) -> list[LogEvent]:
    return [r for r in parsed.records if isinstance(r, LogEvent)]


def figures(parsed: Parsed) -> list[EngineSample]:
    return [r for r in parsed.records if isinstance(r, EngineSample)]


def second(hour: int, minute: int, second: int) -> int:
    return calendar.timegm((2026, 11, 29, hour, minute, second)) * 10**9


def test_vllm_lines_keep_level_time_rank_and_place() -> None:
    parsed = read(VLLM)
    kept = lines(parsed)
    assert len(kept) == 6  # blank ones are not rows
    assert [x.level for x in kept] == ["INFO", "INFO", "INFO", "INFO", "ERROR", None]
    assert [x.rank for x in kept] == [None, 3, None, None, None, None]
    assert kept[0].wall_ns == second(12, 0, 1)
    assert kept[3].wall_ns == ARRIVAL  # no time of its own
    assert [VLLM[x.offset :].split(b"\n")[0].decode() for x in kept] == [x.text for x in kept]


def test_vllm_scheduler_line_is_a_sample_from_the_log() -> None:
    (row,) = figures(read(VLLM))
    assert (row.source, row.dp_rank, row.running, row.waiting) == ("log", 0, 4, 2)
    assert (row.kv_usage, row.gen_throughput, row.wall_ns) == (0.015, 99.0, second(12, 0, 20))


def test_fatal_lines_are_typed_and_out_of_memory_is_named() -> None:
    found = events(read(VLLM))
    assert [(e.name, e.severity) for e in found] == [
        ("start_stage", "info"),
        ("engine_crash", "fatal"),
        ("oom", "fatal"),
    ]
    assert found[2].detail is not None
    assert "Tried to allocate" in found[2].detail
    stage = json.loads(found[0].detail or "")
    assert found[0].rank == 3
    assert stage["stage"]


def test_sglang_counts_each_dp_rank_and_one_tp_rank() -> None:
    parsed = read(SGLANG, "sglang")
    assert [(s.dp_rank, s.running, s.waiting) for s in figures(parsed)] == [(0, 4, 1), (1, 3, 0)]
    assert [(e.name, e.severity, e.rank) for e in events(parsed)] == [
        ("retract", "warn", 2),
        ("engine_crash", "fatal", 3),
    ]


def test_an_engine_that_may_speak_either_way_is_read_by_the_look_of_the_line() -> None:
    parsed = read(VLLM + SGLANG, "sim")
    assert len(figures(parsed)) == 3
    assert Counter(e.name for e in events(parsed))["engine_crash"] == 2


def test_nccl_facts_are_events_that_hold_the_row() -> None:
    line = b"node5:12:34 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA\n"
    (event,) = events(read(line))
    assert (event.name, event.severity) == ("nccl_channel", "info")
    row = json.loads(event.detail or "")
    assert (row["from_rank"], row["to_rank"], row["network"], row["gdrdma"]) == (0, 8, "IB", True)
    assert lines(read(line))[0].level == "INFO"


def test_the_same_words_with_another_number_are_judged_anew() -> None:
    reader = LogReader()
    context = ProbeContext(run_id=None, node="n", job_id="j", wall_ns=ARRIVAL)
    harmless = reader.parse(b"OS said [Errno 2] on /x\n" * 3, context)
    bad = reader.parse(b"OS said [Errno 98] on /x\n", context)
    assert events(harmless) == []
    assert [e.name for e in events(bad)] == ["port_in_use"]


def test_torch_names_the_rank_behind_its_head() -> None:
    line = b"[rank3]:[E1129 12:00:20.167 ProcessGroupNCCL.cpp:2252] [PG ID 2 PG GUID 3 Rank 7] Watchdog caught it\n"
    (kept,) = lines(read(line))
    assert (kept.level, kept.rank) == ("ERROR", 7)
    assert kept.wall_ns == second(12, 0, 20) + 167_000_000


def test_an_endless_line_becomes_pieces() -> None:
    data = b"x" * 200_000 + b"\nnext\n"
    kept = lines(read(data))
    assert [x.truncated for x in kept] == [True, True, True, False, False]
    assert "".join(x.text for x in kept[:4]) == "x" * 200_000
    assert kept[4].text == "next"


def test_colours_controls_and_progress_bars_do_not_reach_a_row() -> None:
    kept = lines(read(b"\x1b[32mINFO\x1b[0m a\x07b\nload  10%\rload  90%\rload 100%\n\xff\xfe bytes\n"))
    assert [x.text for x in kept] == ["INFO ab", "load 100%", "\ufffd\ufffd bytes"]


def test_a_line_without_its_end_waits_until_the_stream_ends() -> None:
    context = ProbeContext(run_id=None, node="n", job_id="j", wall_ns=ARRIVAL)
    half = LogReader().parse(b"one\ntw", context)
    assert (half.consumed, [x.text for x in lines(half)]) == (4, ["one"])


def test_a_flood_costs_microseconds_a_line() -> None:
    def flood(n: int) -> bytes:
        return b"".join(
            b"(APIServer pid=1) INFO 11-29 12:00:%02d [x.py:1] request cmpl-%032x step %d of kv %d tokens\n"
            % (i % 60, i * 2654435761, i, i * 7)
            for i in range(n)
        )

    data = flood(20_000)
    context = ProbeContext(run_id=None, node="n", job_id="j", engine="vllm", wall_ns=ARRIVAL, utc_offset_s=0)
    reader = LogReader()
    reader.parse(flood(100), context)
    began = time.process_time()
    parsed = reader.parse(data, context)
    spent_us = (time.process_time() - began) * 1e6 / 20_000
    assert len(parsed.records) == 20_000
    assert spent_us < 100, f"{spent_us:.1f} us a line"  # about 10 on an idle machine


@pytest.mark.parametrize(
    ("text", "offset", "wanted"),
    [
        ("2026-11-29 12:00:01", 0, second(12, 0, 1)),
        ("11-29 20:00:01", 8 * 3600, second(12, 0, 1)),
        ("11-29 20:00:01", None, second(12, 0, 1)),  # a zone east of us explains it
        ("11-29 17:30:01", None, second(12, 0, 1)),  # also one with a half hour
        ("2026-11-29T12:00:01.250Z", None, second(12, 0, 1) + 250_000_000),
        ("2026-11-29T20:00:01+08:00", None, second(12, 0, 1)),
        ("2020-01-01 00:00:00", None, calendar.timegm((2020, 1, 1, 0, 0, 0)) * 10**9),  # read years later
        ("99-99 12:00:00", 0, None),
        ("12:00:01", 0, None),
    ],
)
def test_a_stated_time_is_placed_on_the_clock(text: str, offset: int | None, wanted: int | None) -> None:
    assert wall_ns(text, ARRIVAL, offset) == wanted


def test_a_year_is_chosen_across_new_year() -> None:
    arrival = calendar.timegm((2027, 1, 1, 0, 0, 10)) * 10**9
    assert wall_ns("12-31 23:59:59", arrival, 0) == calendar.timegm((2026, 12, 31, 23, 59, 59)) * 10**9


@given(st.text(max_size=40), st.integers(0, 2**62), st.none() | st.integers(-43200, 50400))
def test_no_text_upsets_the_clock(text: str, arrival: int, offset: int | None) -> None:
    assert wall_ns(text, arrival, offset) is None or isinstance(wall_ns(text, arrival, offset), int)


@pytest.mark.shared
def test_what_is_remembered_of_a_flood_hides_nothing_in_real_logs() -> None:
    if not SHARED.is_dir():
        pytest.skip(f"no sample collection at {SHARED}")
    engines = {"sglang-log": "sglang", "real_sglang": "sglang", "nccl-log": None, "pytorch-log": None, "dmesg": None}
    seen = 0
    warm = {engine: LogReader() for engine in ("vllm", "sglang", None)}
    for path in sorted(p for ext in ("log", "txt") for p in SHARED.rglob(f"*.{ext}")):
        engine = engines.get(path.parent.name, "vllm")
        data = path.read_bytes()[:200_000]
        context = ProbeContext(run_id=None, node="n", job_id="j", engine=engine, wall_ns=ARRIVAL)
        fast = warm[engine].parse(data, context, final=True)
        slow: list[LogEvent] = []
        for line in data.splitlines(keepends=True):
            slow += events(LogReader().parse(line, context, final=True))
        assert [(e.name, e.detail) for e in events(fast)] == [(e.name, e.detail) for e in slow], path
        seen += len(slow)
    assert seen > 100
