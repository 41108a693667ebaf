"""The nodes of an inventory as the owner holds them: links, folders, scripts, clocks, and their states in the store."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import shlex
import time
from importlib import resources
from pathlib import PurePosixPath

from runners.nodes.clock import measure
from runners.nodes.link import Link, NodeError, open_link
from runners.spec import ConfigError, Inventory, Node
from store.database import Store, StoreError
from store.records import ClockOffset, NodeState

log = logging.getLogger("twinrail.cluster")

CLOCK_EVERY_S = 60.0


def script_name(script: str, body: bytes) -> str:
    """File name of a payload script on a node; the hash lets old and new live side by side while a job still runs."""
    return f"{script.removesuffix('.py')}-{hashlib.sha256(body).hexdigest()[:10]}.py"


def script_body(script: str) -> bytes:
    """The bytes of a script in runners/payload."""
    return resources.files("runners.payload").joinpath(script).read_bytes()


def _offset_s(zone: str) -> int | None:
    """Seconds from `date +%z` text (+0530)."""
    if len(zone) != 5 or zone[0] not in "+-" or not zone[1:].isdigit():
        return None
    seconds = int(zone[1:3]) * 3600 + int(zone[3:]) * 60
    return -seconds if zone[0] == "-" else seconds


class Cluster:
    """Links are opened when first asked for and kept. All methods belong to one event loop."""

    def __init__(self, inventory: Inventory, store: Store) -> None:
        self.inventory = inventory
        self.store = store
        self._links: dict[str, Link] = {}
        self._roots: dict[str, str] = {}
        self._zones: dict[str, int | None] = {}
        self._pushed: set[tuple[str, str]] = set()
        self._opening: dict[str, asyncio.Lock] = {}

    async def update(self, inventory: Inventory, *, busy: bool) -> None:
        """Go on with another configuration; links to nodes that it changes are closed.

        Raises:
            ConfigError: it moves the store, or changes a node while a run is on.
        """
        if inventory.store_path != self.inventory.store_path:
            raise ConfigError("[project] store has changed: end this owner (nothing is lost) before the next run")
        new = {n.name: n for n in inventory.nodes}
        stale = [name for name in self._links if self.inventory.node(name) != new.get(name)]
        if stale and busy:
            raise ConfigError(
                f"nodes {', '.join(stale)} have changed in the configuration while a run is on; wait for it"
            )
        for name in stale:
            await self._links.pop(name).close()
            self._roots.pop(name, None)
        self._pushed = {(name, path) for name, path in self._pushed if name not in stale}
        self.inventory = inventory

    async def link(self, name: str) -> Link:
        """The link to a node, opened if need be. Raises NodeError with what to do next, also for a node that is no
        longer in the configuration: jobs of a run may outlive its entry."""
        async with self._opening.setdefault(name, asyncio.Lock()):
            if name not in self._links:
                try:
                    node = self.inventory.node(name)
                except ConfigError as e:
                    raise NodeError("config", str(e)) from e
                self._links[name] = open_link(node, self._state_changed)
            return self._links[name]

    async def root(self, name: str) -> str:
        """Absolute path of twinrail's folder on the node."""
        if name not in self._roots:
            link = await self.link(name)
            folder = self.inventory.node(name).root
            quoted = shlex.quote(folder)
            done = await link.run(f"mkdir -p {quoted}/bin && cd {quoted} && pwd -P && date +%z")
            path, _, zone = done.stdout.decode(errors="replace").strip().partition("\n")
            self._zones[name] = _offset_s(zone)
            if done.exit_code != 0 or not path.startswith("/"):
                why = done.stderr.decode(errors="replace").strip()[:200]
                raise NodeError("space", f"{name}: cannot make {folder}: {why}. Set root = in [[nodes]].")
            self._roots[name] = path
        return self._roots[name]

    def utc_offset_s(self, name: str) -> int | None:
        """Seconds east of UTC of the node's log times; None before `root` has asked."""
        return self._zones.get(name)

    def forget(self, name: str) -> None:
        """Ask for the node's folder and put the scripts there again when they are next needed."""
        self._roots.pop(name, None)
        self._pushed = {(node, path) for node, path in self._pushed if node != name}

    async def push(self, name: str, script: str) -> str:
        """Put a payload script on the node, once for each version; its absolute path there."""
        body = script_body(script)
        path = str(PurePosixPath(await self.root(name)) / "bin" / script_name(script, body))
        if (name, path) not in self._pushed:
            await (await self.link(name)).put(body, path, 0o644)
            self._pushed.add((name, path))
        return path

    def planned_path(self, node: Node, script: str) -> str:
        """Where a script will lie, said without asking the node (for dry runs)."""
        root = self._roots.get(node.name, node.root)
        return f"{root}/bin/{script_name(script, script_body(script))}"

    async def watch_clock(self, name: str, run_id: str | None) -> None:
        """Measure the clock of a node now and every minute, until cancelled."""
        while True:
            try:
                link = await self.link(name)
                reading = await measure(link)
                row = ClockOffset(
                    run_id=run_id,
                    node=name,
                    wall_ns=time.time_ns(),
                    offset_ns=reading.offset_ns,
                    error_ns=reading.error_ns,
                    mono_offset_ns=reading.mono_offset_ns,
                )
                await self.store.commit([row])
            except (NodeError, StoreError) as e:
                log.warning("clock of %s not measured: %s", name, e)
            await asyncio.sleep(CLOCK_EVERY_S)

    def _state_changed(self, link: Link) -> None:
        detail = str(link.error) if link.error else None
        self.store.write([NodeState(node=link.node.name, state=str(link.state), detail=detail, wall_ns=time.time_ns())])

    async def close(self) -> None:
        """Close every link; jobs on the nodes go on."""
        await asyncio.gather(*(link.close() for link in self._links.values()), return_exceptions=True)
        self._links.clear()
