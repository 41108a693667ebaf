from __future__ import annotations

import typing
from pathlib import Path

import pytest

from store.database import Store
from store.records import Record, all_records
from store.schema import migrations
from tests.store.samples import sql_type


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, list[tuple[str, str]]]:
    with Store.open(tmp_path / "s.duckdb") as store:
        rows = store.query(
            "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal "
            "ORDER BY table_name, column_index"
        ).rows
    found: dict[str, list[tuple[str, str]]] = {}
    for table, column, kind in rows:
        found.setdefault(table, []).append((column, kind))
    return found


@pytest.mark.parametrize("record", all_records(), ids=lambda r: r.table)
def test_a_record_is_its_table_column_by_column(record: type[Record], tables: dict[str, list[tuple[str, str]]]) -> None:
    hints = typing.get_type_hints(record)
    fields = [n for c in reversed(record.__mro__) for n in getattr(c, "__slots__", ())]
    assert tables[record.table] == [(name, sql_type(hints[name])) for name in fields]


def test_no_table_is_without_a_record(tables: dict[str, list[tuple[str, str]]]) -> None:
    assert set(tables) == {r.table for r in all_records()} | {"schema_version"}


def test_every_table_says_what_a_row_is(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.duckdb") as store:
        silent = store.query("SELECT table_name FROM duckdb_tables() WHERE coalesce(comment, '') = ''").rows
    assert silent == []


def test_a_gap_in_the_migrations_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "0001_a.sql").touch()
    (tmp_path / "0003_b.sql").touch()
    with pytest.raises(ValueError, match="without a gap"):
        migrations(tmp_path)
