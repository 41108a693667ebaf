"""Pause, skip, retry, abort: a dialog over any screen for the run that is on."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from screens.base import ConsoleScreen
from screens.data import Row
from screens.dialogs import Ask, Pick
from screens.widgets.bars import TextPanel
from screens.widgets.lamps import worded
from screens.widgets.text import NONE, Line, clean, line, wrap
from store.errors import StoreError


class RunControl(ModalScreen[str | None]):
    """What may be asked of a run. Gives pause | resume | skip | retry | abort."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "cancel", "leave it"),
        Binding("p", "pause", "pause, or go on"),
        Binding("s", "give('skip')", "skip an attempt"),
        Binding("r", "give('retry')", "measure a done attempt again"),
        Binding("a", "give('abort')", "end the run"),
    ]

    def __init__(self, run: Row, attempts: list[Row]) -> None:
        super().__init__()
        self._run, self._attempts = run, attempts

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog", classes="wide"):
            yield TextPanel(f"run {clean(self._run['run_id'], 60)}", ident="control")
            yield Static("a letter does it, esc leaves it as it is", classes="hint", markup=False)

    def on_mount(self) -> None:
        self._fill()

    def on_resize(self) -> None:
        self._fill()

    def _fill(self) -> None:
        panel = self.query_one(TextPanel)
        width = min(self.size.width * 92 // 100, 116) - 4  # of the dialog, less its border and padding
        texts = wrap(self.lines(), width)
        panel.styles.height = min(len(texts) + 1, max(self.size.height - 5, 4))
        panel.show(texts)

    def lines(self) -> list[Line]:
        r = self._run
        on = next((a for a in self._attempts if a["state"] == "running"), None)
        now = f"{clean(on['case_name'], 40)} repeat {on['repeat']} is on" if on else "no attempt is on"
        by = r["paused_by"]
        paused = f"  paused by {clean(by, 40)}" if by else ""
        what = f"{clean(r['plan'] or r['kind'], 40)} on {clean(r['deployment'] or NONE, 40)}"
        head = f"  {what}, {r['attempts_done']} of {r['attempts']} done, {now}"
        return [
            line(worded(r["state"]), head, (paused, "warn")),
            line(""),
            _choice("p", "go on", "attempts begin again")
            if by
            else _choice("p", "pause", "no new attempt begins; the one that is on ends as usual"),
            _choice("s", "skip", "an attempt ends now, or never begins; the run goes on"),
            _choice("r", "retry", "a done attempt is measured again; the old one stays"),
            _choice("a", "abort", "the run ends now: servers stop, all data are kept"),
        ]

    def action_pause(self) -> None:
        self.dismiss("resume" if self._run["paused_by"] else "pause")

    def action_give(self, what: str) -> None:
        self.dismiss(what)

    def action_cancel(self) -> None:
        self.dismiss(None)


def _choice(key: str, word: str, what: str) -> Line:
    return line((f"  {key}  ", "accent"), (f"{word:7}", "strong"), (what, "dim"))


async def control(screen: ConsoleScreen) -> None:
    """Ask what to do with the run that the operator looks at, or else the one that is on, and order it."""
    try:
        runs = await screen.view.session.rows("runs_list")
        on = [r for r in runs if r["state"] != "done"]
        run = next((r for r in on if r["run_id"] == screen.view.run_id), on[0] if on else None)
        if run is None:
            screen.notify("no run is on: 4 starts one", severity="warning")
            return
        rows = await screen.view.session.rows("run_attempts", run["run_id"])
    except StoreError as e:
        screen.notify(clean(e, 300), severity="error", markup=False)
        return
    attempts = [a for a in rows if a["state"] != "void"]
    screen.app.push_screen(RunControl(run, attempts), lambda what: _go(screen, run["run_id"], attempts, what))


def _go(screen: ConsoleScreen, run_id: str, attempts: list[Row], what: str | None) -> None:
    match what:
        case "pause" | "resume":
            screen.send({"pause": "pause_run"}.get(what, what), run_id=run_id)
        case "skip":
            _choose(screen, run_id, "skip", [a for a in attempts if a["state"] in ("running", "planned")])
        case "retry":
            _choose(screen, run_id, "retry", [a for a in attempts if a["state"] == "done"])
        case "abort":
            _sure(screen, "abort", f"end run {clean(run_id, 60)}?", "stop_run", run_id=run_id)


def _choose(screen: ConsoleScreen, run_id: str, verb: str, attempts: list[Row]) -> None:
    if not attempts:
        screen.notify(f"there is no attempt to {verb}", severity="warning")
        return

    def go(chosen: tuple[Row, ...] | None) -> None:
        if chosen:
            screen.send(f"{verb}_attempt", run_id=run_id, attempt_id=chosen[0]["key"])

    rows = [
        {
            "key": a["attempt_id"],
            "kind": f"#{a['ordinal']}",
            "name": f"{a['case_name']} x{a['repeat']}",
            "what": f"{a['outcome'] or a['state']}  {a['detail'] or ''}",
        }
        for a in sorted(attempts, key=lambda a: (a["state"] != "running", a["ordinal"]))
    ]
    screen.app.push_screen(Pick(f"{verb} which attempt?", rows), go)


def _sure(screen: ConsoleScreen, word: str, title: str, kind: str, **params: str) -> None:
    def go(text: str | None) -> None:
        if text == word:
            screen.send(kind, **params)

    screen.app.push_screen(Ask(title, f"write {word} to confirm; all data are kept"), go)
