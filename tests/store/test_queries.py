from __future__ import annotations

import math
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.database import Store
from store.queries import all_queries, call, literal, parse
from store.records import Attempt, Point, Record, Request, Run, all_records
from tests.store.samples import one_of_each


def test_the_first_line_says_name_arguments_and_answer() -> None:
    q = parse("-- runs_of(who, n := 10): the runs of somebody\nSELECT *\nFROM runs;\n")
    assert (q.name, q.arguments, q.answers, q.sql) == (
        "runs_of",
        "who, n := 10",
        "the runs of somebody",
        "SELECT *\nFROM runs",
    )


@pytest.mark.parametrize("text", ["SELECT 1", "-- no name\nSELECT 1", "-- x(): \nSELECT 1", "-- X(): y\nSELECT 1"])
def test_a_file_without_that_line_is_no_query(text: str) -> None:
    with pytest.raises(ValueError, match="not a named query"):
        parse(text)


def test_queries_answer_in_a_plain_duckdb_client(tmp_path: Path) -> None:
    path = tmp_path / "s.duckdb"
    with Store.open(path) as store:
        store.write(one_of_each()).result()
    with duckdb.connect(str(path), read_only=True) as plain:
        assert plain.execute("FROM runs_list()").fetchall()[0][0] == "r1"
        assert len(plain.execute("FROM attempt_metrics('a1')").fetchall()) == 2


def test_a_query_that_is_gone_from_the_program_goes_from_the_store(tmp_path: Path) -> None:
    path = tmp_path / "s.duckdb"
    with Store.open(path) as store:
        store.connection.execute("CREATE MACRO old_question() AS TABLE SELECT 1")
    with Store.open(path) as store:
        names = store.query(
            "SELECT DISTINCT function_name FROM duckdb_functions() "
            "WHERE NOT internal AND function_type = 'table_macro' ORDER BY 1"
        ).rows
    assert [n for (n,) in names] == sorted(q.name for q in all_queries())


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))) | inner,
)
client = duckdb.connect()


@given(values)
def test_a_literal_is_read_back_as_the_value_it_was(value: object) -> None:
    assert client.execute(f"SELECT {literal(value)}").fetchall() == [(value,)]


def test_nan_is_a_literal_and_nul_and_objects_are_not() -> None:
    ((nan,),) = client.execute(f"SELECT {literal(math.nan)}").fetchall()
    assert math.isnan(nan)
    with pytest.raises(ValueError, match="NUL"):
        literal("a\0b")
    with pytest.raises(TypeError):
        literal({"a": 1})


def test_calls_quote_their_arguments_and_check_their_names() -> None:
    assert call("run_x", "it's", 3, None, newest=2.5) == "from run_x('it''s', 3, NULL, newest := 2.5::DOUBLE)"
    for bad in ("x()", "x; drop", "X", ""):
        with pytest.raises(ValueError, match="name"):
            call(bad)
        with pytest.raises(ValueError, match="name"):
            call("x", **{bad: 1})


def test_runs_count_their_attempts_but_not_the_void_ones(tmp_path: Path) -> None:
    def attempt(n: int, state: str, outcome: str | None = None) -> Attempt:
        return Attempt(attempt_id=f"a{n}", run_id="r", ordinal=n, case_name="c", state=state, outcome=outcome)

    with Store.open(tmp_path / "s.duckdb") as store:
        store.write(
            [
                Run(run_id="r", kind="run", created_wall_ns=1),
                Run(run_id="later", kind="run", created_wall_ns=2),
                attempt(1, "done", "OK"),
                attempt(2, "done", "OOM"),
                attempt(3, "void"),
                attempt(4, "running"),
            ]
        ).result()
        rows = store.query("SELECT run_id, attempts, attempts_done, attempts_not_ok FROM runs_list()").rows
        assert rows == [("later", 0, 0, 0), ("r", 3, 2, 1)]
        overview = {r["name"]: r["rows"] for r in store.query(call("tables_overview")).dicts()}
    assert overview["runs"] == 2
    assert overview["attempts"] == 4


def test_the_overview_counts_state_tables_exactly_after_many_replacements(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.duckdb") as store:
        for n in range(50):
            store.write([Run(run_id="r", kind="run", created_wall_ns=n)], urgent=True).result()
        overview = {r["name"]: r["rows"] for r in store.query(call("tables_overview")).dicts()}
    assert overview["runs"] == 1
    assert set(overview) == {r.table for r in all_records()} | {"schema_version"}


def test_the_knee_is_where_tokens_begin_to_cost_latency(tmp_path: Path) -> None:
    """TPS 100 200 300 310 320 at TPOT 10 11 12 40 80 ms: behind concurrency 3 tokens cost latency and bring none."""
    rows: list[Record] = []
    for c, (tps, ms) in enumerate([(100, 10), (200, 11), (300, 12), (310, 40), (320, 80)], 1):
        rows += [
            Attempt(
                attempt_id=f"a{c}",
                run_id="r",
                ordinal=c,
                case_name="A",
                osl=3,
                concurrency=c,
                state="done",
                outcome="OK",
            ),
            Point(run_id="r", ordinal=c, concurrency=c, outcome="OK", output_tps=float(tps)),
            *(_request(f"a{c}", n, ms) for n in range(5)),
        ]
    with Store.open(tmp_path / "s.duckdb") as store:
        store.write(rows, urgent=True).result()
        (knee,) = store.query(call("search_knee", "r")).dicts()
        assert (knee["concurrency"], knee["p95_ms"]) == (3, 12.0)
        store.write(
            [Point(run_id="r", ordinal=c, concurrency=c, outcome="OOM") for c in (3, 4, 5)], urgent=True
        ).result()
        assert store.query(call("search_knee", "r")).rows == []  # two points have no bend


def _request(attempt_id: str, n: int, tpot_ms: int) -> Request:
    first = 1_000_000
    last = first + 2 * tpot_ms * 1_000_000
    return Request(
        run_id="r", attempt_id=attempt_id, request_id=n, kind="load", phase="steady", measured=True, status="ok",
        sent_ns=0, first_ns=first, last_ns=last, end_ns=last, output_tokens=3,
    )  # fmt: skip
