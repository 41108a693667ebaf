"""A session over a store in this process: the same named SQL, no owner in between."""

from __future__ import annotations

from typing import Any

from runners.session import OwnerState, Session
from runners.spec import Inventory
from store.database import Store


class StoreSession(Session):
    """Orders are kept in `orders` and answered with `answer`; a dead owner comes back with `start_owner`."""

    def __init__(self, store: Store, config: Inventory, *, simulated: bool = True) -> None:
        super().__init__(config, store, owner=OwnerState(True))
        self.store = store
        self.who = "operator"
        self.orders: list[tuple[str, dict[str, Any]]] = []
        self.answer: dict[str, Any] = {"ok": True}
        self._simulated = simulated

    @property
    def simulated(self) -> bool:
        return self._simulated

    async def order(self, kind: str, **params: Any) -> dict[str, Any]:
        self.orders.append((kind, params))
        return self.answer

    async def start_owner(self) -> None:
        self.owner.alive, self.owner.detail = True, ""
