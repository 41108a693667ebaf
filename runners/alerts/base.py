"""What an alert rule is: a named query whose rows are trouble, and the words for a row.

The query `alert_NAME(run, t0, t1, names, shifts)` has one row a subject: `node`, `subject`, `first_ns`, `last_ns` (run
clock), `n` (samples or events), and the numbers that prove it. Thresholds stand in the query, words in the rule: both
are pure, so a past run can be judged again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

Row = Mapping[str, Any]


class Rule(Protocol):
    """One kind of trouble.

    name       of the rule; `alert_<name>` is its query
    flag       the mark on an attempt in which it held
    severity   warn | bad | fatal
    source     where the numbers come from
    next_step  what to look at or try next
    takes_rails  whether the query is told which rails are the operator's (`rails := [...]`)
    """

    name: str
    flag: str
    severity: str
    source: str
    next_step: str
    takes_rails: bool

    def title(self, row: Row) -> str:
        """What is wrong, in a few words, without the node."""

    def detail(self, row: Row) -> str:
        """The numbers that prove it."""


class BaseRule:
    """Defaults of a rule."""

    severity = "warn"
    takes_rails = False


def number(value: Any, digits: int = 0, unit: str = "") -> str:
    """A figure for a sentence; an unknown one is a dash."""
    return "–" if value is None else f"{value:,.{digits}f}{unit}"


def size(value: Any) -> str:
    """Bytes in GiB or MiB."""
    if value is None:
        return "–"
    return f"{value / 2**30:,.1f} GiB" if value >= 2**30 else f"{value / 2**20:,.0f} MiB"
