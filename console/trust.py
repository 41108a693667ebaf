"""`twinrail trust NODE`: show a host key and, if accepted, remember it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from runners.nodes.link import NodeError
from runners.spec import Node

MOST_HOPS = 10


def trust(node: Node, ask: Callable[[str], bool], say: Callable[[str], None]) -> int:
    """Go through the host keys on the way to the node: jump hosts first, then the node.

    Args:
        node: as configured.
        ask: shows the question and returns the answer. Nothing is written unless it is True.
        say: for messages.

    Returns:
        0: every key on the way is known now (or was before); 1: one was not accepted; 3: the node cannot be reached.
    """
    return asyncio.run(trusting(node, ask, say))


async def trusting(node: Node, ask: Callable[[str], bool], say: Callable[[str], None]) -> int:
    """See trust."""
    if node.host == "local":
        say(f"{node.name} is this machine: there is no host key to trust.")
        return 0
    from runners.nodes.dial import HostKeyError, dial  # asyncssh costs 0.3 s to import

    for _ in range(MOST_HOPS):
        try:
            (await dial(node)).close()
        except HostKeyError as e:
            if not ask(_question(e.name, e.shown, str(e.file), changed=e.changed)):
                say(f"{e.name} was not accepted. Nothing was written.")
                return 1
            try:
                await asyncio.to_thread(remember, os.fspath(e.file), e.line)
            except OSError as why:
                say(f"cannot write {e.file}: {why}")
                return 3
            say(f"{e.name} is remembered in {e.file}.")
            if e.changed:
                say(
                    f"The old key is still in there; remove what you do not trust: ssh-keygen -f {e.file} -R '{e.name}'"
                )
        except NodeError as e:
            if e.kind == "auth":  # comes after the host key: that one is known
                say(f"The host keys are known. {e}")
                return 0
            say(str(e))
            return 3
        else:
            say(f"{node.name}: the host keys are known, and the login works.")
            return 0
    say(f"{node.name}: still an unknown host key after {MOST_HOPS} accepted ones.")
    return 3


def _question(name: str, shown: str, file: str, *, changed: bool) -> str:
    kind = "has CHANGED its host key. It is now" if changed else "shows a host key that is not known here:"
    return f"{name} {kind}\n  {shown}\nCompare it with what the node's administrator says. Remember it in {file}?"


def remember(file: str, line: str) -> None:
    """Append one line to a known_hosts file, making it if need be. Raises OSError."""
    os.makedirs(os.path.dirname(file) or ".", mode=0o700, exist_ok=True)
    fd = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(fd, "r+b") as out:
        ends_open = out.seek(0, os.SEEK_END) > 0 and (out.seek(-1, os.SEEK_END), out.read(1))[1] != b"\n"
        out.write((b"\n" if ends_open else b"") + line.encode() + b"\n")
