"""Servers started and stopped without a run: one hand at a time on a deployment, and starts that can be called off."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator

from runners.flows.life import LifeFailedError, Lives
from runners.nodes.link import NodeError
from runners.spec import Deployment
from store.errors import StoreError

log = logging.getLogger("twinrail.hands")


class Hands:
    """The `up`, `down` and `restart` of one owner. What becomes of a server is in the table of lives."""

    def __init__(self, lives: Lives) -> None:
        self.lives = lives
        self._locks: dict[str, asyncio.Lock] = {}  # by deployment
        self._starts: dict[str, list[asyncio.Event]] = {}  # by deployment: each start that is on or waits

    async def up(self, dep: Deployment, run_id: str | None = None, cancel: asyncio.Event | None = None) -> None:
        """Start it, or find it up. `run_id` stands in the names of the server; `cancel` calls the start off."""
        run_id = run_id or f"up-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
        with self._start_of(dep, cancel) as called_off:
            async with self._lock(dep):
                try:
                    await self.lives.ensure(dep, run_id, called_off)
                except (LifeFailedError, NodeError, StoreError) as e:
                    log.warning("up %s: %s", dep.name, e)

    async def down(self, dep: Deployment, detail: str) -> None:
        """Stop its server; starts that are on or wait are called off first."""
        self._call_off(dep)
        async with self._lock(dep):
            await self.lives.stop_deployment(dep, detail)

    async def restart(self, dep: Deployment, detail: str) -> None:
        """A new server life; a later `down` calls it off, also while the old one still ends."""
        self._call_off(dep)
        with self._start_of(dep) as called_off:
            async with self._lock(dep):
                await self.lives.stop_deployment(dep, detail)
            await self.up(dep, cancel=called_off)

    def _lock(self, dep: Deployment) -> asyncio.Lock:
        return self._locks.setdefault(dep.name, asyncio.Lock())

    def _call_off(self, dep: Deployment) -> None:
        for start in self._starts.get(dep.name, ()):
            start.set()

    @contextlib.contextmanager
    def _start_of(self, dep: Deployment, known: asyncio.Event | None = None) -> Iterator[asyncio.Event]:
        """An event that `down` sets, for as long as this lasts."""
        start = known or asyncio.Event()
        starts = self._starts.setdefault(dep.name, [])
        starts.append(start)
        try:
            yield start
        finally:
            starts.remove(start)
