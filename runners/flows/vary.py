"""A case that is measured otherwise than the configuration says: an ad-hoc case with a name of its own.

`D2-C16` with other requests is `D2@requests=40-C16` everywhere: a named case is never changed in silence.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from runners.spec import NAME, Case, ConfigError, Inventory, seconds

if TYPE_CHECKING:
    from runners.flows.work import Leg, Work

DAY_S = 86400.0
NO_SLO = "none"
Load = Annotated[int, Field(ge=1, le=65536)]
Count = Annotated[int, Field(ge=1, le=16 * 2**20)]


class Vary(BaseModel):
    """What a start says in place of its cases; None is left to each case. Comes from anywhere, so it is bounded."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    concurrency: Annotated[list[Load], Field(min_length=1, max_length=64)] | None = None
    isl: Count | None = None
    osl: Count | None = None
    requests: Count | None = None
    budget: Annotated[float, BeforeValidator(seconds), Field(gt=0, le=7 * DAY_S)] | None = None
    slo: Annotated[str, Field(pattern=NAME)] | None = None  # NO_SLO: judged by none

    def said(self) -> dict[str, Any]:
        """Only what was given, for the run's row."""
        return self.model_dump(exclude_none=True)


def varied_case(inventory: Inventory, case: Case, vary: Vary) -> Case:
    """`case` with everything but the concurrency of `vary`, under a name that says so. Raises ConfigError."""
    change = vary.model_dump(exclude_none=True, exclude={"concurrency"})
    if "slo" in change:
        if change["slo"] == NO_SLO:
            change["slo"] = None
        elif change["slo"] not in inventory.slo:
            raise ConfigError(f"no SLO is called {change['slo']!r}. Known: {', '.join([*inventory.slo, NO_SLO])}.")
    change = {k: v for k, v in change.items() if getattr(case, k) != v}
    if not change:
        return case
    words = ",".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v or NO_SLO}" for k, v in change.items())
    if "isl" in change:
        change["fallback_isl"] = None  # the operator says how long; a context that is too short is to be told
    return case.model_copy(update={**change, "name": f"{case.name}@{words}"})


def varied_cases(inventory: Inventory, case: Case, vary: Vary) -> list[Case]:
    """The same at every concurrency asked for. Raises ConfigError."""
    case = varied_case(inventory, case, vary)
    if vary.concurrency is None:
        return [case]
    return [
        case.model_copy(update={"concurrency": c, "request_rate": None, "requests": _requests(case, c, vary)})
        for c in dict.fromkeys(vary.concurrency)
    ]


def _requests(case: Case, concurrency: int, vary: Vary) -> int | None:
    """The number that the case was given for its own load says nothing for a higher one: at least 5 a slot."""
    if vary.requests is not None or case.requests is None:
        return case.requests
    return max(case.requests, 5 * concurrency) if concurrency > case.concurrency else case.requests


def varied(inventory: Inventory, work: Work, vary: Vary | None) -> Work:
    """The work with every case varied; what then is the same case is measured once. Raises ConfigError."""
    if vary is None:
        return work
    legs: dict[tuple[str, str | None], Leg] = {}
    for leg in work.legs:
        for case in varied_cases(inventory, leg.case, vary):
            new = replace(leg, case=case, name=leg.name.replace(leg.case.label, case.label, 1))
            legs.setdefault((new.name, new.variant), new)
    return replace(work, legs=tuple(legs.values()))
