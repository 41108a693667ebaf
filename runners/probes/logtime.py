"""The instant that a log line states: often without a year, always without a zone."""

from __future__ import annotations

import calendar
import re
from functools import lru_cache
from typing import Final

_TIME = re.compile(r"(?:(\d{4})-)?(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")
_HALF_HOUR: Final = 1800
_AHEAD_S: Final = 60  # a node's clock may run so much ahead of ours
_BUCKET_NS: Final = 60 * 10**9


def wall_ns(text: str, arrival_ns: int, utc_offset_s: int | None = None) -> int | None:
    """Nanoseconds since the epoch of `[YYYY-]MM-DD HH:MM:SS[.frac][zone]`; None when the text is no such time.

    Without a year it is the one that puts the line closest to its arrival. Without a zone and without
    `utc_offset_s`, the half hour east of Greenwich that puts the line at most 30 minutes before its arrival.
    """
    return _wall_ns(text, arrival_ns // _BUCKET_NS, utc_offset_s)


@lru_cache(maxsize=4096)
def _wall_ns(text: str, bucket: int, utc_offset_s: int | None) -> int | None:
    match = _TIME.match(text)
    if match is None:
        return None
    arrival_s = bucket * (_BUCKET_NS // 10**9)
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour <= 23 and minute <= 59 and second <= 60):
        return None
    clock = (month, day, hour, minute, second)
    if match[1]:
        local_s = calendar.timegm((year, *clock))
    else:
        now = _year_of(arrival_s)
        local_s = min((calendar.timegm((y, *clock)) for y in (now - 1, now, now + 1)), key=lambda s: abs(s - arrival_s))
    offset = _offset(match[8]) if match[8] else utc_offset_s
    if offset is None:
        offset = -((arrival_s + _AHEAD_S - local_s) // _HALF_HOUR) * _HALF_HOUR
        if not -12 * 3600 <= offset <= 14 * 3600:  # an old line, read late: no zone explains it
            offset = 0
    fraction = int((match[7] or "").ljust(9, "0"))
    return (local_s - offset) * 10**9 + fraction


def _year_of(seconds: int) -> int:
    """Civil year of an instant, exact enough to choose between neighbouring years."""
    return 1970 + int(seconds / 31_556_952)


def _offset(zone: str) -> int:
    if zone == "Z":
        return 0
    digits = zone[1:].replace(":", "")
    value = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -value if zone[0] == "-" else value
