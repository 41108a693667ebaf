"""The book: each trouble is raised once, counted, cleared, and known to the attempts in which it held."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from runners.alerts import RULES
from runners.alerts.base import Rule
from runners.alerts.book import HOLD_S, Span, judge
from store.records import Finding

S = 10**9
KV = next(rule for rule in RULES if rule.name == "kv_full")


def row(first: int, last: int, node: str = "node5") -> dict[str, Any]:
    facts = {"kv_pct": 99.0, "running": 8.0, "waiting": 2.0}
    return {
        "node": node,
        "subject": "KV cache",
        "first_ns": first * S,
        "last_ns": last * S,
        "n": last - first + 1,
        **facts,
    }


class Book:
    """What an owner would hold between two looks."""

    def __init__(self) -> None:
        self.known: dict[str, Finding] = {}
        self.written = 0

    def look(self, rows: list[dict[str, Any]], reach: int, attempts: list[Span] | None = None) -> list[Finding]:
        told: list[tuple[Rule, list[dict[str, Any]]]] = [(KV, rows)]
        changed = judge("r", self.known, told, {"node5": reach * S, "node7": reach * S}, attempts or [])
        self.known.update({f.finding_id: f for f in changed})
        self.written += len(changed)
        return changed

    @property
    def only(self) -> Finding:
        (found,) = self.known.values()
        return found


def test_trouble_that_lasts_is_one_finding_whose_end_moves_on() -> None:
    book = Book()
    book.look([row(10, 14)], 15)
    book.look([row(10, 19)], 20)
    found = book.only
    assert (found.state, found.count, found.severity, found.node) == ("open", 1, "warn", "node5")
    assert (found.first_wall_ns, found.last_wall_ns) == (10 * S, 19 * S)
    assert found.title == "KV cache is nearly full"
    assert "99.0 % used" in (found.detail or "")
    assert found.sources == "/metrics"


def test_nothing_new_writes_nothing() -> None:
    book = Book()
    book.look([row(10, 14)], 15)
    assert book.look([row(10, 14)], 16) == []
    assert book.look([], 17) == []


def test_it_is_cleared_when_figures_without_it_have_come_and_not_before() -> None:
    book = Book()
    book.look([row(10, 14)], 15)
    book.look([], 14 + int(HOLD_S))
    assert book.only.state == "open"
    book.look([], 15 + int(HOLD_S))
    assert book.only.state == "cleared"
    assert book.look([], 500) == []


def test_a_node_without_figures_clears_nothing() -> None:
    book = Book()
    book.look([row(10, 14)], 15)
    assert judge("r", book.known, [(KV, [])], {"node7": 900 * S}, []) == []


def test_what_comes_back_opens_the_same_finding_and_counts() -> None:
    book = Book()
    book.look([row(10, 14)], 15)
    book.look([], 100)
    book.look([row(120, 125)], 126)
    assert (book.only.state, book.only.count) == ("open", 2)
    assert (book.only.first_wall_ns, book.only.last_wall_ns) == (10 * S, 125 * S)


def test_another_owner_goes_on_with_what_the_store_knows() -> None:
    first, second = Book(), Book()
    first.look([row(10, 14)], 15)
    second.known = dict(first.known)
    assert second.look([row(10, 14)], 15) == []


def test_attempts_in_which_it_held_are_named_each_once() -> None:
    book = Book()
    attempts = [Span("a1", 0, 12 * S), Span("a2", 13 * S, None)]
    book.look([row(10, 11)], 12, attempts)
    book.look([row(10, 15)], 16, attempts)
    book.look([row(10, 17)], 18, attempts)
    facts = json.loads(book.only.numbers or "")
    assert facts["attempts"] == ["a1", "a2"]
    assert facts["flag"] == "kv_full"


def test_figures_that_come_late_are_told_of_their_own_time() -> None:
    book = Book()
    book.look([row(100, 110)], 111)
    late = [Span("a0", 0, 50 * S)]
    book.look([row(40, 45, "node7")], 112, late)
    assert {(f.node, f.first_wall_ns) for f in book.known.values()} == {("node5", 100 * S), ("node7", 40 * S)}
    assert json.loads(next(f for f in book.known.values() if f.node == "node7").numbers or "")["attempts"] == ["a0"]


looks = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12), st.booleans()), max_size=12)


@settings(max_examples=60)
@given(looks)
def test_whatever_the_order_of_looks_a_subject_has_one_finding_and_counts_never_fall(
    steps: list[tuple[int, int, bool]],
) -> None:
    book, reach, count = Book(), 0, 0
    for ahead, span, bad in steps:
        reach += ahead
        book.look([row(max(reach - span, 0), reach)] if bad else [], reach)
        assert len(book.known) <= 1
        if book.known:
            assert book.only.count >= count
            assert book.only.first_wall_ns <= book.only.last_wall_ns
            count = book.only.count


def test_every_rule_says_what_where_from_and_what_next() -> None:
    assert len({rule.name for rule in RULES}) == len({rule.flag for rule in RULES}) == len(RULES) == 16
    for rule in RULES:
        assert rule.severity in ("warn", "bad", "fatal")
        assert rule.source
        assert rule.next_step
