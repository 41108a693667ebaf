"""Named SQL: one file per question, callable by hand in any DuckDB client as `from NAME(arguments)`.

A file's first line is `-- name(arg, other := default): what it answers`; what follows is one SELECT. They are loaded as
table macros when a store is opened, so the same text answers in the owner, through Quack and in a plain client.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

from store.errors import StoreError

if TYPE_CHECKING:
    import duckdb

_HEAD = re.compile(r"-- (?P<name>[a-z][a-z0-9_]*)\((?P<arguments>[^)]*)\): (?P<answers>.+)")
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """`arguments` as written between the brackets of the first line."""

    name: str
    arguments: str
    answers: str
    sql: str


def parse(text: str) -> NamedQuery:
    """The named query in a file's text. Raises ValueError if the first line does not say its name and answer."""
    head, _, body = text.partition("\n")
    m = _HEAD.fullmatch(head.strip())
    if not m:
        raise ValueError(f"not a named query: {head!r}")
    return NamedQuery(m["name"], m["arguments"].strip(), m["answers"], body.strip().rstrip(";"))


@lru_cache
def all_queries() -> tuple[NamedQuery, ...]:
    """Every named query, by name. The file's name is the query's."""
    found = []
    for path in sorted(Path(__file__).parent.glob("*.sql")):
        query = parse(path.read_text())
        if query.name != path.stem:
            raise ValueError(f"{path.name} holds the query {query.name}")
        found.append(query)
    return tuple(found)


def install(connection: duckdb.DuckDBPyConnection) -> None:
    """Create all named queries as table macros, and drop those that are no longer known. Raises StoreError."""
    import duckdb

    known = {q.name: q for q in all_queries()}
    words = {q.name: set(re.findall(_NAME, q.sql)) & known.keys() - {q.name} for q in known.values()}
    present = connection.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE NOT internal AND function_type = 'table_macro'"
    ).fetchall()
    statements = [f'DROP MACRO TABLE "{name}"' for (name,) in present if name not in known]
    for name in TopologicalSorter(words).static_order():  # one may stand on another
        q = known[name]
        statements.append(f"CREATE OR REPLACE MACRO {q.name}({q.arguments}) AS TABLE {q.sql}")
    connection.execute("BEGIN")
    for statement in statements:
        try:
            connection.execute(statement)
        except duckdb.Error as e:
            connection.execute("ROLLBACK")
            raise StoreError(f"{statement.partition('(')[0]}: {e}") from e
    connection.execute("COMMIT")


def literal(value: object) -> str:
    """A Python value as a DuckDB literal: the one place where text is quoted into SQL. Raises TypeError, ValueError.

    bool, int, float, str, None and lists of these. NUL cannot stand in SQL text and is refused.
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int():
            return str(int(value))
        case float():
            return f"{value!r}::DOUBLE" if math.isfinite(value) else f"'{value}'::DOUBLE"
        case str():
            if "\0" in value:
                raise ValueError("text with a NUL cannot be an argument of a query")
            return "'" + value.replace("'", "''") + "'"
        case list() | tuple():
            return "[" + ", ".join(literal(v) for v in value) + "]"
    raise TypeError(f"{type(value).__name__} cannot be an argument of a query")


def call(name: str, *args: object, **named: object) -> str:
    """The SQL that asks a named query: `from name(1, 'a', later := 2)`. Raises ValueError on a bad name."""
    for n in (name, *named):
        if not _NAME.fullmatch(n):
            raise ValueError(f"not a query or argument name: {n!r}")
    arguments: Sequence[str] = [*(literal(a) for a in args), *(f"{n} := {literal(v)}" for n, v in named.items())]
    return f"from {name}({', '.join(arguments)})"
