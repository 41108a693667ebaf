"""Incidents: equal lines of many ranks are one event with a rank list and a count; causes stand before echoes.

Folding is incremental and bounded, so that a flood costs one incident. Possible causes never become causes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from runners.formats.base import Event, Value

WINDOW_S: Final = 300  # equal lines further apart than this are two incidents
MAX_INCIDENTS: Final = 10_000
PRECEDENCE: Final = ("OOM", "ENGINE_CRASH", "START_FAILED")  # DESIGN section 3

_VARYING = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")
_TIME = re.compile(r"(?:\d{4}-)?(?:(\d\d)-(\d\d)[T ])?(\d\d):(\d\d):(\d\d)")
_UNFOLDED: Final = frozenset({"start_stage", "ready"})


def seconds_of(time: str | None) -> int | None:
    """A line's own time as seconds for differences within one log (months count as 31 days), None when unreadable."""
    match = _TIME.search(time or "")
    if match is None:
        return None
    days = int(match[1]) * 31 + int(match[2]) if match[1] else 0
    return ((days * 24 + int(match[3])) * 60 + int(match[4])) * 60 + int(match[5])


@dataclass(slots=True)
class _Open:
    event: Event
    ranks: set[int]
    nodes: dict[str, None]
    count: int
    last: str | None
    latest: Event
    sums: dict[str, float] = field(default_factory=dict)
    own: set[tuple[str | None, str | None]] = field(default_factory=set)


@dataclass(slots=True)
class Incidents:
    """Collects events; `result` gives the folded list."""

    order: list[_Open] = field(default_factory=list)
    latest: dict[tuple[str, str], _Open] = field(default_factory=dict)
    dropped: int = 0

    def add(self, event: Event) -> None:
        """Fold one event into the incident that it repeats, or open a new one."""
        line = str(event.detail.get("line", ""))
        key = (event.name, _VARYING.sub("#", line)[:200])
        held = self.latest.get(key) if event.name not in _UNFOLDED else None
        repeated = int(event.detail.get("repeated") or 1)
        if held is not None and _near(held.last, event.time):
            self._repeat(held, event, repeated)
            return
        if len(self.order) >= MAX_INCIDENTS:
            self.dropped += 1
            return
        held = _Open(
            event,
            {event.rank} if event.rank is not None else set(),
            {event.node: None} if event.node else {},
            repeated,
            event.time,
            event,
        )
        held.own.add((event.time, line))
        if isinstance(event.detail.get("requests"), int):
            held.sums["requests"] = event.detail["requests"]
        self.order.append(held)
        self.latest[key] = held

    def _repeat(self, held: _Open, event: Event, repeated: int) -> None:
        held.count += repeated
        if event.rank is not None:
            held.ranks.add(event.rank)
        if event.node and len(held.nodes) < 64:
            held.nodes[event.node] = None
        own = (event.time, str(event.detail.get("line", "")))
        requests = event.detail.get("requests")
        # The same retraction is told by every rank: count one of the equal lines.
        if isinstance(requests, int) and own not in held.own:
            held.sums["requests"] = held.sums.get("requests", 0) + requests
        if len(held.own) < 4096:
            held.own.add(own)
        held.last = event.time or held.last
        held.latest = event

    def result(self) -> list[Event]:
        """Folded events in order; echoes that came before the first cause are moved behind it and name it."""
        events = [_folded(held) for held in self.order]
        first = next((event for event in events if _is_cause(event)), None)
        if first is None:
            return events
        at = next(index for index, event in enumerate(events) if event is first)
        early = [event for event in events[:at] if event.detail.get("role") == "echo"]
        events = [event for event in events if not any(event is item for item in early)]
        at = next(index for index, event in enumerate(events) if event is first) + 1
        events[at:at] = early
        cause: Event | None = None
        for event in events:
            if _is_cause(event):
                cause = event
            elif event.detail.get("role") == "echo":
                event.detail["echo_of"] = (cause or first).name
        return events


def _is_cause(event: Event) -> bool:
    return event.detail.get("role") == "cause" and (event.detail.get("reason") is not None or "link" in event.detail)


def _near(last: str | None, now: str | None) -> bool:
    a, b = seconds_of(last), seconds_of(now)
    return a is None or b is None or abs(b - a) <= WINDOW_S


def _folded(held: _Open) -> Event:
    event = held.event
    if held.count > 1:
        event.detail["count"] = held.count
        event.detail["last_time"] = held.last
    if held.ranks:
        event.detail["ranks"] = sorted(held.ranks)
    if len(held.nodes) > 1:
        event.detail["nodes"] = list(held.nodes)
    for name, value in held.sums.items():
        event.detail[name] = int(value)
    if event.name == "shm_broadcast_wait" and held.count > 1:
        latest = held.latest.detail
        if latest.get("in_service") and not latest.get("resumed"):
            event.detail.update(role="cause", reason="ENGINE_CRASH", sub="hang")
    return event


def fold(events: Iterable[Event]) -> list[Event]:
    """Fold a finished list of events."""
    incidents = Incidents()
    for event in events:
        incidents.add(event)
    return incidents.result()


def stop_reason(events: Iterable[Event]) -> dict[str, Value] | None:
    """The stop reason that these events prove: {reason, cause: the event's name, line, all: [reasons]}, or None."""
    proved: dict[str, Event] = {}
    for event in events:
        reason = event.detail.get("reason")
        if reason in PRECEDENCE:
            held = proved.get(reason)
            if held is None or (held.detail.get("role") == "echo" and event.detail.get("role") == "cause"):
                proved[reason] = event
    if not proved:
        return None
    ranked = sorted(proved, key=PRECEDENCE.index)
    event = proved[ranked[0]]
    return {"reason": ranked[0], "cause": event.name, "line": event.detail.get("line"), "all": ranked}


def tainted_after(events: Iterable[Event]) -> str | None:
    """Time of the first corruption warning: requests that ended later must not count. None when there was none."""
    return next((event.time or "" for event in events if event.name == "corruption_warning"), None)
