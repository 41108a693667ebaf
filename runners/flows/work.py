"""What a start means: the legs of a plan, of cases or of a sweep, and their attempts in the order of work: the journal
that `resume` walks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from runners.flows.order_of_work import attempt_of, cases_of, max_repeats_of
from runners.flows.variants import changed_case, changed_deployment, label_of, variant_of
from runners.spec import Case, Deployment, Inventory, Sweep
from store.database import Store
from store.queries import literal
from store.records import Attempt


@dataclass(frozen=True, slots=True)
class Leg:
    """One thing to measure `repeats` times: a case, on the run's deployment or on a variant of it (see variants.py)."""

    case: Case
    name: str
    variant: str | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """All of a run before it begins. Times in seconds; `most`: repeats until they agree, None: no more than asked."""

    legs: tuple[Leg, ...]
    deployment: str | None
    repeats: int
    order: str
    most: int | None = None
    cool_down: float | None = None
    budget: float | None = None
    fresh: bool = False  # a server life of its own for each repeat of each variant

    def options(self) -> dict[str, Any]:
        """What the run's row keeps."""
        said = {"repeats": self.repeats, "order": self.order, "max_repeats": self.most}
        return said | {k: v for k in ("cool_down", "budget", "fresh") if (v := getattr(self, k))}

    def attempts(self, run_id: str) -> list[Attempt]:
        """Planned attempts. Interleaved: every leg once, then again; mirrored: the same, every second time the second
        half before the first; blocked: all repeats of a leg together.

        Each has its own seed (drawn from the case's seed when it has one), so that no prompt comes twice and a repeat
        cannot be answered from the prefix cache.
        """
        rounds = range(1, self.repeats + 1)
        half = len(self.legs) // 2
        turned = (*self.legs[half:], *self.legs[:half])
        pairs = (
            list(itertools.product(self.legs, rounds))
            if self.order == "blocked"
            else [
                (leg, r) for r in rounds for leg in (turned if self.order == "mirrored" and r % 2 == 0 else self.legs)
            ]
        )
        out = []
        for n, (leg, repeat) in enumerate(pairs, 1):
            own = f"{run_id}/{n}" if leg.case.seed is None else f"{leg.case.seed}/{repeat}"
            attempt = attempt_of(run_id, n, leg.case, repeat, own)
            out.append(replace(attempt, case_name=leg.name, variant=leg.variant))
        return out


def work_of(
    inventory: Inventory,
    names: Sequence[str],
    *,
    deployment: str | None = None,
    repeats: int | None = None,
    scale: float = 1.0,
) -> Work:
    """The work for the name of a plan, of a sweep, or names of cases; what is asked goes before what these say.

    `scale`: of every length in tokens, times the plan's own.

    Raises:
        ConfigError: an unknown name, a mix, or a sweep over what cannot be varied.
    """
    if len(names) == 1 and (sweep := inventory.sweeps.get(names[0])) is not None:
        dep = inventory.deployment(deployment or sweep.deployment)
        return _sweep_work(inventory, sweep, dep, repeats or sweep.repeats, scale)
    cases, usual, own, order = cases_of(inventory, names)
    plan = inventory.plans.get(names[0])
    scale *= plan.scale if plan else 1.0
    cases = [scaled(c, scale) for c in cases]
    if plan and plan.lives:
        cases = [c.model_copy(update={"lives": plan.lives}) for c in cases]
    repeats = repeats or own or 1
    return Work(
        legs=tuple(Leg(c, c.label) for c in cases),
        deployment=deployment or usual,
        repeats=repeats,
        order=order,
        most=max_repeats_of(inventory, names, repeats),
        cool_down=plan.cool_down if plan else None,
        budget=plan.budget if plan else None,
    )


def _sweep_work(inventory: Inventory, sweep: Sweep, dep: Deployment, repeats: int, scale: float) -> Work:
    cases, *_ = cases_of(inventory, sweep.cases)
    legs = []
    for value, case in itertools.product(sweep.values, cases):
        changed_deployment(dep, sweep.vary, value)  # what cannot be is told before anything starts
        leg = changed_case(scaled(case, scale), sweep.vary, value)
        legs.append(Leg(leg, f"{case.label}@{label_of(sweep.vary, value)}", variant_of(dep.name, sweep.vary, value)))
    return Work(
        legs=tuple(legs),
        deployment=dep.name,
        repeats=repeats,
        order=sweep.order,
        most=max(repeats, sweep.max_repeats or 2 * repeats) if repeats > 1 else None,
        cool_down=sweep.cool_down,
        budget=sweep.budget,
    )


def scaled(case: Case, scale: float) -> Case:
    """The case with its lengths times `scale`; an OSL of 1 stays, so that a prefill case stays one."""
    if scale == 1:
        return case

    def of(tokens: int) -> int:
        return 1 if tokens == 1 else max(2, round(tokens * scale))

    inject = case.inject and case.inject.model_copy(update={"isl": of(case.inject.isl), "osl": of(case.inject.osl)})
    lengths = {"isl": of(case.isl), "osl": of(case.osl), "fallback_isl": case.fallback_isl and of(case.fallback_isl)}
    return case.model_copy(update={**lengths, "inject": inject})


def fitted(case: Case, context: int | None) -> Case:
    """The case with its `fallback_isl` when the server's `context` (tokens, if known) holds none of its requests."""
    if context is None or case.fallback_isl is None or case.isl + case.osl <= context:
        return case
    return case.model_copy(update={"isl": max(1, min(case.fallback_isl, context - case.osl))})


def context_of(store: Store, life_id: str) -> int | None:
    """Tokens of prompt and answer together that a server says it holds; the least of what it says, else None."""
    names = "context_length|context_len|max_model_len"
    rows = store.query(
        f"select try_cast(value as bigint) from variables where life_id = {literal(life_id)} "
        f"and regexp_matches(name, '^server[.].*({names})$') and try_cast(value as bigint) > 0"
    ).rows
    return min((int(v) for (v,) in rows), default=None)
