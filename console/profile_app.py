"""`twinrail analyze FILES --tui`: the profile screen by itself, with no owner and no store."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from textual.binding import Binding

from console.app import TwinrailApp
from console.verbs import USAGE, say
from runners.session import OwnerState, Session
from runners.spec import parse_inventory
from screens.base import Command
from screens.help import HelpScreen
from screens.profile import ProfileScreen
from store.database import Query, Table
from store.errors import StoreError


class _NoStore:
    """A profile needs no store, and there is none."""

    def query(self, sql: str, *, handle: Query | None = None) -> Table:
        raise StoreError("there is no store behind a profile")


class ProfileApp(TwinrailApp):
    """The console with one screen, over the files given."""

    def __init__(self, files: Sequence[Path], families: Path | None = None, *, columns: bool = True) -> None:
        super().__init__(Session(parse_inventory(""), _NoStore(), owner=OwnerState(True)))
        self.profile = ProfileScreen(self.view, tuple(files), families, columns=columns)
        self.view.places = ()

    def open_screens(self) -> None:
        self.push_screen(self.profile)

    def action_go(self, place: str) -> None:
        """There is nowhere else to go."""

    def action_help(self) -> None:
        own = [
            b
            for b in self.BINDINGS
            if isinstance(b, Binding) and not b.action.startswith(("go(", "places", "new_owner", "control"))
        ]
        self.push_screen(HelpScreen(own, self.profile))

    def commands(self) -> Iterable[Command]:
        yield Command("view: other colours", "dark, light, high contrast", self.action_theme)
        yield Command("help", "all keys of this screen", self.action_help)
        yield Command("leave", "", self.action_leave)


def show_profile(files: Sequence[Path], families: Path | None = None, *, columns: bool = True) -> int:
    """Show captures until the operator leaves; the exit code (128 + n after signal n). 2 without files or terminal."""
    missing = [str(file) for file in (*files, *([families] if families else ())) if not file.exists()]
    if missing or not sys.stdout.isatty():
        say(f"no such file: {', '.join(missing)}" if missing else "analyze --tui needs a terminal; leave --tui out")
        return USAGE
    app = ProfileApp(files, families, columns=columns)
    app.run()
    return app.return_code or 0
