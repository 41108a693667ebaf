"""The console without a verb."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.verbs import DONE, USAGE, Place, say

if TYPE_CHECKING:
    from runners.spec import Inventory


def open_console(place: Place) -> int:
    """The TUI over the owner of this configuration."""
    import sys

    if not sys.stdout.isatty():
        say("twinrail: the console needs a terminal; `twinrail --help` lists the verbs that do not")
        return USAGE
    if not place.demo and not (place.config or _any_config()):
        say("No twinrail.toml here yet. Try one of these:")
        say("  twinrail demo             an embedded two-node lab, simulated, nothing needed")
        say("  twinrail init             a few questions, a look at your nodes, and a twinrail.toml")
        say("  twinrail read FILE        understand a log, a capture or a result file")
        return DONE
    return _console(place.inventory())


def _any_config() -> bool:
    from console.verbs import default_config

    return default_config().exists()


def _console(inventory: Inventory) -> int:
    from console.app import run
    from runners import owner_process
    from runners.session import Attached

    owner_process.start(inventory)
    session = Attached(inventory)
    try:
        return run(session)
    finally:
        session.close()
