"""Intervals and rank correlations, by numbers worked by hand."""

import math

import numpy as np
import pytest
import scipy

from redline.report.statistics import bootstrap_interval, correlate, difference_interval, mean_interval, spearman


def test_an_interval_is_students_over_the_repeats() -> None:
    low, high = mean_interval([0.9, 1.0, 1.1, 1.0]) or (math.nan, math.nan)
    half = 2.35336 * math.sqrt(0.02 / 3) / 2  # t of three degrees of freedom
    assert (low, high) == (pytest.approx(1.0 - half, abs=1e-6), pytest.approx(1.0 + half, abs=1e-6))


def test_fewer_than_three_values_have_no_interval() -> None:
    assert [mean_interval(values) for values in ([], [1.0], [1.0, 3.0])] == [None, None, None]
    assert mean_interval([2.0, 2.0, 2.0]) == (2.0, 2.0)


def test_what_cannot_be_negative_has_no_negative_interval() -> None:
    speeds = [10.0, 4_000.0, 7_000.0]
    low, high = mean_interval(speeds) or (math.nan, math.nan)
    assert low < 0
    assert mean_interval(speeds, floor=0.0) == (0.0, high)


def test_interval_of_a_mean_is_as_wide_as_theory_says() -> None:
    interval = bootstrap_interval([0.0, 1.0] * 200, seed=0)
    assert interval is not None
    # the mean of 400 coins has a standard deviation of 0.025; 90 % lie within 1.645 of those
    assert interval == pytest.approx((0.5 - 1.645 * 0.025, 0.5 + 1.645 * 0.025), abs=0.004)


def test_bootstrap_is_the_same_for_the_same_seed() -> None:
    values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0]
    assert bootstrap_interval(values, seed=1) == bootstrap_interval(values, seed=1)


def test_bootstrap_of_equal_values_leaves_no_doubt_and_one_value_has_none() -> None:
    interval = bootstrap_interval([500.0] * 5, seed=0)
    assert interval is not None
    assert interval == (500.0, 500.0)
    assert bootstrap_interval([21.0], seed=0) is None


def test_without_ties_it_is_the_formula_of_the_schoolbook() -> None:
    x, y = np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.array([2.0, 1.0, 4.0, 3.0, 5.0])
    # 1 − 6 Σd² ÷ n(n² − 1) with d² = 1, 1, 1, 1, 0
    assert spearman(x, y) == pytest.approx(1 - 6 * 4 / (5 * 24))


def test_with_ties_it_is_the_correlation_of_the_ranks() -> None:
    # ranks 1, 2.5, 2.5, 4 and 1, 3, 2, 4; from their means −1.5, 0, 0, 1.5 and −1.5, 0.5, −0.5, 1.5
    x, y = np.array([1.0, 2.0, 2.0, 9.0]), np.array([0.0, 5.0, 1.0, 7.0])
    assert spearman(x, y) == pytest.approx(4.5 / np.sqrt(4.5 * 5.0))


def test_only_the_order_counts() -> None:
    x = np.array([3.0, 1.0, 4.0, 1.5, 9.0])
    assert spearman(x, np.exp(x)) == pytest.approx(1.0)
    assert spearman(x, -(x**3)) == pytest.approx(-1.0)


def test_a_perfect_order_of_four_is_little_more_than_chance() -> None:
    found = correlate([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0], seed=0)
    assert found is not None
    # 2 of 24 orders are as perfect, up or down
    assert (found.rho, found.interval, found.by_chance) == (1.0, None, pytest.approx(2 / 24))
    assert found.is_clear
    nearly = correlate([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 4.0, 3.0], seed=0)
    assert nearly is not None
    assert nearly.by_chance == pytest.approx(8 / 24)  # |0.8| or more
    assert not nearly.is_clear


def test_too_few_pairs_or_no_differences_have_none() -> None:
    assert correlate([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], seed=0) is None
    assert correlate([1.0] * 5, [1.0, 2.0, 3.0, 4.0, 5.0], seed=0) is None


def test_intervals_are_the_same_for_the_same_seed_and_hold_the_value() -> None:
    rng = np.random.default_rng(3)
    x = list(rng.normal(size=40))
    y = [value + noise for value, noise in zip(x, rng.normal(size=40), strict=True)]
    found = correlate(x, y, seed=5)
    assert found == correlate(x, y, seed=5)
    assert found is not None
    assert found.interval is not None
    low, high = found.interval
    assert 0 < low < found.rho < high < 1
    assert found.by_chance < 0.01


def test_noise_is_rarely_called_clear() -> None:
    rng = np.random.default_rng(7)
    found = [correlate(list(rng.normal(size=6)), list(rng.normal(size=6)), seed=0) for _ in range(200)]
    assert np.mean([result is not None and result.is_clear for result in found]) < 0.12


def test_difference_interval_is_welchs() -> None:
    low, high = difference_interval([4.0, 6.0, 5.0], [2.0, 2.0, 2.0]) or (0.0, 0.0)
    half = 2.919986 / 3**0.5  # two degrees of freedom: the other side does not vary
    assert (low, high) == (pytest.approx(3 - half, abs=1e-5), pytest.approx(3 + half, abs=1e-5))
    ours = difference_interval([3.0, 5.0, 7.0], [1.0, 2.0, 3.0])
    theirs = scipy.stats.ttest_ind([3.0, 5.0, 7.0], [1.0, 2.0, 3.0], equal_var=False).confidence_interval(0.9)
    assert ours == pytest.approx((theirs.low, theirs.high))


def test_difference_of_constant_sides_is_certain_and_of_two_values_unknown() -> None:
    assert difference_interval([4.0] * 3, [1.0] * 3) == (3.0, 3.0)
    assert difference_interval([4.0] * 2, [1.0] * 3) is None
