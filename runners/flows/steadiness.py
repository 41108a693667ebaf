"""Repeats that do not agree: which cases of a plan are measured once more. The mean stays that of all repeats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from runners.flows.order_of_work import attempt_of
from runners.spec import Case
from store.analysis.statistics import BAR
from store.records import Attempt


def more_repeats(spreads: Iterable[Mapping[str, Any]], attempts: Sequence[Attempt], most: int) -> list[Attempt]:
    """One more planned attempt for every case above the bar, as long as it has had fewer than `most`.

    `spreads` are rows of the query run_spread; `attempts` all attempts of the run that are not void.
    """
    out: list[Attempt] = []
    last = max((a.ordinal for a in attempts), default=0)
    for row in spreads:
        mine = [a for a in attempts if a.case_name == row["case_name"]]
        if row["spread_pct"] is None or row["spread_pct"] <= 100 * BAR or not mine or len(mine) >= most:
            continue
        newest = max(mine, key=lambda a: a.ordinal)
        ordinal, repeat = last + len(out) + 1, newest.repeat + 1
        case = Case.model_validate_json(newest.case_spec or "{}")
        seed = f"{newest.run_id}/{ordinal}" if case.seed is None else f"{case.seed}/{repeat}"
        again = attempt_of(newest.run_id, ordinal, case, repeat, seed)
        out.append(replace(again, case_name=newest.case_name, variant=newest.variant))
    return out
