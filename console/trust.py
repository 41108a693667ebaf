"""`twinrail trust NODE`: show a host key and, if accepted, remember it.

A key is accepted by a person at a terminal, or by a fingerprint that came another way (`--yes SHA256:...`, one for each
hop): never because nobody could be asked.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from runners.nodes.link import NodeError
from runners.spec import ConfigError, Node

if TYPE_CHECKING:
    from console.verbs import Place

MOST_HOPS = 10
USAGE = 2
_FINGERPRINT = re.compile(r"(?:SHA256:)?([A-Za-z0-9+/]{43})=?")


def run_trust(
    place: Place, name: str, fingerprints: Sequence[str], ssh_config: str | None, say: Callable[[str], None]
) -> int:
    """Exit code: 0 every key on the way is known, 1 one was not accepted, 2 nobody to ask, 3 not reached.

    Raises ConfigError for what is no fingerprint.
    """
    node = _node(place, name, ssh_config, say)
    if fingerprints:
        return asyncio.run(trusting(node, _by_fingerprint(fingerprints, say), say))
    if sys.stdin.isatty():
        return asyncio.run(trusting(node, _by_person, say))
    unasked: list[str] = []

    def nobody(question: str) -> bool:
        unasked.append(question)
        say(question)
        return False

    code = asyncio.run(trusting(node, nobody, say))
    if not unasked:
        return code
    say(
        "twinrail: there is no terminal to ask at. Get the fingerprint from the node itself (there: ssh-keygen -lf "
        f"/etc/ssh/ssh_host_ed25519_key.pub), then: twinrail trust {name} --yes SHA256:..."
    )
    return USAGE


def _node(place: Place, name: str, ssh_config: str | None, say: Callable[[str], None]) -> Node:
    """The configured node; before there is a configuration, a host as `ssh` knows it."""
    try:
        return place.inventory().node(name)
    except ConfigError as e:
        user, at, host = name.rpartition("@")
        if place.config is not None or place.demo or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:-]*", host):
            raise
        say(f"{str(e).rstrip('.')}: taking {name} for a host that `ssh` knows")
        return Node.model_validate(
            {"name": "node", "host": host, "user": user if at else None, "ssh_config": ssh_config}
        )


def _by_person(question: str) -> bool:
    import typer

    try:
        return typer.confirm(question, default=False, err=True)
    except typer.Abort:  # Ctrl-C, Ctrl-D
        return False


def _by_fingerprint(fingerprints: Sequence[str], say: Callable[[str], None]) -> Callable[[str], bool]:
    """Yes to keys of these fingerprints and to no other. Raises ConfigError."""
    wanted = set()
    for text in fingerprints:
        match = _FINGERPRINT.fullmatch(text.strip())
        if match is None:
            raise ConfigError(
                f"--yes {text!r} is no fingerprint: write SHA256: and 43 letters, as `ssh-keygen -lf KEY.pub` shows"
            )
        wanted.add(f"SHA256:{match[1]}")

    def known(question: str) -> bool:
        if wanted & set(question.split()):
            return True
        say(f"{question}\nNo: it is none of the fingerprints given with --yes ({', '.join(sorted(wanted))}).")
        return False

    return known


async def trusting(node: Node, ask: Callable[[str], bool], say: Callable[[str], None]) -> int:
    """Go through the host keys on the way to the node: jump hosts first, then the node.

    Args:
        node: as configured.
        ask: shows the question and returns the answer. Nothing is written unless it is True.
        say: for messages.

    Returns:
        0: every key on the way is known now (or was before); 1: one was not accepted; 3: the node cannot be reached.
    """
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
