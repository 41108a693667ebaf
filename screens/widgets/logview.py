"""Logs of all nodes by run clock, interleaved or side by side. A buffer around the view; the store has the rest."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from screens.widgets.panel import Panel
from screens.widgets.text import BLANK, Line, Span, clean, crop, fit, line, stamp, width_of

Row = dict[str, Any]
LEVELS = (("all", 0), ("info", 20), ("warn", 30), ("error", 40))
_KINDS = {"server": "srv", "client": "cli", "probe": "prb", "profiler": "prof"}
BUFFER = 400  # lines asked of the store at a time
FAR = 1 << 62
LEAST_COLUMN = 36  # cells below which a node's column says too little


@dataclass(frozen=True)
class LogQuery:
    """Which lines are wanted: the last BUFFER ones, or those around an instant; of at least `level`.

    `edge`: a byte offset; of the lines at `around_ns` itself those up to it come before, the others after (many lines
    may have come at once). `apart`: that many of each of `nodes`: a talkative one does not push the others out.
    """

    around_ns: int | None = None
    edge: int | None = None
    level: int = 0
    node: str | None = None
    needle: str | None = None
    apart: bool = False
    nodes: tuple[str, ...] = ()


def place(r: Row) -> tuple[int, int, str]:
    """Where a line stands among the others."""
    return r["at_ns"], r.get("at_byte", 0), r["node"]


class LogView(Panel[list[Row]]):
    """The last lines, or held ones. Its place is the bottom line: `back` lines above the end of the buffer."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll(1)", "up"),
        Binding("down,j", "scroll(-1)", "down"),
        Binding("pageup", "page(1)", "page up"),
        Binding("pagedown", "page(-1)", "page down"),
        Binding("f,end", "follow", "follow"),
        Binding("l", "level", "level: all, info, warn, error"),
        Binding("s", "node", "one node, or all"),
        Binding("b", "apart", "nodes side by side, or interleaved"),
        Binding("enter", "context", "what stands around the lowest line that was found"),
        Binding("escape", "clear", "clear the search"),
    ]

    class Wanted(Message):
        """Other lines are wanted: `query_state` says which."""

    def __init__(self, title: str = "logs", *, empty: str = "", ident: str | None = None) -> None:
        super().__init__(title, empty=empty, ident=ident)
        self.query_state = LogQuery()
        self.back = 0  # lines between the end of the buffer and the bottom of the view
        self.nodes: tuple[str, ...] = ()
        self.marked: str | None = None  # what was searched, still marked after the search was left
        self._asked: LogQuery | None = None
        self._centre = False  # the lines under way are to be shown with `around_ns` in the middle
        self._room = 1
        self._view: list[Row] = []  # what of the buffer is in view

    @property
    def following(self) -> bool:
        return self.query_state.around_ns is None and self.back == 0

    @property
    def _in_view(self) -> int:
        return max(len(self._view), 1)

    @property
    def apart(self) -> bool:
        """Whether the nodes stand side by side now."""
        return self.query_state.apart and len(self.columns(self.size.width)) > 1

    def columns(self, width: int) -> tuple[str, ...]:
        """The nodes that stand side by side, from the chosen one on; as many as have room."""
        most = max(width // LEAST_COLUMN, 1)
        first = self.nodes.index(self.query_state.node) if self.query_state.node in self.nodes else 0
        return (self.nodes[first:] + self.nodes[:first])[:most]

    def _wanted(self) -> LogQuery:
        if not self.apart:
            return replace(self.query_state, apart=False)
        return replace(self.query_state, node=None, nodes=self.columns(self.size.width))

    def ask(self) -> LogQuery:
        """What to ask of the store now: side by side every node in view by itself."""
        self._asked = self._wanted()
        return self._asked

    def show(self, data: list[Row] | None) -> None:
        if self.data and self._asked not in (None, self._wanted()):
            return  # an answer to what was wanted before; the one to what is wanted now is on its way
        q = self.query_state
        if data and q.around_ns is not None and self._centre:
            edge = (q.around_ns, FAR if q.edge is None else q.edge)
            after = sum(1 for r in data if place(r)[:2] > edge)
            self.back = max(min(after - self._room // 2, len(data) - self._room), 0)
            self._centre = False
        elif data and self.data and not self.following:
            self.back = self._keep_place(self.data, data)
        super().show(data)

    def _keep_place(self, old: list[Row], new: list[Row]) -> int:
        """The scroll offset that keeps the bottom line where it was."""
        bottom = place(old[max(len(old) - 1 - self.back, 0)])
        above = bisect.bisect_right(new, bottom, key=place)
        return min(len(new) - above, max(len(new) - 1, 0))

    # --- drawing

    def draw(self, data: list[Row], width: int, height: int) -> list[Line]:
        self._room = height
        end = max(len(data) - self.back, 0)
        if self.apart:
            return self._side_by_side(data[:end], width, height)
        self._view = data[max(end - height, 0) : end]
        named = not self.query_state.node and len(self.nodes) != 1
        return [Line(tuple(self._row(r, width, named))) for r in self._view]

    def _side_by_side(self, data: Sequence[Row], width: int, height: int) -> list[Line]:
        """A column a node; what stands in one line was not said after what stands below it."""
        names = self.columns(width)
        each = (width - len(names) + 1) // len(names)
        lines: list[dict[str, Row]] = []
        self._view = []
        for r in reversed(data):
            if r["node"] not in names:
                continue
            if not lines or r["node"] in lines[-1]:
                if len(lines) == height - 1:
                    break
                lines.append({})
            lines[-1][r["node"]] = r
            self._view.insert(0, r)
        seen = {n for entry in lines for n in entry}
        last = {r["node"]: r["at_ns"] for r in data}
        head: list[Span] = []
        for n in names:
            quiet = "" if n in seen else f"  nothing since {stamp(last[n])}" if n in last else "  no such line"
            head += [("" if n == names[0] else "│", "dim"), (fit(clean(n, 40) + quiet, each), "title")]
        out = [Line(tuple(head))]
        for entry in reversed(lines):
            spans: list[Span] = []
            for n in names:
                cell = crop(self._row(entry[n], each, False), each) if n in entry else ()
                spans += [("" if n == names[0] else "│", "dim"), *cell, (" " * (each - width_of(cell)), "")]
            out.append(Line(tuple(spans)))
        return out

    def _row(self, r: Row, width: int, named: bool) -> list[Span]:
        who = f"TP{r['rank']}" if r["rank"] is not None else _KINDS.get(r["kind"] or "", clean(r["kind"] or "", 4))
        level = r["severity"] or 0
        word, role = ("ERR ", "bad") if level >= 40 else ("WARN ", "warn") if level == 30 else ("", "")
        head: list[Span] = [
            (stamp(r["at_ns"]) + f".{r['at_ns'] // 100_000_000 % 10} ", "dim"),
            (fit(clean(r["node"], 40), 7) if named else "", "dim"),
            (fit(who, 5) if width >= 60 else "", "dim"),
            (word, role),
        ]
        text = clean(r["text"], max(width, 8) * 2) + (" [cut]" if r["truncated"] else "")
        needle = self.query_state.needle or self.marked
        if needle and (at := text.lower().find(needle.lower())) >= 0:
            hit = at + len(needle)
            return [*head, (text[:at], role), (text[at:hit], "found"), (text[hit:], role)]
        return [*head, (text, role)]

    def plain(self) -> str:
        """The lines in view as a file would have them: whole, one a line, each with its node."""
        if self.data is None or not self._view:
            return super().plain()
        lines = []
        for r in self._view:
            rank = f" TP{r['rank']}" if r["rank"] is not None else ""
            lines.append(f"{stamp(r['at_ns'], '%Y-%m-%d %H:%M:%S.%f')} {clean(r['node'], 60)}{rank} {clean(r['text'])}")
        return "\n".join(lines)

    def side_title(self) -> Line:
        if self.size.width < 2:
            return BLANK
        q = self.query_state
        level = next(name for name, value in LEVELS if value == q.level)
        between = " | " if self.apart else " + "
        whose = self.columns(self.size.width) if self.apart else (q.node,) if q.node else self.nodes[:3]
        spans: list[Span] = [
            (between.join(clean(n, 20) for n in whose) or "all nodes", "dim"),
            (f"  level ≥ {level}" if q.level else "  all levels", "accent" if q.level else "dim"),
        ]
        if q.needle:
            spans.append((f"  /{clean(q.needle, 30)}", "accent"))
        spans.append(("  follow" if self.following else "  held, f follows", "dim" if self.following else "warn"))
        return line(*spans)

    # --- view state

    def _want(self, **change: Any) -> None:
        self.query_state = replace(self.query_state, **change)
        self.redraw()
        self.post_message(self.Wanted())

    def action_scroll(self, by: int) -> None:
        data = self.data or []
        n = len(data)
        self.back += by
        if self.back < 0:
            self.back = 0
            q = self.query_state
            if q.around_ns is not None and n and (q.around_ns, q.edge) != place(data[-1])[:2]:
                self._around(data[-1])  # later lines, if there are any
            elif q.around_ns is not None:
                self.action_follow()
            return
        limit = max(n - self._in_view, 0)
        if self.back > limit:
            self.back = limit
            if n and (n >= BUFFER or self.query_state.around_ns is not None):
                self._around(data[0])  # the top of the buffer: earlier lines
                return
        self.redraw()

    def _around(self, r: Row, **change: Any) -> None:
        self._want(around_ns=r["at_ns"], edge=r.get("at_byte", 0), **change)

    def action_page(self, by: int) -> None:
        self.action_scroll(by * max(self._in_view - 1, 1))

    def action_follow(self) -> None:
        self.back, self.marked = 0, None
        self._want(around_ns=None, edge=None)

    def action_level(self) -> None:
        values = [value for _, value in LEVELS]
        self._want(level=values[(values.index(self.query_state.level) + 1) % len(values)])

    def action_node(self) -> None:
        choices: list[str | None] = [None, *self.nodes]
        at = choices.index(self.query_state.node) if self.query_state.node in choices else 0
        self._want(node=choices[(at + 1) % len(choices)])

    def action_apart(self) -> None:
        if len(self.nodes) < 2:
            self.app.notify("there is only one node's log here")
            return
        self._want(apart=not self.query_state.apart)
        if self.query_state.apart and not self.apart:
            self.app.notify(f"two columns need {2 * LEAST_COLUMN} cells: z gives the panel more room")

    def action_clear(self) -> None:
        if self.query_state.needle:
            self._want(needle=None)
        elif self.marked:
            self.marked = None
            self.redraw()

    def action_context(self) -> None:
        """Leave the search, and stay at the lowest line in view with what stands around it."""
        data, q = self.data or [], self.query_state
        if q.needle and data:
            self.marked = q.needle
            self._centre = True
            self._around(data[max(len(data) - 1 - self.back, 0)], needle=None)

    def search(self, needle: str) -> None:
        """Only lines that hold `needle`, whatever its case."""
        self.back, self.marked = 0, None
        self._want(needle=needle or None)

    def jump(self, at_ns: int) -> None:
        """Show the lines around an instant of the run clock."""
        self.back, self._centre = 0, True
        self._want(around_ns=at_ns, edge=None)

    def on_mouse_scroll_up(self) -> None:
        self.action_scroll(3)

    def on_mouse_scroll_down(self) -> None:
        self.action_scroll(-3)
