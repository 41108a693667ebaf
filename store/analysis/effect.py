"""How much better or worse B is than A in one metric: effect, interval, and what the data cannot tell.

Effects are ratios, so everything is done on logarithms: paired blocks by the mean of ln(B / A), two separate samples by
the difference of mean logarithms (Welch). An interval is Student's; a difference is believed only if an exact
permutation test agrees, since for few replicates the interval leans on a normality that nobody can check.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from store.analysis.statistics import permutation_p, sign_flip_p, t_quantile

LEVEL = 0.95
POWER = 0.8
MARGIN = 0.03  # a change within this is none, unless something else was declared
MOST_N = 400  # further replicates than anybody would run


@dataclass(frozen=True, slots=True)
class Effect:
    """B against A. Shares: 0.05 is 5 % more. `n` is blocks, or the replicates of the smaller side.

    `detectable`: smallest effect that such data finds in 80 % of cases; `needed`: replicates a side to find `MARGIN`
    (None: more than MOST_N). `p` is the permutation test's. None where the data allow no figure.
    """

    n: int
    change: float | None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    detectable: float | None = None
    needed: int | None = None
    paired: bool = True
    noise_declared: bool = False


def paired_effect(
    pairs: Sequence[tuple[float, float]], *, level: float = LEVEL, noise: float | None = None, target: float = MARGIN
) -> Effect:
    """Effect from blocks (A, B) measured side by side. `noise`: a declared CV of one measurement, taken as known."""
    logs = [math.log(b / a) for a, b in pairs if a > 0 and b > 0]
    n = len(logs)
    if not n:
        return Effect(0, None)
    mean = math.fsum(logs) / n
    if noise is not None:
        error = noise * math.sqrt(2 / n)
        return _known(n, mean, error, level, noise * math.sqrt(2), target, paired=True)
    if n < 2:
        return Effect(n, math.expm1(mean))
    sd = math.sqrt(math.fsum((x - mean) ** 2 for x in logs) / (n - 1))
    half = t_quantile((1 + level) / 2, n - 1) * sd / math.sqrt(n)
    return Effect(
        n,
        math.expm1(mean),
        math.expm1(mean - half),
        math.expm1(mean + half),
        sign_flip_p(logs),
        _detectable(sd, n, n - 1, level),
        _needed(sd, level, target, per_block=1),
    )


def separate_effect(
    a: Sequence[float], b: Sequence[float], *, level: float = LEVEL, noise: float | None = None, target: float = MARGIN
) -> Effect:
    """Effect from two samples that were not measured side by side (Welch)."""
    first, second = ([math.log(v) for v in side if v > 0] for side in (a, b))
    n = min(len(first), len(second))
    if not n:
        return Effect(0, None, paired=False)
    mean = float(np.mean(second) - np.mean(first))
    if noise is not None:
        spread = math.sqrt(1 / len(first) + 1 / len(second))
        return _known(n, mean, noise * spread, level, noise * math.sqrt(2), target, paired=False)
    if n < 2:
        return Effect(n, math.expm1(mean), paired=False)
    v1, v2 = float(np.var(first, ddof=1)) / len(first), float(np.var(second, ddof=1)) / len(second)
    error = math.sqrt(v1 + v2)
    freedom = (v1 + v2) ** 2 / (v1**2 / (len(first) - 1) + v2**2 / (len(second) - 1)) if error else 2.0 * (n - 1)
    half = t_quantile((1 + level) / 2, round(freedom, 2)) * error
    sd = math.sqrt((v1 + v2) * n)  # of one difference, were the sides paired
    return Effect(
        n,
        math.expm1(mean),
        math.expm1(mean - half),
        math.expm1(mean + half),
        permutation_p(first, second),
        _detectable(sd, n, 2 * (n - 1), level),
        _needed(sd, level, target, per_block=2),
        paired=False,
    )


def _known(n: int, mean: float, error: float, level: float, sd: float, target: float, *, paired: bool) -> Effect:
    z = NormalDist().inv_cdf((1 + level) / 2)
    reach = z + NormalDist().inv_cdf(POWER)
    needed = math.ceil((reach * sd / math.log1p(target)) ** 2) if sd else 1
    return Effect(
        n,
        math.expm1(mean),
        math.expm1(mean - z * error),
        math.expm1(mean + z * error),
        None,
        math.expm1(reach * error),
        max(1, needed) if needed <= MOST_N else None,
        paired,
        noise_declared=True,
    )


def _detectable(sd: float, n: int, freedom: float, level: float) -> float:
    return math.expm1((t_quantile((1 + level) / 2, freedom) + t_quantile(POWER, freedom)) * sd / math.sqrt(n))


def _needed(sd: float, level: float, target: float, *, per_block: int) -> int | None:
    """Least n that finds `target`, and whose permutation test could believe it at all."""

    def enough(n: int) -> bool:
        found = _detectable(sd, n, per_block * (n - 1), level) <= target
        return found and least_p(n, paired=per_block == 1) <= 1 - level

    least = bisect.bisect_left(range(2, MOST_N + 1), True, key=enough) + 2
    return least if least <= MOST_N else None


def least_p(n: int, *, paired: bool) -> float:
    """The smallest p that an exact permutation test of n blocks, or of n against n, can give."""
    return 2 / 2**n if paired else 2 / math.comb(2 * n, n)


def judged(effect: Effect, *, higher_is_better: bool, margin: float = MARGIN, level: float = LEVEL) -> tuple[str, str]:
    """(verdict, why): improve | regress | no_change | not_enough_data, and the reason in words."""
    unit = "blocks" if effect.paired else "replicates a side"
    if effect.change is None or effect.low is None or effect.high is None:
        return "not_enough_data", f"{effect.n} {unit}: no interval can be given"
    least = least_p(effect.n, paired=effect.paired)
    alpha = 1 - level
    if not effect.noise_declared and least > alpha + 1e-12:
        return "not_enough_data", f"{effect.n} {unit}: even the clearest result could be chance (p {least:.2g})"
    said = f"{effect.change:+.1%} ({effect.low:+.1%} to {effect.high:+.1%}, {effect.n} {unit})"
    outside = effect.low > 0 or effect.high < 0
    believed = effect.noise_declared or (effect.p is not None and effect.p <= alpha + 1e-12)
    if outside and believed:
        better = (effect.change > 0) == higher_is_better
        return ("improve" if better else "regress"), said
    if effect.low >= -margin and effect.high <= margin:
        return "no_change", f"{said}: within {margin:.0%} of A"
    needs = f"; about {effect.needed} {unit} would find {margin:.0%}" if effect.needed else ""
    found = f"; effects below {effect.detectable:.1%} would go unseen" if effect.detectable is not None else ""
    return "not_enough_data", f"{said}: neither a change nor none is shown{found}{needs}"
