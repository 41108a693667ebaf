"""What loadgen wrote becomes rows, however the stream is cut, and a bad line costs that line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.clients import loadgen
from runners.clients.loadgen import LoadgenReader, flags_of, masked, spec_of
from runners.payload.loadgen import parse_spec
from runners.probes.base import Parsed, ProbeContext
from runners.spec import Case, Deployment, Inject
from store.database import Store
from store.records import Attempt, LoadTick, LogEvent, Phase, Record, Request
from tests.runners.loadgen_rig import Json, Stream, against, counts

SAMPLE = Path(__file__).parents[1] / "data" / "loadgen" / "closed_c2.jsonl"
CONTEXT = ProbeContext(run_id="r1", node="n1", job_id="r1.a1.client", attempt_id="r1.a1")


def parse(data: bytes, final: bool = True) -> Parsed:
    return LoadgenReader().parse(data, CONTEXT, final)


def lines_of(data: bytes) -> list[Json]:
    return [json.loads(line) for line in data.splitlines()]


def test_every_ended_request_is_a_row_with_its_times_and_counts() -> None:
    data = SAMPLE.read_bytes()
    requests = [r for r in parse(data).records if isinstance(r, Request)]
    done = [line for line in lines_of(data) if line["t"] == "done"]
    assert len(requests) == len(done) > 10
    for row, line in zip(requests, done, strict=True):
        assert (row.run_id, row.attempt_id, row.request_id) == ("r1", "r1.a1", line["id"])
        assert (row.kind, row.phase, row.measured, row.status) == tuple(
            line[key] for key in ("kind", "phase", "measured", "status")
        )
        assert (row.sent_ns, row.first_ns, row.last_ns, row.end_ns) == tuple(
            line[key] for key in ("sent_ns", "first_ns", "last_ns", "end_ns")
        )
        assert (row.chunk_ns, row.chunk_tokens) == (line["chunk_ns"], line["chunk_tokens"])
        assert row.output_tokens == (line["usage"] or {}).get("completion")
        assert row.prompt_tokens == (line["usage"] or {}).get("prompt")


def test_phases_ticks_and_the_end_are_rows_too() -> None:
    records = parse(SAMPLE.read_bytes()).records
    assert [r.name for r in records if isinstance(r, Phase)] == ["warmup", "ramp", "steady", "drain"]
    ticks = [r for r in records if isinstance(r, LoadTick)]
    assert ticks
    assert all(tick.cpu_pct is not None and 0 < tick.cpu_pct < 100 and tick.node == "n1" for tick in ticks)
    (end,) = [r for r in records if isinstance(r, LogEvent)]
    assert (end.name, end.detail, end.severity) == ("client_end", "completed", "info")


@given(st.lists(st.integers(0, SAMPLE.stat().st_size), max_size=6))
@settings(max_examples=40)
def test_any_cut_gives_the_same_rows(cuts: list[int]) -> None:
    data = SAMPLE.read_bytes()
    records: list[Record] = []
    committed = 0
    for seen in [*sorted(cuts), len(data)]:
        parsed = parse(data[committed:seen], final=False)
        records += parsed.records
        committed += parsed.consumed
    assert committed == len(data)
    whole = parse(data).records
    assert [r for r in records if not isinstance(r, LogEvent)] == [r for r in whole if not isinstance(r, LogEvent)]


def spoiled(**changes: Any) -> bytes:
    line = next(line for line in lines_of(SAMPLE.read_bytes()) if line["t"] == "done" and line["status"] == "ok")
    return json.dumps({**line, **changes}).encode()


@pytest.mark.parametrize(
    "bad",
    [
        b"Traceback (most recent call last):",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"t":"done"}',
        b'{"t":"other"}',
        b'{"t":"tick","mono_ns":1e3}',
        spoiled(id=-1),
        spoiled(id=2**63),
        spoiled(sent_ns=True),
        spoiled(kind="x" * 100),
        spoiled(status=None),
        spoiled(chunk_ns=[1]),
        spoiled(chunk_ns=["1"] * 4, chunk_tokens=[1] * 4),
        spoiled(chunk_ns=7),
        spoiled(usage=[1]),
        spoiled(error_text=["x"]),
        spoiled(measured=1),
    ],
)
def test_a_bad_line_costs_that_line(bad: bytes) -> None:
    good = spoiled()
    parsed = parse(good + b"\n" + bad + b"\n" + good + b"\n")
    assert len(parsed.records) == 2
    assert parsed.skipped == 1


def test_control_characters_do_not_reach_the_store() -> None:
    (row,) = parse(spoiled(status="failed", error="reset", error_text="\x1b[31mred\u202e" + "x" * 1000) + b"\n").records
    assert isinstance(row, Request)
    assert row.error_text is not None
    assert row.error_text.isprintable()
    assert len(row.error_text) <= 300


@given(st.binary(max_size=300))
@settings(max_examples=100)
def test_any_bytes_are_used_up_and_never_raise(data: bytes) -> None:
    assert parse(data).consumed == len(data)


def test_an_endless_line_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loadgen, "MAX_LINE", 100_000)
    good = spoiled() + b"\n"
    assert parse(b"x" * 99_999, final=False).consumed == 0
    parsed = parse(b"x" * 250_000 + b"\n" + good, final=False)
    assert len(parsed.records) == 1
    assert parsed.skipped == 3


def deployment(**changes: Any) -> Deployment:
    return Deployment(**{"engine": "external", "url": "http://192.0.2.1:8000", "vocab": (100, 4000), **changes})


@pytest.mark.parametrize(
    "case",
    [
        Case(isl=1024, osl=1, concurrency=4),
        Case(isl=64, osl=128, concurrency=2, api="chat", requests=9, warmup=0),
        Case(isl=64, osl=128, request_rate=2.5, prefix_share=0.25, filler=False),
        Case(isl=64, osl=128, concurrency=16, inject=Inject(isl=32768, every=10.0)),
    ],
)
def test_a_case_becomes_a_spec_that_the_script_accepts(case: Case) -> None:
    raw = spec_of(case, url="http://192.0.2.1:8000", model="m", dep=deployment(), seed=7)
    spec = parse_spec(json.loads(json.dumps(raw)))
    assert (spec.isl, spec.osl, spec.seed) == (case.isl, case.osl, 7)
    assert spec.vocab == [100, 3999]
    assert spec.concurrency == (None if case.request_rate else case.concurrency)
    assert (spec.inject is None) == (case.inject is None)


def test_a_spec_is_shown_without_secrets() -> None:
    raw = {"url": "http://joe:hunter2@h", "headers": {"X": "hunter2"}, "extra": {"api_key": "hunter2", "max_tokens": 5}}
    assert "hunter2" not in str(masked(raw))
    assert masked(raw)["extra"]["max_tokens"] == 5


async def flags(tmp_path: Path, behave: Any, **changes: Any) -> list[str]:
    """What the rows of a real run flag, through a real store."""
    output = await against(behave, **{"filler": False, "requests": 3, "lag_limit_ms": 1e6, **changes})
    case = Case(isl=8, osl=4, concurrency=1)
    attempt = Attempt(
        attempt_id="r1.a1",
        run_id="r1",
        ordinal=1,
        case_name="x",
        job_id=CONTEXT.job_id,
        case_spec=case.model_dump_json(),
    )
    store = Store.open(tmp_path / "x.duckdb")
    try:
        await store.commit(parse(output.raw).records)
        return flags_of(store, attempt)
    finally:
        store.close()


async def test_a_run_as_asked_has_no_flags(tmp_path: Path) -> None:
    async def behave(stream: Stream) -> None:
        await stream.answer()

    assert await flags(tmp_path, behave) == []


async def test_counted_tokens_off_the_asked_ones_are_flagged(tmp_path: Path) -> None:
    async def behave(stream: Stream) -> None:
        await stream.answer(3)

    assert await flags(tmp_path, behave) == ["tokens_differ"]


async def test_prompts_answered_from_a_cache_are_flagged(tmp_path: Path) -> None:
    async def behave(stream: Stream) -> None:
        await stream.begin()
        await stream.tokens(4)
        await stream.end(counts(8, 4, prompt_tokens_details={"cached_tokens": 4}))

    assert await flags(tmp_path, behave) == ["cache_warm"]


async def test_a_server_without_usage_is_flagged(tmp_path: Path) -> None:
    async def behave(stream: Stream) -> None:
        await stream.begin()
        await stream.tokens(4, usage=False)
        await stream.end()

    assert await flags(tmp_path, behave) == ["tokens_unknown", "tokens_assumed"]


async def test_a_saturated_client_is_flagged(tmp_path: Path) -> None:
    async def behave(stream: Stream) -> None:
        await stream.begin()
        await stream.tokens(4, pause=0.05)
        await stream.end()

    assert await flags(tmp_path, behave, lag_limit_ms=0.000001) == ["client_saturated"]
