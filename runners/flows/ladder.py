"""The concurrency search as a pure decision: from the points measured so far to the next one, and to three answers.

Nothing here waits, measures or writes: `next_step` and `verdict` are functions of the points in order of work, so a
search that was cut anywhere goes on exactly where it was, and thousands of simulated curves can be climbed in a test.

The climb goes up the rungs 1, step, 2 step, ... until something stops it. What stopped it is decided on the points of
the climb alone, so that no later refinement can change it. Then every answer closes its own bracket by halving.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from runners.flows.outcome import Reason, decide
from store.analysis.statistics import BAR, pooled_cv, spread_of
from store.records import BREACHES, SERVED

# These say nothing about a concurrency, and the next point would meet the same wall: the search ends with them.
WALLS = frozenset({"NODE_LOST", "CANCELLED", "START_FAILED", "GATE_FAILED"})
UNKNOWN_CV = 0.02  # taken for the spread of repeats where no point was repeated
REGRESSION_Z = 3.0  # a fall must be this many standard errors of a difference of two points: 1 in 700 by chance
LEAST_FALL = 0.01  # and this share: repeats of a calm server agree better than anything that matters
FLAT = 0.01  # of the peak: what a gap must be able to hide above it to be worth another point
FINE = 4  # the TPS answer may need gaps narrower than this where few requests run, to keep the 3 % bar


@dataclass(frozen=True, slots=True)
class Rules:
    """What the search was asked. `has_slo`: the case names one.

    A search by request rate climbs over whole multiples of `unit`, in requests/s: what is called concurrency here is
    then that multiple. `stop_at_preemption`: the climb ends at the first point where the engine pre-empted requests.
    """

    step: int = 16
    refine: int = 4
    maximum: int = 256
    repeats: int = 3
    stop_at_slo: bool = False
    has_slo: bool = True
    unit: float | None = None
    stop_at_preemption: bool = False

    def said(self, load: int) -> str:
        """A load in words."""
        return f"concurrency {load}" if self.unit is None else f"{load * self.unit:g} requests/s"


@dataclass(frozen=True, slots=True)
class Repeat:
    """One finished attempt at a point. `tps`: tokens/s of the kind that the search goes by, None when not known."""

    outcome: str
    detail: str = ""
    tps: float | None = None
    began: bool = True  # whether its load client ever started
    waiting: float | None = None  # requests that the engine holds back, median over the window; None: not known
    cap: int | None = None  # running requests at which the server itself holds the rest back, when it shows
    preempted: float | None = None  # requests that the engine put back meanwhile; None: not known


@dataclass(frozen=True, slots=True)
class Point:
    """One concurrency, settled. `tps`, `cv` (share, ddof 1) and `counted` are over the repeats that succeeded."""

    concurrency: int
    outcome: str
    detail: str = ""
    tps: float | None = None
    cv: float | None = None
    counted: int = 0
    within_slo: bool | None = None
    waiting: float | None = None
    cap: int | None = None
    preempted: float | None = None

    @property
    def succeeded(self) -> bool:
        """An SLO breach is a success."""
        return self.outcome in SERVED


@dataclass(frozen=True, slots=True)
class Step:
    """A concurrency to try. `why`: climb | success | preemption | slo | tps, the answer it is for."""

    concurrency: int
    why: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A point that answers, and what bounds it: the reason found at `above`, or what stopped the climb."""

    concurrency: int
    bounded_by: str
    above: int | None = None  # the next concurrency tried, for which it no longer holds


@dataclass(frozen=True, slots=True)
class Verdict:
    """`stopped` is None while the climb goes on. The answers are the best that the points so far allow."""

    stopped: str | None
    detail: str
    max_successful: Answer | None
    max_tps: Answer | None
    max_within_slo: Answer | None
    max_unpreempted: Answer | None  # only where the search was asked to stop at the first pre-emption
    spread: float | None  # pooled CV of repeats, share; None when nothing was repeated
    tolerance: float  # share of the peak within which max_tps may lie


def settled(outcomes: Sequence[str], began: bool, repeats: int) -> bool:
    """Whether a point needs no further repeat: all are done, most can no longer succeed, or there is a wall."""
    failed = sum(o not in SERVED for o in outcomes)
    wall = bool(outcomes) and (outcomes[-1] in WALLS - {"NODE_LOST"} or not began)
    return len(outcomes) >= repeats or 2 * failed >= repeats or wall


