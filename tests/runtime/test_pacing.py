"""Pacing: a pure function of the counters, exact over any history."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redline.runtime.counters import TAKES_PER_UPDATE, Pacing

PACING = Pacing(samples_per_step=8.0, warmup_steps=1_000)


@pytest.mark.parametrize(
    ("steps", "samples", "due"),
    [(0, 0, 0), (1_000, 0, 0), (1_003, 0, 0), (1_004, 0, 1), (1_008, 0, 2), (1_008, 32, 1), (1_008, 64, 0)],
)
def test_one_update_of_32_per_4_steps_after_the_warm_up(steps: int, samples: int, due: int) -> None:
    assert PACING.updates_due(steps=steps, samples=samples, batch_size=32) == due


@given(
    samples_per_step=st.sampled_from([0.25, 1.0, 8.0, 32.0]),
    phases=st.lists(st.tuples(st.sampled_from([1, 8, 16]), st.sampled_from([16, 32, 128])), min_size=1, max_size=4),
)
def test_the_ratio_is_kept_whatever_batch_sizes_and_env_counts_follow_each_other(
    samples_per_step: float, phases: list[tuple[int, int]]
) -> None:
    pacing = Pacing(samples_per_step=samples_per_step, warmup_steps=100)
    steps = samples = 0
    for num_envs, batch_size in phases:
        for _ in range(200):
            due = pacing.updates_due(steps=steps, samples=samples, batch_size=batch_size)
            samples += due * batch_size
            steps += num_envs
            earned = max(0, steps - num_envs - 100) * samples_per_step
            assert samples <= earned
            assert samples > earned - batch_size - 128  # never behind by more than the batch that is filling up


def test_achieved_ratio_is_measured_from_the_end_of_the_warm_up() -> None:
    assert PACING.achieved(steps=1_000, samples=0) is None
    assert PACING.achieved(steps=1_100, samples=800) == 8.0


def test_horizon_covers_the_steps_between_drawing_and_learning() -> None:
    # three batches of 32 at 8 per step are 12 steps, 1.5 vector steps of 8 envs
    assert PACING.horizon_vector_steps(batches_ahead=3, batch_size=32, num_envs=8) >= 2
    assert PACING.horizon_vector_steps(batches_ahead=0, batch_size=32, num_envs=8) == 0


FREE = Pacing(samples_per_step=8.0, warmup_steps=1_000, is_free=True)


@pytest.mark.parametrize(
    ("steps", "samples", "due"), [(0, 0, 0), (1_000, 0, 0), (1_001, 0, 1), (1_001, 10**9, 1), (10**9, 0, 1)]
)
def test_left_free_one_update_is_due_at_a_time_whatever_the_steps_have_earned(
    steps: int, samples: int, due: int
) -> None:
    assert FREE.updates_due(steps=steps, samples=samples, batch_size=32) == due


def test_left_free_the_achieved_ratio_is_still_told() -> None:
    assert FREE.achieved(steps=1_000, samples=0) is None
    assert FREE.achieved(steps=1_100, samples=3_200) == 32.0


@pytest.mark.parametrize("prefetch", [0, 1, 3, 64])
def test_left_free_the_horizon_covers_the_steps_between_drawing_and_learning(prefetch: int) -> None:
    horizon = FREE.horizon_vector_steps(batches_ahead=prefetch, batch_size=32, num_envs=8)
    drawn_at: list[int] = []  # vector step at which each batch was drawn
    vector_steps = 0
    for update in range(200):
        while len(drawn_at) <= update + prefetch:
            drawn_at.append(vector_steps)
        assert vector_steps - drawn_at[update] <= horizon
        vector_steps += TAKES_PER_UPDATE
    assert prefetch == 0 or horizon < 3 * (prefetch + 1) * TAKES_PER_UPDATE  # no more is kept back than is needed


def test_nothing_is_owed_for_steps_at_which_the_pace_was_free() -> None:
    held = Pacing(samples_per_step=8.0, warmup_steps=1_000)
    assert held.updates_due(steps=9_000, samples=320, batch_size=32, since=(9_000, 320)) == 0
    assert held.updates_due(steps=9_040, samples=352, batch_size=32, since=(9_000, 320)) == 9
    assert held.updates_due(steps=2_000, samples=0, batch_size=32, since=(500, 0)) == 250  # the warm-up is never owed
