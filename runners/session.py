"""What the console and the screens talk to: the configuration, named queries, orders. The only door to the owner.

Three ways to have one, with the same face: attached to a living owner over Quack; in the owner's own process
(`--foreground`, tests); or reading the store directly when no owner lives, where orders are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from runners import owner_process
from runners.spec import ConfigError, Inventory, load_inventory, user_name
from store.database import Query, Store, Table
from store.errors import OwnerGone, QueryCancelled, StoreBusy, StoreError
from store.queries import call, literal

if TYPE_CHECKING:
    from runners.flows.dry_run import Known


class Reader(Protocol):
    """Anything that answers SQL: a store, or a store far away."""

    def query(self, sql: str, *, handle: Query | None = None) -> Table: ...


@dataclass(slots=True)
class OwnerState:
    """Whether the owner answers; `detail` says what happened when it does not."""

    alive: bool
    detail: str = ""


class Session:
    """Made by `attached`, `foreground` or `reading`."""

    def __init__(self, inventory: Inventory, reader: Reader, *, owner: OwnerState) -> None:
        self.config = inventory
        self.owner = owner
        self.who = user_name()
        self._reader = reader
        self._config_ns: int | None = None  # of the file when it was last taken
        with contextlib.suppress(OSError):
            self._config_ns = inventory.path.stat().st_mtime_ns if inventory.path else None

    @property
    def simulated(self) -> bool:
        """Whether every deployment of this configuration is simulated."""
        deployments = self.config.deployments.values()
        return bool(deployments) and all(d.engine == "sim" for d in deployments)

    async def rows(self, name: str, *args: object) -> list[dict[str, Any]]:
        """Rows of a named query. Raises StoreError; OwnerGone when the owner died."""
        return (await self.sql(call(name, *args))).dicts()

    async def sql(self, text: str) -> Table:
        """Rows of one SELECT; cancelled in the owner when the caller is cancelled. Raises StoreError."""
        handle = Query()
        try:
            answer = await asyncio.to_thread(self._reader.query, text, handle=handle)
        except asyncio.CancelledError:
            handle.cancel()
            raise
        except OwnerGone as e:
            self.owner.alive, self.owner.detail = False, str(e)
            raise
        if not self.owner.detail:
            self.owner.alive = True
        return answer

    async def order(self, kind: str, **params: Any) -> dict[str, Any]:
        """Ask the owner for something; its answer. Raises StoreError when there is no owner or it refuses."""
        raise StoreError("no owner lives: `twinrail` or `twinrail resume` starts one")

    async def carried_out(self, kind: str, **params: Any) -> dict[str, Any]:
        """The same for an order that takes longer than an answer may: its end. Raises StoreError when it failed."""
        order_id = str((await self.order(kind, **params))["order_id"])
        while True:
            rows = (await self.sql(f"select state, detail from orders where order_id = {literal(order_id)}")).rows
            if rows and rows[0][0] == "done":
                return dict(orjson.loads(rows[0][1]))
            if rows and rows[0][0] == "failed":
                raise StoreError(str(rows[0][1]))
            await asyncio.sleep(0.3)

    async def plan(self, kind: str, **params: Any) -> dict[str, Any]:
        """What an order to start a run or a search would do (runners/flows/dry_run.py); nothing is contacted.

        Raises:
            ConfigError: it names what is not there, or what cannot be.
        """
        from runners.flows.dry_run import Known

        await asyncio.to_thread(self._take_config)
        try:
            known = Known(
                history=await self.rows("screen_history"),
                lives=await self.rows("plan_lives"),
                nodes=await self.rows("live_nodes"),
                gates=await self.rows("plan_gates"),
                runs=await self.rows("runs_list"),
            )
        except OwnerGone:  # said elsewhere; the plan is as true without
            known = Known()
        return await asyncio.to_thread(_planned, self.config, kind, params, known)

    def _take_config(self) -> None:
        """The configuration file as it is now, like the owner when it is ordered to start something."""
        path = self.config.path
        try:
            changed = path.stat().st_mtime_ns if path else None
        except OSError:
            return  # gone or not to be read: what is known stays
        if path is not None and changed != self._config_ns:
            self.config, self._config_ns = load_inventory(path), changed

    async def start_owner(self) -> None:
        """Start a new owner after the old one died; it resumes what was unfinished. Raises StoreError."""
        raise StoreError("this session reads the store without an owner; start the console again")

    async def compare(self, a: list[str], b: list[str], **asked: Any) -> dict[str, Any]:
        """The comparison of two sets of runs, or of the two sides of one run of `ab --run` when `b` is empty.

        `asked`: as of store/analysis/ab/comparison.compare; None is left to what the run says. Raises StoreError.
        """
        from store.analysis.ab.chosen import compare_chosen

        return await asyncio.to_thread(compare_chosen, self._reader, a, b, asked)

    async def document(self, run_id: str) -> dict[str, Any]:
        """The JSON document of a run, as `show --json` prints it. Raises StoreError for an unknown run."""
        from store.export.document import run_document

        return await asyncio.to_thread(run_document, self._reader, run_id)


def planned_without_store(inventory: Inventory, kind: str, **params: Any) -> dict[str, Any]:
    """The same as `Session.plan` where there is no store yet."""
    return _planned(inventory, kind, params, None)


def _planned(inventory: Inventory, kind: str, params: dict[str, Any], known: Known | None) -> dict[str, Any]:
    from runners import orders
    from runners.flows.dry_run import planned

    try:
        order = orders.parse_order(orjson.dumps({"kind": kind, **params}).decode(), "order")
    except orders.OrderError as e:
        raise ConfigError(str(e)) from e
    if not isinstance(order, (orders.StartRun, orders.StartSearch)):
        raise ConfigError(f"{kind} starts nothing that could be planned")
    return planned(inventory, order, known)


def _answer(raw: str) -> dict[str, Any]:
    answer = orjson.loads(raw)
    if not answer.get("ok"):
        raise StoreError(f"the owner refused: {answer.get('detail')}")
    return dict(answer)


class Attached(Session):
    """A watcher: everything through Quack."""

    def __init__(self, inventory: Inventory) -> None:
        from store.share import Remote

        self._remote_type = Remote
        place = owner_process.OwnerPlace(inventory.store_path)
        found = owner_process.find(place.store)
        if found is None:
            raise OwnerGone("no owner lives")
        self._remote = Remote.connect(found.url, place.order_token)
        super().__init__(inventory, self._remote, owner=OwnerState(True))

    async def order(self, kind: str, **params: Any) -> dict[str, Any]:
        text = orjson.dumps({"kind": kind, "who": self.who, **params}).decode()
        try:
            return _answer(await asyncio.to_thread(self._remote.submit_order, text))
        except OwnerGone as e:
            self.owner.alive, self.owner.detail = False, str(e)
            raise

    async def start_owner(self) -> None:
        found = await asyncio.to_thread(owner_process.start, self.config)
        token = owner_process.OwnerPlace(self.config.store_path).order_token
        self._remote = await asyncio.to_thread(self._remote_type.connect, found.url, token)
        self._reader = self._remote
        self.owner.alive, self.owner.detail = True, ""

    def close(self) -> None:
        self._remote.close()


class InOwner(Session):
    """The same in the owner's own process, by cursors."""

    def __init__(self, inventory: Inventory, store: Store, take: Callable[..., Any]) -> None:
        super().__init__(inventory, store, owner=OwnerState(True))
        self._take = take

    async def order(self, kind: str, **params: Any) -> dict[str, Any]:
        answer = await self._take(kind, who=self.who, **params)
        if not answer.get("ok"):
            raise StoreError(f"the owner refused: {answer.get('detail')}")
        return dict(answer)


