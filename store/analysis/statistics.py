"""Statistics of repeats: spread, bootstrap intervals, permutation tests; every verdict uses these.

Sources: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapters 13 (percentile interval) and 15
(permutation tests); Phipson and Smyth (2010) for counting the observed arrangement in a sampled permutation test.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

BAR = 0.03
"""The coefficient of variation above which repeats of one case do not agree."""

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]
_EXACT = 20_000  # arrangements up to which a permutation test visits all of them


@dataclass(frozen=True, slots=True)
class Spread:
    """Of `n` values: mean, standard deviation (ddof 1) and their ratio `cv`; None where they do not exist."""

    n: int
    mean: float | None
    sd: float | None
    cv: float | None


def spread_of(values: Iterable[float | None]) -> Spread:
    """Spread of the known values. One value has a mean and no spread; a mean of 0 has no CV."""
    known = [float(v) for v in values if v is not None and math.isfinite(v)]
    n = len(known)
    mean = math.fsum(known) / n if n else None
    if mean is None or n < 2:
        return Spread(n, mean, None, None)
    sd = math.sqrt(math.fsum((v - mean) ** 2 for v in known) / (n - 1))
    return Spread(n, mean, sd, sd / abs(mean) if mean else None)


def pooled_cv(groups: Iterable[tuple[int, float | None]]) -> float | None:
    """One CV from those of several groups, each given as (n, cv), weighted by degrees of freedom; None without any."""
    known = [(n - 1, cv) for n, cv in groups if n > 1 and cv is not None]
    freedom = sum(f for f, _ in known)
    return math.sqrt(math.fsum(f * cv * cv for f, cv in known) / freedom) if freedom else None


def mean_of(draws: Floats) -> Floats:
    """Mean of each row: the usual statistic of `bootstrap_interval`."""
    return np.asarray(draws.mean(axis=-1), dtype=np.float64)


def bootstrap_interval(
    values: Sequence[float],
    statistic: Statistic = mean_of,
    *,
    level: float = 0.95,
    draws: int = 10_000,
    seed: int = 0,
) -> tuple[float, float] | None:
    """Percentile interval (low, high) of a statistic at a level of confidence; None for fewer than two values.

    `statistic` takes an array (draws, n) and gives one figure a row. The same seed gives the same interval.
    """
    if len(values) < 2:
        return None
    sample = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng(seed)
    found = statistic(sample[rng.integers(0, len(sample), (draws, len(sample)))])
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def bootstrap_change(
    a: Sequence[float],
    b: Sequence[float],
    statistic: Statistic = mean_of,
    *,
    level: float = 0.95,
    draws: int = 10_000,
    seed: int = 0,
) -> tuple[float, float, float] | None:
    """Relative change of a statistic from a to b, as (change, low, high): 0.05 is 5 % more.

    Both samples are drawn independently. None when one has fewer than two values or a's statistic can be 0.
    """
    if len(a) < 2 or len(b) < 2:
        return None
    rng = np.random.default_rng(seed)
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    before = statistic(first[rng.integers(0, len(first), (draws, len(first)))])
    after = statistic(second[rng.integers(0, len(second), (draws, len(second)))])
    base = float(statistic(first[None, :])[0])
    if base == 0 or np.any(before == 0):
        return None
    low, high = np.quantile(after / before - 1, [(1 - level) / 2, (1 + level) / 2])
    return float(statistic(second[None, :])[0]) / base - 1, float(low), float(high)


def permutation_p(a: Sequence[float], b: Sequence[float], *, draws: int = 10_000, seed: int = 0) -> float | None:
    """Two-sided p value of the difference of means under exchange of labels; None when a side is empty.

    All arrangements are visited when there are at most 20,000 of them; else `draws` are sampled and the observed one
    is counted with them, so that p is never 0.
    """
    if not a or not b:
        return None
    pool = np.asarray([*a, *b], dtype=np.float64)
    n, total = len(a), float(pool.sum())

    def gap(sums: Floats) -> Floats:
        return np.abs(sums / n - (total - sums) / (len(pool) - n))

    # Arrangements that differ in rounding alone are equal.
    observed = float(gap(np.asarray(float(pool[:n].sum())))) - 1e-9 * max(1.0, float(np.abs(pool).max()))
    if math.comb(len(pool), n) <= _EXACT:
        chosen = np.array(list(combinations(range(len(pool)), n)))
        return float((gap(pool[chosen].sum(axis=1)) >= observed).mean())
    rng = np.random.default_rng(seed)
    sums = np.array([rng.permutation(pool)[:n].sum() for _ in range(draws)])
    return (int((gap(sums) >= observed).sum()) + 1) / (draws + 1)


@functools.cache
def t_quantile(p: float, freedom: float) -> float:
    """Quantile of Student's t: the density integrated by Simpson's rule, the root found by halving (to 1e-8).

    Raises:
        ValueError: p not within (0, 1), or no degree of freedom.
    """
    if not 0 < p < 1 or freedom <= 0:
        raise ValueError(f"t quantile of p = {p}, {freedom} degrees of freedom")
    if p < 0.5:
        return -t_quantile(1 - p, freedom)
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    weights = np.ones(4097)
    weights[1:-1:2], weights[2:-1:2] = 4, 2

    def below(t: float) -> float:
        x = np.linspace(0.0, math.atan(t / math.sqrt(freedom)), 4097)  # t = sqrt(freedom) tan x: a bounded interval
        density = scale * math.sqrt(freedom) * np.cos(x) ** (freedom - 1)
        return 0.5 + float((weights * density).sum()) * float(x[1]) / 3

    low, high = 0.0, 1.0
    while below(high) < p:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < p else (low, middle)
    return (low + high) / 2


def sign_flip_p(values: Sequence[float], *, draws: int = 10_000, seed: int = 0) -> float | None:
    """Two-sided p value that the values scatter around 0, by flipping their signs; None without values.

    All flips are visited up to 14 values, so p is at least 2 / 2^n; more are sampled, the observed one counted too.
    """
    if not values:
        return None
    x = np.asarray(values, dtype=np.float64)
    n = len(x)
    observed = abs(float(x.sum())) - 1e-9 * max(1.0, float(np.abs(x).max()))
    if n <= 14:
        signs = 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        return float((np.abs(signs @ x) >= observed).mean())
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (draws, n))
    return (int((np.abs(signs @ x) >= observed).sum()) + 1) / (draws + 1)
