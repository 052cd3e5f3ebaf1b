"""Goals: judged by the median and by the lower bound."""

import pytest

from redline.bench.goals import goal
from redline.bench.measuring import Rate


@pytest.mark.parametrize(
    ("median", "low", "met"),
    [(1.6, 1.45, True), (1.59, 1.58, False), (2.0, 1.43, False)],
)
def test_the_median_must_reach_it_and_the_low_nine_tenths(median: float, low: float, met: bool) -> None:
    assert goal(Rate(median=median, low=low, high=3.0), 1.6)["met"] is met


def test_what_was_not_measured_is_not_judged() -> None:
    assert goal(None, 1.6)["met"] is None
    assert goal(Rate(median=2.0, low=2.0, high=2.0), 1.6, judged=False)["met"] is None
