"""Stores of scenes, made once, and the app over a copy of one with its clock stopped."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

from console.app import TwinrailApp
from runners.spec import parse_inventory
from screens.base import ConsoleScreen
from store.database import Store
from tests.screens import compare_scene, mixed_scene, samples, scene, search_scene
from tests.screens.fake_session import StoreSession

SCENES = {
    **{"live": scene.live, "lost": scene.lost, "error": scene.error, "empty": scene.empty},
    **{f"search-{s.__name__}": s for s in search_scene.SCENES},
    **{s.__name__: s for s in (*mixed_scene.SCENES, *compare_scene.SCENES)},
}
OpenApp = Callable[..., TwinrailApp]


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """name of a scene -> a store file with it, written once a session."""
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name) / "twinrail.duckdb"
            with Store.open(made[name]) as store:
                SCENES[name](store)
        return made[name]

    return get


@pytest.fixture
def open_app(stores: Callable[[str], Path], tmp_path: Path) -> Iterator[OpenApp]:
    """Opens the app over a scene; `configured=False` is a newcomer without a configuration."""
    opened: list[Store] = []

    def make(name: str, *, configured: bool = True) -> TwinrailApp:
        path = tmp_path / f"{len(opened)}.duckdb"
        shutil.copy(stores(name), path)
        store = Store.open(path)
        opened.append(store)
        config = scene.config() if configured else parse_inventory("")
        return TwinrailApp(StoreSession(store, config, simulated=configured), now=lambda: samples.NOW)

    yield make
    for store in opened:
        store.close()


async def goto(pilot: Pilot[int], key: str) -> ConsoleScreen:
    """Press a screen's keys ("2", "g r") and wait until it shows what the store says."""
    await pilot.press(*key.split())
    await pilot.pause()
    screen = pilot.app.screen
    assert isinstance(screen, ConsoleScreen)
    await settled(pilot, screen)
    return screen


async def settled(pilot: Pilot[int], screen: ConsoleScreen) -> None:
    """Wait for one tick that began after now."""
    wanted = screen.ticks + (1 if screen.ticks == 0 else 2)  # the tick under way may have asked before
    for _ in range(1500):
        screen.poke()
        await pilot.pause(0.02)
        if screen.ticks >= wanted:
            break
    else:
        raise AssertionError("the screen did not ask again in 30 s")
    await pilot.pause()


async def until(pilot: Pilot[int], holds: Callable[[], bool]) -> None:
    """Wait until `holds` does, 30 s at most."""
    for _ in range(1500):
        await pilot.pause(0.02)
        if holds():
            return
    raise AssertionError("it did not come to that in 30 s")
