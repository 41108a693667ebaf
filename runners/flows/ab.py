"""Two sides of one comparison, measured in blocks on the same nodes: A B, B A, A B ... each on a server of its own.

Every second block is turned round, so that a slow drift of the machine adds to neither side. Where the servers differ,
each block and side has a fresh server life: the life is what was drawn, not the attempt.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from runners.flows.order_of_work import cases_of
from runners.flows.variants import Value, changed_case, changed_deployment, label_of, variant_of
from runners.flows.work import Leg, Work
from runners.spec import ConfigError, Inventory

MIRRORED = "mirrored"


def ab_work(
    inventory: Inventory,
    what: Sequence[str],
    a: str,
    b: str,
    *,
    vary: str | None = None,
    deployment: str | None = None,
    blocks: int = 6,
) -> Work:
    """`a` and `b` are deployments, or with `vary` two values of it on one deployment.

    Raises:
        ConfigError: an unknown name, a mix of a plan and other names, or two sides that are the same.
    """
    cases, *_ = cases_of(inventory, what)
    if a == b:
        raise ConfigError(f"both sides are {a}: nothing would differ")
    sides = []
    for word in (a, b):
        if vary is None:
            sides.append((word, inventory.deployment(word), variant_of(word), cases))
            continue
        dep, value = inventory.deployment(deployment), value_of(word)
        changed = changed_deployment(dep, vary, value)
        varied = [changed_case(c, vary, value) for c in cases]
        sides.append((label_of(vary, value), changed, variant_of(dep.name, vary, value), varied))
    legs = [
        Leg(case, f"{plain.label}@{label}", variant)
        for label, _, variant, varied in sides
        for case, plain in zip(varied, cases, strict=True)
    ]
    return Work(
        legs=tuple(legs),
        deployment=inventory.deployment(a if vary is None else deployment).name,
        repeats=blocks,
        order=MIRRORED,
        fresh=sides[0][1] != sides[1][1],
    )


def value_of(word: str) -> Value:
    """A value of a variable as an operator types it: on, off, a number, or text."""
    switches = {"on": True, "true": True, "off": False, "false": False}
    if word.lower() in switches:
        return switches[word.lower()]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(word)
    return word


def sides_of(work: Work) -> dict[str, Any]:
    """What the run's row keeps of the two sides: {a, b: {label, variant}}."""
    first, last = work.legs[0], work.legs[-1]
    return {
        side: {"label": leg.name.rpartition("@")[2], "variant": leg.variant}
        for side, leg in (("a", first), ("b", last))
    }
