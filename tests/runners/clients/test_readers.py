"""Result files of real tools, as rows: samples were written by vLLM 0.32.0, SGLang 0.5.23 and AIPerf 0.13.0 against
real servers on a CPU (tests/data/clients/SOURCE.txt)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.clients import CLIENTS
from runners.clients.results import sent_times
from runners.formats.client_result import Request as Found
from runners.probes.base import Parsed, ProbeContext
from store.database import Store
from store.export.document import attempt_windows
from store.queries import call
from store.records import Attempt, LogEvent, Request, Variable

DATA = Path(__file__).parents[2] / "data" / "clients"
FIXTURES = Path(__file__).parents[4] / "shared" / "fixtures"
FILES = {
    "vllm_bench": ("result.json", "vllm_bench.json"),
    "sglang_bench": ("result.jsonl", "sglang_bench.jsonl"),
    "aiperf": ("profile_export.jsonl", "aiperf_records.jsonl"),
}
CLOCK = {"wall_minus_mono_ns": 1_700_000_000_000_000_000, "wall_minus_owner_ns": 5}
KNOWN = {"isl": 64, "osl": 8, "clock": CLOCK}


def context(stream: str, offset: int = 0) -> ProbeContext:
    return ProbeContext(
        run_id="r1",
        node="n1",
        job_id="r1.a1.client",
        attempt_id="r1.a1",
        stream=stream,
        offset=offset,
        wall_ns=1_800_000_000_000_000_000,
    )


def parse(client: str, data: bytes | None = None, stream: str = "", known: Mapping[str, Any] = KNOWN) -> Parsed:
    """The rows of a file, by default of the client's sample."""
    name, sample = FILES[client]
    reader = CLIENTS[client].reader(stream or name, known)
    assert reader is not None
    return reader.parse((DATA / sample).read_bytes() if data is None else data, context(stream or name), True)


def requests(parsed: Parsed) -> list[Request]:
    return [row for row in parsed.records if isinstance(row, Request)]


def events(parsed: Parsed) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in parsed.records:
        if isinstance(row, LogEvent):
            found.setdefault(row.name, []).append(row.detail or "")
    return found


@pytest.mark.parametrize("client", FILES)
def test_every_request_has_its_tokens_and_times_in_order(client: str) -> None:
    rows = [r for r in requests(parse(client)) if r.kind != "warmup"]
    assert len(rows) == 6
    assert len({r.request_id for r in rows}) == 6
    for row in rows:
        assert (row.status, row.output_tokens, row.measured) == ("ok", 8, True)
        assert row.prompt_tokens is not None
        assert abs(row.prompt_tokens - 64) <= 1
        assert row.sent_ns is not None
        assert row.first_ns is not None
        assert row.last_ns is not None
        assert row.sent_ns < row.first_ns <= row.last_ns == row.end_ns  # AIPerf read one whole answer at once
        assert row.sent_wall_ns == row.sent_ns + CLOCK["wall_minus_mono_ns"]
        assert row.chunk_ns is not None
        assert row.chunk_ns == sorted(row.chunk_ns)
        assert row.chunk_ns[0] == row.first_ns - row.sent_ns
        assert abs(row.chunk_ns[-1] - (row.last_ns - row.sent_ns)) <= 2  # rounded to ns once and sum by sum


@pytest.mark.parametrize("client", ["vllm_bench", "sglang_bench"])
def test_our_figures_from_the_rows_are_the_tools_own(client: str, tmp_path: Path) -> None:
    """Latency means agree, since the definitions do; the throughput of SGLang's client is over a longer clock."""
    parsed = parse(client)
    own = {row.name: float(row.value or "nan") for row in parsed.records if isinstance(row, Variable)}
    with Store.open(tmp_path / "x.duckdb") as store:
        store.write(parsed.records).result()
        windows = attempt_windows(store, "r1.a1")
        assert list(windows) == ["all"]  # nothing is called steady
        whole = windows["all"]
        assert whole["requests"]["ok"] == own["client.a1.requests_ok"] == 6
        for metric in ("ttft_ms", "tpot_ms", "e2e_ms"):
            assert whole[metric]["mean"] == pytest.approx(own[f"client.a1.{metric}.mean"], rel=1e-3)
        assert whole["output_tps"] == pytest.approx(
            own["client.a1.output_tps"], rel=0.01 if client == "vllm_bench" else 0.3
        )
        assert whole["output_tps"] >= own["client.a1.output_tps"]


