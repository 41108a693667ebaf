"""Plan: choose what to start, vary it, see what it will do, start it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from runners.spec import ConfigError
from screens.base import Command, ConsoleScreen, Go
from screens.data import Row, View
from screens.dialogs import Ask, Pick, Questions, Reader
from screens.plan_draft import FLAGS, Draft, choices_of, first_choice, form_rows, kind_of, likely_deployment
from screens.plan_text import commands, duration, preview, problems, verdict
from screens.widgets.bars import Ends, TextPanel
from screens.widgets.table import Column, Table
from screens.widgets.text import NONE, Line, Span, clean, line
from store.errors import OwnerGone, StoreError

QUESTIONS = {
    "changes": "What changes, against what was measured before?",
    "why": "Why should that affect what limits the results now?",
    "expects": "What effect do you expect?",
}
AGAIN_TICKS = 5  # a plan that nobody touches is worked out anew so often: the store learns, files change


@dataclass(frozen=True)
class PlanView:
    """`rows`: the form; `plan`: its dry run; `wrong`: why there is none for what the form says now."""

    rows: list[Row]
    likely: str | None
    plan: Row | None
    wrong: str | None


def _value(r: Row) -> Span:
    text = clean(r["value"], 200) or NONE
    return (f"■ {text}", "accent") if r["said"] else (f"  {text}", "")


class PlanScreen(ConsoleScreen):
    PLACE = "plan"
    KEY = "4"
    ABOUT = "choose, vary and start a run or a search; what it will do"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "start", "start it, after three questions"),
        Binding("left,minus", "step(-1)", "the choice before, or less"),
        Binding("right,plus", "step(1)", "the next choice, or more"),
        Binding("w", "what", "choose what to start"),
        Binding("backspace,delete", "default", "as it is configured"),
        Binding("c", "commands", "read the exact commands"),
    ]

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.draft = Draft()
        self.refusal: str | None = None
        self.ordered_now = False  # ordered, and not yet answered
        self.snapshot: PlanView | None = None
        self._lives: list[Row] = []
        self._worked: tuple[str, int] | None = None
        self._plan: Row | None = None
        self._wrong: str | None = None

    def body(self) -> ComposeResult:
        with Horizontal(id="plan-upper"):
            yield Table(
                "start",
                (Column("", 14, lambda r: (r["label"], "dim")), Column("", 0, _value)),
                key="field",
                empty="no deployment is configured: write [deployments.NAME],\nor `twinrail init` asks and writes it",
                ident="form",
                header=False,
            )
            yield TextPanel("what will happen   s starts, c commands", ident="plan-sum")
        yield TextPanel("attempts and commands", ident="plan-steps", empty="they appear with the first deployment")

    def on_mount(self) -> None:
        self.query_one("#form", Table).focus()

    # --- data

    async def fetch(self) -> PlanView:
        config, draft = self.view.session.config, self.draft
        if self.view.wanted:
            draft.choose(kind_of(config, self.view.wanted), self.view.wanted)
            self.view.wanted = ()
        elif not draft.names:
            draft.choose(*first_choice(config))
        if not config.deployments:
            return PlanView([], None, None, None)
        with contextlib.suppress(OwnerGone):  # the notice tells; a plan needs no owner, only its start does
            self._lives = await self.feed.rows("screen_deployments", tables=("lives", "attempts", "runs"))
        likely = likely_deployment(config, draft, self._lives)
        kind, params = draft.order(likely)
        key = repr((kind, params))
        if self._worked is None or self._worked[0] != key or self.ticks - self._worked[1] >= AGAIN_TICKS:
            self._wrong = None
            try:
                self._plan = await self.view.session.plan(kind, **params)
            except ConfigError as e:
                self._wrong = str(e)
            self._worked = (key, self.ticks)
        return PlanView(form_rows(config, draft, likely, self._plan), likely, self._plan, self._wrong)

    def apply(self, snapshot: PlanView) -> None:
        self.query_one("#form", Table).show(snapshot.rows)
        self._fill(snapshot)

    def _fill(self, snap: PlanView) -> None:
        plan = snap.plan if snap.wrong is None else None
        texts: list[Line] = []
        if snap.rows:
            texts += [line(("… starting: the owner has it", "accent"))] if self.ordered_now else []
            texts += verdict(plan, snap.wrong, self.refusal)
            texts += [*duration(plan), *problems(plan)] if plan else []
        self.query_one("#plan-sum", TextPanel).show(tuple(texts))
        self.query_one("#plan-steps", TextPanel).show(tuple(preview(plan)) if plan else ())
        self._title()

    def _title(self) -> None:
        """The form's title says what the field under the cursor takes."""
        form = self.query_one("#form", Table)
        if form.row is not None:
            form.title = f"{form.row['label']}   ←/→ or enter: {form.row['hint']}"
            form.redraw()

    def place_panels(self, width: int, height: int) -> None:
        fields = 1 + max(len(self.snapshot.rows) if self.snapshot else 1, 1)
        said = len(self.query_one("#plan-sum", TextPanel).data or ())
        wide = width >= 100
        self.query_one("#plan-upper").set_class(not wide, "-stacked")
        if wide:
            form = total = upper = min(max(fields, 8), max(height - 4, 4))
        else:
            total = min(1 + max(said, 1), 7)
            form = min(fields, max(height - total - 3, 4))
            upper = form + total
        self.height_of(self.query_one("#plan-upper"), upper)
        self.height_of(self.query_one("#form"), form)
        self.height_of(self.query_one("#plan-sum"), total)
        self.height_of(self.query_one("#plan-steps"), height - upper)

    def headline(self) -> Ends:
        snap = self.snapshot
        if snap is None or not snap.rows:
            return self.heading((("plan", ""),))
        where = clean(self.draft.said.get("deployment", snap.likely or NONE), 40)
        names = clean(" ".join(self.draft.names), 60)
        return self.heading(((f"plan  {self.draft.kind} ", ""), (names, "strong"), (f" on {where}", "")))

    # --- the form

    def _changed(self) -> None:
        self.refusal = None
        self.poke()

    @on(Table.Moved, "#form")
    def _other_field(self) -> None:
        self._title()

    @on(Table.Chosen, "#form")
    def _write(self, event: Table.Chosen) -> None:
        name = event.row["field"]
        if name == "what":
            self.action_what()
        elif name in ("deployment", "slo") or name in FLAGS:
            self.action_step(1)
        else:

            def go(text: str | None) -> None:
                if text is not None:
                    self.draft.set(name, text)
                    self._changed()

            hint = f"{event.row['hint']}; empty: as configured"
            self.app.push_screen(Ask(event.row["label"], hint, self.draft.said.get(name, "")), go)

    def action_step(self, by: int) -> None:
        row = self.query_one("#form", Table).row
        if row is None:
            return
        config = self.view.session.config
        if row["field"] == "what":
            rows = choices_of(config)
            now = [i for i, r in enumerate(rows) if (r["kind"], (r["name"],)) == (self.draft.kind, self.draft.names)]
            to = rows[((now[0] if now else 0) + by) % len(rows)]
            self.draft.choose(to["kind"], (to["name"],))
        else:
            self.draft.step(row["field"], by, row["value"], config)
        self._changed()

    def action_what(self) -> None:
        def go(chosen: tuple[Row, ...] | None) -> None:
            if chosen:
                self.draft.choose(chosen[0]["kind"], [r["name"] for r in chosen])
                self._changed()

        rows = choices_of(self.view.session.config)
        at = f"{self.draft.kind}:{self.draft.names[0]}" if self.draft.names else None
        self.app.push_screen(Pick("what to start", rows, at=at, several=frozenset({"case"})), go)

    def action_default(self) -> None:
        row = self.query_one("#form", Table).row
        if row is not None:
            self.draft.set(row["field"], "")
            self._changed()

    # --- read and start

    def _ready(self) -> Row | None:
        """The plan that can be started; else it is said why there is none."""
        snap = self.snapshot
        if snap is not None and snap.plan is not None and snap.wrong is None:
            return snap.plan
        why = snap.wrong if snap and snap.wrong else "there is nothing to start yet"
        self.notify(clean(why, 300), title="cannot start", severity="warning", markup=False)
        return None

    def action_commands(self) -> None:
        if plan := self._ready():
            self.app.push_screen(Reader("commands, planned", tuple(commands(plan))))

    def action_start(self) -> None:
        if self.ordered_now or self._ready() is None:
            return

        def go(answers: dict[str, str] | None) -> None:
            if answers is not None:
                self.draft.answers = answers
                self.run_worker(self._start(), group="order")

        title = f"start {self.draft.kind} {clean(' '.join(self.draft.names), 60)}"
        hint = "for the notes, may be empty; enter goes on and at the last starts, esc leaves it"
        self.app.push_screen(Questions(title, QUESTIONS, self.draft.answers, hint), go)

    async def _start(self) -> None:
        """Order it; a refusal stays on the screen until something is changed."""
        kind, params = self.draft.order(self.snapshot.likely if self.snapshot else None)
        self.ordered_now, self.refusal = True, None
        self.show()
        try:
            answer = await self.view.session.order(kind, **params)
        except StoreError as e:
            self.refusal = str(e)
            self.notify(clean(e, 300), title="not started", severity="error", markup=False)
            return
        finally:
            self.ordered_now = False
            self.show()
        self.view.marked.clear()
        self.notify(clean(answer.get("run_id") or "taken", 100), title="started", markup=False)
        self.post_message(Go("search" if self.draft.search else "live", run_id=answer.get("run_id")))

    def commands(self) -> Iterable[Command]:
        yield Command("plan: start it", "asks what changes, why, and what you expect", self.action_start)
        yield Command("plan: choose what to start", "plans, sweeps, searches, cases", self.action_what)
        yield Command("plan: read the commands", "planned, not executed", self.action_commands)
