"""The concurrency search: what runners/flows/ladder.py decides, carried out on a living server and kept in the store.

Every point is a row before it begins and every repeat an attempt like any other, planned one at a time. After a crash
the points and attempts of the store lead to the same next step.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import orjson

from runners.flows import ladder
from runners.flows.ladder import Repeat, Rules, Step
from runners.flows.life import Lives
from runners.flows.order_of_work import attempt_of
from runners.flows.run_case import RunFlow
from runners.flows.services import Services
from runners.orders import OrderError
from runners.spec import Case, Deployment, Search, Slo
from store import records
from store.analysis.statistics import spread_of
from store.database import Store
from store.queries import call, literal
from store.records import SERVED, Attempt, Run

_CAP_NAME = re.compile(r"(?:^|[._-])(?:max[_-]running(?:[_-]requests)?|max[_-]num[_-]seqs)$")
CAP_SAMPLES = 5  # looks at the engine from which a cap that nobody declared may be concluded
CAP_SHARE = 0.8  # of those looks that show the same highest number of running requests
ARRIVALS_S = 20.0  # of an open loop: shorter ones say little about a queue
MIN_ARRIVALS = 20
KV_FULL = 0.9  # above this it may be the cache that holds requests back


def options_of(case: Case, search: Search, slo: Slo | None = None) -> dict[str, Any]:
    """What the run's row keeps of the search that was asked for."""
    rules = Rules(
        step=search.step,
        refine=search.refine,
        maximum=search.max_concurrency,
        repeats=search.repeats,
        stop_at_slo=search.stop_at_slo,
        has_slo=case.slo is not None,
        stop_at_preemption=search.stop_at_preemption,
    )
    if search.max_rate is not None:  # in whole multiples of the finest step
        unit = search.refine_rate
        step, maximum = round(search.step_rate / unit), round(search.max_rate / unit)
        rules = replace(rules, unit=unit, step=step, refine=1, maximum=maximum)
    said = {"case": case.model_dump(mode="json"), "rules": asdict(rules), "repeats": search.repeats}
    return said | ({"slo": slo.model_dump(mode="json")} if slo else {})


def continued(store: Store, run: Run, asked: Mapping[str, Any]) -> str:
    """The options of a finished search that goes on, as text. Raises OrderError for a load that it never tried."""
    options = orjson.loads(run.spec or "{}")
    rules = Rules(**options["rules"])
    unit = rules.unit
    changes = {k: asked[k] for k in ("refine", "repeats") if k in asked and (unit is None or k == "repeats")}
    if unit is None and "max_concurrency" in asked:
        changes["maximum"] = asked["max_concurrency"]
    if unit is not None and "max_rate" in asked:
        changes["maximum"] = round(asked["max_rate"] / unit)
    rules = replace(rules, **changes)
    again = dict(options.get("again") or {})
    if "again" in asked:
        load = asked["again"]
        done = store.query(
            f"select count(*) from attempts where run_id = {literal(run.run_id)} and state = 'done' "
            f"and abs(coalesce(request_rate, concurrency) - {float(load)}) < 1e-9"
        ).rows[0][0]
        if not done:
            raise OrderError(f"{run.run_id} has not tried {load:g}; `twinrail show {run.run_id}` lists its points")
        again[str(round(load / unit) if unit else round(load))] = int(done) + rules.repeats
    kept = {k: v for k, v in options.items() if k != "verdict"}
    return orjson.dumps({**kept, "rules": asdict(rules), "again": again, "keep": bool(asked.get("keep"))}).decode()


def case_at(case: Case, load: int, rules: Rules) -> Case:
    """The case at one load: with at least the usual 5 C requests so that there is a steady window; by rate with
    arrivals for ARRIVALS_S unless the case says how many."""
    if rules.unit is not None:
        rate = load * rules.unit
        arrivals = case.requests or max(MIN_ARRIVALS, math.ceil(rate * ARRIVALS_S))
        return case.model_copy(update={"request_rate": rate, "requests": arrivals})
    requests = case.requests and max(case.requests, 5 * load)
    return case.model_copy(update={"concurrency": load, "request_rate": None, "requests": requests})


