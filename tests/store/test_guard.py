from __future__ import annotations

import pytest

from store.errors import Refused
from store.guard import Guard, Parser, harmless_functions, owner_call
from store.queries import all_queries
from tests.store.tricks import ALLOWED, REFUSED


@pytest.fixture(scope="module")
def guard() -> Guard:
    return Guard()


@pytest.mark.parametrize("sql", REFUSED)
def test_tricks_are_refused(guard: Guard, sql: str) -> None:
    with pytest.raises(Refused):
        guard.check(sql)


@pytest.mark.parametrize("sql", ALLOWED)
def test_honest_questions_pass(guard: Guard, sql: str) -> None:
    guard.check(sql)


def test_every_named_query_passes(guard: Guard) -> None:
    for query in all_queries():
        guard.check(f"FROM {query.name}()")


def test_what_attach_reads_passes(guard: Guard) -> None:
    guard.check(
        "SELECT catalog_name, schema_name FROM information_schema.schemata WHERE catalog_name NOT IN ('system')"
    )
    guard.check(
        "SELECT schema_name, sql, 'table' FROM duckdb_tables() "
        "UNION ALL SELECT schema_name, view_name, 'view' FROM duckdb_views()"
    )


def test_deep_nesting_and_long_texts_are_refused(guard: Guard) -> None:
    with pytest.raises(Refused):
        guard.check("FROM (" * 150 + "FROM runs" + ")" * 150)
    with pytest.raises(Refused):
        guard.check("SELECT " + " + ".join(["1"] * 900))
    with pytest.raises(Refused, match="longer"):
        guard.check("SELECT '" + "x" * 200_000 + "'")


def test_no_function_on_the_list_reads_files_or_runs_text() -> None:
    bad = ("read_", "scan", "quack", "pragma", "duckdb_", "query", "execute", "getenv", "setting", "secret", "glob",
           "nextval", "checkpoint", "log_", "sleep", "variable")  # fmt: skip
    assert [f for f in harmless_functions() if any(b in f for b in bad)] == []


@pytest.mark.parametrize(
    ("sql", "call"),
    [
        ("SELECT submit_order('{\"a\": ''x''}')", ("submit_order", ["{\"a\": 'x'}"])),
        ("select Ask('1', 'SELECT 2') -- c", ("ask", ["1", "SELECT 2"])),
        ("SELECT submit_order('a') FROM runs", None),
        ("SELECT submit_order('a') LIMIT 1", None),
        ("SELECT DISTINCT submit_order('a')", None),
        ("SELECT submit_order(NULL)", None),
        ("SELECT submit_order(1)", None),
        ("SELECT x.submit_order('a')", None),
        ("SELECT submit_order('a' ORDER BY 1)", None),
        ("SELECT submit_order(DISTINCT 'a')", None),
        ("SELECT submit_order('a') FILTER (WHERE true)", None),
        ("SELECT submit_order('a'), 1", None),
        ("WITH a AS (SELECT 1) SELECT submit_order('a')", None),
    ],
)
def test_a_call_of_the_owner_is_recognised_only_when_it_is_all_there_is(
    sql: str, call: tuple[str, list[str]] | None
) -> None:
    assert owner_call(Parser().parse(sql)) == call
