"""A series grows steadily or not, whatever else is in it."""

from __future__ import annotations

import numpy as np
import pytest

from redline.fleet.growth import MOST_KEPT, Series, is_steady, theil_sen

TEN_S = 10.0


def series_of(values: list[float]) -> Series:
    series = Series()
    for place, value in enumerate(values):
        series.add(TEN_S * place, value)
    return series


def test_slope_is_that_of_a_line_whatever_three_points_of_twenty_say() -> None:
    points = [(float(time), 3.0 * time) for time in range(20)]
    for place in (2, 9, 15):
        points[place] = (float(place), 1e6)
    assert theil_sen(points) == pytest.approx(3.0, rel=0.1)


def test_growth_is_seen_after_five_points_and_not_before() -> None:
    series = Series()
    seen = []
    for place in range(6):
        series.add(TEN_S * place, 50.0 * place)
        seen.append(series.growth(100.0) is not None)
    assert seen == [False, False, False, False, True, True]
    growth = series.growth(100.0)
    assert growth is not None
    assert (growth.per_s, growth.per_h) == (5.0, 18_000.0)


@pytest.mark.parametrize(
    "values",
    [
        [0.0] * 30,
        [0.0] * 15 + [1_000.0] * 15,  # a step
        [0.0, 400.0, 700.0, 900.0, 1_000.0, *[1_000.0] * 20],  # buffers that fill up at the start
        [0.0] * 15 + [1_000.0] + [0.0] * 15,  # a spike
        [0.0, 1_000.0] * 15,  # back and forth
        [1_000.0 - 10.0 * place for place in range(30)],  # it falls
        [0.0] * 10 + [200.0] * 10 + [200.0 + 300.0 * (place % 2) for place in range(10)],
    ],
)
def test_what_does_not_grow_steadily_is_no_growth(values: list[float]) -> None:
    for length in range(1, len(values) + 1):
        assert series_of(values[:length]).growth(100.0) is None


def test_stairs_are_seen_when_there_are_enough_of_them() -> None:
    assert series_of([100.0 * (place // 3) for place in range(60)]).growth(100.0) is not None


def test_slow_growth_that_begins_late_is_seen_in_noise() -> None:
    noise = np.random.default_rng(1).normal(0.0, 5.0, 1_000)
    values = [float(noise[place]) + max(0, place - 500) for place in range(1_000)]
    assert series_of(values[:500]).growth(100.0) is None
    assert series_of(values[:800]).growth(100.0) is not None


def test_a_series_of_any_length_takes_little_room() -> None:
    series = series_of([float(place) for place in range(20_000)])
    assert len(series._whole) <= MOST_KEPT + 1
    assert series.slope_per_h() == pytest.approx(360.0)


def test_least_counts() -> None:
    points = [(float(time), 10.0 * time) for time in range(5)]
    assert is_steady(points, 40.0)
    assert not is_steady(points, 41.0)
