"""Every kind: guessed from content, closed lists of columns and events, no exception on any bytes."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.formats import kinds, text
from runners.formats.base import Event, Kind, collect
from runners.formats.events import MEANINGS
from runners.formats.sglang_log import KEYS
from tests.runners.formats.samples import SHARED, Expected, expected, parsed
from tests.runners.formats.samples import text as sample_text


@pytest.mark.parametrize("item", expected(), ids=lambda item: item.file)
def test_kind_and_counts_of_every_sample(item: Expected) -> None:
    found = kinds.guess(sample_text(item.file)[:65536])
    assert found is not None
    assert found.name == item.kind
    result = parsed(item.file)
    assert (len(result.rows), len(result.events), result.skipped) == (item.rows, item.events, item.skipped)


@pytest.mark.parametrize("item", expected(), ids=lambda item: item.file)
def test_columns_and_events_are_the_documented_ones(item: Expected) -> None:
    kind = kinds.BY_NAME[item.kind]
    named = {column.name for column in kind.columns}
    nccl = {column.name for column in kinds.BY_NAME["nccl_log"].columns}
    result = parsed(item.file)
    for row in result.rows:
        if kind.name in ("mpstat", "pidstat", "sar"):  # open columns, by rule
            continue
        assert set(row) <= named | (nccl if "record" in row else set()), set(row) - named
    for event in result.events:
        assert event.name in MEANINGS
        assert event.name in kind.events


def test_names_are_unique_and_every_column_has_a_type() -> None:
    assert len(kinds.BY_NAME) == len(kinds.KINDS)
    types = {"text", "int", "float", "bool", "list", "map"}
    for kind in kinds.KINDS:
        assert all(column.type in types for column in kind.columns), kind.name
        assert set(kind.events) <= set(MEANINGS), kind.name


def test_every_column_that_a_batch_line_can_fill_is_documented() -> None:
    assert set(KEYS.values()) <= {column.name for column in kinds.BY_NAME["sglang_log"].columns}


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.name)
@settings(max_examples=12, deadline=None)
@given(raw=st.binary(max_size=400))
def test_any_bytes_are_read_without_an_exception(kind: Kind, raw: bytes) -> None:
    source = raw.decode("utf-8", "replace")
    kind.sniff(source)
    collect(kind.parse(source.splitlines()))


SAMPLES = {kind.name: [item.file for item in expected() if item.kind == kind.name] for kind in kinds.KINDS}


@pytest.mark.parametrize("kind", [kind for kind in kinds.KINDS if SAMPLES[kind.name]], ids=lambda kind: kind.name)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_damaged_samples_are_read_without_an_exception(kind: Kind, data: st.DataObject) -> None:
    source = sample_text(data.draw(st.sampled_from(SAMPLES[kind.name])))
    at = data.draw(st.integers(0, max(len(source) - 1, 0)))
    length = data.draw(st.integers(0, 40))
    junk = data.draw(st.text(max_size=20))
    collect(kind.parse((source[:at] + junk + source[at + length :]).splitlines()))


ROW_PER_LINE = [
    "vllm-log/engine-stats-v1-0.17-waiting-preempting.log",
    "sglang-log/decode-dp-tp-two-nodes.log",
    "nccl-log/vllm-ray-two-nodes-gdr-rail1.log",
    "nvidia-smi/dmon-h200-load.txt",
    "nvidia-smi/query-compute-apps-h200-load.csv",
    "sysfs/proc-net-dev.txt",
    "rdma/rdma-link-8-gpu-nics-renamed.txt",
    "nccl-tests/allreduce-2rank-gb10-v2.20.txt",
    "sar/n-dev-12h-am.txt",
    "hy-smi/k100-8card-busy-manual.txt",
    "dcgmi/dmon-mixed-units-na-first.txt",
]


@pytest.mark.parametrize("name", ROW_PER_LINE)
def test_a_cut_line_costs_that_line(name: str) -> None:
    kind = kinds.guess(sample_text(name))
    assert kind is not None
    lines = sample_text(name).splitlines()
    whole = collect(kind.parse(lines))
    last = max(at for at, line in enumerate(lines) if line.strip())
    short = [*lines[:last], lines[last][: len(lines[last]) * 2 // 3]]
    damaged = collect(kind.parse(short))
    assert len(damaged.rows) == len(whole.rows) - 1
    assert damaged.rows == whole.rows[:-1]
    assert damaged.skipped == whole.skipped + 1


def test_nothing_is_guessed_from_prose() -> None:
    assert kinds.guess("Dear colleague,\nthe run of yesterday was slow.\nRegards\n") is None
    assert kinds.guess("") is None
    assert kinds.guess("{}") is None
    assert kinds.guess('{"a": [1, 2]}') is None


def test_the_guess_ignores_order_noise_before_the_text() -> None:
    rng = random.Random(7)
    for item in expected():
        if kinds.BY_NAME[item.kind].long_lines or item.kind == "nvidia_smi_csv":
            continue
        blank = "\n" * rng.randrange(3)
        found = kinds.guess(blank + sample_text(item.file)[:60000])
        assert found is not None, item.file


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="the wide sample collection is not beside this checkout")
def test_every_shared_capture_has_a_kind_and_loses_no_line() -> None:
    refused = {"human.txt"}
    for path in sorted((SHARED / "raw").glob("*/*")):
        source = path.read_text(encoding="utf-8", errors="replace")
        kind = kinds.guess(source[:65536])
        assert kind is not None, path.name
        result = collect(kind.parse(source.splitlines()))
        assert result.skipped == 0 or path.name in refused, path.name


def test_control_characters_never_come_through() -> None:
    hostile = "\x1b]0;title\x07\x1b[31mnode:1:2 [0] NCCL INFO Using network \x9b31mIB\u202e\x00"
    assert text.clean(hostile) == "node:1:2 [0] NCCL INFO Using network IB"
    result = collect(kinds.BY_NAME["nccl_log"].parse([hostile]))
    assert all(value.isprintable() for row in result.rows for value in row.values() if isinstance(value, str))


HOSTILE = [
    "x" * 70_000,
    " " * 70_000 + "y",
    "1." * 35_000,
    "a: 1, " * 11_000,
    "/a" * 35_000,
    "\n " * 30_000,
    "# " * 30_000,
]


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.name)
def test_hostile_text_costs_no_more_than_its_length(kind: Kind) -> None:
    begun = time.process_time()
    for source in HOSTILE:
        kind.sniff(source[:65536])
        for item in kind.parse(source.split("\n")):
            assert not isinstance(item, Event) or len(str(item.detail)) < 10_000
    assert time.process_time() - begun < 5  # a quadratic pattern takes minutes
