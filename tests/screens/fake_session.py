"""A session over a store in this process: the same named SQL, no owner in between."""

from __future__ import annotations

from typing import Any

from textual.app import App

from runners.session import OwnerState, Session
from runners.spec import Inventory
from store.database import Store, Table
from store.errors import OwnerGone, StoreError

GONE = "the owner does not answer"


class StoreSession(Session):
    """Orders are kept in `orders` and answered with `answer`, or refused with `refusal`; a dead owner comes back with
    `start_owner`."""

    def __init__(self, store: Store, config: Inventory, *, simulated: bool = True) -> None:
        super().__init__(config, store, owner=OwnerState(True))
        self.store = store
        self.who = "operator"
        self.orders: list[tuple[str, dict[str, Any]]] = []
        self.answer: dict[str, Any] = {"ok": True}
        self.refusal: str | None = None
        self.dead = False
        self._simulated = simulated

    @property
    def simulated(self) -> bool:
        return self._simulated

    def die(self) -> None:
        """From now on everything is answered as by an owner that is gone."""
        self.dead = True
        self.owner.alive, self.owner.detail = False, GONE

    async def sql(self, text: str) -> Table:
        if self.dead:
            raise OwnerGone(GONE)
        return await super().sql(text)

    async def order(self, kind: str, **params: Any) -> dict[str, Any]:
        self.orders.append((kind, params))
        if self.dead:
            raise OwnerGone(GONE)
        if self.refusal is not None:
            raise StoreError(f"the owner refused: {self.refusal}")
        return self.answer

    async def start_owner(self) -> None:
        self.dead, self.owner.alive, self.owner.detail = False, True, ""


def session_of(app: App[Any]) -> StoreSession:
    """The session of an app that was opened over a scene."""
    session = getattr(app, "session", None)
    assert isinstance(session, StoreSession)
    return session
