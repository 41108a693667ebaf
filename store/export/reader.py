"""What every document is made from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from store.database import Table

STATS = ("n", "mean", "p50", "p95", "p99")


class Reader(Protocol):
    """Anything that answers SQL."""

    def query(self, sql: str) -> Table: ...
