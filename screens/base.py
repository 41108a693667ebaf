"""What all screens share: bars, one polling worker, pause, maximise, and messages to go elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget

from screens.data import Feed, Place, Row, View
from screens.widgets.bars import Bar, Ends
from screens.widgets.chart import Chart
from screens.widgets.panel import Panel
from screens.widgets.text import Span, clean, width_of
from store.errors import OwnerGone, StoreError


class Go(Message):
    """Show another screen; `run_id`, `attempt_id` and `node` become the operator's choice when given, `what` is to be
    started."""

    def __init__(
        self,
        place: str,
        *,
        run_id: str | None = None,
        attempt_id: str | None = None,
        node: str | None = None,
        what: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self.place = place
        self.run_id = run_id
        self.attempt_id = attempt_id
        self.node = node
        self.what = what


class Command:
    """An entry of the palette: what it says, what it is for, and what it does."""

    __slots__ = ("help", "run", "title")

    def __init__(self, title: str, help_text: str, run: Any) -> None:
        self.title = title
        self.help = help_text
        self.run = run


class ConsoleScreen(Screen[None]):
    """A screen fed by `fetch` (queries, in a worker) and `apply` (one frozen snapshot, on the UI loop).

    Nothing is asked while another screen is in front or the view is paused. `place_panels` gives the panels heights.
    """

    PLACE: ClassVar[str] = ""
    KEY: ClassVar[str] = ""  # a digit of its own, or "g " and a letter; "" is reached from another screen only
    ABOUT: ClassVar[str] = ""  # what is there, in a few words
    PERIOD_S: ClassVar[float] = 1.0
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", "pause the view (the run goes on)"),
        Binding("z", "maximise", "maximise the panel in focus, or put it back"),
        Binding("r", "refresh_now", "ask again now"),
        Binding("y", "copy", "copy the panel in focus"),
    ]

    def __init__(self, view: View) -> None:
        super().__init__(name=self.PLACE)
        self.view = view
        self.feed = Feed(view.session)
        self.snapshot: Any = None
        self.paused = False
        self.trouble: str | None = None
        self.pauses: list[Row] = []  # runs that an operator has paused: easily forgotten, so every screen tells
        self._wake = asyncio.Event()
        self.ticks = 0

    # --- for subclasses

    def body(self) -> ComposeResult:
        raise NotImplementedError

    async def fetch(self) -> Any:
        """One consistent answer to everything the screen shows. Raises StoreError."""
        raise NotImplementedError

    def apply(self, snapshot: Any) -> None:
        """Hand the snapshot to the panels."""
        raise NotImplementedError

    def headline(self) -> Ends:
        """The top bar."""
        return self.heading(())

    def place_panels(self, width: int, height: int) -> None:
        """Give panels heights for this size and the snapshot at hand."""

    def commands(self) -> Iterable[Command]:
        """What makes sense here, for the palette."""
        return ()

    # --- machinery

    def compose(self) -> ComposeResult:
        yield Bar(ident="top")
        yield Bar(ident="notice")
        yield from self.body()
        yield Bar(ident="bottom")

    def on_mount(self) -> None:
        self._bars()
        self.run_worker(self._poll(), group="poll", exclusive=True)

    def on_screen_resume(self) -> None:
        self.poke()

    def poke(self) -> None:
        """Fetch at once instead of at the next tick."""
        self._wake.set()

    async def _poll(self) -> None:
        while True:
            if self.is_current and not self.paused:
                await self.refresh_data()
            try:
                await asyncio.wait_for(self._wake.wait(), self.PERIOD_S)
            except TimeoutError:
                continue
            finally:
                self._wake.clear()

    async def refresh_data(self) -> None:
        """One tick: ask, then show. Trouble goes to the notice line; the last snapshot stays on screen."""
        try:
            await self.feed.tick()
            with contextlib.suppress(OwnerGone):  # the notice tells; what a screen needs an owner for, it says itself
                self.pauses = await self.feed.rows("runs_paused", tables=("orders", "runs"))
            snapshot = await self.fetch()
        except StoreError as e:
            self.trouble = clean(e, 300)
        else:
            self.trouble = None
            self.snapshot = snapshot
        self.ticks += 1
        self.show()

    def show(self) -> None:
        """Put the snapshot on the panels and give them their places."""
        with self.app.batch_update():
            if self.snapshot is not None:
                self.apply(self.snapshot)
                self._place_panels()
            elif self.ticks == 1:
                for panel in self.query(Panel):  # nothing is there: now each says what will be
                    panel.redraw()
            self._bars()

    def on_resize(self) -> None:
        self._place_panels()
        self._bars()

    def _place_panels(self) -> None:
        if self.maximized is None:
            width, height = self.size
            self.place_panels(width, max(height - 2 - int(self._notice() is not None), 3))

    def heading(self, spans: Iterable[Span], right: Iterable[Span] = ()) -> Ends:
        """A top bar that starts with the product's name and ends with SIMULATED where that is so."""
        tail = [*right]
        if self.view.session.simulated:
            tail.append((" SIMULATED ", "badge"))
        return Ends(((" twinrail  ", "title"), *spans), tuple(tail))

    def _notice(self) -> tuple[Span, ...] | None:
        owner = self.view.session.owner
        if not owner.alive:
            return (
                (" ✖ no owner. ", "bad"),
                ("O starts a new one, which carries on. ", "strong"),
                (f"Jobs on the nodes go on. {clean(owner.detail, 200)}", "dim"),
            )
        if self.trouble:
            return ((f" ▲ {self.trouble}", "warn"),)
        if self.paused:
            return ((" ▌▌ view paused; the run goes on. space resumes", "warn"),)
        if self.pauses:
            r = self.pauses[0]
            said = f" ▌▌ {clean(r['run_id'], 60)} is paused by {clean(r['paused_by'], 40)}. C, then p: it goes on"
            return ((said, "warn"),)
        return None

    def _bars(self) -> None:
        notice = self._notice()
        bar = self.query_one("#notice", Bar)
        bar.display = notice is not None
        if notice is not None:
            bar.show(Ends(notice))
        self.query_one("#top", Bar).show(self.headline())
        self.query_one("#bottom", Bar).show(bottom_bar(self.view.places, self.PLACE, self.size.width))

    def height_of(self, panel: Widget, lines: int) -> None:
        """A fixed height, or 0 lines to hide; sets styles only when they differ, so that no layout runs for nothing."""
        shown = lines > 0
        if panel.display != shown:
            panel.display = shown
        if shown and (panel.styles.height is None or panel.styles.height.value != lines):
            panel.styles.height = lines

    def send(self, kind: str, **params: Any) -> None:
        """Give the owner an order and say what became of it."""

        async def give() -> None:
            try:
                answer = await self.view.session.order(kind, **params)
            except StoreError as e:
                self.notify(
                    clean(e, 300), title=f"{kind.replace('_', ' ')} was not taken", severity="error", markup=False
                )
            else:
                said = clean(answer.get("detail") or answer.get("run_id") or "taken", 300)
                self.notify(said, title=kind.replace("_", " "), markup=False)
                self.ordered(kind, answer)
            self.poke()

        self.run_worker(give(), group="order")

    def ordered(self, kind: str, answer: dict[str, Any]) -> None:
        """An order was answered."""

    @on(Chart.Here)
    def what_happened_here(self, event: Chart.Here) -> None:
        """An instant of a chart: the live screen shows every panel and the logs of that moment."""
        self.view.hold_ns = event.at_ns
        self.post_message(Go("live"))

    # --- actions

    def action_pause(self) -> None:
        self.paused = not self.paused
        self._place_panels()
        self._bars()
        if not self.paused:
            self.poke()

    def action_maximise(self) -> None:
        if self.maximized is not None:
            self.minimize()
            self._place_panels()
        elif isinstance(self.focused, Panel):
            self.focused.styles.height = "1fr"
            self.focused.set_compact(False)
            self.maximize(self.focused, container=False)

    def forget(self) -> None:
        """Ask everything anew at the next tick."""
        self.feed.forget()

    def action_refresh_now(self) -> None:
        self.forget()
        self.poke()

    def action_copy(self) -> None:
        if isinstance(self.focused, Panel):
            self.app.copy_to_clipboard(self.focused.plain())
            self.notify(f"copied {self.focused.title or 'the panel'}")
        else:
            self.notify("tab to a panel first, then y copies it", severity="warning")


