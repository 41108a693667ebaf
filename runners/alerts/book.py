"""The book of alerts: rows of the rules' queries become findings, each raised once, counted, and cleared at its end.

Pure: what is known, what the queries say now and how far each node's figures reach go in; findings to be written come
out. A finding is known by rule, node and subject. While the trouble lasts its last instant moves on; when the node has
given figures for HOLD_S without it, it is cleared; should it come back, the same finding opens again and counts on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from runners.alerts.base import Row, Rule
from store.records import Finding

HOLD_S: Final = 30.0
_NOT_NUMBERS: Final = frozenset({"node", "subject", "first_ns", "last_ns", "n", "said"})


@dataclass(frozen=True, slots=True)
class Span:
    """An attempt's time on the run's clock; `end_ns` is None while it runs."""

    attempt_id: str
    start_ns: int
    end_ns: int | None


def finding_id(run_id: str, rule: str, node: str, subject: str) -> str:
    """The same trouble has the same id, also for another owner."""
    return f"{run_id}.{rule}.{hashlib.sha256(f'{node} {subject}'.encode()).hexdigest()[:10]}"


def judge(
    run_id: str,
    known: Mapping[str, Finding],
    told: Iterable[tuple[Rule, Sequence[Row]]],
    reach: Mapping[str, int],
    attempts: Sequence[Span],
) -> list[Finding]:
    """Findings that are new or have changed.

    known     findings of the run by id
    told      every rule with the rows of its query
    reach     newest instant (run clock) of which each node has given figures
    """
    changed: dict[str, Finding] = {}
    seen: set[str] = set()
    for rule, rows in told:
        for row in rows:
            ident = finding_id(run_id, rule.name, row["node"], row["subject"])
            seen.add(ident)
            found = _found(run_id, ident, known.get(ident), rule, row, attempts)
            if found != known.get(ident):
                changed[ident] = found
    for ident, old in known.items():
        now = changed.get(ident, old)
        if now.state == "open" and reach.get(now.node or "", 0) - now.last_wall_ns > HOLD_S * 1e9:
            changed[ident] = replace(now, state="cleared")
    return list(changed.values())


def _found(run_id: str, ident: str, old: Finding | None, rule: Rule, row: Row, attempts: Sequence[Span]) -> Finding:
    first, last = int(row["first_ns"]), int(row["last_ns"])
    held = [a.attempt_id for a in attempts if first <= (a.end_ns or last) and last >= a.start_ns]
    new = Finding(
        finding_id=ident,
        run_id=run_id,
        rule=rule.name,
        severity=rule.severity,
        node=row["node"],
        title=rule.title(row),
        detail=rule.detail(row),
        numbers=_numbers(rule, row, held),
        sources=rule.source,
        next_ab=rule.next_step,
        first_wall_ns=first,
        last_wall_ns=last,
    )
    if old is None:
        return new
    before = _attempts(old)
    every = [*before, *(a for a in held if a not in before)]
    if last <= old.last_wall_ns:  # nothing newer: only what it belongs to may have become known
        return old if every == before else replace(old, numbers=_with_attempts(old, every))
    again = old.state == "cleared" and first > old.last_wall_ns
    return replace(
        new,
        numbers=_numbers(rule, row, every),
        first_wall_ns=min(old.first_wall_ns, first),
        count=old.count + int(again),
    )


def _numbers(rule: Rule, row: Row, attempts: Sequence[str]) -> str:
    facts: dict[str, Any] = {k: v for k, v in row.items() if k not in _NOT_NUMBERS}
    whole = {"samples": row["n"], **facts, "flag": rule.flag, "attempts": list(attempts)}
    return orjson.dumps(whole, default=str).decode()


def _attempts(finding: Finding) -> list[str]:
    try:
        return [str(a) for a in orjson.loads(finding.numbers or "{}").get("attempts", [])]
    except orjson.JSONDecodeError:
        return []


def _with_attempts(finding: Finding, attempts: Sequence[str]) -> str:
    try:
        whole = orjson.loads(finding.numbers or "{}")
    except orjson.JSONDecodeError:
        whole = {}
    return orjson.dumps({**whole, "attempts": list(attempts)}).decode()
