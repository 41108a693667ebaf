"""The owner as a process: started in a session of its own, found by a file beside the store, ended by itself.

    python -m runners.owner_process --config FILE [--stay]

`<store>.owner/` holds owner.json (pid, start ticks, url), the two token files (0600) and owner.log.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from runners.spec import ConfigError, Inventory, load_inventory
from store.errors import StoreBusy, StoreError

if TYPE_CHECKING:
    from runners.owner import Owner

IDLE_END_S = 60.0
LOOK_EVERY_S = 1.0
START_LIMIT_S = 30.0
BUSY_LIMIT_S = 10.0  # readers hold the store for a moment, another owner for longer


@dataclass(frozen=True, slots=True)
class OwnerPlace:
    """Files of the owner of one store."""

    store: Path

    @property
    def folder(self) -> Path:
        return self.store.with_name(self.store.name + ".owner")

    @property
    def state(self) -> Path:
        return self.folder / "owner.json"

    @property
    def log(self) -> Path:
        return self.folder / "owner.log"

    @property
    def order_token(self) -> Path:
        return self.folder / "order.token"

    @property
    def read_token(self) -> Path:
        return self.folder / "read.token"


@dataclass(frozen=True, slots=True)
class Found:
    """A living owner."""

    pid: int
    url: str


def find(store: Path) -> Found | None:
    """The living owner of this store, or None."""
    try:
        raw = orjson.loads(OwnerPlace(store).state.read_bytes())
        found = Found(int(raw["pid"]), str(raw["url"]))
        same = start_ticks(found.pid) == int(raw["start_ticks"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if same else None


def start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat, which tells a reused pid; None for no process or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] == b"Z" else int(fields[19])


def start(inventory: Inventory) -> Found:
    """Start an owner for this configuration, or find the one that lives.

    Raises:
        StoreError: it did not come up; the text is the owner's own last word.
    """
    place = OwnerPlace(inventory.store_path)
    if found := find(place.store):
        return found
    if inventory.path is None:
        raise StoreError("an owner needs a configuration file")
    place.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    argv = [sys.executable, "-m", "runners.owner_process", "--config", str(inventory.path)]
    with place.log.open("ab") as log:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if found := find(place.store):
            child.returncode = 0  # not ours to wait for: it outlives us
            return found
        if child.poll() is not None:
            break
        time.sleep(0.05)
    if found := find(place.store):  # started by somebody else at the same moment: ours has made way for it
        return found
    last = place.log.read_text(errors="replace").strip().splitlines()[-1:]
    raise StoreError(f"the owner did not start: {''.join(last)[:500]} (log: {place.log})")


async def serve(inventory: Inventory, *, stay: bool = False) -> None:
    """Be the owner until nothing is left to do and nobody watches; `stay`: until told to end."""
    from runners.owner import Owner
    from store.share import serve as serve_store

    place = OwnerPlace(inventory.store_path)
    place.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    with contextlib.suppress(OSError, RuntimeError):
        loop.add_signal_handler(signal.SIGHUP, lambda: None)
    async with _first(Owner(inventory), place) as owner:
        server = await asyncio.to_thread(
            serve_store,
            owner.store,
            token_files={"order": place.order_token, "read": place.read_token},
            on_order=owner.submit,
            port=inventory.project.port or 0,
        )
        _write_state(place, server.url)
        try:
            while not (stop.is_set() or owner.stop_asked.is_set()):
                if not stay and not owner.busy and time.monotonic() - server.last_seen > IDLE_END_S:
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY_S):
                        await stop.wait()
        finally:
            place.state.unlink(missing_ok=True)
            await asyncio.to_thread(server.stop)


@contextlib.asynccontextmanager
async def _first(owner: Owner, place: OwnerPlace) -> AsyncIterator[Owner]:
    """The owner, once a verb that only reads has closed the store. Raises StoreBusy when another owner has it."""
    deadline = time.monotonic() + BUSY_LIMIT_S
    async with contextlib.AsyncExitStack() as stack:
        while True:
            try:
                await stack.enter_async_context(owner)
            except StoreBusy:
                if find(place.store) or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)
            else:
                break
        yield owner


def _write_state(place: OwnerPlace, url: str) -> None:
    new = place.state.with_suffix(".new")
    new.write_bytes(orjson.dumps({"pid": os.getpid(), "start_ticks": start_ticks(os.getpid()), "url": url}))
    new.replace(place.state)


def main() -> int:
    """Exit codes: 0 ended in order, 2 configuration, 3 the store cannot be had."""
    parser = argparse.ArgumentParser(description="The owner of a twinrail store.")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--stay", action="store_true", help="do not end when idle (systemd)")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("asyncssh").setLevel(logging.WARNING)
    try:
        asyncio.run(serve(load_inventory(args.config), stay=args.stay))
    except ConfigError as e:
        sys.stderr.write(f"{e}\n")
        return 2
    except StoreError as e:
        sys.stderr.write(f"{e}\n")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