def point_of(concurrency: int, repeats: Sequence[Repeat], asked: int, *, has_slo: bool) -> Point:
    """The settled point. It counts as a success, and as within the SLO, only if most of the asked repeats do."""
    good = [r for r in repeats if r.outcome in SERVED and r.tps is not None]
    bad = [r for r in repeats if r not in good]
    spread = spread_of(r.tps for r in good)
    waits = sorted(r.waiting for r in good if r.waiting is not None)
    caps = [r.cap for r in good if r.cap is not None]
    within = 2 * sum(r.outcome == "OK" for r in good) > asked
    lost = False if has_slo else None
    point = Point(
        concurrency=concurrency,
        outcome="OK",
        tps=spread.mean,
        cv=spread.cv,
        counted=spread.n,
        within_slo=within if has_slo else None,
        waiting=waits[(len(waits) - 1) // 2] if waits else None,
        cap=max(caps) if len(caps) == len(good) and caps else None,
        preempted=max((r.preempted for r in good if r.preempted is not None), default=None),
    )
    walls = [r for r in repeats if r.outcome in WALLS - {"NODE_LOST"} or not r.began]
    if walls:  # the point was not measured, whatever its other repeats say
        lead = walls[-1]
        wall = lead.outcome if lead.outcome in WALLS else "START_FAILED"
        said = lead.detail if lead.outcome == wall else f"{lead.outcome}: {lead.detail}"
        return replace(point, outcome=wall, detail=said, within_slo=None)
    failures = [Reason(r.outcome if r.outcome not in SERVED else "CLIENT_ERROR", r.detail) for r in bad]
    if 2 * len(good) <= asked:
        name, said = decide(failures)
        return replace(point, outcome=name, detail=_share(said, len(bad), len(repeats)), within_slo=lost)
    breaches = [Reason(r.outcome, r.detail) for r in good if r.outcome in BREACHES]
    parts = [_share(decide(x)[1], len(x), len(repeats)) for x in (breaches, failures) if x]
    return replace(point, outcome="OK" if within else decide(breaches)[0], detail="; ".join(parts))


def _share(said: str, n: int, of: int) -> str:
    return said if n == of else f"{n} of {of} repeats: {said}"


# -- the climb


def rungs(rules: Rules) -> list[int]:
    """1, step, 2 step, ... and the maximum itself; by rate there is no 1."""
    first = {1} if rules.unit is None else set()
    return sorted({*first, *range(rules.step, rules.maximum + 1, rules.step), rules.maximum})


@dataclass(frozen=True, slots=True)
class _Climb:
    points: list[Point] = field(default_factory=list)
    reason: str | None = None
    detail: str = ""


def _climb(points: Sequence[Point], rules: Rules) -> _Climb:
    """The points up to the one that stopped the climb; everything after it is refinement."""
    for n in range(1, len(points) + 1):
        if reasons := _stops(points[:n], rules):
            return _Climb(list(points[:n]), *decide(reasons))
    return _Climb(list(points))


def _stops(climb: Sequence[Point], rules: Rules) -> list[Reason]:
    """Everything that stops the climb at its last point."""
    last = climb[-1]
    at = f"at {rules.said(last.concurrency)}"
    if not last.succeeded:
        return [Reason(last.outcome, f"{at}: {last.detail}" if last.detail else at)]
    reasons = []
    cv = _cv(climb)
    earlier = [p for p in climb[:-1] if p.tps is not None]
    if last.tps is not None and earlier:
        best = max(earlier, key=lambda p: p.tps or 0.0)
        fall = 1 - last.tps / best.tps if best.tps else 0.0
        error = cv * math.sqrt(1 / max(1, best.counted) + 1 / max(1, last.counted))
        if fall > max(cv, _critical(climb) * error, LEAST_FALL):
            said = (
                f"{at}: {last.tps:.1f} tokens/s, {fall:.1%} below the {best.tps:.1f} at {rules.said(best.concurrency)}"
            )
            reasons.append(Reason("TPS_REGRESSION", f"{said}; repeats spread by {cv:.1%}"))
    if flat := _saturated(climb, cv, rules):
        reasons.append(Reason("TPS_SATURATED", flat))
    if rules.stop_at_preemption and last.preempted:
        said = f"{at}: the first pre-emptions, {last.preempted:g} in one repeat: the KV cache is full"
        reasons.append(Reason("MAX_CONCURRENCY_REACHED", said))
    if rules.unit is None and last.cap is not None and last.concurrency > last.cap:
        said = f"{at}: the server's own cap, it runs {last.cap} requests and holds the rest back"
        reasons.append(Reason("MAX_CONCURRENCY_REACHED", said))
    if last.concurrency >= rules.maximum:
        reasons.append(Reason("MAX_CONCURRENCY_REACHED", f"the asked limit, {rules.said(rules.maximum)}"))
    if rules.stop_at_slo and last.within_slo is False:
        reasons.append(Reason(last.outcome if last.outcome in BREACHES else "SLO_EXCEEDED", f"{at}: {last.detail}"))
    return reasons


def _saturated(climb: Sequence[Point], cv: float, rules: Rules) -> str | None:
    """No gain beyond the spread over two steps, with requests waiting at both. Unknown waiting proves nothing."""
    if len(climb) < 3:
        return None
    base, *steps = climb[-3:]
    if base.tps is None or any(p.tps is None or not p.waiting for p in steps):
        return None
    gain = max(p.tps or 0.0 for p in steps) / base.tps - 1 if base.tps else math.inf
    if gain > cv:
        return None
    waits = " and ".join(f"{p.waiting:g}" for p in steps)
    first, second, third = (rules.said(p.concurrency) for p in (base, *steps))
    return (
        f"from {first} over {second} to {third} TPS gained {max(gain, 0.0):.1%}, repeats spread by {cv:.1%}, while "
        f"{waits} requests were waiting"
    )


def _cv(points: Sequence[Point]) -> float:
    """Spread of single repeats as a share, from all points together."""
    known = pooled_cv((p.counted, p.cv) for p in points)
    return UNKNOWN_CV if known is None else known


def _critical(points: Sequence[Point]) -> float:
    """REGRESSION_Z, widened for a spread that is known from few repeats: Student's t by its expansion in 1 / degrees
    of freedom (Abramowitz and Stegun 26.7.5, first term)."""
    freedom = sum(max(0, p.counted - 1) for p in points)
    z = REGRESSION_Z
    return z + (z**3 + z) / (4 * freedom) if freedom else z


# -- the answers


def tolerance(points: Sequence[Point]) -> float:
    """How far below the peak TPS still counts as the peak, as a share: the spread of repeats, but never so far that
    a point taken for the peak might truly lie more than the 3 % bar below it, by two standard errors of a mean."""
    cv = _cv(points)
    good = [p.counted for p in points if p.succeeded and p.counted]
    error = cv / math.sqrt(min(good)) if good else cv
    return max(0.0, min(cv, BAR - 2 * error))


def _good(points: Sequence[Point]) -> list[Point]:
    return sorted((p for p in points if p.succeeded), key=lambda p: p.concurrency)


def _next_above(points: Sequence[Point], concurrency: int) -> Point | None:
    """The nearest tried point above, walls left out: they were not measured."""
    above = [p for p in points if p.concurrency > concurrency and p.outcome not in WALLS]
    return min(above, key=lambda p: p.concurrency, default=None)


def _top_tps(points: Sequence[Point]) -> tuple[Point, Point] | None:
    """The smallest concurrency within the tolerance of the peak, and the peak."""
    good = [p for p in _good(points) if p.tps is not None]
    if not good:
        return None
    peak = max(good, key=lambda p: p.tps or 0.0)
    floor = (peak.tps or 0.0) * (1 - tolerance(points))
    return next(p for p in good if (p.tps or 0.0) >= floor), peak


def verdict(points: Sequence[Point], rules: Rules) -> Verdict:
    """What the points, in order of work, say so far."""
    climb = _climb(points, rules)
    good = _good(points)
    stopped = climb.reason or "the search is not over"
    largest = good[-1] if good else None
    inside = [p for p in good if p.within_slo]
    calm = [p for p in good if not p.preempted] if rules.stop_at_preemption else []
    top = _top_tps(points)
    return Verdict(
        stopped=climb.reason,
        detail=climb.detail,
        max_successful=_answer(points, largest, stopped),
        max_tps=_tps_answer(top[0], points, stopped) if top else None,
        max_within_slo=_answer(points, inside[-1] if inside else None, stopped),
        max_unpreempted=_answer(points, _calm_top(calm, good), stopped),
        spread=pooled_cv((p.counted, p.cv) for p in points),
        tolerance=tolerance(points),
    )


def _calm_top(calm: Sequence[Point], good: Sequence[Point]) -> Point | None:
    """The largest load below the first that was pre-empted."""
    first = min((p.concurrency for p in good if p.preempted), default=math.inf)
    return max((p for p in calm if p.concurrency < first), key=lambda p: p.concurrency, default=None)


def _answer(points: Sequence[Point], point: Point | None, stopped: str) -> Answer | None:
    if point is None:
        return None
    above = _next_above(points, point.concurrency)
    if above is None:
        return Answer(point.concurrency, stopped)
    return Answer(point.concurrency, above.outcome, above.concurrency)


def _tps_answer(point: Point, points: Sequence[Point], stopped: str) -> Answer:
    """More load brings no more tokens, or cannot be had: the climb's own end when nothing was tried above."""
    above = _next_above(points, point.concurrency)
    if above is None:
        return Answer(point.concurrency, stopped)
    return Answer(point.concurrency, "TPS_PEAK" if above.succeeded else above.outcome, above.concurrency)


# -- what to try next


def next_step(points: Sequence[Point], rules: Rules) -> Step | None:
    """The next concurrency to try; None when the search is over.

    `points` are settled points in order of work; every concurrency is tried once.
    """
    if any(p.outcome in WALLS for p in points):
        return None
    climb = _climb(points, rules)
    if climb.reason is None:
        tried = {p.concurrency for p in points}
        return next((Step(r, "climb") for r in rungs(rules) if r not in tried), None)
    return (
        _halve_success(points, rules)
        or _halve_calm(points, rules)
        or _halve_slo(points, rules)
        or _halve_tps(points, rules)
    )


def _middle(low: int, high: int, rules: Rules, why: str) -> Step | None:
    return Step((low + high) // 2, why) if high - low > rules.refine else None


def _halve_success(points: Sequence[Point], rules: Rules) -> Step | None:
    good = _good(points)
    if not good:
        return None
    above = _next_above(points, good[-1].concurrency)
    return _middle(good[-1].concurrency, above.concurrency, rules, "success") if above else None


def _halve_calm(points: Sequence[Point], rules: Rules) -> Step | None:
    if not rules.stop_at_preemption:
        return None
    good = _good(points)
    top = _calm_top([p for p in good if not p.preempted], good)
    above = _next_above(points, top.concurrency) if top else None
    return _middle(top.concurrency, above.concurrency, rules, "preemption") if top and above else None


def _halve_slo(points: Sequence[Point], rules: Rules) -> Step | None:
    inside = [p for p in _good(points) if p.within_slo] if rules.has_slo else []
    if not inside:
        return None
    above = _next_above(points, inside[-1].concurrency)
    return _middle(inside[-1].concurrency, above.concurrency, rules, "slo") if above else None


def _halve_tps(points: Sequence[Point], rules: Rules) -> Step | None:
    """First the gaps beside the peak, as long as they may hide a higher one, then the foot of its plateau."""
    top = _top_tps(points)
    if top is None:
        return None
    answer, peak = top
    above = _next_above(points, peak.concurrency)
    curve = [(p.concurrency, p.tps) for p in _good(points) if p.tps is not None]
    at = [c for c, _ in curve].index(peak.concurrency)
    gaps = [(peak.concurrency, above.concurrency)] if above else []
    gaps += [(curve[at - 1][0], peak.concurrency)] if at else []
    noise = _cv(points) / math.sqrt(max(1, peak.counted))
    for low, high in gaps:
        gap = high - low
        if gap > rules.refine:
            worth = max(FLAT, noise)
        elif 1 < gap <= FINE:
            worth = max(BAR / 2, 2 * noise)
        else:
            continue
        if _hidden(curve, low, high) > worth:
            return Step((low + high) // 2, "tps")
    below = max((c for c, _ in curve if c < answer.concurrency), default=None)
    return _middle(below, answer.concurrency, rules, "tps") if below else None


def _hidden(curve: Sequence[tuple[int, float]], low: int, high: int) -> float:
    """How far TPS between two neighbours may rise above the highest point measured, as a share of that.

    TPS over concurrency is taken to be concave (from none at 0), at least up to its peak and a little beyond: then no
    point of a gap lies above the lines through the two measured points before it and through the two after it.
    """
    peak = max(tps for _, tps in curve)
    before = [(0, 0.0), *(p for p in curve if p[0] <= low)][-2:]
    after = [p for p in curve if p[0] >= high][:2]
    inner = range(low + 1, high)
    bound = max(min(_line(before, c), _line(after, c) if len(after) == 2 else math.inf) for c in inner)
    return bound / peak - 1 if peak else 0.0


def _line(two: Sequence[tuple[int, float]], at: int) -> float:
    (c0, t0), (c1, t1) = two
    return t0 + (t1 - t0) * (at - c0) / (c1 - c0)
