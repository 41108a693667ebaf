"""Waiting for what a run comes to, and ending the owner of a store: shared by the tests of this folder."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from runners import owner_process
from runners.session import Session
from runners.spec import Inventory


async def until(session: Session, run_id: str, reached: Callable[[dict[str, Any]], bool], limit_s: float = 120) -> Any:
    """The run's progress row once it is as wanted; the test fails after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        row = (await session.rows("run_progress", run_id))[0]
        if reached(row):
            return row
        await asyncio.sleep(0.2)
    pytest.fail(f"not reached within {limit_s} s: {row}")


def end_owner(inventory: Inventory, number: signal.Signals = signal.SIGTERM) -> None:
    """Signal the owner of the configuration's store, if there is one, and wait until it is gone."""
    if owner := owner_process.find(inventory.store_path):
        os.kill(owner.pid, number)
        while owner_process.start_ticks(owner.pid) is not None:
            time.sleep(0.1)