class SearchFlow(RunFlow):
    """Carries one search from planned to done."""

    def __init__(self, services: Services, lives: Lives, run: Run, dep: Deployment) -> None:
        super().__init__(services, lives, run, dep)
        options = orjson.loads(run.spec or "{}")
        self.case = Case.model_validate(options["case"])
        self.rules = Rules(**options["rules"])
        self.again: dict[str, int] = options.get("again") or {}  # load -> attempts that it shall have
        self.points: list[ladder.Point] = []
        self._open: list[Attempt] = []

    async def _attempts(self) -> tuple[str, str]:
        """Point by point until the ladder is finished. OK when it came to its end, whatever stopped the climb."""
        self._open = await self._open_attempts()
        begun = await self._recover()
        for load, wanted in self.again.items():
            await self._measure_again(int(load), wanted)
        while step := begun or ladder.next_step(self.points, self.rules):
            begun = None
            if self.cancel.is_set():
                return "CANCELLED", "stopped by the operator"
            await self._point(step)
        last = self.points[-1]
        if last.outcome in ladder.WALLS or not any(p.succeeded for p in self.points):
            return last.outcome, f"{self.rules.said(last.concurrency)}: {last.detail}"
        found = ladder.verdict(self.points, self.rules)
        return "OK", f"stopped by {found.stopped}: {found.detail}"

    async def _recover(self) -> Step | None:
        """The settled points of the journal again, and the point that was on, if there was one."""
        rows = self.services.store.query(
            f'from points where run_id = {literal(self.row.run_id)} order by "ordinal"'
        ).dicts()
        begun, self.points = None, []
        for row in (records.Point(**row) for row in rows):
            concurrency = self._load(row)
            if row.outcome is None:
                kept = orjson.loads(self.row.spec or "{}").get("step") or {}
                begun = Step(concurrency, kept.get("why", "climb"))
            else:
                self.points.append((await self._settled(concurrency))[0])
        return begun

    async def _point(self, step: Step) -> None:
        """Repeats at one concurrency until the point is settled, then its row and the answers so far."""
        concurrency, run_id = step.concurrency, self.row.run_id
        row = records.Point(run_id=run_id, ordinal=len(self.points) + 1, **self._columns(concurrency))
        self._keep(step={**self._columns(concurrency), "why": step.why})
        await self.services.store.commit([row, self.row])
        done = self._done(concurrency)
        while not ladder.settled([str(a.outcome) for a in done], _began(done), self.rules.repeats):
            attempt = self._open.pop(0) if self._open else await self._plan(concurrency, len(done) + 1)
            done.append(await self._attempt(attempt))
        point, rows = await self._settled(concurrency)
        self.points.append(point)
        self._keep_verdict()
        await self.services.store.commit([_filled(row, point, rows), self.row])

    async def _measure_again(self, load: int, wanted: int) -> None:
        """More attempts at a load that was tried, until there are as many as wanted; all of them judge its point."""
        at = next((n for n, p in enumerate(self.points) if p.concurrency == load), None)
        done = self._done(load)
        if at is None or len(done) >= wanted:
            return
        while len(done) < wanted and not self.cancel.is_set():
            attempt = self._open.pop(0) if self._open else await self._plan(load, len(done) + 1)
            done.append(await self._attempt(attempt))
        self.points[at], rows = await self._settled(load)
        self._keep_verdict()
        row = records.Point(run_id=self.row.run_id, ordinal=at + 1, **self._columns(load))
        await self.services.store.commit([_filled(row, self.points[at], rows), self.row])

    def _load(self, row: records.Point | Attempt) -> int:
        """The load of a row in the ladder's own count."""
        if self.rules.unit is None:
            return row.concurrency or 1
        return round((row.request_rate or 0.0) / self.rules.unit)

    def _columns(self, load: int) -> dict[str, Any]:
        """The same the other way: what the store keeps of it."""
        return {"concurrency": load} if self.rules.unit is None else {"request_rate": load * self.rules.unit}

    def _done(self, load: int) -> list[Attempt]:
        rows = self.services.store.query(
            f"from attempts where run_id = {literal(self.row.run_id)} and state = 'done' order by \"ordinal\""
        ).dicts()
        return [a for a in (Attempt(**row) for row in rows) if self._load(a) == load]

    async def _plan(self, concurrency: int, repeat: int) -> Attempt:
        """The next attempt, in the journal. Fresh prompts for every one, also for a case with a seed of its own."""
        run_id = self.row.run_id
        last = self.services.store.query(
            f'select coalesce(max("ordinal"), 0) from attempts where run_id = {literal(run_id)}'
        ).rows[0][0]
        ordinal = int(last) + 1
        seed = f"{run_id if self.case.seed is None else self.case.seed}/{ordinal}"
        attempt = attempt_of(run_id, ordinal, case_at(self.case, concurrency, self.rules), repeat, seed)
        await self.services.store.commit([attempt])
        return attempt

    # -- what the attempts say

    async def _settled(self, concurrency: int) -> tuple[ladder.Point, list[dict[str, Any]]]:
        """The point that the attempts at this concurrency make, and their rows of `search_repeats`."""
        rows = await asyncio.to_thread(self._repeats, concurrency)
        kind = "input_tps" if self.case.osl == 1 else "output_tps"
        repeats = [repeat_of(row, kind, self._declared(row["life_id"])) for row in rows]
        asked = max(self.rules.repeats, len(repeats))  # a point that was repeated on request has more
        return ladder.point_of(concurrency, repeats, asked, has_slo=self.rules.has_slo), rows

    def _repeats(self, concurrency: int) -> list[dict[str, Any]]:
        ids = [a.attempt_id for a in self._done(concurrency)]
        return self.services.store.query(call("search_repeats", ids)).dicts() if ids else []

    def _declared(self, life_id: str | None) -> int | None:
        """The most running requests by the server's own word or by its flags; None with several DP ranks, since
        engines mean it for each or for all."""
        if self.dep.topology.dp > 1:
            return None
        said = self.services.store.query(
            f"select name, value from variables where life_id = {literal(life_id)}" if life_id else "select '', ''"
        ).rows
        return declared_cap([(str(n), str(v)) for n, v in said], self.dep.flags)

    def _keep_verdict(self) -> None:
        """The answers so far beside the options of the run: what the documents and screens show."""
        self._keep(verdict=self._in_words(asdict(ladder.verdict(self.points, self.rules))))

    def _keep(self, **parts: Any) -> None:
        """Beside the options of the run: the answers so far, and the step at work with the answer that it is for."""
        options = {**orjson.loads(self.row.spec or "{}"), **parts}
        self.row = replace(self.row, spec=orjson.dumps(options).decode())

    def _in_words(self, found: dict[str, Any]) -> dict[str, Any]:
        """The verdict as it is kept: a load by rate is a rate."""
        unit = self.rules.unit
        if unit is None:
            return found
        answers = {k: v for k, v in found.items() if isinstance(v, dict)}
        by_rate = {
            name: {
                **{k: v for k, v in answer.items() if k != "concurrency"},
                "concurrency": None,
                "request_rate": answer["concurrency"] * unit,
                "above": None if answer["above"] is None else answer["above"] * unit,
            }
            for name, answer in answers.items()
        }
        return {**found, **by_rate}


