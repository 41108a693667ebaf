"""What names of plans, cases and searches stand for, and the row of one planned attempt."""

from __future__ import annotations

import random
from collections.abc import Iterable

from pydantic import ValidationError

from runners.clients import client_of
from runners.clients.base import Ask, AskError
from runners.spec import Case, ConfigError, Deployment, Inventory, Search
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
    cases = [c for w in wanted for c in inventory.case(w)]
    for case in cases:
        check_client(case)
    return cases, None, None, "interleaved"


def check_client(case: Case) -> None:
    """Raise ConfigError when no client is called so, or when it cannot be asked for this case."""
    client = client_of(case.client)
    somewhere = "http://node"
    dep = Deployment(engine="external", url=somewhere)
    scripts = dict.fromkeys(client.payloads, "")
    try:
        client.planned(Ask(case=case, url=somewhere, model="", dep=dep, seed=0, folder="/", payloads=scripts))
    except AskError as e:
        raise ConfigError(f"case {case.label}: {e}") from e


def max_repeats_of(inventory: Inventory, names: Iterable[str], repeats: int) -> int | None:
    """How often a case of a plan may be measured until its repeats agree; None: not more often than asked."""
    plan = inventory.plans.get(next(iter(names), ""))
    if plan is None or repeats < 2:
        return None
    return max(repeats, plan.max_repeats or 2 * repeats)


def attempt_of(run_id: str, ordinal: int, case: Case, repeat: int, seed: str) -> Attempt:
    """One planned attempt; its number is drawn from the text `seed`."""
    return Attempt(
        attempt_id=f"{run_id}.a{ordinal}",
        run_id=run_id,
        ordinal=ordinal,
        case_name=case.label,
        isl=case.isl,
        osl=case.osl,
        concurrency=None if case.request_rate else case.concurrency,
        request_rate=case.request_rate,
        repeat=repeat,
        client=case.client,
        seed=random.Random(seed).getrandbits(31),
        case_spec=case.model_dump_json(),
    )


def search_of(inventory: Inventory, name: str, **asked: float | bool | None) -> tuple[Case, Search]:
    """The case and the rules of a search, for the name of a [searches] table or of a case; `asked` goes first.

    A case with several concurrencies is one workload: the search climbs over concurrency itself, with max_rate over
    request rates.

    Raises:
        ConfigError: no such name, rates that are no multiples of the finest, or a case by rate without max_rate.
    """
    named = inventory.searches.get(name) or Search(name=name, case=name)
    try:
        search = Search.model_validate({**named.model_dump(), **{k: v for k, v in asked.items() if v is not None}})
    except ValidationError as e:
        raise ConfigError(f"search {name}: {e.errors(include_url=False)[0]['msg']}") from e
    case = inventory.case(search.case)[0]
    if case.request_rate is not None and search.max_rate is None:
        raise ConfigError(
            f"case {case.name!r} is driven by request_rate: say max_rate, and the search climbs over rates."
        )
    check_client(case)
    return case, search