def test_what_a_tool_says_stands_beside_ours_by_figure(tmp_path: Path) -> None:
    attempt = Attempt(attempt_id="r1.a1", run_id="r1", ordinal=1, case_name="x", client="vllm_bench")
    with Store.open(tmp_path / "x.duckdb") as store:
        store.write([attempt, *parse("vllm_bench").records]).result()
        rows = {row["figure"]: row for row in store.query(call("client_figures", "r1")).dicts()}
    assert rows["requests_ok"]["own"] == rows["requests_ok"]["ours"] == 6
    for figure in ("ttft_ms_mean", "tpot_ms_p50", "e2e_ms_p99", "output_tokens"):
        assert rows[figure]["apart_pct"] == pytest.approx(0, abs=0.01)
    assert (rows["peak_concurrency"]["own"], rows["peak_concurrency"]["ours"]) == (6, None)  # at a limit of 2: not ours


def test_aiperf_tells_of_its_warm_up_and_what_it_makes_of_the_rest() -> None:
    rows = requests(parse("aiperf"))
    warm = [r for r in rows if r.kind == "warmup"]
    assert len(warm) == 2
    assert not any(r.measured for r in warm)
    summary = parse("aiperf", (DATA / "aiperf_summary.json").read_bytes(), "profile_export_aiperf.json")
    own = {row.name: row.value for row in summary.records if isinstance(row, Variable)}
    assert float(own["client.a1.output_tokens"] or 0) == 48
    assert "schema 1.4, 6 ok, 0 failed" in events(summary)["client_result"]


def test_lines_of_aiperf_may_be_cut_anywhere() -> None:
    data = (DATA / "aiperf_records.jsonl").read_bytes()
    reader = CLIENTS["aiperf"].reader("profile_export.jsonl", KNOWN)
    assert reader is not None
    for cut in (0, 1, len(data) // 3, len(data) - 1):
        first = reader.parse(data[:cut], context("profile_export.jsonl"))
        rest = reader.parse(data[first.consumed :], context("profile_export.jsonl", first.consumed), True)
        assert [*first.records, *rest.records] == parse("aiperf").records


def test_a_first_prompt_that_the_warm_up_has_sent_is_not_measured() -> None:
    rows = requests(parse("vllm_bench", known={**KNOWN, "first_repeats": True}))
    assert [(r.kind, r.measured) for r in rows[:2]] == [("filler", False), ("load", True)]


def test_sglangs_send_times_are_rebuilt_and_said_to_be() -> None:
    parsed = parse("sglang_bench")
    assert any(flag.startswith("times_rebuilt: ") for flag in events(parsed)["client_flag"])
    assert max(r.end_ns or 0 for r in requests(parsed)) <= 1_800_000_000_000_000_005 - CLOCK["wall_minus_mono_ns"]


@given(st.lists(st.floats(0.001, 100), min_size=1, max_size=40), st.integers(1, 8))
@settings(max_examples=60)
def test_rebuilt_times_keep_the_order_and_never_exceed_the_slots(seconds: list[float], slots: int) -> None:
    found = [Found(ok=True, e2e_ms=s * 1000) for s in seconds]
    times = sent_times(found, slots, None)
    assert times == sorted(times)
    for at in times:
        # to the nanosecond: a time goes to ms and back
        assert sum(begin <= at < begin + s - 1e-9 for begin, s in zip(times, seconds, strict=True)) <= slots


def half(source: dict[str, Any]) -> bytes:
    text = json.dumps(source).encode()
    return text[: len(text) // 2]


@pytest.mark.parametrize("client", ["vllm_bench", "sglang_bench"])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (half, "cut short or no JSON"),
        (lambda s: b"", "cut short or no JSON"),
        (lambda s: json.dumps([s]).encode(), "cut short or no JSON"),
        (lambda s: b"\n".join([json.dumps(s).encode()] * 2), "holds 2 results"),
        (lambda s: json.dumps({**s, "ttfts": None}).encode(), "not known here (missing or of another kind: ttfts)"),
        (lambda s: json.dumps({**s, "errors": []}).encode(), "lists of different length"),
    ],
)
def test_a_file_that_is_not_as_known_gives_one_event_and_no_row(client: str, change: Any, says: str) -> None:
    parsed = parse(client, change(json.loads((DATA / FILES[client][1]).read_text())))
    assert says in events(parsed)["client_result_refused"][0]
    assert len(parsed.records) == parsed.skipped == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema_version": "2.0"}, "has the schema 2.0"),
        ({"schema_version": None}, "not known here"),
        ({"was_cancelled": True}, "was_cancelled"),
    ],
)
def test_a_summary_of_aiperf_that_is_not_as_known_is_refused(change: dict[str, Any], says: str) -> None:
    source = json.loads((DATA / "aiperf_summary.json").read_text())
    parsed = parse("aiperf", json.dumps({**source, **change}).encode(), "profile_export_aiperf.json")
    assert says in events(parsed)["client_result_refused"][0]


