"""What an order to start something comes to: the same for the owner that carries it out and for a dry run."""

from __future__ import annotations

from typing import Any

from runners import orders
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


def discipline(order: orders.StartRun | orders.StartSearch) -> dict[str, Any]:
    """What the run's row keeps of how and why it was started, beside its `why`."""
    said = {"changes": order.changes, "expects": order.expects, "vary": order.vary and order.vary.said()}
    return {k: v for k, v in said.items() if v} | {"keep": order.keep, "gate_override": order.gate_override}