def bottom_bar(places: Iterable[Place], here: str, width: int) -> Ends:
    """Where the digits lead. Where room is short rarer keys go first, then spaces, then the ends of the words."""
    digits = [p for p in places if p.key.isdigit()]

    def left(gap: str, between: str, letters: int) -> list[Span]:
        spans: list[Span] = [(" ", "")]
        for p in digits:
            spans += [(p.key, "accent"), (f"{between}{p.name[:letters]}{gap}", "strong" if p.name == here else "dim")]
        return spans

    def right(*keys: tuple[str, str]) -> list[Span]:
        spans = [span for key, word in keys for span in ((key, "accent"), (f" {word}  ", "dim"))]
        return [*spans, ("q", "accent"), (" leave ", "dim")]

    help_key, palette = ("?", "help"), ("ctrl+p", "commands")
    more = [("g", "all"), help_key] if digits else [help_key]
    short = ((" ", 20), ("", 20), ("", 6), ("", 4))
    shapes = [
        *([(left("  ", " ", 20), right(*more, palette))] if width >= 100 else []),
        (left("  ", " ", 20), right(*more)),
        *((left(" ", between, letters), right(help_key)) for between, letters in short),
    ]
    fitting = [(a, b) for a, b in shapes if width_of(a) + width_of(b) <= width]
    first, last = (fitting or shapes[-1:])[0]
    return Ends(tuple(first), tuple(last))
