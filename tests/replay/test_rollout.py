"""The rollout: every row is learnt from exactly as often as asked, and every way to end a step is told apart."""

from typing import Any

import numpy as np
import pytest

from redline.replay import RolloutBuffer
from redline.types import EnvSpec, RolloutBatch

SPEC = EnvSpec("test", (2,), "float32", stack=2, num_actions=3, frames_per_step=1)
GAMMA, TRACE = 0.5, 0.25


def step_of(t: int, lanes: int, **changes: Any) -> dict[str, Any]:
    """Return a step whose numbers say where they come from: row t · 10 + lane."""
    row = t * 10.0 + np.arange(lanes)
    step = {
        "obs": np.broadcast_to(row[:, None, None], (lanes, 2, 2)).astype(np.float32),
        "action": (t * lanes + np.arange(lanes)) % 3,
        "log_probability": (-row).astype(np.float32),
        "value": (row + 0.5).astype(np.float32),
        "reward": (row + 1.0).astype(np.float32),
        "final_value": np.zeros(lanes, np.float32),
        "return_ends": np.zeros(lanes, np.bool_),
        "episode_ends": np.zeros(lanes, np.bool_),
    }
    return step | {name: np.asarray(value, step[name].dtype) for name, value in changes.items()}


def filled(steps: int, lanes: int) -> RolloutBuffer:
    buffer = RolloutBuffer(SPEC, num_envs=lanes, steps=steps)
    for t in range(steps):
        buffer.append(**step_of(t, lanes))
    return buffer


def batches(buffer: RolloutBuffer, *, lanes: int, num_batches: int, seed: int = 0) -> list[RolloutBatch]:
    row = np.arange(buffer.steps)[:, None] * 10.0 + np.arange(lanes)
    advantage, target = (row + 0.1).astype(np.float32), (row + 0.2).astype(np.float32)
    whole = buffer.whole(advantage, target)
    return list(buffer.batches(whole, rng=np.random.default_rng(seed), num_batches=num_batches))


