"""Numbers as captures write them (integers, doubles, text, nothing) turned into columns without losing a digit."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any

from store.analysis.timeline import NO_ID, Int, column


def as_number(value: object) -> float | int:
    """A number, or text that is one; NaN for everything else."""
    if isinstance(value, bool) or value is None:
        return float("nan")
    if isinstance(value, int | float):
        return value
    try:
        found = Decimal(str(value).strip()[:40])
        return float(found) if found.is_finite() else float("nan")
    except InvalidOperation:
        return float("nan")


def ids(values: tuple[Any, ...]) -> Int:
    """Ids as recorded: numbers, or text with one ("stream 7"); NO_ID where there is none."""
    try:
        if set(map(type, values)) == {int}:
            return column(values)
        return column([as_id(value) for value in values])
    except OverflowError:
        return column([as_id(value) if abs(as_id(value)) < 2**62 else NO_ID for value in values])


def as_id(value: object) -> int:
    """A whole number, or the first one in a text; NO_ID for everything else."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and (digits := re.search(r"-?\d{1,18}", value)):
        return int(digits.group())
    return NO_ID


def as_count(value: object) -> int | None:
    """A whole number from 0 on; None for everything else."""
    found = as_id(value) if value is not None else NO_ID
    return found if 0 <= found < 2**62 else None
