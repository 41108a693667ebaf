"""What every link promises, whatever it goes through."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from runners.nodes import wire
from runners.nodes.link import Completed, Link, LinkState, NodeError, open_link
from runners.spec import Node


async def test_a_command_gives_its_bytes_and_its_exit_code(link: Link) -> None:
    done = await link.run("cat; printf 'err\\377' >&2; exit 3", stdin=b"\x00\xff in\n")
    assert done == Completed(3, b"\x00\xff in\n", b"err\xff")


async def test_a_command_that_a_signal_ends_has_no_exit_code(link: Link) -> None:
    done = await link.run("kill -9 $$")
    assert done.exit_code is None or done.exit_code == 137  # `timeout` around it may tell it as 128 + 9


async def test_output_beyond_the_limit_is_dropped_and_flagged(link: Link) -> None:
    done = await link.run("head -c 3000000 /dev/zero; exit 5", limit=1000)
    assert (done.exit_code, len(done.stdout), done.truncated) == (5, 1000, True)
    exact = await link.run("head -c 1000 /dev/zero", limit=1000)
    assert (len(exact.stdout), exact.truncated) == (1000, False)


async def test_a_command_without_an_end_is_given_up(link: Link) -> None:
    began = time.monotonic()
    with pytest.raises(NodeError) as e:
        await link.run("sleep 30", timeout=0.3)
    assert e.value.kind == "timeout"
    assert "sleep 30" in str(e.value)
    assert time.monotonic() - began < 5


async def test_input_that_nobody_reads_is_no_error(link: Link) -> None:
    assert (await link.run("exit 4", stdin=b"x" * 1_000_000)).exit_code == 4


async def test_what_start_up_files_print_is_not_output(server: object, home: Path) -> None:
    assert wire.after_mark(b"Welcome to the cluster!\n" + wire.MARK + b"real") == b"real"
    strip = wire.MarkFilter()
    noisy = b"Welcome\n" + wire.MARK + b"real"
    assert b"".join(strip(noisy[i : i + 1]) for i in range(len(noisy))) == b"real"


async def test_a_channel_is_a_conversation(link: Link) -> None:
    channel = await link.channel('while read -r x; do echo "got $x"; done; printf bye')
    for word in (b"one", b"two"):
        await channel.write(word + b"\n")
        assert await channel.read() == b"got " + word + b"\n"
    await channel.close()


async def test_a_channel_ends_with_its_command(link: Link) -> None:
    channel = await link.channel("printf all")
    assert await channel.read() == b"all"
    assert await channel.read() == b""
    await channel.close()


async def test_a_file_is_put_whole_with_its_mode(link: Link) -> None:
    data = bytes(range(256)) * 5000
    await link.put(data, "deep/er/a 'file'", 0o640)
    done = await link.run("stat -c '%a %s' \"deep/er/a 'file'\"; ls deep/er")
    assert done.stdout == b"640 1280000\na 'file'\n"
    await link.put(b"short", "deep/er/a 'file'", 0o600)
    assert (await link.run("cat deep/er/*")).stdout == b"short"


async def test_a_cut_upload_leaves_nothing(link: Link) -> None:
    script = wire._PUT % {"path": "half", "size": 10, "mode": 0o644}
    done = await link.run(script, stdin=b"five!")
    assert done.exit_code != 0
    assert (await link.run("ls")).stdout.split() == []


async def test_a_place_without_the_right_to_write_is_named(link: Link) -> None:
    with pytest.raises(NodeError) as e:
        await link.put(b"x", "/proc/nothing/here", 0o644)
    assert link.node.name in str(e.value)
    assert "/proc/nothing/here" in str(e.value)


async def test_a_file_is_fetched_byte_for_byte(link: Link, tmp_path: Path) -> None:
    await link.run("seq 1 300000 >numbers")
    size = await link.fetch("numbers", tmp_path / "got")
    expected = b"".join(b"%d\n" % i for i in range(1, 300001))
    assert (tmp_path / "got").read_bytes() == expected
    assert size == len(expected)
    assert not (tmp_path / "got.part").exists()


async def test_fetching_what_is_not_there_says_so(link: Link, tmp_path: Path) -> None:
    with pytest.raises(NodeError) as e:
        await link.fetch("nothing", tmp_path / "got")
    assert e.value.kind == "missing"


async def test_become_runs_everything_through_it(home: Path) -> None:
    (home / "become").write_text('#!/bin/sh\nexport BECAME=yes\nexec "$@"\n')
    (home / "become").chmod(0o755)
    link = open_link(Node(name="near", host="local", become=f"{home}/become"))
    assert (await link.run("echo $BECAME")).stdout == b"yes\n"
    channel = await link.channel("echo $BECAME")
    assert await channel.read() == b"yes\n"
    await channel.close()
    await link.put(b"x", "made", 0o644)
    await link.close()


async def test_a_closed_link_refuses(link: Link) -> None:
    await link.close()
    assert link.state is LinkState.CLOSED
    with pytest.raises(NodeError) as e:
        await link.run("true")
    assert e.value.kind == "closed"


async def test_many_commands_at_once_share_the_link(link: Link) -> None:
    done = await asyncio.gather(*[link.run(f"sleep 0.1; echo {i}") for i in range(30)])
    assert [int(d.stdout) for d in done] == list(range(30))


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (b"cat: write error: No space left on device", "space"),
        (b"mkdir: cannot create directory '/x': Permission denied", "permission"),
        (b"touch: cannot touch 'x': Read-only file system", "permission"),
        (b"sudo: a password is required", "permission"),
        (b"sh: 1: setsid: not found", "missing"),
        (b"\x1b[2Jodd\x07", "protocol"),
    ],
)
def test_failures_are_told_apart_and_printable(said: bytes, kind: str) -> None:
    error = wire.remote_failure(Node(name="n", host="local"), "writing x", Completed(1, b"", said))
    assert error.kind == kind
    assert str(error).isprintable()
