"""Figures of attempts, by window: those of one that is over are asked once, those of the running one now and then."""

from __future__ import annotations

from screens.data import Feed, Row

AT_ONCE = 3  # attempts asked in one tick: each costs a look at all its chunks
EVERY_TICKS = 5


class Metrics:
    """Rows of `attempt_metrics`, kept. `behind` tells that some were left for the next tick."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.behind = False
        self._kept: dict[str, tuple[bool, int, dict[str, Row]]] = {}
        self._tick = -1
        self._asked = 0

    async def of(self, attempt: Row, window: str) -> Row | None:
        """The figures of an attempt (a row with attempt_id and state) in a window; None while they are not known."""
        if self.feed.ticks != self._tick:
            self._tick, self._asked, self.behind = self.feed.ticks, 0, False
        name, over = attempt["attempt_id"], attempt["state"] in ("done", "void")
        if attempt["state"] == "planned":
            return None
        kept = self._kept.get(name)
        if kept is None or not (kept[0] or (not over and self._tick - kept[1] < EVERY_TICKS)):
            if self._asked >= AT_ONCE:
                self.behind = True
            else:
                self._asked += 1
                rows = await self.feed.session.rows("attempt_metrics", name)
                kept = self._kept[name] = (over, self._tick, {r["window"]: r for r in rows})
        return kept[2].get(window) if kept else None

    def forget(self) -> None:
        self._kept.clear()
