"""Logs of all nodes, interleaved by run clock. Virtual: a buffer around the view, the store has the rest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from screens.widgets.panel import Panel
from screens.widgets.text import Line, Span, clean, fit, line, stamp

Row = dict[str, Any]
LEVELS = (("all", 0), ("info", 20), ("warn", 30), ("error", 40))
_KINDS = {"server": "srv", "client": "cli", "probe": "prb", "profiler": "prof"}
BUFFER = 400  # lines asked of the store at a time


@dataclass(frozen=True)
class LogQuery:
    """Which lines are wanted: the last BUFFER ones at or before `until_ns` (None: now), of at least `level`."""

    until_ns: int | None = None
    level: int = 0
    node: str | None = None
    needle: str | None = None


class LogView(Panel[list[Row]]):
    """`f` follows, `l` level, `s` which node, up/down/page scroll, `/` (screen) searches, `n` the next hit above."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll(1)", "up", show=False),
        Binding("down,j", "scroll(-1)", "down", show=False),
        Binding("pageup", "page(1)", "page up", show=False),
        Binding("pagedown", "page(-1)", "page down", show=False),
        Binding("f,end", "follow", "follow", show=False),
        Binding("l", "level", "level", show=False),
        Binding("s", "node", "node", show=False),
        Binding("escape", "clear", "clear search", show=False),
    ]

    class Wanted(Message):
        """Other lines are wanted: `query` says which."""

    def __init__(self, title: str = "logs", *, empty: str = "", ident: str | None = None) -> None:
        super().__init__(title, empty=empty, ident=ident)
        self.query_state = LogQuery()
        self.back = 0  # lines between the end of the buffer and the bottom of the view
        self.nodes: tuple[str, ...] = ()
        self._room = 1

    @property
    def following(self) -> bool:
        return self.query_state.until_ns is None and self.back == 0

    def show(self, data: list[Row] | None) -> None:
        if data and self.back and self.data:
            self.back = self._keep_place(self.data, data)
        super().show(data)

    def _keep_place(self, old: list[Row], new: list[Row]) -> int:
        """The scroll offset that keeps the bottom line where it was."""
        bottom = old[max(len(old) - 1 - self.back, 0)]
        for i in range(len(new) - 1, -1, -1):
            if new[i]["at_ns"] == bottom["at_ns"] and new[i]["text"] == bottom["text"]:
                return len(new) - 1 - i
            if new[i]["at_ns"] < bottom["at_ns"]:
                break
        return min(self.back, max(len(new) - 1, 0))

    def draw(self, data: list[Row], width: int, height: int) -> list[Line]:
        self._room = height
        end = len(data) - self.back
        shown = data[max(end - height, 0) : end]
        return [self._row(r, width) for r in shown]

    def _row(self, r: Row, width: int) -> Line:
        who = f"TP{r['rank']}" if r["rank"] is not None else _KINDS.get(r["kind"] or "", clean(r["kind"] or "", 4))
        level = r["severity"] or 0
        word, role = ("ERR ", "bad") if level >= 40 else ("WARN ", "warn") if level == 30 else ("", "")
        head: list[Span] = [
            (stamp(r["at_ns"]) + f".{r['at_ns'] // 100_000_000 % 10} ", "dim"),
            (("" if self.query_state.node or len(self.nodes) == 1 else fit(clean(r["node"], 40), 7)), "dim"),
            ((fit(who, 5) if width >= 60 else ""), "dim"),
            (word, role),
        ]
        text = clean(r["text"], max(width, 8) * 2) + (" [cut]" if r["truncated"] else "")
        needle = self.query_state.needle
        if needle and (at := text.lower().find(needle.lower())) >= 0:
            hit = at + len(needle)
            return line(*head, (text[:at], role), (text[at:hit], "found"), (text[hit:], role))
        return line(*head, (text, role))

    def side_title(self) -> Line:
        q = self.query_state
        level = next(name for name, value in LEVELS if value == q.level)
        spans: list[Span] = [
            (q.node or " + ".join(clean(n, 20) for n in self.nodes[:3]) or "all nodes", "dim"),
            (f"  level ≥ {level}" if q.level else "  all levels", "accent" if q.level else "dim"),
        ]
        if q.needle:
            spans.append((f"  /{clean(q.needle, 30)}", "accent"))
        spans.append(("  follow" if self.following else "  held, f follows", "dim" if self.following else "warn"))
        return Line(tuple(spans))

    # --- view state

    def _want(self, **change: Any) -> None:
        self.query_state = replace(self.query_state, **change)
        self.redraw()
        self.post_message(self.Wanted())

    def action_scroll(self, by: int) -> None:
        n = len(self.data or [])
        self.back += by
        if self.back < 0:
            self.back = 0
            if self.query_state.until_ns is not None:
                self.action_follow()
                return
        limit = max(n - self._room, 0)
        if self.back > limit:
            self.back = limit
            if self.data and n >= BUFFER:  # the top of the buffer: go on above its middle
                middle = self.data[n // 2]["at_ns"]
                self._want(until_ns=middle)
                return
        self.redraw()

    def action_page(self, by: int) -> None:
        self.action_scroll(by * max(self._room - 1, 1))

    def action_follow(self) -> None:
        self.back = 0
        self._want(until_ns=None)

    def action_level(self) -> None:
        values = [value for _, value in LEVELS]
        self._want(level=values[(values.index(self.query_state.level) + 1) % len(values)])

    def action_node(self) -> None:
        choices: list[str | None] = [None, *self.nodes]
        at = choices.index(self.query_state.node) if self.query_state.node in choices else 0
        self._want(node=choices[(at + 1) % len(choices)])

    def action_clear(self) -> None:
        if self.query_state.needle:
            self._want(needle=None)

    def search(self, needle: str) -> None:
        """Only lines that hold `needle`, whatever its case."""
        self.back = 0
        self._want(needle=needle or None)

    def jump(self, at_ns: int) -> None:
        """Show the lines up to an instant of the run clock."""
        self.back = 0
        self._want(until_ns=at_ns)

    def on_mouse_scroll_up(self) -> None:
        self.action_scroll(3)

    def on_mouse_scroll_down(self) -> None:
        self.action_scroll(-3)
