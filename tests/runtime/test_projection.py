"""Time left and money, against numbers worked by hand."""

from itertools import accumulate
from typing import Any

import pytest

from redline.runtime.config import Limits
from redline.runtime.counters import Counters
from redline.runtime.projection import MOST_POINTS, Pace, PaceMeter, TimeLeft, bill, pace_of, project


def pace_of_windows(*windows_s: float) -> Pace | None:
    """Return the pace of windows of ten steps each, which took so many seconds."""
    return pace_of(range(0, 10 * len(windows_s) + 1, 10), [0.0, *accumulate(windows_s)])


def test_a_constant_speed_leaves_no_doubt() -> None:
    pace = pace_of_windows(*[5.0] * 10)
    assert pace is not None
    assert (pace.s_per_step, pace.low, pace.high) == pytest.approx((0.5, 0.5, 0.5))


def test_readings_at_odd_moments_give_the_same_pace() -> None:
    pace = pace_of([0, 7, 31, 32, 55, 90, 100], [0.0, 3.5, 15.5, 16.0, 27.5, 45.0, 50.0])
    assert pace is not None
    assert (pace.s_per_step, pace.low, pace.high) == pytest.approx((0.5, 0.5, 0.5))


def test_the_newest_half_decides_so_that_drift_and_a_slow_start_fade_out() -> None:
    drift = pace_of_windows(10, 11, 12, 13, 14, 15, 16, 17, 18, 19)
    start = pace_of_windows(90, 1, 1, 1, 1, 1, 1, 1, 1, 1)
    assert drift is not None
    assert start is not None
    assert drift.s_per_step == pytest.approx(1.7)  # of 15, 16, 17, 18 and 19
    assert start.s_per_step == pytest.approx(0.1)


def test_the_interval_is_that_of_one_more_window() -> None:
    pace = pace_of_windows(10, 40, 10, 40)
    # logarithms 0, ln 4, 0, ln 4: deviation ln 4 / √3; t 2.353 for 3 degrees; mean of two: √1.5
    factor = 4 ** (2.353 / 3**0.5 * 1.5**0.5)
    assert factor == pytest.approx(10.04, abs=0.01)
    assert pace is not None
    assert (pace.s_per_step, pace.low, pace.high) == pytest.approx((2.5, 2.5 / factor, 2.5 * factor))


def test_a_few_readings_have_a_pace_without_an_interval_and_one_has_none() -> None:
    assert pace_of_windows(10, 40) == Pace(4.0)
    assert pace_of([0], [0.0]) is None


class Training:
    """A run that goes on by hand."""

    def __init__(self, **counters: Any) -> None:
        self.counters = Counters(**counters)
        self.meter = PaceMeter(self.counters)
        self.paused_s = 0.0

    def go_on(self, seconds: int, *, steps_per_s: int, learning: bool = True) -> Pace | None:
        """Take a reading every second, and return the pace."""
        for _ in range(seconds):
            self.counters.updates += learning
            self.counters.steps += steps_per_s
            self.counters.count_time(1.0)
            self.meter.add(paused_s=self.paused_s)
        return self.meter.pace()


def test_the_warm_up_has_no_pace_and_is_no_part_of_the_pace_after_it() -> None:
    training = Training()
    assert training.go_on(20, steps_per_s=2_000, learning=False) is None
    assert training.go_on(2, steps_per_s=100) is None  # the first updates are slow
    pace = training.go_on(10, steps_per_s=100)
    assert pace is not None
    assert (pace.s_per_step, pace.low, pace.high) == pytest.approx((0.01, 0.01, 0.01))


@pytest.mark.parametrize("since_s", [1, 9])  # right after an evaluation as right before the next
def test_an_evaluation_stands_for_the_learning_up_to_it(since_s: int) -> None:
    training = Training()
    training.paused_s = 50.0
    training.go_on(20, steps_per_s=2_000, learning=False)
    training.go_on(10, steps_per_s=100)
    training.paused_s = 54.0  # 4 s for each 10 s of learning
    training.go_on(10, steps_per_s=100)
    training.paused_s = 58.0
    pace = training.go_on(since_s, steps_per_s=100)
    assert pace is not None
    assert (pace.s_per_step, pace.low, pace.high) == pytest.approx((0.014, 0.014, 0.014))


