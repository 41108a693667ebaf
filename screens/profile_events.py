"""The events behind a number, as a list; enter shows one on the timeline."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from runners.profiles import Found
from screens.data import Row
from screens.profile_rows import letter
from screens.widgets.table import Column, Table
from screens.widgets.text import clean, num
from screens.widgets.timeline_lanes import length


class EventsScreen(ModalScreen[Row | None]):
    """Enter gives the event under the cursor, escape None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "close", "close")]

    def __init__(self, title: str, found: Found, ranks: list[str]) -> None:
        super().__init__()
        self._title, self._found, self._ranks = title, found, ranks

    def compose(self) -> ComposeResult:
        several = len(self._ranks) > 1
        with Vertical(id="dialog"):
            yield Table(
                self._title,
                (
                    Column("", 1, lambda r: letter(r["family"])),
                    *((Column("rank", 8, lambda r: (self._ranks[r["rank"]], "dim")),) if several else ()),
                    Column("stream", 6, lambda r: (num(r["stream"]), "dim"), ">", keep=6),
                    Column("at ms", 14, lambda r: (f"{r['at_ns'] / 1e6:.6f}", ""), ">"),
                    Column("length", 9, lambda r: (length(r["length_ns"]), "strong"), ">"),
                    Column(
                        "launched by",
                        20,
                        lambda r: (clean(r["launched_by"] or "not in the capture", 40), "dim"),
                        keep=3,
                    ),
                    Column("name", 0, lambda r: (clean(r["name"], 300), "")),
                ),
                key="id",
                empty="no event",
                ident="events",
            )
            yield Static("enter shows it on the timeline, y copies, esc closes", classes="hint", markup=False)

    def on_mount(self) -> None:
        dialog = self.query_one("#dialog").styles  # kernel names are long: wider than other dialogs
        dialog.width, dialog.max_width, dialog.height = "96%", 200, "90%"
        table = self.query_one(Table)
        table.show([row | {"id": i} for i, row in enumerate(self._found.rows)])
        table.focus()

    @on(Table.Chosen)
    def _chosen(self, event: Table.Chosen) -> None:
        event.stop()
        self.dismiss(event.row)

    def key_y(self) -> None:
        self.app.copy_to_clipboard(self.query_one(Table).plain())
        self.notify("copied")

    def action_close(self) -> None:
        self.dismiss(None)


def heading(what: str, found: Found) -> str:
    """What is listed, and how much of it."""
    count = f"{found.found}{' and more' if found.more else ''} events"
    return f"{what}: {count}" + (f", the first {len(found.rows)}" if found.found > len(found.rows) else "")
