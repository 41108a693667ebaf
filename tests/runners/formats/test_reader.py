"""Files as lines: any chunking gives the same lines; endless lines cost their limit, not their length."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.formats import jsontext, kinds, reader, text
from runners.formats.base import collect
from tests.runners.formats.samples import text as sample_text


def read(raw: bytes, head: int, limit: int, noise: bytes = b"") -> tuple[list[str], int]:
    counted = reader.Counted()
    blocks = reader._blocks(io.BytesIO(raw[head:]), raw[:head], limit, noise, counted)
    return [line for block in blocks for line in block], counted.cut_lines


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=12).filter(lambda line: b"\n" not in line), max_size=12), st.data())
def test_lines_do_not_depend_on_the_chunks(parts: list[bytes], data: st.DataObject) -> None:
    raw = b"\n".join(parts)
    head, size, limit = (data.draw(st.integers(0, 20)), data.draw(st.integers(1, 9)), data.draw(st.integers(1, 30)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "CHUNK", size)
        lines, cut = read(raw, head, limit)
    decoded = [part.decode("utf-8", "replace") for part in parts]
    plain = [line for line in lines if line]
    assert len(plain) == len([line for line in decoded if line])
    for line, whole in zip(plain, filter(None, decoded), strict=True):
        assert line == whole or (line.endswith(text.CUT_MARK) and cut)
    assert cut >= sum(len(line) > limit for line in decoded)


class Endless(io.RawIOBase):
    """200 MB without a line end, made as it is read."""

    left = 200 << 20

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        size = min(size, self.left)
        self.left -= size
        return b"x" * size


def test_an_endless_line_needs_the_memory_of_its_limit() -> None:
    counted = reader.Counted()

    def lines() -> Iterator[str]:
        yield from reader.lines(Endless(), b"first\n", False, b"", counted)  # type: ignore[arg-type]  # bytes only

    tracemalloc.start()
    try:
        found = [len(line) for line in lines()]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [size for size in found if size] == [5, text.MAX_LINE + len(text.CUT_MARK)]
    assert counted.cut_lines == 1
    assert peak < 4 << 20


@settings(max_examples=150, deadline=None)
@given(
    st.recursive(
        st.none() | st.integers(-9, 9) | st.text(alphabet='ab"\\[]{}é', max_size=6),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('k"{', max_size=3), inner, max_size=3),
        max_leaves=12,
    ),
    st.data(),
)
def test_json_that_was_cut_is_closed_at_a_whole_element(value: object, data: st.DataObject) -> None:
    whole = json.dumps([value, [1], value], ensure_ascii=False)
    assert jsontext.closed(whole) == whole
    made = jsontext.closed(whole[: data.draw(st.integers(0, len(whole)))])
    assert made == "" or jsontext.loads(made) is not None


ROWS_OF_LINES = {
    "vllm-log/engine-stats-v1-0.17-waiting-preempting.log": "throughput",
    "vllm-log/engine-stats-v1-deferred-external-spec.log": "throughput",
    "sglang-log/decode-dp-tp-two-nodes.log": " batch",
    "sglang-log/v0.5.23-real.log": " batch",
    "nccl-log/vllm-ray-two-nodes-gdr-rail1.log": "Channel",
    "rdma/rdma-link-8-gpu-nics-renamed.txt": "link",
    "dcgmi/dmon-mixed-units-na-first.txt": "GPU ",
    "nvidia-smi/dmon-h200-load.txt": "    ",
    "nccl-tests/allreduce-2rank-gb10-v2.20.txt": "float",
}


@pytest.mark.parametrize("name", ROWS_OF_LINES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_mutated_line_costs_that_line(name: str, data: st.DataObject) -> None:
    lines = sample_text(name).splitlines()
    kind = kinds.guess("\n".join(lines)[:65536])
    assert kind is not None
    rows = [at for at, line in enumerate(lines) if ROWS_OF_LINES[name] in line and not line.startswith("#")]
    at = data.draw(st.sampled_from(rows))
    line = lines[at]
    begin = data.draw(st.integers(0, len(line)))
    junk = data.draw(
        st.text(alphabet=st.characters(exclude_characters="\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), max_size=12)
    )
    changed = line[:begin] + junk + line[begin + data.draw(st.integers(0, 30)) :]
    rest = collect(kind.parse([*lines[:at], *lines[at + 1 :]])).rows
    found = collect(kind.parse([*lines[:at], changed, *lines[at + 1 :]])).rows
    assert len(found) in (len(rest), len(rest) + 1)
    differing = next((i for i, row in enumerate(rest) if found[i] != row), len(rest))
    assert found[:differing] + found[len(found) - len(rest) + differing :] == rest
