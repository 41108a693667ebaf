"""Clock offsets: the truth lies within the stated bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.nodes import clock
from runners.nodes.link import Channel, Link, NodeError
from runners.spec import Node
from tests.runners.nodes.ssh_server import bare_path


async def test_our_own_clock_is_no_way_off(link: Link) -> None:
    found = await clock.measure(link)
    assert abs(found.offset_ns) <= found.error_ns < 100_000_000
    assert found.mono_offset_ns is not None
    assert found.mono_error_ns is not None
    assert abs(found.mono_offset_ns) <= found.mono_error_ns < 100_000_000
    assert found.rounds == 16


async def test_a_shell_and_coreutils_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, near: Link) -> None:
    monkeypatch.setenv("PATH", bare_path(tmp_path / "bin", "/bin/sh"))
    found = await clock.measure(near, rounds=3)
    assert abs(found.offset_ns) <= found.error_ns


class Says:
    """A link whose node answers with these lines."""

    node = Node(name="odd", host="local")

    def __init__(self, line: bytes) -> None:
        self.line = line

    async def channel(self, command: str, ttl_s: float | None = None) -> Channel:
        return self

    async def read(self, limit: int = 0) -> bytes:
        return self.line

    async def write(self, data: bytes) -> None:
        pass

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("line", [b"", b"Permission denied\n", b"x 1.00 -\n", b"1\n", b"9" * 1000, b"\xff\xff\xff\n"])
async def test_nonsense_is_refused(line: bytes) -> None:
    with pytest.raises(NodeError) as e:
        await clock.measure(Says(line), rounds=2)  # type: ignore[arg-type]  # what measure uses of a link
    assert e.value.kind == "protocol"


async def test_a_node_without_a_monotonic_clock_to_read_has_none() -> None:
    found = await clock.measure(Says(b"1700000000000000000 - -\n"), rounds=2)  # type: ignore[arg-type]  # as above
    assert found.mono_offset_ns is None
    assert found.mono_error_ns is None


async def test_hundredths_of_uptime_bound_the_monotonic_clock() -> None:
    found = await clock.measure(Says(b"1700000000000000000 12.34 -\n"), rounds=1)  # type: ignore[arg-type]  # as above
    assert found.mono_error_ns is not None
    assert 5_000_000 <= found.mono_error_ns < 20_000_000
