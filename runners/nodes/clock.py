"""How far a node's clocks are from ours.

Measured over a channel that is already open: opening one for each probe would add half of its own round trip to the
result. Of many round trips the fastest counts (Cristian's algorithm: F. Cristian, "Probabilistic clock
synchronization", Distributed Computing 3, 1989): the node read its clock somewhere inside it, so the offset lies
within half of its length.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from runners.nodes.link import Channel, Link, NodeError
from runners.nodes.wire import printable

ANSWER_S = 10.0
UPTIME_STEP_NS = 10_000_000  # /proc/uptime counts in hundredths

# One line for each line: wall clock (ns), then what is there for the monotonic clock. /proc/timer_list says
# CLOCK_MONOTONIC to the ns, to root only; /proc/uptime is CLOCK_BOOTTIME in 10 ms steps (the same unless suspended).
_SERVER = """while read -r _; do
  w=$(date +%s%N) m=-
  { read -r u _ </proc/uptime; } 2>/dev/null || u=-
  if { read -r _ && read -r _ && read -r _ _ n _; } 2>/dev/null </proc/timer_list; then m=$n; fi
  echo "$w $u $m"
done"""


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """Node clock minus our clock, in ns.

    Attributes:
        offset_ns: of the wall clocks (CLOCK_REALTIME).
        error_ns: the true wall offset lies within offset_ns +- error_ns: half of the best round trip.
        mono_offset_ns: of the monotonic clocks (CLOCK_MONOTONIC); None where the node shows none.
        mono_error_ns: ditto; about error_ns for root, some ms for a plain user.
        wall_ns: our wall clock at the measurement.
        rounds: round trips made.
    """

    offset_ns: int
    error_ns: int
    mono_offset_ns: int | None
    mono_error_ns: int | None
    wall_ns: int
    rounds: int


async def measure(link: Link, rounds: int = 16) -> ClockOffset:
    """Open a channel, ask `rounds` times, close it. Raises NodeError."""
    channel = await link.channel(_SERVER, ANSWER_S + rounds)
    try:
        async with asyncio.timeout(ANSWER_S + rounds):
            return await _measure(link, channel, rounds)
    except TimeoutError as e:
        raise NodeError("timeout", f"{link.node.name}: no answer about its clock.") from e
    finally:
        await channel.close()


async def _measure(link: Link, channel: Channel, rounds: int) -> ClockOffset:
    best: tuple[int, int] | None = None  # round trip, wall offset
    exact: tuple[int, int] | None = None  # round trip, monotonic offset
    low, high = -(1 << 63), 1 << 63  # bounds of the offset of the coarse monotonic clock
    await _ask(link, channel)  # the first answer waits for the shell to start
    for _ in range(rounds):
        wall0, mono0 = time.time_ns(), time.monotonic_ns()
        wall, uptime, mono = await _ask(link, channel)
        mono1 = time.monotonic_ns()
        trip = mono1 - mono0
        if best is None or trip < best[0]:
            best = trip, wall - (wall0 + trip // 2)
        if mono is not None and (exact is None or trip < exact[0]):
            exact = trip, mono - (mono0 + trip // 2)
        if uptime is not None:  # the true value was in [uptime, uptime + step) at some moment of the round trip
            low, high = max(low, uptime - mono1), min(high, uptime + UPTIME_STEP_NS - mono0)
    assert best is not None
    mono_offset: int | None = None
    mono_error: int | None = None
    if exact is not None:
        mono_offset, mono_error = exact[1], exact[0] // 2 + 1
    elif low < high and high - low < 1 << 62:
        mono_offset, mono_error = (low + high) // 2, (high - low) // 2 + 1
    return ClockOffset(best[1], best[0] // 2 + 1, mono_offset, mono_error, time.time_ns(), rounds)


async def _ask(link: Link, channel: Channel) -> tuple[int, int | None, int | None]:
    """Wall ns, uptime ns, monotonic ns."""
    await channel.write(b"\n")
    line = b""
    while not line.endswith(b"\n"):
        data = await channel.read()
        if not data or len(line) > 200:
            raise NodeError("protocol", f"{link.node.name}: not an answer about its clock: {printable(line)}")
        line += data
    words = line.decode("latin-1").split()
    try:
        wall, uptime, mono = words
        return int(wall), _hundredths(uptime), None if mono == "-" else int(mono)
    except ValueError as e:
        raise NodeError("protocol", f"{link.node.name}: not an answer about its clock: {printable(line)}") from e


def _hundredths(uptime: str) -> int | None:
    if uptime == "-":
        return None
    seconds, _, rest = uptime.partition(".")
    return int(seconds) * 1_000_000_000 + int(rest) * UPTIME_STEP_NS
