"""The probes do what a test may rely on."""

import gymnasium
import numpy as np
import pytest

from redline.envs import probe

probe.register()


@pytest.mark.parametrize(
    ("env_id", "rewards"),
    [
        ("redline/Constant-v0", [1.0]),
        ("redline/Discount-v0", [0.0, 1.0]),
        ("redline/Delayed-v0", [0.0, 0.0, 0.0, 0.0, 1.0]),
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
    env = gymnasium.make("redline/Delayed-v0")
    env.reset(seed=0)
    assert [env.step(action)[1] for action in (0, 1, 1, 1, 1)] == [0.0] * 5


def test_what_is_seen_decides():
    value, action = gymnasium.make("redline/ObsValue-v0"), gymnasium.make("redline/ActionReward-v0")
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
