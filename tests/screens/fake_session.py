"""A session over a store in this process: the same named SQL, no owner in between."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from runners.spec import Inventory
from store.database import Store, Table
from store.queries import call


@dataclass
class Owner:
    alive: bool = True
    detail: str = ""


@dataclass
class StoreSession:
    """Orders are kept in `orders` and answered with `answer`."""

    store: Store
    config: Inventory
    simulated: bool = True
    who: str = "operator"
    owner: Owner = field(default_factory=Owner)
    orders: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    answer: dict[str, Any] = field(default_factory=lambda: {"state": "accepted"})

    async def rows(self, name: str, *args: object) -> list[dict[str, Any]]:
        return (await asyncio.to_thread(self.store.query, call(name, *args))).dicts()

    async def sql(self, text: str) -> Table:
        return await asyncio.to_thread(self.store.query, text)

    async def order(self, kind: str, **params: Any) -> dict[str, Any]:
        self.orders.append((kind, params))
        return self.answer

    async def start_owner(self) -> None:
        self.owner = Owner()
