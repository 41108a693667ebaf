"""The console: a watcher like any other. It routes between screens and restores the terminal whatever ends it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType

from console.palette import ConsoleCommands
from console.theme import THEMES
from runners.session import Session
from screens.base import Command, ConsoleScreen, Go
from screens.check import CheckScreen
from screens.compare import CompareScreen
from screens.control import control
from screens.data import Place, View
from screens.engine import EngineScreen
from screens.gpu import GpuScreen
from screens.help import HelpScreen
from screens.home import HomeScreen
from screens.jobs import JobsScreen
from screens.live import LiveScreen
from screens.manifest import ManifestScreen
from screens.mixed import MixedScreen
from screens.node import NodeScreen
from screens.places import PlacesScreen
from screens.plan import PlanScreen
from screens.profile import ProfileScreen
from screens.rails import RailsScreen
from screens.run import RunScreen
from screens.runs import RunsScreen
from screens.search import SearchScreen
from screens.startup import StartupScreen
from screens.threads import ThreadsScreen
from screens.widgets.text import clean
from store.errors import StoreError

# One line a screen, in the order of the bar; each class says its own KEY.
SCREENS: tuple[type[ConsoleScreen], ...] = (
    HomeScreen,
    LiveScreen,
    NodeScreen,
    PlanScreen,
    SearchScreen,
    CompareScreen,
    ProfileScreen,
    RunsScreen,
    JobsScreen,
    RunScreen,
    MixedScreen,
    CheckScreen,
    StartupScreen,
    ManifestScreen,
    GpuScreen,
    RailsScreen,
    EngineScreen,
    ThreadsScreen,
)
PLACES = tuple(Place(s.KEY, s.PLACE, s.ABOUT) for s in SCREENS)
TERMINAL_CHECK_S = 2.0
LAST_WORDS_S = 10.0  # for an orderly end once the terminal is gone
WATCHING_S = 20.0  # a screen that asks nothing for long is watched all the same: the owner stays for it


class TwinrailApp(App[int]):
    """`session` answers and takes orders; `now` is the owner's clock in ns (fixed in tests)."""

    TITLE = "twinrail"
    CSS_PATH = "console.tcss"
    COMMANDS: ClassVar = {ConsoleCommands}
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(p.key, f"go('{p.name}')") for p in PLACES if p.key.isdigit()),
        Binding("g", "places", "go anywhere: all places and their keys"),
        Binding("question_mark", "help", "this help"),
        Binding("ctrl+p", "command_palette", "commands: everything that makes sense here"),
        Binding("tab", "app.focus_next", "next panel"),
        Binding("shift+tab", "app.focus_previous", "panel before"),
        Binding("O", "new_owner", "start a new owner when the owner is gone"),
        Binding("C", "control", "control the run that is on: pause, skip, retry, abort"),
        Binding("T", "theme", "other colours"),
        Binding("ctrl+z", "suspend_process", "suspend; `fg` in the shell brings it back"),
        Binding("q,ctrl+c", "leave", "leave; the run goes on"),
    ]

    def __init__(self, session: Session, now: Callable[[], int] = time.time_ns) -> None:
        super().__init__()
        self.session = session
        self.view = View(session=session, now=now, places=PLACES)
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = os.environ.get("TEXTUAL_THEME") or THEMES[0].name

    def on_mount(self) -> None:
        self._handle_signals()
        self.open_screens()

    def open_screens(self) -> None:
        """Install the screens and show the first."""
        for screen in SCREENS:
            self.install_screen(screen(self.view), screen.PLACE)
        self.push_screen("home")
        self.set_interval(WATCHING_S, self._watch)

    def _watch(self) -> None:
        async def ask() -> None:
            with contextlib.suppress(StoreError):  # the screen in front tells of a dead owner when it asks
                await self.session.sql("SELECT 1")

        if self.session.owner.alive:
            self.run_worker(ask(), group="watch", exclusive=True)

    def _handle_signals(self) -> None:
        """TERM and HUP end the app in order: Textual leaves them alone, and the terminal would stay in raw mode."""
        if self.is_headless:
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, partial(self.exit, 128 + number, 128 + number))
        leave = partial(loop.call_soon_threadsafe, self.exit, 128 + signal.SIGHUP, 128 + signal.SIGHUP)
        threading.Thread(target=_watch_terminal, args=(leave,), name="terminal", daemon=True).start()

    def on_go(self, message: Go) -> None:
        if message.run_id is not None and message.run_id != self.view.run_id:
            self.view.run_id, self.view.attempt_id = message.run_id, None
        if message.attempt_id is not None:
            self.view.attempt_id = message.attempt_id
        if message.node is not None:
            self.view.node = message.node
        if message.what:
            self.view.wanted = message.what
        self.action_go(message.place)

    def action_go(self, place: str) -> None:
        while len(self.screen_stack) > 2:  # dialogs and help give way
            self.pop_screen()
        if isinstance(self.screen, ConsoleScreen) and place == self.screen.PLACE:
            self.screen.poke()
        else:
            self.switch_screen(place)

    def action_places(self) -> None:
        """All places and their keys; the next key goes there."""

        def go(place: str | None) -> None:
            if place is not None:
                self.action_go(place)

        if isinstance(self.screen, ConsoleScreen) and self.view.places:
            self.push_screen(PlacesScreen(self.view.places, self.screen.PLACE), go)

    def action_control(self) -> None:
        if isinstance(self.screen, ConsoleScreen):
            self.run_worker(control(self.screen), group="control", exclusive=True)

    def action_help(self) -> None:
        if isinstance(self.screen, ConsoleScreen):
            own = [b for b in self.BINDINGS if isinstance(b, Binding)]
            self.push_screen(HelpScreen(own, self.screen, self.view.places))

    def action_open_trace(self) -> None:
        """The profile screen, asking for a path."""
        profile = self.get_screen(ProfileScreen.PLACE, ProfileScreen)
        self.action_go(ProfileScreen.PLACE)
        self.call_after_refresh(profile.action_open)

    def action_theme(self) -> None:
        names = [t.name for t in THEMES]
        self.theme = names[(names.index(self.theme) + 1) % len(names)] if self.theme in names else names[0]

    def action_leave(self) -> None:
        self.exit(0)

    def action_new_owner(self) -> None:
        if self.session.owner.alive:
            self.notify("the owner is alive")
        else:
            self.run_worker(self._new_owner(), group="owner", exclusive=True)

    async def _new_owner(self) -> None:
        try:
            await self.session.start_owner()
        except StoreError as e:
            self.notify(clean(e, 300), title="no new owner", severity="error", markup=False)
        else:
            self.notify("a new owner carries on")
        if isinstance(self.screen, ConsoleScreen):
            self.screen.poke()

    def commands(self) -> Iterable[Command]:
        """What makes sense on every screen."""
        for p in self.view.places:
            yield Command(f"go: {p.name}", f"{p.about}; also {p.key}", partial(self.action_go, p.name))
        yield Command("open a trace", "where the time goes; no node needed", self.action_open_trace)
        yield Command("run: pause, skip, retry, abort", "of the run that is on; also C", self.action_control)
        yield Command("view: other colours", "dark, light, high contrast", self.action_theme)
        yield Command("help", "all keys of this screen", self.action_help)
        if not self.session.owner.alive:
            yield Command("owner: start a new one", "it carries on where the last one stopped", self.action_new_owner)
        yield Command("leave", "the run goes on", self.action_leave)


def _watch_terminal(leave: Callable[[], object]) -> None:
    """End the app when its terminal is gone and no HUP came (it was not the controlling one): reading it would spin.

    A thread of its own: an app that hangs in a write to that terminal cannot end itself, and is ended after a while.
    """
    while True:
        time.sleep(TERMINAL_CHECK_S)
        try:
            termios.tcgetattr(0)
        except termios.error:
            with contextlib.suppress(RuntimeError):  # its loop has ended
                leave()
            time.sleep(LAST_WORDS_S)
            os._exit(128 + signal.SIGHUP)


def run(session: Session, now: Callable[[], int] = time.time_ns) -> int:
    """Show the console until the operator leaves it; the exit code (128 + n after signal n)."""
    if os.environ.get("SSH_CONNECTION"):  # a slow link: fewer frames, no animation
        os.environ.setdefault("TEXTUAL_FPS", "15")
        os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    app = TwinrailApp(session, now)
    app.run(mouse=os.environ.get("TWINRAIL_MOUSE", "1") not in ("0", "off", "no"))
    return app.return_code or 0
