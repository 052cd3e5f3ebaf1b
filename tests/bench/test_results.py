"""Results: goals are judged by the median and by the lower bound, and what others used is told apart."""

import pytest

from redline.bench.measuring import Rate
from redline.bench.results import OtherWork, goal, percent_of_others, why_not_judged


@pytest.mark.parametrize(
    ("median", "low", "met"),
    [(1.6, 1.45, True), (1.59, 1.58, False), (2.0, 1.43, False)],
)
def test_the_median_must_reach_it_and_the_low_nine_tenths(median: float, low: float, met: bool) -> None:
    assert goal(Rate(median=median, low=low, high=3.0), 1.6)["met"] is met


def test_what_this_run_cannot_tell_is_not_judged() -> None:
    found = goal(Rate(median=2.0, low=2.0, high=2.0), 1.6, why_not="nobody looked")
    assert (found["met"], found["reason"]) == (None, "nobody looked")


def test_few_rounds_and_the_work_of_others_keep_from_a_verdict() -> None:
    assert why_not_judged(rounds=5, others_percent=15.0) is None
    assert why_not_judged(rounds=4, others_percent=0.0) == "a verdict needs 5 rounds"
    assert why_not_judged(rounds=5, others_percent=40.0) == "others used 40 % of the CPU"


def test_own_work_is_not_the_work_of_others() -> None:
    assert percent_of_others(all_cpu_s=19.0, own_cpu_s=15.0, available_s=20.0) == 20.0
    assert percent_of_others(all_cpu_s=15.0, own_cpu_s=15.01, available_s=20.0) == 0.0
    assert OtherWork().percent() >= 0.0
