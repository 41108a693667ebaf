"""Run as a program: the console over a scene in the terminal it is given. `python -m tests.console.stage FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from console.app import run
from store.database import Store
from tests.screens import samples, scene
from tests.screens.fake_session import StoreSession


def main(folder: str) -> int:
    with Store.open(Path(folder) / "twinrail.duckdb") as store:
        scene.live(store)
        return run(StoreSession(store, scene.config()), now=lambda: samples.NOW)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
