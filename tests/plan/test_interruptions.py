"""What interruptions cost: by hand for certain cases, by a simulation for the interval."""

import numpy as np
import pytest

from redline.errors import UserError
from redline.plan.interruptions import MANY, Interruptions


def test_without_notice_each_costs_a_restart_and_half_an_interval() -> None:
    rare = Interruptions(per_hour=0.1, restart_s=180, checkpoint_minutes=10, has_notice=False)
    assert rare.each_hours == pytest.approx(8 / 60)
    assert rare.loss(100.0).mean_hours == pytest.approx(10 * 8 / 60)


def test_with_notice_each_costs_a_restart_alone() -> None:
    rare = Interruptions(per_hour=0.1, restart_s=180, checkpoint_minutes=10, has_notice=True)
    found = rare.loss(90.0)
    assert found.mean_hours == pytest.approx(9 * 3 / 60)
    # Poisson of mean 9: 3 or fewer with 2.1 %, 4 or fewer with 5.5 %; 13 or fewer with 92.6 %, 14 or fewer with 95.9 %
    assert (found.low_hours, found.high_hours) == (pytest.approx(4 * 0.05), pytest.approx(14 * 0.05))


def test_a_short_run_probably_loses_nothing_and_may_lose_one_restart() -> None:
    found = Interruptions(per_hour=0.1, restart_s=360, checkpoint_minutes=5, has_notice=True).loss(1.0)
    assert (found.low_hours, found.high_hours) == (0.0, pytest.approx(0.1))


@pytest.mark.parametrize("work_hours", [5.0, 40.0, 1_000.0])
def test_nine_of_ten_simulated_runs_lie_in_the_interval(work_hours: float) -> None:
    often = Interruptions(per_hour=0.5, restart_s=120, checkpoint_minutes=20, has_notice=False)
    found, rng = often.loss(work_hours), np.random.default_rng(1)
    inside = 0
    for _ in range(1_000):
        left_hours, extra_hours = work_hours, 0.0
        while (until_hours := rng.exponential(2.0)) < left_hours:
            lost_hours = min(rng.uniform(0.0, 20 / 60), until_hours)  # lost work is done again, and may be lost again
            left_hours += lost_hours - until_hours
            extra_hours += lost_hours + 120 / 3600
        inside += found.low_hours <= extra_hours <= found.high_hours
    assert 880 <= inside <= 995


def test_very_many_interruptions_are_counted_as_quickly_as_few() -> None:
    often = Interruptions(per_hour=1.0, restart_s=36, checkpoint_minutes=1, has_notice=False)
    below, above = often.loss(MANY * 0.99).high_hours, often.loss(MANY * 1.01).high_hours
    assert above / below == pytest.approx(1.01 / 0.99, rel=1e-3)
    assert often.loss(1e9).low_hours < often.loss(1e9).mean_hours < often.loss(1e9).high_hours


def test_a_run_that_never_comes_to_its_next_checkpoint_is_refused() -> None:
    with pytest.raises(UserError, match=r"30 interruptions per hour, each of which undoes 2\.5 min, leave no progress"):
        Interruptions(per_hour=30, restart_s=120, checkpoint_minutes=5, has_notice=False)
    # restarts may take longer than training: each hour of it costs two more
    assert Interruptions(30, 240, 5, has_notice=True).loss(1.0).mean_hours == pytest.approx(2.0)
