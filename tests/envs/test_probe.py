"""The probes do what a test may rely on."""

import time

import gymnasium
import numpy as np
import pytest

from probes import STAMPED_SHAPE, read_stamp, stamped_frame, stamped_row_error
from redline.envs.catalog import env_spec
from redline.envs.config import EnvConfig
from redline.envs.small import SLEEP_S


@pytest.mark.parametrize(
    ("env_id", "rewards"),
    [
        ("probe/Constant-v0", [1.0]),
        ("probe/Discount-v0", [0.0, 1.0]),
        ("probe/Delayed-v0", [0.0, 0.0, 0.0, 0.0, 1.0]),
    ],
)
def test_rewards_of_one_episode(env_id, rewards):
    env = gymnasium.make(env_id)
    env.reset(seed=0)
    highest = env.action_space.n - 1
    seen = [env.step(highest) for _ in rewards]
    assert [step[1] for step in seen] == rewards
    assert [step[2] for step in seen] == [False] * (len(rewards) - 1) + [True]


def test_delayed_reward_is_lost_by_a_wrong_first_action():
    env = gymnasium.make("probe/Delayed-v0")
    env.reset(seed=0)
    assert [env.step(action)[1] for action in (0, 1, 1, 1, 1)] == [0.0] * 5


def test_what_is_seen_decides():
    value, action = gymnasium.make("probe/ObsValue-v0"), gymnasium.make("probe/ActionReward-v0")
    signs = set()
    for seed in range(20):
        (sign,) = value.reset(seed=seed)[0]
        signs.add(float(sign))
        assert value.step(0)[1] == sign
        (sign,) = action.reset(seed=seed)[0]
        assert action.step(int(sign > 0))[1] == 1.0
        action.reset(seed=seed)
        assert action.step(int(sign < 0))[1] == -1.0
    assert signs == {-1.0, 1.0}


@pytest.mark.parametrize("seed", range(30))
def test_catch_is_always_won_by_following_the_ball(seed):
    env = gymnasium.make("redline/Catch-v0")
    picture, _ = env.reset(seed=seed)
    done = False
    while not done:
        assert picture.shape == (84, 84)
        ball = np.argwhere(picture[:-7] == 255)[:, 1].mean()
        paddle = np.argwhere(picture[-7:] == 128)[:, 1].mean()
        action = 0 if abs(ball - paddle) < 4 else 1 if ball < paddle else 2
        picture, reward, done, _, _ = env.step(action)
    assert reward == 1.0


def test_catch_is_lost_by_standing_still_away_from_the_ball():
    env = gymnasium.make("redline/Catch-v0")
    returns = []
    for seed in range(40):
        env.reset(seed=seed)
        returns.append(sum(env.step(1)[1] for _ in range(11)))
    assert set(returns) == {-1.0, 1.0}
    assert np.mean(returns) < 0


def test_a_sleepy_cartpole_is_cartpole_that_takes_its_time():
    sleepy, plain = gymnasium.make("redline/SleepyCartPole-v0"), gymnasium.make("CartPole-v1")
    np.testing.assert_array_equal(sleepy.reset(seed=3)[0], plain.reset(seed=3)[0])
    begun_s = time.perf_counter()
    for action in (0, 1, 1, 0):
        np.testing.assert_array_equal(sleepy.step(action)[0], plain.step(action)[0])
    assert time.perf_counter() - begun_s >= 4 * SLEEP_S
    assert (sleepy.spec.max_episode_steps, env_spec(EnvConfig("redline/SleepyCartPole-v0")).is_image) == (500, False)


def stamped_rows(seed, stack=4):
    """Play an episode and return its rows as a replay memory shows them."""
    env = gymnasium.make("probe/Stamped-v0")
    frames = [*[np.zeros(STAMPED_SHAPE, np.uint8)] * (stack - 1), env.reset(seed=seed)[0]]
    rows, over = [], False
    while not over:
        action = (seed + len(rows)) % 4
        frame, reward, terminated, truncated, _ = env.step(action)
        frames.append(frame)
        told = {"action": action, "reward": reward, "terminated": terminated, "truncated": truncated}
        rows.append((np.stack(frames[-stack - 1 :]), told))
        over = terminated or truncated
    return rows


def test_every_row_of_a_stamped_episode_is_whole():
    lengths, cuts = set(), set()
    for seed in (*range(116), 2**31 - 1):
        rows = stamped_rows(seed)
        assert [stamped_row_error(frames, **told) for frames, told in rows] == [None] * len(rows)
        assert [read_stamp(frames[-1]) for frames, _ in rows] == [(seed, step + 1) for step in range(len(rows))]
        lengths.add(len(rows))
        cuts.add(rows[-1][1]["truncated"])
    assert lengths == set(range(3, 61))
    assert cuts == {False, True}
    assert env_spec(EnvConfig("probe/Stamped-v0", skip=1)).is_image


@pytest.mark.parametrize("at", [0, 1, 5])
def test_a_stamped_row_that_is_not_whole_is_seen(at):
    rows = stamped_rows(130)
    frames, told = rows[at]
    for name, wrong in (("reward", told["reward"] + 0.125), ("terminated", True), ("truncated", True)):
        assert stamped_row_error(frames, **told | {name: wrong})
    assert stamped_row_error(frames, **told | {"action": told["action"] ^ 1})
    for place in range(len(frames)):
        for other in (stamped_frame(130, 9), stamped_frame(131, at), np.zeros_like(frames[0])):
            if not np.array_equal(frames[place], other):
                swapped = frames.copy()
                swapped[place] = other
                assert stamped_row_error(swapped, **told)
        for pixel in range(0, frames[place].size, 37):
            torn = frames.copy()
            torn[place].flat[pixel] ^= 1
            assert stamped_row_error(torn, **told)


def test_a_row_may_keep_silent_about_a_cut():
    frames, told = stamped_rows(58)[-1]
    assert told["truncated"]
    assert stamped_row_error(frames, **told | {"truncated": None}) is None
    assert stamped_row_error(frames, **told | {"truncated": False})
