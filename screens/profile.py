"""Profile: where the time of one or more captures goes, rank by rank, down to the events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widget import Widget

from runners.profiles import Profile, ProfileError, open_profile, paths_of
from screens.base import Command, ConsoleScreen
from screens.data import View
from screens.dialogs import Ask, Reader
from screens.profile_chains import list_small
from screens.profile_events import EventsScreen, heading
from screens.profile_pages import KEYS, PAGES, Choice, arrange, fill, pages
from screens.profile_rows import (
    BEHIND,
    COLUMNS,
    METRICS,
    SORTS,
    bar_rows,
    letter,
    part_lines,
    problem_lines,
    rank_name,
    state_bar,
)
from screens.widgets.bars import Bar, Ends, TextPanel
from screens.widgets.panel import Panel
from screens.widgets.stackbar import StackBars
from screens.widgets.table import Table
from screens.widgets.text import Line, Span, clean, line, span_s
from screens.widgets.timeline_lanes import Lanes, Timeline, Window

HOLD_S = 0.05  # keys held down ask once, not once a key


class ProfileScreen(ConsoleScreen):
    """Fed by a process that holds the captures, not by the store."""

    PLACE = "profile"
    KEY = "7"
    ABOUT = "where the time of a capture goes"
    PERIOD_S = 3600.0
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "open", "open traces: torch profiler (json, gz) or nsys exports"),
        Binding("escape", "cancel", "stop reading"),
        Binding("f", "page('families')", "families by file, kind of step or step"),
        Binding("n", "page('names')", "kernels by name"),
        Binding("c", "page('comm')", "collectives, and who arrives last"),
        Binding("i", "page('chains')", "idle gaps, chains of small kernels, launches a step"),
        Binding("a", "page('answers')", "the ten questions, answered"),
        Binding("d", "page('details')", "the whole report: host, calls, chains, gaps"),
        Binding("x", "page('diff')", "what changed from the first file to the second"),
        Binding("s", "sort", "kernels by total, count or mean"),
        Binding("m", "metric", "families in wall clock, device time, time per token"),
        Binding("v", "columns", "families by file, kind of step, or step of the chosen rank"),
        Binding("left_square_bracket", "shift(-1)", "columns to the left"),
        Binding("right_square_bracket", "shift(1)", "columns to the right"),
        Binding("p", "problems", "problems and unmatched kernels"),
    ]

    big: Widget | None = None

    def __init__(
        self, view: View, files: tuple[Path, ...] = (), families: Path | None = None, *, columns: bool = True
    ) -> None:
        super().__init__(view)
        self.files = files
        self._opened = partial(open_profile, families=families, columns=columns)
        self.profile: Profile | None = None
        self.choice = Choice()
        self._reading = False
        self._began = 0.0
        self._told = ""

    # --- building

    def body(self) -> ComposeResult:
        yield TextPanel("profile", ident="work")
        yield StackBars("wall clock of each rank, %; wait is part of comm   enter reads", key="at", ident="bars")
        yield from pages()
        yield Timeline("timeline", ident="timeline")
        yield Bar(ident="state")

    def on_mount(self) -> None:
        self.set_interval(0.5, self._tell)
        if self.files:
            self.read(self.files)

    async def on_unmount(self) -> None:
        if self.profile is not None:
            await self.profile.close()

    async def refresh_data(self) -> None:
        """Nothing to ask: a capture does not change."""
        self.ticks += 1
        self.show()

    # --- reading

    def read(self, files: Iterable[Path]) -> None:
        """Analyse files in place of those on screen."""
        self.files = tuple(files)
        self._drop()
        self._reading, self._began = True, time.monotonic()
        self._told = f"reading {len(self.files)} file{'s'[: len(self.files) != 1]}"
        self.run_worker(self._read(), group="read", exclusive=True)
        self._tell()
        self.show()

    def _drop(self) -> None:
        if self.profile is not None:
            self.run_worker(self.profile.close(), group="close")
        self.profile = self.snapshot = self.big = None

    async def _read(self) -> None:
        try:
            profile = await self._opened(self.files, self._progress)
        except ProfileError as e:
            self._told = clean(e, 600)
        except OSError as e:
            self._told = f"no process for the analysis: {clean(e, 300)}"
        except asyncio.CancelledError:
            self._told = "given up"
            raise
        else:
            if profile.report["ranks"]:
                self._show_profile(profile)
            else:
                await profile.close()
                self._told = "\n".join(
                    ["nothing could be analysed", *(clean(p, 400) for p in profile.report["problems"])]
                )
        finally:
            self._reading = False
            if self.is_mounted:
                self._tell()
                self.show()

    def _progress(self, done: int, of: int, file: str) -> None:
        self._told = f"{done} of {of} files read, {clean(file, 100)} last"
        self._tell()

    def _tell(self) -> None:
        if self.profile is not None:
            return
        lines: list[Line] = []
        if self._reading:
            lines += [line(("◐ ", "warn"), self._told, (f"   {span_s(time.monotonic() - self._began)}", "dim"))]
            lines += [line("  ", (clean(file, 300), "dim")) for file in self.files[:12]]
            lines += [line("  "), line("  ", ("esc gives up", "dim"))]
        else:
            lines += [line(("▲ ", "warn"), told) for told in self._told.splitlines()]
            lines += [
                line(("o", "accent"), " opens traces: torch profiler (.json, .json.gz) or nsys exports (.sqlite)"),
                line(("  several files are ranks of one profile, or scenarios side by side; no node is needed", "dim")),
            ]
        self.query_one("#work", TextPanel).show(tuple(lines))

    def _show_profile(self, profile: Profile) -> None:
        self.profile = self.snapshot = profile
        if len(profile.tables["files"]) == 1 and profile.tables["kinds"]:
            self.choice.columns = "kinds"
        self.query_one("#bars", StackBars).show(bar_rows(profile.report))
        self.query_one(Timeline).reset(profile.span_ns, profile.families, [letter(f) for f in profile.families])
        self._place_panels()
        self.query_one("#bars").focus()

    # --- showing

    def apply(self, snapshot: Profile) -> None:
        wide = self.size.width >= 100
        self.query_one("#state", Bar).show(state_bar(snapshot.report, wide))
        fill(self, snapshot, self.choice, self._chosen())
        timeline = self.query_one(Timeline)
        timeline.title = f"timeline   {snapshot.clock}" if snapshot.clock and wide else "timeline"

    def _chosen(self) -> int:
        row = self.query_one("#bars", Table).row
        return row["at"] if row else 0

    def _place_panels(self) -> None:
        """As the base does, also while a panel is maximised: that is done by heights here."""
        width, height = self.size
        self.place_panels(width, max(height - 2 - int(self._notice() is not None), 3))

    def place_panels(self, width: int, height: int) -> None:
        shown = self.profile is not None
        lines = dict.fromkeys(("#work", "#bars", *PAGES.values(), "#timeline", "#state"), 0)
        if not shown:
            lines["#work"] = height
        else:
            lines["#state"] = 1
            room = height - 1
            if self.big is not None:
                lines[f"#{self.big.id}"] = room
            else:
                ranks = len(self.profile.report["ranks"]) if self.profile else 1
                lines["#bars"] = min(ranks + 4, max(room // 4, 4))
                rest = room - lines["#bars"]
                cells = self.query_one(Timeline).data
                lines["#timeline"] = max(min(rest // 2, len(cells.rows) + 3 if cells else rest), 4)
                lines[PAGES[self.choice.page]] = rest - lines["#timeline"]
        arrange(self, width, lines["#comm"] or lines["#chained"])
        for ident, n in lines.items():
            self.height_of(self.query_one(ident), n)

    def headline(self) -> Ends:
        spans: list[Span] = [("profile  ", "")]
        if self.files:
            more = f" +{len(self.files) - 1}" if len(self.files) > 1 else ""
            spans.append((clean(self.files[0].name, 60) + more, "strong"))
        if self.profile is not None:
            ranks = len(self.profile.report["ranks"])
            spans.append((f"   {ranks} rank{'s'[: ranks != 1]}   ", "dim"))
            for key, page in zip(KEYS, PAGES, strict=True):
                name = f" {page}  " if self.size.width >= 110 else " "
                spans += [
                    (key, "accent" if page != self.choice.page else "found"),
                    (name, "strong" if page == self.choice.page else "dim"),
                ]
        return self.heading(spans)

    # --- events

    @on(Timeline.Wanted)
    def _wanted(self, event: Timeline.Wanted) -> None:
        self.run_worker(self._lanes(event.window), group="lanes", exclusive=True)

    async def _lanes(self, window: Window) -> None:
        await asyncio.sleep(HOLD_S)
        profile = self.profile
        if profile is None:
            return
        try:
            rows = await profile.lanes(window.start_ns, window.end_ns, window.width)
        except ProfileError as e:
            self.trouble = clean(e, 300)
            self._bars()
            return
        ranks = profile.report["ranks"]
        narrow = self.size.width < 100
        for row in rows:
            name = rank_name(ranks[row["rank"]], ranks)
            name = name.replace("rank ", "r", 1).replace("device ", "d", 1) if narrow else name
            brief = narrow or len(name) > 8
            row |= {"who": name, "lane": row["name"].replace("stream ", "s") if brief else row["name"]}
        self.query_one(Timeline).show(Lanes(window, rows))
        self._place_panels()

    @on(Timeline.Opened)
    def _cell(self, event: Timeline.Opened) -> None:
        row = event.row
        stream = None if row["name"] == "device" else row["name"]
        self.list_events(
            f"{row['who']} {row['lane']}", rank=row["rank"], stream=stream, window_ns=(event.start_ns, event.end_ns)
        )

    @on(Table.Chosen, "#families")
    def _family(self, event: Table.Chosen) -> None:
        row = event.row
        self.list_events(row["name"], **({"family": row["family"]} if row["family"] else BEHIND[row["name"]]))

    @on(Table.Chosen, "#kernels")
    def _kernel(self, event: Table.Chosen) -> None:
        self.list_events(clean(event.row["name"], 60), name=event.row["name"])

    @on(Table.Chosen, "#diff")
    def _changed(self, event: Table.Chosen) -> None:
        row = event.row
        of_kind = {"kernel": {"name": row["name"]}, "family": {"family": row["family"]}, "gap": BEHIND["idle"]}
        self.list_events(
            clean(row["name"], 60), **(of_kind[row["kind"]] if row["kind"] != "part" else BEHIND[row["name"]])
        )

    @on(Table.Chosen, "#collectives")
    def _collective(self, event: Table.Chosen) -> None:
        self.list_events(f"Communication, {event.row['who']}", family="Communication", rank=event.row["at"])

    @on(Table.Chosen, "#stragglers")
    def _straggler(self, event: Table.Chosen) -> None:
        row, ranks = event.row, self.profile.report["ranks"] if self.profile is not None else []
        same = [i for i, r in enumerate(ranks) if all(r[key] == row[key] for key in ("rank", "file", "device"))]
        if same:
            self.list_events(f"Communication, {rank_name(ranks[same[0]], ranks)}", family="Communication", rank=same[0])

    @on(Table.Chosen, "#chains")
    def _chained(self, event: Table.Chosen) -> None:
        row = event.row
        window = (row["at_ns"], row["at_ns"] + max(row["wall_ns"], 1))
        # A gap holds no event: those at its edges show what it lies between.
        edge = 1 if row["kind"] == "gap" else 0
        what = f"{row['kind']} at {row['at_ns'] / 1e6:.4f} ms"
        self.list_events(what, rank=self._chosen(), window_ns=(window[0] - edge, window[1] + edge))

    @on(Table.Chosen, "#small")
    def _small(self, event: Table.Chosen) -> None:
        if self.profile is not None:
            at = self._chosen()
            shift = self.profile.starts_ns[at] - self.profile.report["ranks"][at]["start_ns"]
            list_small(self.list_events, event.row, at, shift)

    @on(Table.Chosen, "#bars")
    def _rank(self, event: Table.Chosen) -> None:
        if self.profile is not None:
            rank = self.profile.report["ranks"][event.row["at"]]
            self.app.push_screen(Reader(event.row["title"], part_lines(rank)))

    @on(Table.Moved, "#bars")
    def _other_rank(self) -> None:
        if self.choice.columns == "steps" or self.choice.page == "chains":
            self.show()

    def list_events(
        self,
        what: str,
        *,
        rank: int | None = None,
        family: str | None = None,
        name: str | None = None,
        stream: str | None = None,
        window_ns: tuple[int, int] | None = None,
        **more: Any,
    ) -> None:
        """Show the events behind a number; the one chosen there is shown on the timeline. more: as Profile.events."""
        profile = self.profile
        if profile is None:
            return

        async def find() -> None:
            try:
                found = await profile.events(
                    rank=rank, family=family, name=name, stream=stream, window_ns=window_ns, **more
                )
            except ProfileError as e:
                self.notify(clean(e, 300), severity="error", markup=False)
                return
            ranks = profile.report["ranks"]
            names = [rank_name(r, ranks) for r in ranks]
            self.app.push_screen(EventsScreen(heading(what, found), found, names), self._on_timeline)

        self.run_worker(find(), group="events", exclusive=True)

    def _on_timeline(self, row: dict[str, object] | None) -> None:
        if row is None:
            return
        begin, size, rank = row["at_ns"], row["length_ns"], row["rank"]
        assert isinstance(begin, int)
        assert isinstance(size, int)
        assert isinstance(rank, int)
        timeline = self.query_one(Timeline)
        if self.big is not None and self.big is not timeline:
            self.big = None
            self._place_panels()
        timeline.focus()
        timeline.go_to(begin, begin + size, rank, f"stream {row['stream']}")

    # --- actions

    def action_open(self) -> None:
        def given(text: str | None) -> None:
            if not text:
                return
            try:
                self.read(paths_of(text))
            except ProfileError as e:
                self.notify(clean(e, 300), severity="error", markup=False)

        before = " ".join(map(str, self.files)) if len(self.files) == 1 else ""
        self.app.push_screen(Ask("open traces", "one or more files or folders; ~ and * are understood", before), given)

    def action_cancel(self) -> None:
        if self._reading:
            self.workers.cancel_group(self, "read")

    def action_refresh_now(self) -> None:
        if self.files:
            self.read(self.files)

    def action_page(self, page: str) -> None:
        self.choice.page = page
        self.big = None
        self.show()
        if self.profile is not None:
            target = self.query_one(PAGES[page])
            (target if isinstance(target, Panel) else target.query(Panel).first()).focus()

    def action_sort(self) -> None:
        self.choice.next("sort", SORTS)
        self.show()

    def action_metric(self) -> None:
        self.choice.next("metric", METRICS)
        self.show()

    def action_columns(self) -> None:
        self.choice.next("columns", COLUMNS)
        self.choice.first = 0
        self.show()

    def action_shift(self, by: int) -> None:
        self.choice.first = max(self.choice.first + by, 0)
        self.show()

    def action_problems(self) -> None:
        if self.profile is not None:
            self.app.push_screen(Reader("problems and unmatched time", problem_lines(self.profile.report)))

    def action_maximise(self) -> None:
        """Give the panel in focus all the room; problems and unmatched time stay."""
        panel = self.focused
        if self.big is not None:
            self.big = None
        elif isinstance(panel, Panel):
            inside = panel.parent
            self.big = inside if isinstance(inside, Horizontal) else panel
        self._place_panels()

    def commands(self) -> Iterable[Command]:
        yield Command("profile: open traces", "torch profiler or nsys exports", self.action_open)
        if self.profile is not None:
            for page in PAGES:
                yield Command(f"profile: {page}", "show this page", partial(self.action_page, page))
            yield Command("profile: problems", "and kernels that no family rule knows", self.action_problems)
