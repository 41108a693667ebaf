"""Batch lines read together give the rows that each gives alone, damaged ones included."""

from __future__ import annotations

import re

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.formats.base import collect
from runners.formats.engine_log import parse_sglang, shapes_of
from runners.formats.sglang_batches import texts_of
from runners.formats.sglang_log import parse_line
from tests.runners.formats.samples import CAPTURES

NAMES = (
    "v0.5.23-real",
    "prefill-decode-single-0.5.9",
    "decode-dp-tp-two-nodes",
    "prefill-decode-npu-spec-pending-token",
)
LINES = [
    line
    for name in NAMES
    for line in (CAPTURES / "sglang-log" / f"{name}.log").read_text().splitlines()
    if " batch" in line
]


def rows_of(lines: list[str]) -> list[dict[str, object] | None]:
    return [orjson.loads(text) if text else None for text in texts_of(lines, shapes_of(lines))]


def alone(line: str) -> dict[str, object] | None:
    item = parse_line(line)
    return {key: value for key, value in item.items() if value is not None} if isinstance(item, dict) else None


def typed(row: dict[str, object]) -> dict[str, object]:
    return {key: (type(value), value) for key, value in row.items() if value is not None}


def test_most_of_todays_lines_are_read_together() -> None:
    plain = [line for line in LINES if line.startswith("[2026-11-29")]
    rows = rows_of(plain)
    assert len(plain) > 5
    assert all(row is not None for row in rows)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_together_as_alone(data: st.DataObject) -> None:
    lines = data.draw(st.lists(st.sampled_from(LINES), min_size=2, max_size=8))
    at = data.draw(st.integers(0, len(lines) - 1))
    place = data.draw(st.integers(0, len(lines[at])))
    junk = data.draw(st.text(alphabet="0123456789.:, -TFe#]\n\té", max_size=22))
    cut = data.draw(st.integers(0, 3))
    lines[at] = lines[at][:place] + junk + lines[at][place + cut :]
    for line, row in zip(lines, rows_of(lines), strict=True):
        if row is not None:
            single = alone(line)
            assert single is not None, line
            assert typed(row) == typed(single), line


def test_a_digit_in_a_key_does_not_stand_in_for_a_missing_value() -> None:
    line = next(line for line in LINES if ", #token: " in line and line.startswith("[2026-11-29"))
    assert rows_of([line])[0] is not None
    damaged = re.sub(r"token usage: [\d.]+, (.)", r"token usage: ., 1\g<1>", line)
    assert rows_of([line, damaged])[1] is None
    emptied = re.sub(r"#token: \d+, t", "#token: , 7t", line)
    assert rows_of([line, emptied])[1] is None


def test_a_number_beyond_64_bits_stays_whole() -> None:
    line = next(line for line in LINES if ", #token: " in line and line.startswith("[2026-11-29"))
    long = line.replace("#token: ", "#token: 123456789012345678901")
    rows = collect(parse_sglang([line, long])).rows
    assert str(rows[1]["kv_tokens"]).startswith("123456789012345678901")
