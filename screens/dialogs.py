"""Small dialogs: ask for a line of text, read a text, and start a run after seeing what it will do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from runners.spec import Case, ConfigError, Deployment, Inventory
from screens.data import Row
from screens.widgets.bars import TextPanel
from screens.widgets.text import Line, clean, line, num, span_s


class Ask(ModalScreen[str | None]):
    """One line of text. Enter gives it, escape gives None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "leave it")]

    def __init__(self, title: str, hint: str, value: str = "") -> None:
        super().__init__()
        self._title, self._hint, self._value = title, hint, value

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static(self._title, id="dialog-title", markup=False)
            yield Input(self._value, placeholder=self._hint)
            yield Static(f"{self._hint}    enter takes it, esc leaves it", classes="hint", markup=False)

    @on(Input.Submitted)
    def _given(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())

    def action_cancel(self) -> None:
        self.dismiss(None)


class Reader(ModalScreen[None]):
    """A text to read; arrow keys scroll."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "close", "close"),
        Binding("y", "copy", "copy"),
    ]

    def __init__(self, title: str, lines: tuple[Line, ...]) -> None:
        super().__init__()
        self._title, self._texts = title, lines

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog", classes="wide"):
            yield TextPanel(self._title, ident="reader")
            yield Static("esc closes, arrows scroll, y copies", classes="hint", markup=False)

    def on_mount(self) -> None:
        self._fill()
        self.query_one(TextPanel).focus()

    def on_resize(self) -> None:
        self._fill()

    def _fill(self) -> None:
        self.query_one(TextPanel).show(self._texts)

    def action_close(self) -> None:
        self.dismiss(None)

    def action_copy(self) -> None:
        self.app.copy_to_clipboard("\n".join(entry.text for entry in self._texts))
        self.notify("copied")


@dataclass(frozen=True)
class Start:
    """What the operator decided to start."""

    what: tuple[str, ...]
    deployment: str
    repeats: int
    keep: bool  # leave the server up afterwards


class StartRun(ModalScreen[Start | None]):
    """Deployment and repeats, and below them what will happen. Enter starts."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "leave it"),
        Binding("enter", "start", "start"),
        Binding("left", "deployment(-1)", "deployment before"),
        Binding("right", "deployment(1)", "deployment after"),
        Binding("up,plus", "repeats(1)", "more repeats"),
        Binding("down,minus", "repeats(-1)", "fewer repeats"),
        Binding("k", "keep", "keep the server up afterwards, or stop it"),
    ]

    def __init__(
        self, config: Inventory, what: tuple[str, ...], history: list[Row], lives: list[Row], busy: str | None
    ) -> None:
        super().__init__()
        self.config, self.what, self.history, self.lives, self.busy = config, what, history, lives, busy
        plan = config.plans.get(what[0]) if len(what) == 1 else None
        self.plan = plan
        self.names = list(config.deployments)
        self.at = self.names.index(plan.deployment) if plan and plan.deployment in self.names else self._likely()
        self.repeats = plan.repeats if plan else 1
        self.keep = False

    def _likely(self) -> int:
        """The deployment that is up, else the one used last."""
        ready = [r["deployment"] for r in self.lives if r["state"] == "ready"]
        used = [r["deployment"] for r in sorted(self.lives, key=lambda r: r["started_wall_ns"] or 0, reverse=True)]
        return next((self.names.index(n) for n in (*ready, *used) if n in self.names), 0)

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog", classes="wide"):
            yield TextPanel(f"start {' '.join(clean(w, 40) for w in self.what)}", ident="start")
            yield Static(
                "←/→ deployment  ↑/↓ repeats  k keep the server up  enter starts  esc leaves",
                classes="hint",
                markup=False,
            )

    def on_mount(self) -> None:
        self._fill()

    def on_resize(self) -> None:
        self._fill()

    def cases(self) -> list[Case]:
        """Every case that will run once a repeat. Raises ConfigError."""
        names = self.plan.cases if self.plan else self.what
        return [case for name in names for case in self.config.case(name)]

    def _fill(self) -> None:
        texts = tuple(self.lines())
        self.query_one(TextPanel).styles.height = min(len(texts) + 1, max(self.size.height - 6, 6))
        self.query_one(TextPanel).show(texts)

    def lines(self) -> list[Line]:
        if not self.names:
            return [line(("no deployment is configured: write [deployments.NAME], or `twinrail init`", "warn"))]
        try:
            cases = self.cases()
        except ConfigError as e:
            return [line((clean(e, 300), "bad"))]
        d = self.config.deployments[self.names[self.at]]
        attempts = len(cases) * self.repeats
        texts = [
            line(
                ("deployment  ", "dim"),
                ("‹ ", "accent"),
                (clean(d.name, 40), "strong"),
                (" ›", "accent"),
                (f"   {self.at + 1} of {len(self.names)}", "dim"),
            ),
            line(("repeats     ", "dim"), ("‹ ", "accent"), (str(self.repeats), "strong"), (" ›", "accent")),
            line(""),
            line(("what will happen", "title")),
            self._server(d),
            line(
                ("load        ", "dim"),
                f"{attempts} attempts: {len(cases)} cases x {self.repeats}"
                + (f", {self.plan.order}" if self.plan else ""),
            ),
        ]
        for case in cases[:10]:
            pace = f"rate {case.request_rate:g}/s" if case.request_rate else f"C {case.concurrency}"
            least = case.requests or f"at least {max(5 * case.concurrency, 20)}"
            size = f"isl {num(case.isl)} osl {num(case.osl)} {pace}, {least} requests"
            slo = f", SLO {clean(case.slo, 20)}" if case.slo else ""
            texts.append(line(("            ", ""), (clean(case.label, 30), ""), (f"  {size}{slo}", "dim")))
        if len(cases) > 10:
            texts.append(line((f"            and {len(cases) - 10} more", "dim")))
        texts.append(self._time(cases, d))
        if self.busy:
            texts.append(
                line(("▲ ", "warn"), (f"run {clean(self.busy, 60)} is on: this one will be refused or wait", "warn"))
            )
        return texts

    def _server(self, d: Deployment) -> Line:
        where = ", ".join(clean(n, 20) for n in d.nodes) or "its own place"
        up = [r for r in self.lives if r["deployment"] == d.name and r["state"] == "ready"]
        if d.engine == "external":
            how = f"the server at {clean(d.url, 60)} is used as it is"
        elif up:
            how = f"{d.engine} is up on {where}; it is used if nothing changed since"
        else:
            limit = span_s(d.ready_timeout)
            after = "stays up afterwards" if self.keep else "stops after the run"
            how = f"{d.engine} starts on {where} ({d.topology.ranks} ranks, up to {limit}), {after}"
        return line(("server      ", "dim"), how)

    def _time(self, cases: list[Case], d: Deployment) -> Line:
        """Duration from earlier attempts where there are some, else the budget as the limit."""
        total, known = 0.0, 0
        for case in cases:
            past = [
                r
                for r in self.history
                if r["deployment"] == d.name
                and r["concurrency"] == case.concurrency
                and r["case_name"] in (case.name, case.label)
                and r["median_s"]
            ]
            known += bool(past)
            total += past[0]["median_s"] if past else case.budget
        word = "about " if known == len(cases) else "at most " if not known else "at most about "
        why = (
            "by earlier attempts"
            if known == len(cases)
            else "budgets of the cases"
            if not known
            else f"{known} cases known, budgets for the rest"
        )
        return line(("time        ", "dim"), f"{word}{span_s(total * self.repeats)}", (f"  ({why})", "dim"))

    def action_deployment(self, by: int) -> None:
        if self.names:
            self.at = (self.at + by) % len(self.names)
            self._fill()

    def action_repeats(self, by: int) -> None:
        self.repeats = min(max(self.repeats + by, 1), 1000)
        self._fill()

    def action_keep(self) -> None:
        self.keep = not self.keep
        self._fill()

    def action_start(self) -> None:
        if not self.names:
            self.dismiss(None)
            return
        self.dismiss(Start(self.what, self.names[self.at], self.repeats, self.keep))

    def action_cancel(self) -> None:
        self.dismiss(None)