def test_an_evaluation_soon_after_a_resume_does_not_stand_for_the_learning_before_it() -> None:
    training = Training(steps=6_000, updates=9, time_s=70.0, warmup_time_s=20.0, warmup_steps=1_000)

    def s_per_step(seconds: int) -> float:
        pace = training.go_on(seconds, steps_per_s=100)
        assert pace is not None
        return pace.s_per_step

    s_per_step(1)
    training.paused_s = 10.0  # 10 s for each 100 s of learning
    assert [s_per_step(1), s_per_step(1), s_per_step(98)] == pytest.approx([0.01] * 3)
    training.paused_s = 20.0
    assert s_per_step(99) == pytest.approx(0.011, rel=0.01)


def test_a_resumed_run_is_judged_by_its_earlier_speed_and_soon_by_its_own() -> None:
    training = Training(steps=6_000, updates=9, time_s=70.0, warmup_time_s=20.0, warmup_steps=1_000)
    assert training.meter.pace() == Pace(0.01)  # 5,000 steps in 50 s
    pace = training.go_on(10, steps_per_s=20)
    assert pace is not None
    assert (pace.s_per_step, pace.low, pace.high) == pytest.approx((0.05, 0.05, 0.05))


def test_a_long_run_keeps_few_points_and_the_same_pace() -> None:
    training = Training()
    pace = training.go_on(5 * MOST_POINTS, steps_per_s=100)
    assert len(training.meter._steps) <= MOST_POINTS
    assert pace is not None
    assert (pace.s_per_step, pace.low, pace.high) == pytest.approx((0.01, 0.01, 0.01))


PACE = Pace(0.5, 0.4, 0.8)


def left(pace: Pace | None = PACE, *, episode_steps: float | None = None, **limits: Any) -> Any:
    counters = Counters(steps=1_000, updates=1, episodes=10)
    limits = {"max_steps": None, **limits}
    times: dict[str, Any] = {"frames_per_step": 4, "invocation_s": 90.0, "episode_steps": episode_steps}
    return project(Limits(**limits), counters, pace=pace, **times)


def test_steps_and_frames_that_are_left_take_their_time() -> None:
    assert left(max_steps=5_000) == (0.2, TimeLeft(2_000.0, 1_600.0, 3_200.0))
    assert left(max_frames=8_000) == (0.5, TimeLeft(500.0, 400.0, 800.0))
    assert left(max_frames=8_000, pace=Pace(0.5)) == (0.5, TimeLeft(500.0))


def test_episodes_are_taken_to_stay_as_long_as_the_newest_or_else_all() -> None:
    assert left(max_episodes=40, episode_steps=200.0) == (0.25, TimeLeft(3_000.0, 2_400.0, 4_800.0))
    assert left(max_episodes=40) == (0.25, TimeLeft(1_500.0, 1_200.0, 2_400.0))  # of 100 steps each


def test_minutes_need_no_speed() -> None:
    assert left(max_minutes=6.0, pace=None) == (0.25, TimeLeft(270.0, 270.0, 270.0))


def test_without_a_speed_steps_tell_no_time() -> None:
    assert left(max_steps=5_000, pace=None) == (0.2, TimeLeft())


def test_without_a_limit_nothing_is_told() -> None:
    assert left() == (None, TimeLeft())


def test_a_limit_that_was_reached_leaves_no_time() -> None:
    assert left(max_steps=1_000, max_minutes=60.0) == (1.0, TimeLeft(0.0, 0.0, 0.0))


def test_the_first_of_several_limits_counts_and_the_others_bound_its_interval() -> None:
    assert left(max_steps=2_000, max_minutes=11.5) == (0.5, TimeLeft(500.0, 400.0, 600.0))
    assert left(max_steps=2_000, max_minutes=9.0) == (90 / 540, TimeLeft(450.0, 400.0, 450.0))


def test_hours_cost_their_price() -> None:
    found = bill(7.2, 1_800.0, TimeLeft(500.0, 400.0, 800.0), PACE)  # 0.2 cents a second
    assert (found.price_per_hour, found.cost) == pytest.approx((7.2, 3.6))
    assert (found.cost_remaining, found.cost_remaining_low, found.cost_remaining_high) == pytest.approx((1.0, 0.8, 1.6))
    assert found.cost_per_million_steps == pytest.approx(1_000.0)


def test_what_is_not_known_has_no_price() -> None:
    found = bill(7.2, 1_800.0, TimeLeft(), None)
    assert found.cost == pytest.approx(3.6)
    assert (found.cost_remaining, found.cost_per_million_steps) == (None, None)