@pytest.mark.parametrize(("steps", "lanes", "num_batches"), [(4, 3, 1), (4, 3, 4), (8, 2, 3), (5, 1, 5), (7, 3, 4)])
def test_every_row_is_in_exactly_one_batch_with_all_that_belongs_to_it(
    steps: int, lanes: int, num_batches: int
) -> None:
    found = batches(filled(steps, lanes), lanes=lanes, num_batches=num_batches)
    sizes = [len(batch.action) for batch in found]
    assert len(sizes) == num_batches
    assert max(sizes) - min(sizes) <= 1
    rows = []
    for batch in found:
        assert batch.obs.shape[1:] == (2, 2)
        for i in range(len(batch.action)):
            row = batch.obs[i, 0, 0].item()
            rows.append(row)
            assert (batch.obs[i] == row).all()
            assert batch.action[i].item() == (int(row) // 10 * lanes + int(row) % 10) % 3
            assert batch.log_probability[i].item() == -row
            assert batch.advantage[i].item() == pytest.approx(row + 0.1, rel=1e-6)
            assert batch.target[i].item() == pytest.approx(row + 0.2, rel=1e-6)
    assert sorted(rows) == sorted(t * 10.0 + lane for t in range(steps) for lane in range(lanes))


def test_rows_are_shuffled_by_the_generator_alone() -> None:
    buffer = filled(16, 4)
    first, again, other = (
        batches(buffer, lanes=4, num_batches=2, seed=seed)[0].log_probability.tolist() for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
    assert first != sorted(first, reverse=True)


def test_one_batch_of_all_rows_is_as_it_lies_there() -> None:
    (whole,) = batches(filled(16, 4), lanes=4, num_batches=1, seed=1)
    assert whole.log_probability.tolist() == [-(t * 10.0 + lane) for t in range(16) for lane in range(4)]


def rollout_of(*steps: dict[str, Any], last: list[float], clip: bool = False) -> Any:
    buffer = RolloutBuffer(SPEC, num_envs=len(last), steps=len(steps))
    for step in steps:
        buffer.append(**step)
    return buffer.rollout(np.array(last, np.float32), gamma=GAMMA, trace=TRACE, clip_rewards=clip)


def test_every_way_to_end_a_step_is_told_apart() -> None:
    """Lanes: goes on, terminated, truncated, life lost; the second of three steps differs."""
    rollout = rollout_of(
        step_of(0, 4),
        step_of(1, 4, return_ends=[0, 1, 0, 1], episode_ends=[0, 1, 1, 0], final_value=[0, 0, 77, 0]),
        step_of(2, 4),
        last=[100, 101, 102, 103],
    )
    assert rollout.discount.tolist() == [[0.5] * 4, [0.5, 0.0, 0.5, 0.0], [0.5] * 4]
    assert rollout.trace.tolist() == [[0.25] * 4, [0.25, 0.0, 0.0, 0.0], [0.25] * 4]
    assert rollout.following[0].tolist() == [10.5, 11.5, 12.5, 13.5]  # the values of the next step
    assert rollout.following[1, [0, 2]].tolist() == [20.5, 77.0]  # cut: its final observation, not the next episode
    assert rollout.following[2].tolist() == [100, 101, 102, 103]


def test_an_episode_that_is_cut_with_the_last_step_bootstraps_from_its_final_value() -> None:
    rollout = rollout_of(
        step_of(0, 3),
        step_of(1, 3, return_ends=[0, 1, 0], episode_ends=[0, 1, 1], final_value=[0, 0, 77]),
        last=[100, 101, 102],
    )
    assert rollout.discount[1].tolist() == [0.5, 0.0, 0.5]
    assert rollout.following[1, [0, 2]].tolist() == [100.0, 77.0]


def test_rewards_are_clipped_only_if_asked_and_stay_unclipped_in_the_buffer() -> None:
    steps = [step_of(t, 3, reward=[-5.0, 0.25, 3.0]) for t in range(2)]
    assert rollout_of(*steps, last=[0, 0, 0], clip=True).reward.tolist() == [[-1.0, 0.25, 1.0]] * 2
    assert rollout_of(*steps, last=[0, 0, 0]).reward.tolist() == [[-5.0, 0.25, 3.0]] * 2
    buffer = RolloutBuffer(SPEC, num_envs=3, steps=2)
    for step in steps:
        buffer.append(**step)
    buffer.rollout(np.zeros(3, np.float32), gamma=GAMMA, trace=TRACE, clip_rewards=True)
    assert buffer.state()["reward"].tolist() == [[-5.0, 0.25, 3.0]] * 2


def test_a_rollout_under_way_comes_back_and_goes_on() -> None:
    whole, restored = RolloutBuffer(SPEC, num_envs=2, steps=4), RolloutBuffer(SPEC, num_envs=2, steps=4)
    for t in range(2):
        whole.append(**step_of(t, 2, episode_ends=[0, 1], final_value=[0, 9]))
    saved = {name: array.copy() for name, array in whole.state().items()}
    assert all(len(array) == 2 for array in saved.values())
    restored.load_state(saved)
    assert restored.filled_steps == 2
    for buffer in (whole, restored):
        for t in range(2, 4):
            buffer.append(**step_of(t, 2))
    assert restored.is_full
    for name, array in whole.state().items():
        assert np.array_equal(array, restored.state()[name]), name


def test_an_empty_rollout_comes_back_empty() -> None:
    buffer, restored = (RolloutBuffer(SPEC, num_envs=2, steps=3) for _ in range(2))
    restored.load_state(buffer.state())
    assert restored.filled_steps == 0


def test_a_rollout_that_is_not_full_is_not_learnt_from() -> None:
    buffer = RolloutBuffer(SPEC, num_envs=2, steps=3)
    buffer.append(**step_of(0, 2))
    assert not buffer.is_full
    with pytest.raises(ValueError, match="1 of 3 steps"):
        buffer.rollout(np.zeros(2, np.float32), gamma=GAMMA, trace=TRACE, clip_rewards=False)


def test_a_cleared_buffer_is_filled_anew() -> None:
    buffer = filled(3, 2)
    buffer.clear()
    assert buffer.filled_steps == 0
    for t in range(3, 6):
        buffer.append(**step_of(t, 2))
    assert buffer.state()["log_probability"].min() == -51.0


def test_entropy_is_estimated_from_the_actions_taken() -> None:
    buffer = RolloutBuffer(SPEC, num_envs=2, steps=2)
    for _ in range(2):
        buffer.append(**step_of(0, 2, log_probability=[-1.0, -2.0]))
    assert buffer.mean_entropy() == pytest.approx(1.5)
