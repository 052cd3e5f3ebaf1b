"""Schedules are functions of steps alone."""

import pytest

from redline.errors import UserError
from redline.schedules import Linear


@pytest.mark.parametrize(("steps", "value"), [(0, 1.0), (250, 0.775), (500, 0.55), (1_000, 0.1), (10_000, 0.1)])
def test_line_from_start_to_end_and_constant_afterwards(steps: int, value: float) -> None:
    assert Linear(start=1.0, end=0.1, over_steps=1_000).at(steps) == pytest.approx(value)


def test_a_schedule_over_no_steps_is_refused() -> None:
    with pytest.raises(UserError, match="over-steps is 0"):
        Linear(over_steps=0)


def test_a_schedule_may_begin_later() -> None:
    line = Linear(start=1.0, end=0.0, over_steps=100, after_steps=50)
    assert [line.at(steps) for steps in (0, 50, 100, 150, 200)] == [1.0, 1.0, 0.5, 0.0, 0.0]
    with pytest.raises(UserError, match="after-steps is -1"):
        Linear(after_steps=-1)
