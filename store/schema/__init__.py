"""Numbered migrations, and the column types that a record's fields have in the store.

`NNNN_name.sql` takes a store from version NNNN - 1 to NNNN. A released file is never edited: a change is a new file.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from pathlib import Path

from store.records import Record

_SQL_TYPES: dict[object, str] = {int: "BIGINT", float: "DOUBLE", str: "VARCHAR", bool: "BOOLEAN"}


def _sql_type(annotation: object) -> str:
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        (annotation,) = (a for a in typing.get_args(annotation) if a is not types.NoneType)
    if typing.get_origin(annotation) is list:
        return f"{_SQL_TYPES[typing.get_args(annotation)[0]]}[]"
    return _SQL_TYPES[annotation]


_COLUMNS: dict[type[Record], dict[str, str]] = {}


def columns(record: type[Record]) -> dict[str, str]:
    """Column name -> DuckDB type of a record's table, in order."""
    if record not in _COLUMNS:
        hints = typing.get_type_hints(record)
        _COLUMNS[record] = {f.name: _sql_type(hints[f.name]) for f in dataclasses.fields(record)}
    return _COLUMNS[record]


def migrations(folder: Path | None = None) -> dict[int, Path]:
    """Version -> SQL file, ascending. Raises ValueError if a number is missing or doubled."""
    found = sorted((folder or Path(__file__).parent).glob("[0-9][0-9][0-9][0-9]_*.sql"))
    numbered = {int(p.name[:4]): p for p in found}
    if list(numbered) != list(range(1, len(found) + 1)):
        raise ValueError(f"migrations must be numbered 1, 2, 3 ... without a gap: {[p.name for p in found]}")
    return numbered
