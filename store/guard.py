"""What a watcher may ask: one SELECT over our tables, by an allow-list on DuckDB's own parse of the text.

Nothing here looks at the text itself: comments, quoting and encodings are DuckDB's parser's business, and whatever kind
of statement, table, function or syntax node is not named here is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from store.errors import Refused
from store.queries import all_queries
from store.records import all_records

if TYPE_CHECKING:
    import duckdb

MAX_SQL_CHARS = 100_000
MAX_DEPTH = 200

_EXPRESSIONS = frozenset((
    "BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION", "LAMBDA",
    "LAMBDA_REF", "OPERATOR", "POSITIONAL_REFERENCE", "STAR", "SUBQUERY", "WINDOW",
))  # fmt: skip
_QUERY_NODES = frozenset(("SELECT_NODE", "SET_OPERATION_NODE"))
_MODIFIERS = frozenset((
    "ORDER_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "DISTINCT_MODIFIER", "ORDER_DEFAULT", "ASCENDING",
    "DESCENDING",
))  # fmt: skip
_PLAIN_TABLES = frozenset(("EMPTY", "SUBQUERY", "JOIN", "EXPRESSION_LIST", "PIVOT"))
_NO_ORDER = {"type": "ORDER_MODIFIER"}
_TABLE_FUNCTIONS = frozenset(("unnest", "range", "generate_series", "json_each", "json_tree"))
# What a client's ATTACH reads, and what lets an operator find a column; the views of secrets and settings are not here.
_CATALOGUE = frozenset(("duckdb_tables", "duckdb_views", "duckdb_columns"))
_INFORMATION_SCHEMA = frozenset(("schemata", "tables", "columns"))


@cache
def harmless_functions() -> frozenset[str]:
    """The allow-list of functions, lower case (guard_functions.txt)."""
    text = Path(__file__).with_name("guard_functions.txt").read_text("utf-8")
    return frozenset(w for line in text.splitlines() if not line.startswith("#") for w in line.split())


@cache
def _tables() -> frozenset[str]:
    return frozenset({r.table for r in all_records()} | {"schema_version"})


@cache
def _macros() -> frozenset[str]:
    return frozenset(q.name for q in all_queries())


class Parser:
    """DuckDB's parser, on an empty database of its own. Thread-safe."""

    def __init__(self) -> None:
        import duckdb

        self._connection: duckdb.DuckDBPyConnection = duckdb.connect(config={"enable_external_access": False})
        self._local = threading.local()

    def parse(self, sql: str) -> Mapping[str, Any]:
        """The one statement's tree. Raises Refused if it is no single SELECT or does not parse."""
        if len(sql) > MAX_SQL_CHARS:
            raise Refused(f"a query longer than {MAX_SQL_CHARS} characters")
        cursor = getattr(self._local, "cursor", None)
        if cursor is None:
            cursor = self._local.cursor = self._connection.cursor()
        rows = cursor.execute(
            "SELECT json_serialize_sql(?::VARCHAR, skip_null := true, skip_empty := true, skip_default := true)", [sql]
        ).fetchall()
        try:
            tree = orjson.loads(rows[0][0])
        except orjson.JSONDecodeError as e:
            raise Refused("nested too deeply") from e
        if tree.get("error") is not False:
            raise Refused(str(tree.get("error_message", "not parsed")))
        statements = tree["statements"]
        if len(statements) != 1:
            raise Refused(f"{len(statements)} statements; one SELECT at a time")
        return dict(statements[0])


def owner_call(statement: Mapping[str, Any]) -> tuple[str, list[str]] | None:
    """(function, text arguments) if the statement is exactly `SELECT function('text', ...)`, else None."""
    if set(statement) != {"node"}:
        return None
    node = statement["node"]
    if set(node) != {"type", "select_list", "from_table", "aggregate_handling"}:
        return None
    if node["type"] != "SELECT_NODE" or node["from_table"] != {"type": "EMPTY"} or len(node["select_list"]) != 1:
        return None
    call = node["select_list"][0]
    if call["class"] != "FUNCTION" or not {*call} <= {
        "class", "type", "query_location", "function_name", "children", "order_bys", "alias",
    }:  # fmt: skip
        return None
    if call.get("order_bys", _NO_ORDER) != _NO_ORDER:
        return None
    arguments = []
    for child in call.get("children", ()):
        value = child.get("value", {}) if child["class"] == "CONSTANT" else {}
        if value.get("type", {}).get("id") != "VARCHAR" or not isinstance(value.get("value"), str):
            return None
        arguments.append(value["value"])
    return str(call["function_name"]).lower(), arguments


def check(statement: Mapping[str, Any]) -> None:
    """Raise Refused unless the parsed statement only reads our tables with harmless functions."""
    if not {*statement} <= {"node", "named_param_map"}:
        raise Refused(f"statement with {sorted(statement)}")
    _walk(statement["node"], frozenset(), 0)