@contextlib.asynccontextmanager
async def attached(inventory: Inventory, *, start: bool) -> AsyncIterator[Session]:
    """A watcher's session; with `start` an owner is started when none lives. Raises StoreError, OwnerGone."""
    if start:
        await asyncio.to_thread(owner_process.start, inventory)
    session = await asyncio.to_thread(Attached, inventory)
    try:
        yield session
    finally:
        session.close()


@contextlib.asynccontextmanager
async def foreground(inventory: Inventory) -> AsyncIterator[Session]:
    """The owner inside this process. Raises StoreError when another owner lives."""
    from runners.owner import Owner

    async with Owner(inventory) as owner:
        yield InOwner(inventory, owner.store, owner.order)


@contextlib.asynccontextmanager
async def reading(inventory: Inventory) -> AsyncIterator[Session]:
    """Attached when an owner lives, else the store itself, opened for as long as this lasts. Raises StoreError."""
    deadline = time.monotonic() + owner_process.BUSY_LIMIT_S
    while True:
        if owner_process.find(inventory.store_path):
            async with attached(inventory, start=False) as session:
                yield session
            return
        if not inventory.store_path.exists():
            raise StoreError(f"{inventory.store_path} does not exist yet: nothing was run with this configuration")
        try:
            store = await asyncio.to_thread(Store.open, inventory.store_path)
            break
        except StoreBusy:  # by another reader for a moment, or by an owner that is just coming up
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)
    with store:
        yield Session(inventory, store, owner=OwnerState(False, "no owner lives; reading the store directly"))


__all__ = ["OwnerState", "QueryCancelled", "Session", "attached", "foreground", "planned_without_store", "reading"]
