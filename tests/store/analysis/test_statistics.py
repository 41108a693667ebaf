"""Statistics of repeats against answers that are known by hand or by theory."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.analysis.statistics import (
    Floats,
    bootstrap_change,
    bootstrap_interval,
    permutation_p,
    pooled_cv,
    spread_of,
)


def test_the_spread_of_three_values_by_hand() -> None:
    found = spread_of([10.0, 12.0, 14.0])
    assert (found.n, found.mean, found.sd) == (3, 12.0, 2.0)  # (4 + 0 + 4) / (3 - 1) = 4
    assert found.cv == pytest.approx(1 / 6)


def test_what_is_not_known_is_left_out_and_one_value_has_no_spread() -> None:
    assert spread_of([None, 5.0, float("nan")]).mean == 5.0
    assert spread_of([None, 5.0]).cv is None
    assert spread_of([]).mean is None
    assert spread_of([-1.0, 1.0]).cv is None


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=12), st.floats(0.01, 1000))
def test_the_cv_is_numpys_and_does_not_depend_on_the_unit(values: list[float], scale: float) -> None:
    found = spread_of(values).cv
    assert found == pytest.approx(np.std(values, ddof=1) / np.mean(values), abs=1e-12)
    assert found == pytest.approx(spread_of([v * scale for v in values]).cv, rel=1e-6, abs=1e-12)


def test_pooling_weighs_by_degrees_of_freedom() -> None:
    assert pooled_cv([(3, 0.02), (3, 0.02)]) == pytest.approx(0.02)
    assert pooled_cv([(2, 0.03), (3, 0.0)]) == pytest.approx(math.sqrt(0.03**2 / 3))
    assert pooled_cv([(1, None), (0, None)]) is None


def test_pooling_many_small_groups_finds_the_true_spread() -> None:
    rng = np.random.default_rng(5)
    groups = [spread_of(list(100 * (1 + 0.02 * rng.standard_normal(3)))) for _ in range(400)]
    assert pooled_cv((g.n, g.cv) for g in groups) == pytest.approx(0.02, rel=0.05)


def test_the_bootstrap_of_two_values_is_known_exactly() -> None:
    # Means of two draws from {0, 1}: 0 and 1 with a quarter each, a half with a half.
    assert bootstrap_interval([0.0, 1.0], level=0.95) == (0.0, 1.0)
    assert bootstrap_interval([0.0, 1.0], level=0.40) == (0.5, 0.5)
    assert bootstrap_interval([1.0]) is None


def test_the_bootstrap_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(8)
    hits = 0
    for i in range(400):
        found = bootstrap_interval(list(rng.normal(50, 5, 30)), draws=500, seed=i)
        assert found is not None
        hits += found[0] <= 50 <= found[1]
    assert hits / 400 == pytest.approx(0.93, abs=0.035)  # a percentile interval of 30 values covers 93 %, not 95 %


def test_the_width_of_the_interval_is_that_of_the_normal_theory() -> None:
    values = list(np.random.default_rng(3).normal(100, 10, 400))
    found = bootstrap_interval(values)
    assert found is not None
    assert found[1] - found[0] == pytest.approx(2 * 1.96 * np.std(values) / 20, rel=0.05)


def test_the_bootstrap_takes_any_statistic() -> None:
    def p95(draws: Floats) -> Floats:
        return np.asarray(np.quantile(draws, 0.95, axis=-1))

    found = bootstrap_interval(list(range(1001)), p95)
    assert found is not None
    assert found[0] < 950 < found[1]


def test_a_change_of_a_tenth_is_found_with_its_interval() -> None:
    rng = np.random.default_rng(11)
    a, b = list(rng.normal(100, 2, 40)), list(rng.normal(110, 2, 40))
    found = bootstrap_change(a, b)
    assert found is not None
    change, low, high = found
    assert change == pytest.approx(np.mean(b) / np.mean(a) - 1)
    assert 0.08 < low < change < high < 0.12
    assert bootstrap_change([1.0], [1.0, 2.0]) is None
    assert bootstrap_change([0.0, 0.0], [1.0, 2.0]) is None


def test_the_exact_permutation_test_counts_arrangements() -> None:
    assert permutation_p([1, 2, 3], [4, 5, 6]) == pytest.approx(
        2 / 20
    )  # only this split and its mirror are as far apart
    assert permutation_p([1, 2], [1, 2]) == 1.0
    assert permutation_p([], [1.0]) is None


def test_the_sampled_permutation_test_agrees_with_theory() -> None:
    rng = np.random.default_rng(13)
    a = list(rng.normal(0, 1, 40))
    same, far = list(rng.normal(0, 1, 40)), list(rng.normal(2, 1, 40))
    p = permutation_p(a, far, draws=2000)
    assert p is not None
    assert 0 < p <= 1 / 1000
    p = permutation_p(a, same, draws=2000)
    assert p is not None
    z = abs(np.mean(a) - np.mean(same)) / math.sqrt((np.var(a, ddof=1) + np.var(same, ddof=1)) / 40)
    assert p == pytest.approx(math.erfc(z / math.sqrt(2)), abs=0.05)


def test_under_the_null_small_p_values_are_as_rare_as_they_say() -> None:
    rng = np.random.default_rng(17)
    p = [permutation_p(list(x[:4]), list(x[4:])) for x in rng.normal(0, 1, (400, 8))]
    assert sum(v is not None and v <= 0.1 for v in p) / 400 == pytest.approx(0.1, abs=0.05)