def _walk(value: Any, ctes: frozenset[str], depth: int) -> None:
    if depth > MAX_DEPTH:
        raise Refused("nested too deeply")
    if isinstance(value, list):
        for v in value:
            _walk(v, ctes, depth + 1)
    elif isinstance(value, dict):
        if "class" in value:
            _expression(value, ctes, depth)
        elif isinstance(value.get("type"), str):
            _typed(value, ctes, depth)
        elif isinstance(value.get("type"), dict):
            return  # a constant's value
        else:
            _children(value.values(), ctes, depth)


def _children(values: Iterable[Any], ctes: frozenset[str], depth: int) -> None:
    for v in values:
        if isinstance(v, (dict, list)):
            _walk(v, ctes, depth + 1)


def _expression(e: dict[str, Any], ctes: frozenset[str], depth: int) -> None:
    kind = e["class"]
    if kind not in _EXPRESSIONS:
        raise Refused(f"{kind} in a query")
    if kind in {"FUNCTION", "WINDOW"}:
        name = str(e.get("function_name", "")).lower()
        if name not in harmless_functions():
            raise Refused(f"function {name}")
    if kind == "CONSTANT":
        return
    for key, v in e.items():
        if key == "cast_type":
            _type(v, depth)
        elif isinstance(v, (dict, list)):
            _walk(v, ctes, depth + 1)


def _type(t: Any, depth: int) -> None:
    # A type may hold other types and names, never an expression that is evaluated.
    if depth > MAX_DEPTH:
        raise Refused("nested too deeply")
    if isinstance(t, dict):
        if "class" in t:
            raise Refused("an expression in a type")
        for v in t.values():
            _type(v, depth + 1)
    elif isinstance(t, list):
        for v in t:
            _type(v, depth + 1)


def _typed(n: dict[str, Any], ctes: frozenset[str], depth: int) -> None:
    kind = n["type"]
    if kind in _QUERY_NODES:
        rest = dict(n)
        for entry in rest.pop("cte_map", {}).get("map", ()):
            # A name stands for its CTE only after its definition: inside it, it would mean a table of that name.
            _walk(entry["value"], ctes, depth + 1)
            ctes |= {str(entry["key"]).lower()}
        _children(rest.values(), ctes, depth)
    elif kind in _MODIFIERS or kind in _PLAIN_TABLES:
        _children(n.values(), ctes, depth)
    elif kind == "BASE_TABLE":
        _base_table(n, ctes)
        _children(n.values(), ctes, depth)
    elif kind == "TABLE_FUNCTION":
        _table_function(n["function"], ctes, depth)
        _children((v for k, v in n.items() if k != "function"), ctes, depth)
    elif kind == "SHOW_REF":
        if n.get("show_type") not in {"DESCRIBE", "SUMMARY"} or "query" not in n:
            raise Refused("SHOW")
        _walk(n["query"], ctes, depth + 1)
    else:
        raise Refused(f"{kind} in a query")


def _base_table(n: dict[str, Any], ctes: frozenset[str]) -> None:
    name, schema = str(n.get("table_name", "")).lower(), str(n.get("schema_name", "")).lower()
    if n.get("catalog_name"):
        raise Refused("a table of another catalogue")
    if schema == "information_schema" and name in _INFORMATION_SCHEMA:
        return
    if schema in {"", "main"} and (name in _tables() or name in _CATALOGUE):
        return
    if not schema and name in ctes:
        return
    raise Refused(f"table {schema + '.' if schema else ''}{name}")


def _table_function(f: dict[str, Any], ctes: frozenset[str], depth: int) -> None:
    name = str(f.get("function_name", "")).lower() if f.get("class") == "FUNCTION" else ""
    if name not in _TABLE_FUNCTIONS and name not in _CATALOGUE and name not in _macros():
        raise Refused(f"table function {name}")
    _children((v for v in f.values() if isinstance(v, list)), ctes, depth)
    order = f.get("order_bys")
    _walk(order, ctes, depth + 1)


class Guard:
    """Says whether a text may run. Answers are kept by text, since watchers ask the same few questions."""

    def __init__(self) -> None:
        self._parser = Parser()
        self._verdict = lru_cache(maxsize=2048)(self._judge)

    def _judge(self, sql: str) -> str | None:
        try:
            check(self._parser.parse(sql))
        except Refused as e:
            return str(e)
        return None

    def check(self, sql: str) -> None:
        """Raise Refused, naming what is refused, unless `sql` is one harmless SELECT over our tables."""
        if (reason := self._verdict(sql)) is not None:
            raise Refused(f"refused: {reason}")

    def owner_call(self, sql: str) -> tuple[str, list[str]] | None:
        """(function, text arguments) if `sql` is exactly `SELECT function('text', ...)`; None if it is not."""
        try:
            return owner_call(self._parser.parse(sql))
        except Refused:
            return None
