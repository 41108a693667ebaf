"""What a screen needs: a session to ask, the operator's choices, and answers kept while nothing changed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from runners.session import Session
from store.errors import StoreError
from store.queries import call

Row = dict[str, Any]
FOREVER = 9_000_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Place:
    """A screen to go to: its key ("4", or "g r" for the leader and a letter), its name, and what is there."""

    key: str
    name: str
    about: str


@dataclass
class View:
    """The operator's choices, shared by all screens. `now` is the owner's clock in ns."""

    session: Session
    now: Callable[[], int] = time.time_ns
    run_id: str | None = None
    attempt_id: str | None = None
    node: str | None = None
    hold_ns: int | None = None  # an instant of the run's clock that the live screen is to show when it comes up
    places: tuple[Place, ...] = ()  # where one can go; the bottom bar, `g`, help and the palette list these
    marked: set[str] = field(default_factory=set)
    wanted: tuple[str, ...] = ()  # what the plan screen is asked to start; it takes them away


@dataclass(frozen=True, slots=True)
class Asking:
    """A named query to ask, and when an old answer does instead: see `Feed.rows`."""

    name: str
    args: tuple[object, ...]
    tables: tuple[str, ...] = ()
    every: int = 1
    key: object = None

    @property
    def same(self) -> object:
        return self.args if self.key is None else self.key


class Feed:
    """Named queries whose answer is kept until one of their tables gets a commit.

    `tick` asks the store once for its commit counters; `rows` then asks only what may have changed.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.asked = 0
        self.ticks = 0
        self._changes: dict[str, int] | None = None
        self._kept: dict[str, _Kept] = {}
        self._paces: dict[str, int] = {}

    async def tick(self) -> None:
        """Read the commit counters. A store without them makes every query be asked again."""
        self.ticks += 1
        try:
            answer = await self.session.sql("SELECT store_changes()")
            found = json.loads(answer.rows[0][0])
        except (StoreError, ValueError, IndexError, TypeError):
            found = None
        self._changes = found if isinstance(found, dict) else None

    async def rows(
        self, name: str, *args: object, tables: tuple[str, ...] = (), every: int = 1, key: object = None
    ) -> list[Row]:
        """The answer of a named query.

        `tables` are those it reads (none: always ask). `every` is the least number of ticks between two askings, `key`
        what must be equal for an old answer to do in between (default: the arguments).
        """
        return (await self.together(Asking(name, args, tables, every, key)))[0]

    async def together(self, *askings: Asking) -> list[list[Row]]:
        """The answers of several queries, with those that must be asked in one question to the owner: a question has a
        price of its own, whatever it asks. Rows come in the order of the queries; times and lists as usual."""
        due = [a for a in askings if self._kept_rows(a) is None]
        self.asked += len(due)
        if len(due) == 1:
            self._keep(due[0], await self.session.rows(due[0].name, *due[0].args))
        elif due:
            parts = (f"(SELECT list(x) FROM ({call(a.name, *a.args)}) x) AS {a.name}" for a in due)
            answer = (await self.session.sql("SELECT " + ", ".join(parts))).rows[0]
            for a, rows in zip(due, answer, strict=True):
                self._keep(a, rows or [])
        return [self._kept[a.name].rows for a in askings]

    def _version(self, asking: Asking) -> tuple[int, ...] | None:
        return None if self._changes is None else tuple(self._changes.get(t, 0) for t in asking.tables)

    def _keep(self, asking: Asking, rows: list[Row]) -> None:
        kept = _Kept(asking.same, asking.args, self._version(asking), self.ticks, rows)
        self._kept[asking.name] = kept

    def _kept_rows(self, asking: Asking) -> list[Row] | None:
        """The old answer, where it still does."""
        kept = self._kept.get(asking.name)
        if kept is None or kept.key != asking.same:
            return None
        version = self._version(asking)
        unchanged = bool(asking.tables) and version is not None and kept.version == version and kept.args == asking.args
        return kept.rows if unchanged or (asking.every > 1 and self.ticks - kept.tick < asking.every) else None

    def pace(self, name: str) -> int:
        """Ticks between two askings of a query whose cost grows with the data; 1 until `set_pace`."""
        return self._paces.get(name, 1)

    def set_pace(self, name: str, ticks: int) -> None:
        self._paces[name] = ticks

    def forget(self) -> None:
        self._kept.clear()


@dataclass(frozen=True, slots=True)
class _Kept:
    key: object
    args: tuple[object, ...]
    version: tuple[int, ...] | None
    tick: int
    rows: list[Row]
