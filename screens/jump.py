"""Times as an operator writes them."""

from __future__ import annotations

S = 1_000_000_000


def instant(text: str, now_ns: int, begin_ns: int | None = None) -> int | None:
    """Nanoseconds on the run's clock for "14:31:07" (UTC, the day of the attempt) or "+90" (since it began).

    `begin_ns` is when the attempt began; without one, `now_ns` counts. None for a text that says no time.
    """
    text = text.strip()
    begin = now_ns if begin_ns is None else begin_ns
    if text.startswith("+"):
        try:
            return begin + int(float(text[1:]) * S)
        except (ValueError, OverflowError):
            return None
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(p.isdecimal() and len(p) <= 2 for p in parts):
        return None
    h, m, s = (*(int(p) for p in parts), 0)[:3]
    if h > 23 or m > 59 or s > 59:
        return None
    day = begin // (86_400 * S) * 86_400 * S
    at = day + (h * 3600 + m * 60 + s) * S
    return at + 86_400 * S if at < begin - 43_200 * S else at