def test_nothing_is_read_of_a_document_before_its_writer_has_ended() -> None:
    reader = CLIENTS["vllm_bench"].reader("result.json", KNOWN)
    assert reader is not None
    assert reader.parse(b'{"duration": 1', context("result.json")) == Parsed()


def test_failed_requests_keep_their_words_and_a_first_token_at_zero_is_a_failure() -> None:
    source = json.loads((DATA / "vllm_bench.json").read_text())
    source["errors"][0] = "Traceback (most recent call last):\n  ...\nClientConnectorError: Cannot connect\x1b[2J"
    source["ttfts"][1] = 0.0
    failed = [r for r in requests(parse("vllm_bench", json.dumps(source).encode())) if r.status == "failed"]
    assert [r.error_text for r in failed] == ["ClientConnectorError: Cannot connect?[2J", "TTFT 0"]
    assert all(r.first_ns is None and r.output_tokens is None for r in failed)


def test_a_version_without_send_times_is_read_and_flagged() -> None:
    source = json.loads((DATA / "vllm_bench.json").read_text())
    for name in ("start_times", "latencies"):
        del source[name]
    parsed = parse("vllm_bench", json.dumps(source).encode())
    assert len(requests(parsed)) == 6
    assert any(flag.startswith("times_rebuilt") for flag in events(parsed)["client_flag"])


def test_defects_become_flags_of_the_attempt_where_they_bear_on_a_comparison(tmp_path: Path) -> None:
    client = CLIENTS["sglang_bench"]
    attempt = Attempt(attempt_id="r1.a1", run_id="r1", ordinal=1, case_name="x", job_id="r1.a1.client")
    with Store.open(tmp_path / "x.duckdb") as store:
        store.write(parse("sglang_bench").records).result()
        flags = client.flags_of(store, attempt)
        assert client.refusal_of(store, attempt) is None
        nothing = Attempt(attempt_id="r1.a2", run_id="r1", ordinal=2, case_name="x", job_id="r1.a2.client")
        assert "wrote no result file" in (client.refusal_of(store, nothing) or "")
    assert {"times_rebuilt", "duration_includes_server_info"} <= set(flags)
    assert "not_strict_json" not in flags


@pytest.mark.shared
@pytest.mark.skipif(not FIXTURES.is_dir(), reason="the wide sample collection is not beside this checkout")
def test_every_real_result_beside_the_project_is_read() -> None:
    seen = 0
    for client, name in (("vllm_bench", "result.json"), ("sglang_bench", "result.jsonl")):
        for path in FIXTURES.glob(f"real_*/*/{name}"):
            parsed = parse(client, path.read_bytes())
            told = json.loads(path.read_text())
            assert "client_result_refused" not in events(parsed), path
            assert sum(r.status == "ok" for r in requests(parsed)) == told["completed"], path
            seen += 1
    assert seen > 10
