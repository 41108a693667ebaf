"""The node lock: tells everybody who logs in to a node that a run is on, whose it is and until when.

It is advisory, shared by all users of the machine (a sticky folder under /tmp, see lock.sh) and expires with its
holder: a dead owner's claim counts for nothing after its time.
"""

from __future__ import annotations

import asyncio
import random
import re
import shlex
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from runners.nodes.jobs import SAFE_NAME, number
from runners.nodes.link import Link, NodeError
from runners.nodes.wire import printable, remote_failure
from runners.spec import user_name

LOCK_ROOT = "/tmp/twinrail-lock"
ROOT_VARIABLE = "TWINRAIL_LOCK_ROOT"  # in a node's env: another place, e.g. for nodes that share one machine


@dataclass(frozen=True, slots=True)
class Claim:
    """One run's claim on a node.

    Attributes:
        run_id: of the run.
        user: account on the node that made it, by the file system.
        who, host: the operator and the operator's machine, as they said.
        expires_s: epoch seconds by the node's clock.
    """

    run_id: str
    user: str
    who: str
    host: str
    expires_s: int


async def acquire(link: Link, run_id: str, ttl_s: int) -> Claim:
    """Claim the node for this run, or renew the run's own claim.

    Raises:
        NodeError: `held` when another run has it, with whose it is; or the link's errors.
    """
    ours = [_word(user_name()), _word(socket.gethostname())]
    claims, own = await _call(link, "lock_acquire", _run(run_id), str(ttl_s), *ours)
    if claims:  # two at once both withdraw: a second look tells a holder from such a twin
        await asyncio.sleep(random.uniform(0.1, 0.6))
        claims, own = await _call(link, "lock_acquire", _run(run_id), str(ttl_s), *ours)
    if claims:
        c = claims[0]
        raise NodeError(
            "held",
            f"{link.node.name}: run {c.run_id} of {c.who} ({c.user} there, from {c.host}) is on; its claim ends at "
            f"{c.expires_s} (epoch) unless renewed. Wait for it, or stop it where it was started.",
        )
    if own is None:
        raise NodeError("protocol", f"{link.node.name}: the claim of {run_id} was not made.")
    return own


async def extend(link: Link, run_id: str, ttl_s: int) -> Claim:
    """Renew the claim for `ttl_s` seconds from now. The same as acquiring it again."""
    return await acquire(link, run_id, ttl_s)


async def release(link: Link, run_id: str) -> None:
    """Give the node back. Nothing happens when the claim is gone already."""
    await _call(link, "lock_release", _run(run_id))


async def inspect(link: Link) -> list[Claim]:
    """The live claims on the node; usually none or one."""
    return (await _call(link, "lock_inspect"))[0]


@cache
def _script() -> str:
    return Path(__file__).with_name("lock.sh").read_text(encoding="utf-8")


def _run(run_id: str) -> str:
    if not SAFE_NAME.fullmatch(run_id):
        raise ValueError(f"not a run id: {run_id!r}")
    return run_id


def _word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._@-]", "_", text)[:64] or "unknown"


async def _call(link: Link, function: str, *args: str) -> tuple[list[Claim], Claim | None]:
    """Other runs' claims and our own."""
    root = link.node.env.get(ROOT_VARIABLE, LOCK_ROOT)
    text = f"{{\n{_script()}\nlock_enter {shlex.quote(root)}\n{function} {shlex.join(args)}\n}}\n"
    done = await link.run("exec sh", stdin=text.encode(), limit=64 * 1024)
    lines = done.stdout.decode("latin-1").split("\n")
    if done.exit_code != 0:
        raise remote_failure(link.node, f"the lock in {root}", done)
    if "end" not in lines:
        raise NodeError("protocol", f"{link.node.name}: a cut answer about its lock: {printable(done.stdout)}")
    claims: list[Claim] = []
    own: Claim | None = None
    for words in (line.split(" ") for line in lines):
        if len(words) != 6 or words[0] not in ("claim", "own") or (expires := number(words[3])) is None:
            continue
        name, user, who, host = (printable(w.encode("latin-1"), 120) for w in (words[1], words[2], words[4], words[5]))
        claim = Claim(name, user, who, host, expires)
        if words[0] == "own":
            own = claim
        else:
            claims.append(claim)
    return claims, own
