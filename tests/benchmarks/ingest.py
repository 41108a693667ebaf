"""Rows a second into our real tables: candidate ways to insert, against one bulk COPY of the same rows.

    python -m tests.benchmarks.ingest [--rows N] [--repeats N]

Three tables: `log_lines` (mostly text), `gpu_samples` (wide), `requests` (lists of token times). Every way inserts the
same rows in chunks of a tick (1000 rows; 100 for requests), a transaction each; the peer is `COPY table FROM 'file'` in
one statement. The repeats are interleaved, so that a busy machine slows all ways alike; medians decide.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import numpy as np

from store.records import GpuSample, LogLine, Record, Request
from store.schema import columns
from store.writer import insert

Way = Callable[[duckdb.DuckDBPyConnection, type[Record], Sequence[Record]], None]


def log_lines(n: int) -> list[Record]:
    return [
        LogLine(
            run_id="20260101-d1", job_id=f"server-{i % 2}", node=f"node{i % 2}", rank=i % 2, stream="stderr",
            offset=i * 140, wall_ns=2**60 + i, level="INFO",
            text=f"(EngineCore pid={i}) INFO [loggers.py:127] Engine 000: Avg prompt throughput: {i} tokens/s, \"é\"",
        )
        for i in range(n)
    ]  # fmt: skip


def gpu_samples(n: int) -> list[Record]:
    r = random.Random(1)
    return [
        GpuSample(
            run_id="20260101-d1", node=f"node{i % 2}", wall_ns=2**60 + i, mono_ns=i, source="nvidia-smi", gpu=i % 8,
            uuid=f"GPU-{i % 8:032x}", name="NVIDIA H200", util_pct=r.random() * 100, mem_used_bytes=2**36 + i,
            mem_total_bytes=2**37, power_w=r.random() * 700, temp_c=r.random() * 90, pstate="P0", throttle="",
        )
        for i in range(n)
    ]  # fmt: skip


def requests(n: int) -> list[Record]:
    r = random.Random(2)
    return [
        Request(
            run_id="20260101-d1", attempt_id="a1", request_id=i, kind="load", phase="steady", measured=True,
            status="ok", isl=1024, osl=256, sent_ns=2**50 + i, first_ns=2**50 + i + 10, last_ns=2**50 + i + 20,
            prompt_tokens=1024, output_tokens=256, tokens_per_chunk="counted",
            chunk_ns=[r.randrange(2**34) for _ in range(256)], chunk_tokens=[1] * 256,
        )
        for i in range(n)
    ]  # fmt: skip


def by_json(cursor: duckdb.DuckDBPyConnection, kind: type[Record], rows: Sequence[Record]) -> None:
    """What the store does: orjson text, unnested by DuckDB."""
    insert(cursor, kind, rows)


def by_numpy(cursor: duckdb.DuckDBPyConnection, kind: type[Record], rows: Sequence[Record]) -> None:
    """A dict of numpy columns, scanned in place."""
    plain = {"BIGINT": np.int64, "DOUBLE": np.float64, "BOOLEAN": np.bool_}
    held: dict[str, np.ndarray[tuple[int], np.dtype[np.generic]]] = {}
    for name, sql_type in columns(kind).items():
        values = [getattr(r, name) for r in rows]
        if sql_type in plain:
            missing = [v is None for v in values]
            filled: np.ndarray[tuple[int], np.dtype[np.generic]] = np.array(
                [0 if v is None else v for v in values], dtype=plain[sql_type]
            )
            held[name] = np.ma.masked_array(filled, mask=missing)
        else:
            held[name] = np.empty(len(values), dtype=object)
            held[name][:] = values
    cursor.register("held", held)
    casts = ", ".join(f'"{n}"::{t}' for n, t in columns(kind).items())
    cursor.execute(f"INSERT INTO {kind.table} SELECT {casts} FROM held")
    cursor.unregister("held")


def by_unnest(cursor: duckdb.DuckDBPyConnection, kind: type[Record], rows: Sequence[Record]) -> None:
    """One list parameter a column."""
    lists = [[getattr(r, n) for r in rows] for n in columns(kind)]
    marks = ", ".join(f"unnest(?::{t}[])" for t in columns(kind).values())
    cursor.execute(f"INSERT INTO {kind.table} SELECT {marks}", lists)


def by_executemany(cursor: duckdb.DuckDBPyConnection, kind: type[Record], rows: Sequence[Record]) -> None:
    """One prepared INSERT a row."""
    names = columns(kind)
    cursor.executemany(
        f"INSERT INTO {kind.table} VALUES ({', '.join('?' * len(names))})",
        [[getattr(r, n) for n in names] for r in rows],
    )


WAYS: dict[str, Way] = {"json": by_json, "numpy": by_numpy, "unnest": by_unnest, "executemany": by_executemany}
SLOW_ROWS = 100
"""What the slow ways get to insert: at full length they take minutes."""


def database(folder: Path, name: str, kind: type[Record]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(str(folder / f"{name}-{time.time_ns()}.duckdb"), config={"threads": 2})
    named = ", ".join(f'"{n}" {t}' for n, t in columns(kind).items())
    connection.execute(f"CREATE TABLE {kind.table} ({named})")
    return connection


def insert_rate(folder: Path, name: str, rows: list[Record], tick: int) -> float:
    kind = type(rows[0])
    connection = database(folder, name, kind)
    began = time.perf_counter()
    for at in range(0, len(rows), tick):
        connection.execute("BEGIN")
        WAYS[name](connection, kind, rows[at : at + tick])
        connection.execute("COMMIT")
    took = time.perf_counter() - began
    counted = connection.execute(f"SELECT count(*) FROM {kind.table}").fetchall()[0][0]
    connection.close()
    if counted != len(rows):
        raise SystemExit(f"{name}: {counted} of {len(rows)} rows")
    return len(rows) / took


def copy_rate(folder: Path, form: str, rows: list[Record]) -> float:
    kind = type(rows[0])
    file = folder / f"{kind.table}.{form}"
    if not file.exists():
        source = database(folder, "source", kind)
        insert(source, kind, rows)
        source.execute(f"COPY {kind.table} TO '{file}'")
        source.close()
    connection = database(folder, form, kind)
    began = time.perf_counter()
    connection.execute(f"COPY {kind.table} FROM '{file}'")
    took = time.perf_counter() - began
    connection.close()
    return len(rows) / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    for make, share, tick in ((log_lines, 1, 1000), (gpu_samples, 1, 1000), (requests, 20, 100)):
        rows = make(options.rows // share)
        table = type(rows[0]).table
        rates: dict[str, list[float]] = {}
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for _ in range(options.repeats):
                for way in WAYS:
                    fewer = rows if way == "json" else rows[:SLOW_ROWS]
                    rates.setdefault(f"insert by {way}", []).append(insert_rate(folder, way, fewer, tick))
                for form in ("csv", "parquet"):
                    peer = f"COPY {table} FROM '{table}.{form}'"
                    rates.setdefault(peer, []).append(copy_rate(folder, form, rows))
        print(f"\n{table}: {len(columns(type(rows[0])))} columns, {len(rows)} rows, ticks of {tick}; rows/s")
        best = statistics.median(rates[f"COPY {table} FROM '{table}.csv'"])
        for what, seen in rates.items():
            middle = statistics.median(seen)
            each = "  ".join(f"{rate:>9,.0f}" for rate in seen)
            print(f"  {what:<44} {middle:>9,.0f}  ({each})  {middle / best:6.1%} of COPY from CSV")


if __name__ == "__main__":
    main()
