"""Rows to test on: one of every record, and requests with token times."""

from __future__ import annotations

import dataclasses
import random
import typing
from typing import Any

from store.records import Attempt, Phase, Record, Request, all_records
from store.schema import columns

RUN, ATTEMPT = "r1", "a1"
MS = 1_000_000
START = 5_000_000_000_000  # the client's monotonic clock when the first request goes out


def one_of_each(number: int = 1) -> list[Record]:
    """A filled row for every table; ids are r1, a1, n1 ... so that they meet in joins."""
    return [_filled(kind, number) for kind in all_records()]


def _filled(kind: type[Record], number: int) -> Record:
    values: dict[str, Any] = {}
    for name, sql_type in columns(kind).items():
        ident = {"run_id": f"r{number}", "attempt_id": f"a{number}", "node": f"n{number}", "life_id": f"l{number}"}
        values[name] = ident.get(name) or {
            "BIGINT": 2**60 + number if name.endswith("_ns") else number,
            "DOUBLE": number + 0.1,
            "VARCHAR": f"{name} {number}",
            "BOOLEAN": True,
            "BIGINT[]": [number, 2**62],
            "VARCHAR[]": [f"{name}", "'\"\\"],
        }.get(sql_type, number)
        if name == "job_id":
            values[name] = f"j{number}"
    return kind(**values)


def load(seed: int, requests: int = 60, chunks: int = 40) -> list[Record]:
    """An attempt with warm-up, ramp, steady and filler requests; some failed, cut, timed out, or of one token."""
    r = random.Random(seed)
    steady = START + 900 * MS
    rows: list[Record] = [
        Attempt(attempt_id=ATTEMPT, run_id=RUN, ordinal=1, case_name="D1", concurrency=8),
        Phase(attempt_id=ATTEMPT, run_id=RUN, name="steady", start_mono_ns=steady),
    ]
    for i in range(requests):
        sent = START + i * 61 * MS + r.randrange(MS)
        kind, phase, measured = "load", "steady" if sent >= steady else "ramp", True
        if i < 5:
            kind, phase, measured, sent = "warmup", "warmup", False, START - 3000 * MS + i * MS
        elif i >= requests - 8:
            kind, measured = "filler", False
        status = r.choices(["ok", "failed", "timed_out", "cut"], [0.85, 0.05, 0.05, 0.05])[0]
        n = r.choice([1, 2, chunks]) if status == "ok" else r.randrange(chunks)
        times, at = [], 0
        for _ in range(n):
            at += r.randrange(MS, 40 * MS)
            times.append(at)
        tokens = [r.choice([0, 1, 1, 1, 3]) for _ in times]
        rows.append(
            Request(
                run_id=RUN,
                attempt_id=ATTEMPT,
                request_id=i,
                kind=kind,
                phase=phase,
                measured=measured,
                status=status,
                sent_ns=sent,
                first_ns=sent + times[0] if times else None,
                last_ns=sent + times[-1] if times else None,
                end_ns=sent + at + r.randrange(MS),
                prompt_tokens=r.randrange(50, 200) if times else None,
                output_tokens=sum(tokens) if status == "ok" else None,
                tokens_per_chunk="counted",
                chunk_ns=times,
                chunk_tokens=tokens,
            )
        )
    return rows


def as_row(record: Record) -> tuple[Any, ...]:
    """A record as the row that a query gives back."""
    return tuple(getattr(record, f.name) for f in dataclasses.fields(record))


def sql_type(annotation: object) -> str:
    """The column type that an annotation stands for, told apart from store.schema's way of doing it."""
    names = {"int": "BIGINT", "float": "DOUBLE", "str": "VARCHAR", "bool": "BOOLEAN"}
    text = str(annotation) if typing.get_args(annotation) else getattr(annotation, "__name__", str(annotation))
    text = text.replace(" | None", "").replace("list[", "").replace("]", "*")
    return names[text.rstrip("*")] + ("[]" if text.endswith("*") else "")
