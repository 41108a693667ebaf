"""What an order to start something comes to: the same for the owner that carries it out and for a dry run."""

from __future__ import annotations

from typing import Any

from runners import orders
from runners.flows.ab import ab_work, sides_of
from runners.flows.order_of_work import search_of
from runners.flows.vary import varied, varied_case
from runners.flows.work import Work, work_of
from runners.spec import Case, ConfigError, Inventory, Search

RULES = frozenset(Search.model_fields) - {"name", "case"}


def work_asked(inventory: Inventory, order: orders.StartRun) -> Work:
    """The attempts of a run. Raises ConfigError."""
    asked = order.model_dump(include={"deployment", "repeats", "scale"}, exclude_none=True)
    return varied(inventory, work_of(inventory, order.what, **asked), order.vary)


def search_asked(inventory: Inventory, order: orders.StartSearch) -> tuple[Case, Search]:
    """The case and the rules of a search. Raises ConfigError."""
    case, search = search_of(inventory, order.what, **order.model_dump(include=set(RULES)))
    if order.vary is None:
        return case, search
    if order.vary.concurrency is not None:
        raise ConfigError("a search chooses the concurrency itself: say max_concurrency and step instead")
    return varied_case(inventory, case, order.vary), search


def ab_asked(inventory: Inventory, order: orders.StartAb) -> tuple[Work, dict[str, Any]]:
    """The attempts of a comparison, and what the run's row keeps of it. Raises ConfigError."""
    asked = order.model_dump(include={"what", "a", "b", "deployment", "blocks"})
    work = ab_work(inventory, **asked, vary=order.vary_one)
    judging = order.model_dump(include={"primary", "margin"}, exclude_none=True)
    declared = order.declared or ([order.vary_one] if order.vary_one else [])
    return work, {**work.options(), "ab": {**sides_of(work), **judging, "declared": declared}}


def discipline(order: orders.StartRun | orders.StartSearch | orders.StartAb) -> dict[str, Any]:
    """What the run's row keeps of how and why it was started, beside its `why`."""
    vary = None if isinstance(order, orders.StartAb) else order.vary
    said = {"changes": order.changes, "expects": order.expects, "vary": vary and vary.said()}
    words = {"who", "why", "changes", "expects", "gate_override"}
    asked = order.model_dump(mode="json", exclude=words, exclude_none=True)
    kept = {"keep": order.keep, "gate_override": order.gate_override, "asked": asked}
    return {k: v for k, v in said.items() if v} | kept
