"""`demo`: the embedded lab, and on it the console or the whole tour without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.verbs import Place, demo_folder, run_async, say
from console.verbs.run import RunRequest, _run

if TYPE_CHECKING:
    from runners.spec import Inventory

TOUR = "tour"


def run_demo(*, headless: bool, as_json: bool, keep: bool, scenario: str) -> int:
    """Exit code of the tour, or of the console."""
    from runners.lab.control import stop

    say("starting the embedded lab: two nodes on this machine, everything simulated")
    inventory = Place(demo=True, scenario=scenario).inventory()
    try:
        if headless:
            return run_async(_tour(inventory, as_json=as_json))
        from console.verbs.tui import open_console

        return open_console(Place(demo=True))
    finally:
        if headless and not keep:
            stop(demo_folder())


async def _tour(inventory: Inventory, *, as_json: bool) -> int:
    what = [TOUR] if TOUR in inventory.plans else [n for n in inventory.cases if n.startswith("demo")]
    return await _run(inventory, RunRequest(what or ["D1"]), as_json=as_json, foreground=False)
