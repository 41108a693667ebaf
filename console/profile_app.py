"""`twinrail analyze FILES --tui`: the profile screen by itself, with no owner and no store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from console.app import TwinrailApp
from runners.session import OwnerState, Session
from runners.spec import parse_inventory
from screens.base import Command
from screens.profile import ProfileScreen
from store.database import Query, Table
from store.errors import StoreError


class _NoStore:
    """A profile needs no store, and there is none."""

    def query(self, sql: str, *, handle: Query | None = None) -> Table:
        raise StoreError("there is no store behind a profile")


class ProfileApp(TwinrailApp):
    """The console with one screen, over the files given."""

    def __init__(self, files: Sequence[Path]) -> None:
        super().__init__(Session(parse_inventory(""), _NoStore(), owner=OwnerState(True)))
        self.files = tuple(files)
        self.view.places = ()

    def open_screens(self) -> None:
        self.push_screen(ProfileScreen(self.view, self.files))

    def action_go(self, place: str) -> None:
        """There is nowhere else to go."""

    def commands(self) -> Iterable[Command]:
        yield Command("view: other colours", "dark, light, high contrast", self.action_theme)
        yield Command("help", "all keys of this screen", self.action_help)
        yield Command("leave", "", self.action_leave)


def show_profile(files: Sequence[Path]) -> int:
    """Show captures until the operator leaves; the exit code (128 + n after signal n)."""
    app = ProfileApp(files)
    app.run()
    return app.return_code or 0
