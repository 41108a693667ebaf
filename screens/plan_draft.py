"""What the operator is about to start, as the plan screen holds it: its fields, how keys change them, and the order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from runners.spec import Inventory
from screens.data import Row

NO_SLO = "none"  # of runners/flows/vary.py
VARIED = ("isl", "osl", "requests", "budget", "slo")
# field -> what it is called, and what an operator may write there
RUN_FIELDS = {
    "what": ("what", "a plan, sweep, search, or cases"),
    "deployment": ("deployment", "one of [deployments.NAME]"),
    "repeats": ("repeats", "a whole number"),
    "concurrency": ("concurrency", "one or more numbers: 8, 16, 32"),
    "isl": ("ISL", "tokens of a prompt"),
    "osl": ("OSL", "tokens of an answer"),
    "requests": ("requests", "measured requests of an attempt"),
    "budget": ("budget", "of an attempt: 90s, 15m"),
    "slo": ("SLO", "one of [slo.NAME], or none"),
    "scale": ("scale", "of every length in tokens, 0 to 1"),
    "keep": ("keep server", "up after the run"),
    "gate_override": ("gate override", "why a refusing RDMA gate may be passed; empty: it may not"),
}
SEARCH_FIELDS = {
    **{k: RUN_FIELDS[k] for k in ("what", "deployment", "repeats")},
    "step": ("step", "the ladder: 1, STEP, 2 STEP ..."),
    "max_concurrency": ("max C", "where the climb ends at the latest"),
    "max_rate": ("max rate", "requests/s: the search climbs over rates instead"),
    "refine": ("refine", "how finely an answer is pinned down"),
    "stop_at_slo": ("stop at SLO", "whether a breach ends the climb"),
    **{k: RUN_FIELDS[k] for k in (*VARIED, "keep", "gate_override")},
}
FLAGS = frozenset({"keep", "stop_at_slo"})


@dataclass
class Draft:
    """Choices of the operator. `said` holds only what differs from what is configured, as text."""

    kind: str = ""  # plan | sweep | case | search
    names: tuple[str, ...] = ()
    said: dict[str, str] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)  # changes, why, expects: asked once, kept

    @property
    def search(self) -> bool:
        return self.kind == "search"

    @property
    def fields(self) -> dict[str, tuple[str, str]]:
        return SEARCH_FIELDS if self.search else RUN_FIELDS

    def choose(self, kind: str, names: Sequence[str]) -> None:
        """Another thing to start. The deployment stays, what was varied goes: it was meant for the old cases."""
        if (kind, tuple(names)) != (self.kind, self.names):
            self.kind, self.names = kind, tuple(names)
            self.said = {k: v for k, v in self.said.items() if k in ("deployment", "keep")}

    def set(self, name: str, text: str) -> None:
        """Say a field; an empty text takes it back."""
        text = text.strip()
        if text:
            self.said[name] = text
        else:
            self.said.pop(name, None)

    def order(self, likely: str | None) -> tuple[str, dict[str, Any]]:
        """Kind and parameters of the order that this is. What is no number stays text: the order's check says so."""
        said = dict(self.said)
        vary: dict[str, Any] = {
            k: _number(said[k]) if k in ("isl", "osl", "requests") else said[k] for k in VARIED if k in said
        }
        if "concurrency" in said and not self.search:
            vary["concurrency"] = [_number(n) for n in re.split(r"[,\s]+", said["concurrency"]) if n]
        params: dict[str, Any] = {"what": self.names[0] if self.search else list(self.names)}
        params["deployment"] = said.get("deployment", likely)
        for name in ("repeats", "step", "refine", "max_concurrency", "max_rate", "scale"):
            if name in said and name in self.fields:
                params[name] = _number(said[name])
        params |= {k: said[k] == "yes" for k in FLAGS if k in said and k in self.fields}
        if "gate_override" in said:
            params["gate_override"] = said["gate_override"]
        if vary:
            params["vary"] = vary
        params |= {k: v for k, v in self.answers.items() if v}
        return ("start_search" if self.search else "start_run"), {k: v for k, v in params.items() if v is not None}

    def step(self, name: str, by: int, now: str, config: Inventory) -> None:
        """What ← and → do: the next of a list, one more repeat, twice or half a number. `now`: as it is shown."""
        choices = {
            "deployment": list(config.deployments),
            "slo": ["", *config.slo, NO_SLO],
            "keep": ["", "yes"],
            "stop_at_slo": ["", "yes", "no"],
        }.get(name)
        if choices:
            at = choices.index(self.said.get(name, now)) if self.said.get(name, now) in choices else 0
            self.set(name, choices[(at + by) % len(choices)])
            return
        value = _number(self.said.get(name) or now)
        if not isinstance(value, (int, float)):
            return
        if name == "repeats":
            self.set(name, str(max(int(value) + by, 1)))
        elif name == "scale":
            self.set(name, f"{min(value * 2.0**by, 1):g}" if value * 2.0**by < 1 else "")
        else:
            self.set(name, str(max(int(value * 2) if by > 0 else int(value) // 2, 1)))


def _number(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def choices_of(config: Inventory) -> list[Row]:
    """Everything that can be started, by kind: rows of the picker."""
    rows: list[Row] = []

    def add(kind: str, name: str, what: str) -> None:
        rows.append({"key": f"{kind}:{name}", "kind": kind, "name": name, "what": what})

    for p in config.plans.values():
        add("plan", p.name, f"{', '.join(p.cases)} x {p.repeats}" + (f" on {p.deployment}" if p.deployment else ""))
    for s in config.sweeps.values():
        add("sweep", s.name, f"{s.vary} = {', '.join(str(v) for v in s.values)}; {', '.join(s.cases)} x {s.repeats}")
    for x in config.searches.values():
        add("search", x.name, f"{x.case} up to C {x.max_concurrency}, x {x.repeats}")
    for group in config.cases.values():
        for c in group:
            load = f"rate {c.request_rate:g}/s" if c.request_rate else f"C {c.concurrency}"
            add("case", c.label, f"{c.isl}/{c.osl}  {load}" + (f"  SLO {c.slo}" if c.slo else ""))
    for name, group in config.cases.items():
        if name not in config.searches and all(c.request_rate is None for c in group):
            add("search", name, f"climb over the concurrency of {group[0].isl}/{group[0].osl}")
    return rows


def first_choice(config: Inventory) -> tuple[str, tuple[str, ...]]:
    """What is proposed first: the operator's own first plan, else any plan, else the first case."""
    plans = sorted(config.plans, key=lambda n: n == "first-round")
    if plans:
        return "plan", (plans[0],)
    labels = [c.label for group in config.cases.values() for c in group]
    return "case", tuple(labels[:1])


def kind_of(config: Inventory, names: Sequence[str]) -> str:
    """Which kind of thing these names are; cases when they are nothing else."""
    if len(names) == 1:
        for kind, table in (("plan", config.plans), ("sweep", config.sweeps)):
            if names[0] in table:
                return kind
    return "case"


def likely_deployment(config: Inventory, draft: Draft, lives: Sequence[Row]) -> str | None:
    """The deployment that the plan names, else the one that is up, else the one used last, else the first."""
    one = draft.names[0] if len(draft.names) == 1 and not draft.search else ""
    named = config.plans.get(one) or config.sweeps.get(one)
    if named is not None and named.deployment:
        return named.deployment
    ready: list[str] = [r["deployment"] for r in lives if r["state"] == "ready"]
    used: list[str] = [r["deployment"] for r in sorted(lives, key=lambda r: r["started_wall_ns"] or 0, reverse=True)]
    return next((n for n in (*ready, *used, *config.deployments) if n in config.deployments), None)


def form_rows(config: Inventory, draft: Draft, likely: str | None, plan: Row | None) -> list[Row]:
    """A row a field: what it is now, and whether the operator said so. `plan`: the dry run of this draft."""
    known = _configured(config, draft, likely, plan)
    rows = []
    for name, (label, hint) in draft.fields.items():
        value = draft.said.get(name, known.get(name, ""))
        rows.append({"field": name, "label": label, "hint": hint, "value": value, "said": name in draft.said})
    return rows


def _configured(config: Inventory, draft: Draft, likely: str | None, plan: Row | None) -> dict[str, str]:
    """What holds where the operator says nothing."""
    known = {
        "what": ", ".join(draft.names),
        "deployment": likely or "",
        "keep": "no",
        "scale": "1",
        "gate_override": "no",
    }
    if plan is not None:
        known["repeats"] = str(plan["repeats"])
        for name, key in (
            ("isl", "isl"),
            ("osl", "osl"),
            ("requests", "requests"),
            ("slo", "slo"),
            ("budget", "budget_s"),
        ):
            known[name] = _all_of(plan["cases"], key)
        rates = [c["request_rate"] for c in plan["cases"]]
        known["concurrency"] = "by request rate" if any(rates) else _all_of(plan["cases"], "concurrency")
    if draft.search:
        search = config.searches.get(draft.names[0])
        for name, default in (("step", 16), ("refine", 4), ("max_concurrency", 256)):
            known[name] = str(getattr(search, name) if search else default)
        known["stop_at_slo"] = "yes" if search and search.stop_at_slo else "no"
    return known


def _all_of(cases: Sequence[Row], key: str) -> str:
    """The values of all cases, each once, in order."""
    usual = {"requests": "5 a slot, at least 20", "slo": NO_SLO}.get(key, "")
    texts = [
        usual
        if c[key] is None
        else f"{c[key]:g}{'s' * (key == 'budget_s')}"
        if isinstance(c[key], (int, float))
        else str(c[key])
        for c in cases
    ]
    return ", ".join(dict.fromkeys(texts))
