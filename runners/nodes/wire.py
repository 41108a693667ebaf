"""What both kinds of link share: how a command is wrapped, what its failure means, and whole files both ways."""

from __future__ import annotations

import asyncio
import os
import shlex
from pathlib import Path

from runners.nodes.link import MIB, Completed, Link, NodeError
from runners.spec import Node

# A shell start-up file may print on stdout before our command does; everything up to this line is not ours.
MARK = b"\x1etwinrail\n"
NOISE_LIMIT = MIB


def wrapped(node: Node, command: str, timeout: float | None = None) -> str:
    """The command line that is sent: become, a time limit that the node itself enforces, the mark, the command."""
    inner = f"printf '\\036twinrail\\n'; {command}"
    parts = [node.become] if node.become else []
    if timeout is not None:
        parts.append(f"timeout -k 2 {timeout + 5:.0f}")
    parts.append(f"sh -c {shlex.quote(inner)}")
    return "exec " + " ".join(parts)


def after_mark(stdout: bytes) -> bytes:
    """Output without whatever the shell's start-up files printed."""
    head, mark, rest = stdout.partition(MARK)
    return rest if mark else head


class MarkFilter:
    """Drops everything up to and including the mark from a stream of chunks."""

    def __init__(self) -> None:
        self._held: bytes | None = b""

    def __call__(self, data: bytes) -> bytes:
        if self._held is None:
            return data
        self._held += data
        _, mark, rest = self._held.partition(MARK)
        if mark:
            self._held = None
            return rest
        self._held = self._held[-NOISE_LIMIT:]
        return b""


def remote_failure(node: Node, what: str, done: Completed) -> NodeError:
    """The NodeError for a command of ours that failed on the node, by what its tools said."""
    said = printable(done.stderr or done.stdout)
    low = said.lower()
    where = f"{node.name}: {what}"
    if "no space left" in low or "quota exceeded" in low:
        return NodeError("space", f"{where}: the disk is full ({said}). Free space there or set another node.root.")
    if "a password is required" in low or "not in the sudoers" in low:
        return NodeError("permission", f"{where}: become needs a password ({said}). Allow it without one (NOPASSWD).")
    if "read-only file system" in low or "permission denied" in low or "operation not permitted" in low:
        return NodeError("permission", f"{where}: no right ({said}). Set node.root to a folder this user can write.")
    if "not found" in low or "no such file" in low:
        return NodeError("missing", f"{where}: something is missing there ({said}).")
    return NodeError("protocol", f"{where} failed with exit code {done.exit_code} ({said or 'it said nothing'}).")


def printable(raw: bytes, limit: int = 300) -> str:
    """The last `limit` characters of what a node said, on one line, without control characters."""
    text = " ".join(raw[-4 * limit :].decode("utf-8", "replace").split())
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)[-limit:]


# The size is checked before the rename: a link lost half-way looks like an early end of the input.
_PUT = """umask 077; p=%(path)s; d=$(dirname -- "$p"); t="$p.part.$$"
mkdir -p -- "$d" && cat >"$t" && [ "$(stat -c %%s -- "$t")" = %(size)d ] && chmod %(mode)o -- "$t" && mv -f -- "$t" "$p"
rc=$?; [ $rc = 0 ] || rm -f -- "$t"; exit $rc"""


async def put(link: Link, data: bytes, path: str, mode: int) -> None:
    """See Link.put."""
    script = _PUT % {"path": shlex.quote(path), "size": len(data), "mode": mode}
    done = await link.run(script, stdin=data, timeout=30.0 + len(data) / MIB)
    if done.exit_code != 0:
        raise remote_failure(link.node, f"writing {path}", done)


async def fetch(link: Link, path: str, target: Path) -> int:
    """See Link.fetch. While it runs the bytes are in `target` + ".part"."""
    name = shlex.quote(path)
    done = await link.run(f"stat -L -c %s -- {name} && head -c 0 -- {name}")
    if done.exit_code != 0:
        raise remote_failure(link.node, f"reading {path}", done)
    size = int(done.stdout)
    part = target.with_name(target.name + ".part")
    with await asyncio.to_thread(part.open, "wb") as out:
        while (at := out.tell()) < size:
            try:
                channel = await link.channel(f"tail -c +{at + 1} -- {name} | head -c {size - at}")
                try:
                    while data := await channel.read(MIB):
                        await asyncio.to_thread(out.write, data)
                finally:
                    await channel.close()
            except NodeError as e:
                if e.kind != "lost":
                    raise
                await asyncio.sleep(0.1)
                await link.up(timeout=None)
                continue
            if out.tell() < size:
                raise NodeError("missing", f"{link.node.name}: {path} became shorter while it was read.")
    await asyncio.to_thread(os.replace, part, target)
    return size
