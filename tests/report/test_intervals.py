"""Student's t interval of a mean, by numbers worked by hand."""

import math

import pytest

from redline.report.intervals import QUANTILES, mean_interval


def test_an_interval_is_students_over_the_repeats() -> None:
    low, high = mean_interval([0.9, 1.0, 1.1, 1.0]) or (math.nan, math.nan)
    half = 2.353 * math.sqrt(0.02 / 3) / 2
    assert (low, high) == (pytest.approx(1.0 - half), pytest.approx(1.0 + half))


def test_two_values_say_little() -> None:
    # s = √2, s ÷ √2 = 1, and t of one degree of freedom is 6.314
    assert mean_interval([1.0, 3.0]) == pytest.approx((2.0 - 6.314, 2.0 + 6.314))


def test_beyond_the_table_an_interval_is_rather_too_wide() -> None:
    low, high = mean_interval([0.0, 1.0] * 50) or (math.nan, math.nan)
    assert (high - low) / 2 == pytest.approx(1.753 * math.sqrt(0.25 * 100 / 99) / 10)
    assert list(QUANTILES) == sorted(QUANTILES, reverse=True)


def test_one_value_and_none_have_no_interval() -> None:
    assert mean_interval([1.0]) is None
    assert mean_interval([]) is None
