"""What an effect is, when a verdict is given, and that too few data never give one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.analysis.effect import judged, least_p, paired_effect, separate_effect
from store.analysis.statistics import sign_flip_p, t_quantile

TEN = [(100.0, 110.0), (101.0, 111.0), (99.0, 109.0), (100.0, 112.0), (102.0, 110.0), (98.0, 109.0)]
rates = st.floats(1.0, 1e6)


@pytest.mark.parametrize(  # two-sided 95 % and one-sided 80 %, from the tables of Fisher and Yates (1963)
    ("p", "freedom", "t"),
    [(0.975, 2, 4.3027), (0.975, 5, 2.5706), (0.975, 30, 2.0423), (0.95, 1, 6.3138), (0.8, 3, 0.9785)],
)
def test_quantiles_of_t_are_those_of_the_tables(p: float, freedom: float, t: float) -> None:
    assert t_quantile(p, freedom) == pytest.approx(t, abs=5e-5)
    assert t_quantile(1 - p, freedom) == pytest.approx(-t, abs=5e-5)


def test_a_flip_of_signs_counts_every_arrangement() -> None:
    assert sign_flip_p([1.0, 2.0, 3.0]) == pytest.approx(2 / 8)
    assert sign_flip_p([1.0, -1.0]) == 1.0
    assert sign_flip_p([]) is None
    assert (sign_flip_p([1.0] * 20) or 1) < 0.001


def test_a_clear_gain_over_six_blocks_is_an_improvement_with_an_interval() -> None:
    effect = paired_effect(TEN)
    assert effect.change == pytest.approx(math.exp(sum(math.log(b / a) for a, b in TEN) / 6) - 1)
    assert effect.low is not None
    assert effect.high is not None
    assert effect.low < 0.10 < effect.high
    assert judged(effect, higher_is_better=True)[0] == "improve"
    assert judged(effect, higher_is_better=False)[0] == "regress"


def test_three_repeats_are_not_enough_unless_the_noise_is_declared() -> None:
    assert judged(paired_effect(TEN[:3]), higher_is_better=True)[0] == "not_enough_data"
    assert judged(paired_effect(TEN[:3], noise=0.02), higher_is_better=True)[0] == "improve"
    apart = separate_effect([a for a, _ in TEN[:3]], [b for _, b in TEN[:3]])
    assert judged(apart, higher_is_better=True)[0] == "not_enough_data"


def test_equal_within_the_margin_is_no_change_and_noisy_equal_is_not() -> None:
    calm = [(100.0 + n % 2, 100.0 + (n + 1) % 2) for n in range(8)]
    assert judged(paired_effect(calm), higher_is_better=True)[0] == "no_change"
    noisy = [(100.0, 100.0 * (1.2 if n % 2 else 0.83)) for n in range(8)]
    verdict, why = judged(paired_effect(noisy), higher_is_better=True)
    assert verdict == "not_enough_data"
    assert "would go unseen" in why


def test_two_samples_apart_are_judged_without_pairs() -> None:
    effect = separate_effect([100, 101, 99, 100], [110, 111, 109, 113])
    assert not effect.paired
    assert judged(effect, higher_is_better=True)[0] == "improve"


@given(st.lists(st.tuples(rates, rates), max_size=12))
def test_swapping_the_sides_turns_the_effect_round(pairs: list[tuple[float, float]]) -> None:
    one, two = paired_effect(pairs), paired_effect([(b, a) for a, b in pairs])
    assert one.n == two.n
    if one.change is not None and two.change is not None:
        assert (1 + one.change) * (1 + two.change) == pytest.approx(1, rel=1e-6)
    assert one.p == two.p
    turned = {"improve": "regress", "regress": "improve"}
    verdict = judged(one, higher_is_better=True)[0]
    assert judged(one, higher_is_better=False)[0] == turned.get(verdict, verdict)


@given(st.lists(st.tuples(rates, rates), max_size=5))
def test_no_verdict_of_a_change_comes_from_fewer_blocks_than_could_show_one(pairs: list[tuple[float, float]]) -> None:
    assert least_p(len(pairs), paired=True) > 0.05 if pairs else True
    assert judged(paired_effect(pairs), higher_is_better=True)[0] == "not_enough_data"


def test_needed_blocks_grow_with_the_noise() -> None:
    def noisy(cv: float) -> int:
        pairs = [(100.0, 100.0 * (1 + cv * (1 if n % 2 else -1))) for n in range(8)]
        return paired_effect(pairs).needed or 10**6

    assert 6 <= noisy(0.01) < noisy(0.03) < noisy(0.1)


def test_rates_of_nothing_are_no_pair() -> None:
    assert paired_effect([(0.0, 5.0)]).n == 0
    assert judged(paired_effect([]), higher_is_better=True)[0] == "not_enough_data"
