"""Exploration departs from the greedy action as often as it says, for each env on its own."""

import numpy as np
import pytest

from redline.errors import UserError
from redline.exploration import EpsilonGreedy, epsilon_greedy
from redline.schedules import Linear


def test_each_env_has_its_own_coin() -> None:
    greedy = np.full(4_000, 7)
    actions = epsilon_greedy(greedy, epsilon=0.5, num_actions=7, rng=np.random.default_rng(0))
    # action 7 is never drawn at random, so the share of random envs is seen exactly: 0.5 ± 4 standard deviations
    assert 0.468 < np.mean(actions != 7) < 0.532


def test_random_actions_are_uniform() -> None:
    actions = epsilon_greedy(np.zeros(6_000, dtype=np.int64), epsilon=1.0, num_actions=6, rng=np.random.default_rng(1))
    counts = np.bincount(actions, minlength=6)
    chi_square = ((counts - 1_000) ** 2 / 1_000).sum()
    assert chi_square < 20.5  # 0.1 % of fair draws lie beyond, with 5 degrees of freedom


def test_no_exploration_is_greedy() -> None:
    greedy = np.arange(6)
    assert np.array_equal(epsilon_greedy(greedy, epsilon=0.0, num_actions=6, rng=np.random.default_rng(2)), greedy)


def test_epsilon_falls_with_steps() -> None:
    explore = EpsilonGreedy(Linear(1.0, 0.0, over_steps=100))
    assert [explore.epsilon_at(steps) for steps in (0, 50, 100)] == [1.0, 0.5, 0.0]


def test_epsilon_is_a_probability() -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        EpsilonGreedy(Linear(end=1.5))
