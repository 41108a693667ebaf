"""The splitter of server-sent events gives the same events however the network cuts the bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.payload import loadgen
from runners.payload.loadgen import EventSplitter, GenerationError


def split(*parts: bytes) -> list[tuple[bytes, bytes]]:
    splitter = EventSplitter()
    found = [event for part in parts for event in splitter.feed(part)]
    return found + splitter.close()


@pytest.mark.parametrize(
    ("raw", "events"),
    [
        (b'data: {"a":1}\n\n', [(b"", b'{"a":1}')]),
        (b"data:x\n\ndata: [DONE]\n\n", [(b"", b"x"), (b"", b"[DONE]")]),
        (b"data: x\r\n\r\ndata: y\r\n\r\n", [(b"", b"x"), (b"", b"y")]),
        (b"data: x\r\rdata: y\r\r", [(b"", b"x"), (b"", b"y")]),
        (b": ping\n\ndata: x\n\n", [(b"", b"x")]),
        (b": ping\ndata: x\n\n", [(b"", b"x")]),
        (b"data: one\ndata: two\n\n", [(b"", b"one\ntwo")]),
        (b"event: error\ndata: x\n\n", [(b"error", b"x")]),
        (b"id: 7\nretry: 10\ndata: x\n\n", [(b"", b"x")]),
        (b"id: 7\n\n\n\n", []),
        (b"\xef\xbb\xbfdata: x\n\n", [(b"", b"x")]),
        (b"data: x", [(b"", b"x")]),  # a stream that ends without its blank line
        (b"data:  two blanks\n\n", [(b"", b" two blanks")]),
        (b"datax: no\n\n", []),
    ],
)
def test_events_of_every_legal_form(raw: bytes, events: list[tuple[bytes, bytes]]) -> None:
    assert split(raw) == events
    assert split(*(raw[i : i + 1] for i in range(len(raw)))) == events


pieces = st.sampled_from(
    [
        b"data: ",
        b"data:",
        b"data",
        b"event: error",
        b": note",
        b"x",
        b"{}",
        b" ",
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"\xef\xbb\xbf",
    ]
)


@given(st.lists(pieces, max_size=25).map(b"".join), st.data())
@settings(max_examples=150)
def test_any_chunking_gives_the_same_events(raw: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    parts = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert split(*parts) == split(raw)


@given(st.binary(max_size=200), st.integers(1, 7))
@settings(max_examples=100)
def test_any_bytes_are_survived(raw: bytes, step: int) -> None:
    assert split(*(raw[i : i + step] for i in range(0, len(raw), step))) == split(raw)


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n"), min_size=1), max_size=6),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
@settings(max_examples=100)
def test_what_was_sent_comes_out(texts: list[str], newline: str) -> None:
    raw = "".join(f"data: {text}{newline}{newline}" for text in texts).encode()
    assert split(raw) == [(b"", text.encode()) for text in texts]


def test_an_event_without_an_end_is_refused_before_memory_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loadgen, "MAX_EVENT", 1000)
    with pytest.raises(GenerationError) as caught:
        split(*[b"data: " + b"x" * 100] * 20)
    assert caught.value.kind == "stream_error"
