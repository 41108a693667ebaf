"""Frames: however the stream is cut, each whole frame is read exactly once and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.probes import PROBES, ProbeContext, Reader
from runners.probes.base import MAX_FRAME, MAX_LINE
from runners.probes.logs import LogReader
from store.records import GpuSample, HostSample, Record

DATA = Path(__file__).parent.parent.parent / "data" / "probes"
CONTEXT = ProbeContext(run_id="r", node="node5", job_id="j", engine="vllm", wall_ns=1_800_000_000 * 10**9)
HOST_FRAMES = 3  # in host.frames
READERS: list[Reader] = [*PROBES.values(), LogReader()]


def read(reader: Reader, data: bytes, cuts: list[int]) -> tuple[list[Record], int]:
    """Feed `data` as a caller would: new bytes at each cut, offset committed after each call."""
    records: list[Record] = []
    skipped = done = 0
    for cut in [*sorted(cuts), len(data)]:
        final = cut == len(data)
        context = ProbeContext(
            run_id="r", node="node5", job_id="j", engine="vllm", offset=done, wall_ns=CONTEXT.wall_ns
        )
        parsed = reader.parse(data[done:cut], context, final)
        assert 0 <= parsed.consumed <= cut - done
        records += parsed.records
        skipped += parsed.skipped
        done += parsed.consumed
    assert done == len(data)
    return records, skipped


def samples(name: str) -> bytes:
    return (DATA / name).read_bytes()


@pytest.mark.parametrize("name", ["nvidia_healthy.frames", "nvidia_na.frames", "nvidia_lost.frames", "host.frames"])
def test_a_stream_cut_at_any_byte_gives_the_same_rows(name: str) -> None:
    data = samples(name)
    reader = PROBES[name.partition("_")[0].removesuffix(".frames")]
    whole = read(reader, data, [])
    assert whole[0]
    assert whole[1] == 0
    for cut in range(0, len(data), 1 if len(data) < 2000 else 37):
        assert read(reader, data, [cut]) == whole


def test_a_frame_that_breaks_off_costs_itself_only() -> None:
    frame = samples("nvidia_healthy.frames")
    records, skipped = read(PROBES["nvidia"], frame + frame[:700] + b"\n" + frame, [])
    assert len([r for r in records if isinstance(r, GpuSample)]) == 16
    assert skipped == 1


def test_a_stream_that_ends_within_a_frame_is_used_up_and_counted() -> None:
    frame = samples("host.frames")
    reader = PROBES["host"]
    waiting = reader.parse(frame[:-3], CONTEXT, final=False)
    ended = reader.parse(frame[:-3], CONTEXT, final=True)
    assert waiting.skipped == 0
    assert waiting.consumed < len(frame) - 3
    assert (ended.skipped, ended.consumed) == (1, len(frame) - 3)
    assert waiting.records == ended.records


def test_a_frame_or_a_line_without_end_does_not_hold_the_stream_up() -> None:
    good = samples("host.frames")
    endless = b"#frame host 1 1\n" + b"x" * (MAX_FRAME + MAX_LINE)
    records, skipped = read(PROBES["host"], endless + b"\n" + good, [1000, MAX_FRAME // 2, MAX_FRAME])
    assert [type(r) for r in records if isinstance(r, HostSample)] == [HostSample] * HOST_FRAMES
    assert skipped > 1


def test_text_between_frames_is_counted_by_line() -> None:
    good = samples("host.frames")
    records, skipped = read(PROBES["host"], b"sh: warning\n\nsomething\n" + good, [5])
    assert skipped == 2
    assert len([r for r in records if isinstance(r, HostSample)]) == HOST_FRAMES


def test_a_frame_of_another_probe_is_counted_not_guessed_at() -> None:
    parsed = PROBES["rails"].parse(samples("host.frames"), CONTEXT, final=True)
    assert parsed.records == []
    assert parsed.skipped == HOST_FRAMES


def test_an_event_says_where_in_the_stream_its_frame_begins() -> None:
    lost = samples("nvidia_lost.frames")
    records, _ = read(PROBES["nvidia"], lost + lost, [])
    assert {getattr(r, "offset", None) for r in records} == {0, len(lost)}


PIECES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([
        b"#frame host 1 2\n", b"#frame gpus 5 -\n", b"#frame rails 7 8\n", b"#frame metrics 9 9\n", b"#end\n", b"\n",
        b"==> /proc/stat <==\n", b"cpu  1 2 3 4 5 6 7 8 0 0\n", b"cpu0 1 2\n", b"==> mlx5_0/ports/1/state <==\n",
        b"index, uuid, power.draw [W]\n", b"0, GPU-1, 62,5 W\n", b"0, GPU-1, 62.5\n", b"vllm:num_requests_running 3\n",
        b"#rc 15\n", b"#frame host 99999999999999999999 1\n", b"#frame host 9999999999999999999 1\n",
        b"(EngineCore pid=9) INFO 11-29 17:20:01 [loggers.py:2] Engine 000: Avg prompt throughput: 4.0 tokens/s\n",
        b"[2026-11-29 17:20:01 TP0] Decode batch, #running-req: 4\n", b"torch.OutOfMemoryError: CUDA out of memory\n",
        b"[Errno 98] Address already in use\n", b"n:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] via NET/IB/0\n",
    ]),
)  # fmt: skip


@pytest.mark.parametrize("reader", READERS, ids=lambda r: r.name)
@given(pieces=st.lists(PIECES, max_size=12), cuts=st.lists(st.integers(0, 400), max_size=3))
@settings(max_examples=60, deadline=None)
def test_any_bytes_in_any_pieces_never_raise_and_read_the_same(
    reader: Reader, pieces: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(pieces)
    cuts = [min(cut, len(data)) for cut in cuts]
    assert read(reader, data, cuts) == read(reader, data, [])
