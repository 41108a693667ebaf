"""From cases and repeats to an ordered list of attempts: the journal that `resume` walks."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from runners.spec import Case, ConfigError, Inventory
from store.records import Attempt


def cases_of(inventory: Inventory, names: Iterable[str]) -> tuple[list[Case], str | None, int | None, str]:
    """Cases for names of plans or cases: (cases, the plan's deployment, its repeats, its order).

    Raises:
        ConfigError: a name is neither, or a plan is mixed with other names.
    """
    wanted = list(names)
    if not wanted:
        known = ", ".join([*inventory.plans, *inventory.cases])
        raise ConfigError(f"name a plan or one or more cases. Known: {known}.")
    if len(wanted) == 1 and wanted[0] in inventory.plans:
        plan = inventory.plans[wanted[0]]
        cases, *_ = cases_of(inventory, plan.cases)
        return cases, plan.deployment, plan.repeats, plan.order
    if any(w in inventory.plans for w in wanted):
        raise ConfigError("a plan runs alone; name either one plan or cases.")
    return [c for w in wanted for c in inventory.case(w)], None, None, "interleaved"


def attempts_of(run_id: str, cases: Sequence[Case], repeats: int, order: str) -> list[Attempt]:
    """Planned attempts. Interleaved: every case once, then again; blocked: all repeats of a case together.

    Each attempt has its own seed (drawn from the case's seed when it has one), so that no prompt comes twice and a
    repeat cannot be answered from the prefix cache.
    """
    pairs = (
        [(c, r) for r in range(1, repeats + 1) for c in cases]
        if order == "interleaved"
        else [(c, r) for c in cases for r in range(1, repeats + 1)]
    )
    out = []
    for n, (case, repeat) in enumerate(pairs, 1):
        seed = random.Random(f"{run_id}/{n}" if case.seed is None else f"{case.seed}/{repeat}").getrandbits(31)
        out.append(
            Attempt(
                attempt_id=f"{run_id}.a{n}",
                run_id=run_id,
                ordinal=n,
                case_name=case.label,
                isl=case.isl,
                osl=case.osl,
                concurrency=None if case.request_rate else case.concurrency,
                request_rate=case.request_rate,
                repeat=repeat,
                client=case.client,
                seed=seed,
                case_spec=case.model_dump_json(),
            )
        )
    return out
