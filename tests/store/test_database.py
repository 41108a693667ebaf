from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.database import Query, QueryCancelled, Store, StoreError
from store.records import GpuSample, LogLine, Note, Offset, Run
from tests.store.samples import as_row, one_of_each

ENDLESS = "SELECT sum(a.range * b.range % 7) FROM range(100_000) a, range(10_000_000) b"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "s.duckdb") as store:
        yield store


def note(text: str, wall_ns: int = 0) -> Note:
    return Note(wall_ns=wall_ns, who="me", text=text)


def test_every_record_comes_back_as_it_was_written(store: Store) -> None:
    records = one_of_each()
    store.write(records).result()
    for record in records:
        assert store.query(f"FROM {record.table}").rows == [as_row(record)]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(st.characters(exclude_categories=["Cs"])),
    number=st.integers(-(2**63), 2**63 - 1),
    share=st.floats(allow_nan=False, allow_infinity=False),
)
def test_any_text_integer_and_float_is_exact(store: Store, text: str, number: int, share: float) -> None:
    line = LogLine(run_id=None, job_id="j", node="n", offset=number, wall_ns=-number - 1, text=text)
    gpu = GpuSample(run_id=None, node="n", wall_ns=number, gpu=0, util_pct=share, name=text)
    store.write([line, gpu], urgent=True).result()
    assert store.query("FROM log_lines").rows[-1] == as_row(line)
    assert store.query("FROM gpu_samples").rows[-1] == as_row(gpu)


def test_lone_surrogates_are_replaced_and_nan_is_null(store: Store) -> None:
    gpu = GpuSample(run_id=None, node="n\ud800", wall_ns=1, gpu=0, util_pct=math.nan, temp_c=math.inf)
    store.write([gpu]).result()
    assert store.query("SELECT node, util_pct, temp_c FROM gpu_samples").rows == [("n\ufffd", None, None)]


def test_a_poison_batch_fails_alone(store: Store) -> None:
    good = [store.write([note("one")]), store.write([note("two"), note("three")])]
    bad = store.write([note("four"), note("too large", 2**64)])
    wrong = store.write([Run(run_id=7, kind="x"), Offset(job_id="j", stream="s", offset="x")])  # type: ignore[arg-type]  # what a parser's bug would hand over
    last = store.write([note("five")])
    for future in (*good, last):
        assert future.result() is None
    with pytest.raises(StoreError, match="64-bit"):
        bad.result()
    with pytest.raises(StoreError, match="Failed to cast"):
        wrong.result()
    assert store.query("SELECT text FROM notes").rows == [("one",), ("two",), ("three",), ("five",)]
    assert store.query("FROM runs").rows == []


def test_state_replaces_the_row_of_the_same_key_and_the_last_one_wins(store: Store) -> None:
    def offset(job: str, at: int) -> Offset:
        return Offset(job_id=job, stream="stdout", offset=at)

    store.write([offset("a", 1), offset("b", 1), offset("a", 2)]).result()
    futures = [store.write([offset("a", n)]) for n in range(3, 9)]
    for f in futures:
        f.result()
    assert sorted(store.query("FROM offsets").rows) == [("a", "stdout", 8), ("b", "stdout", 1)]


def test_records_of_one_call_keep_their_order(store: Store) -> None:
    store.write([note(str(n), n) for n in range(5000)]).result()
    assert store.query("SELECT wall_ns FROM notes").rows == [(n,) for n in range(5000)]


async def test_commit_waits_for_the_disk_but_not_for_the_tick(store: Store) -> None:
    await store.commit([note("first")])  # the first one warms DuckDB up
    began = time.monotonic()
    for n in range(10):
        await store.commit([note(str(n))])
    assert store.query("SELECT count(*) FROM notes").rows == [(11,)]
    assert time.monotonic() - began < 10 * 0.1 + 2


async def test_a_cancelled_commit_is_written_all_the_same(store: Store) -> None:
    task = asyncio.create_task(store.commit([note("kept")]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    store.write([note("after")]).result()
    assert store.query("SELECT text FROM notes").rows == [("kept",), ("after",)]


def test_many_threads_write_and_read_at_once(store: Store) -> None:
    def work(name: str) -> None:
        for n in range(20):
            store.write([note(f"{name} {n}")], urgent=True).result()
            store.query("SELECT count(*) FROM notes")

    threads = [threading.Thread(target=work, args=(str(t),)) for t in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert store.query("SELECT count(DISTINCT text), count(*) FROM notes").rows == [(120, 120)]


def test_a_running_query_is_cancelled_from_another_thread(store: Store) -> None:
    handle = Query()
    threading.Timer(0.3, handle.cancel).start()
    began = time.monotonic()
    with pytest.raises(QueryCancelled):
        store.query(ENDLESS, handle=handle)
    assert time.monotonic() - began < 10
    with pytest.raises(QueryCancelled):
        store.query("SELECT 1", handle=handle)
    assert store.query("SELECT 1").rows == [(1,)]


def test_a_query_has_a_time_limit_when_asked(store: Store) -> None:
    with pytest.raises(QueryCancelled):
        store.query(ENDLESS, timeout_s=0.2)


def test_changes_name_the_tables_that_were_written(store: Store) -> None:
    store.write([note("x")]).result()
    store.write([note("y"), Run(run_id="r", kind="run")]).result()
    assert store.changes() == {"notes": 2, "runs": 1}
    assert store.query("SELECT store_changes()").rows == [('{"notes":2,"runs":1}',)]


def test_close_commits_what_is_queued_and_refuses_more(store: Store) -> None:
    future = store.write([note("last")])
    store.close()
    assert future.result() is None
    with pytest.raises(StoreError, match="closed"):
        store.write([note("late")])
    with pytest.raises(StoreError, match="closed"):
        store.query("SELECT 1")
    with Store.open(store.path) as again:
        assert again.query("SELECT text FROM notes").rows == [("last",)]


def test_sql_errors_are_the_stores_own(store: Store) -> None:
    with pytest.raises(StoreError, match="nosuch"):
        store.query("FROM nosuch")
    with pytest.raises(StoreError, match=r"now\(\)::TIMESTAMP"):
        store.query("SELECT now()")
    assert store.query("SELECT now()::TIMESTAMP").types == ("TIMESTAMP",)