def _filled(row: records.Point, point: ladder.Point, repeats: Sequence[Mapping[str, Any]]) -> records.Point:
    """The point for the store. Its rates are means over the repeats that count, like the point's own TPS."""
    good = [r for r in repeats if r["outcome"] in SERVED]
    return replace(
        row,
        outcome=point.outcome,
        detail=point.detail or None,
        repeats=point.counted,
        input_tps=spread_of(r["input_tps"] for r in good).mean,
        output_tps=spread_of(r["output_tps"] for r in good).mean,
        spread_pct=None if point.cv is None else 100 * point.cv,
        within_slo=point.within_slo,
    )


def _began(done: Sequence[Attempt]) -> bool:
    return not done or done[-1].job_id is not None


def repeat_of(row: Mapping[str, Any], kind: str, declared: int | None) -> Repeat:
    """One row of `search_repeats` as the ladder takes it. `kind`: input_tps | output_tps."""
    return Repeat(
        outcome=row["outcome"],
        detail=row["detail"] or "",
        tps=row[kind],
        began=row["job_id"] is not None,
        waiting=row["waiting"],
        cap=shown_cap(row, declared),
        preempted=row["preempted"],
    )


def shown_cap(row: Mapping[str, Any], declared: int | None) -> int | None:
    """Running requests at which the server itself held others back in this attempt; None when that does not show.

    Requests must have waited while fewer ran than were sent. Then it is a cap if the server had declared that number,
    or else if it ran the very same number nearly all the time and its KV cache had room.
    """
    top, waiting = row["running_top"], row["waiting"]
    if not waiting or top is None or row["concurrency"] is None or top >= row["concurrency"]:
        return None
    if declared is not None:
        return declared if top >= 0.98 * declared else None
    steady = row["samples"] >= CAP_SAMPLES and (row["running_top_share"] or 0) >= CAP_SHARE
    return int(top) if steady and row["kv_top"] is not None and row["kv_top"] < KV_FULL else None


def declared_cap(variables: Sequence[tuple[str, str]], flags: Sequence[str]) -> int | None:
    """Most running requests that a server states or is told by its flags (vLLM, SGLang, sim); the lowest of several."""
    words = [w for flag in flags for w in flag.split("=", 1)]
    told = [*variables, *itertools.pairwise(words)]
    found = [int(v) for n, v in told if _CAP_NAME.search(n.lower()) and v.isdigit() and int(v) > 0]
    return min(found, default=None)
