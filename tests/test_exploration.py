"""Exploration departs from the greedy action as often as it says, for each env on its own."""

import numpy as np
import pytest

from redline.errors import UserError
from redline.exploration import EpsilonGreedy, Greedy, Sampled, epsilon_greedy
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


def test_sampled_actions_follow_the_softmax_of_the_preferences() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32)) + 3.0  # logits have no zero of their own
    rows = np.tile(logits, (20_000, 1))
    actions = Sampled().choose(rows, epsilon=0.0, rng=np.random.default_rng(0))
    expected = 20_000 * np.array([0.5, 0.3, 0.15, 0.05])
    chi_square = ((np.bincount(actions, minlength=4) - expected) ** 2 / expected).sum()
    assert chi_square < 16.3  # 0.1 % of fair draws lie beyond, with 3 degrees of freedom


def test_every_env_draws_from_its_own_policy() -> None:
    logits = np.full((500, 3), -50.0, np.float32)
    wanted = np.random.default_rng(1).integers(3, size=500)
    logits[np.arange(500), wanted] = 50.0
    assert np.array_equal(Sampled().choose(logits, epsilon=0.0, rng=np.random.default_rng(2)), wanted)


def test_envs_with_the_same_policy_draw_apart() -> None:
    actions = Sampled().choose(np.zeros((64, 6), np.float32), epsilon=0.0, rng=np.random.default_rng(3))
    assert len(set(actions.tolist())) == 6


@pytest.mark.parametrize("explore", [EpsilonGreedy(), Greedy()])
def test_values_choose_the_best_and_coins_the_rest(explore: EpsilonGreedy | Greedy) -> None:
    values = np.array([[1.0, 3.0, 2.0], [5.0, 0.0, 4.0]], np.float32)
    assert explore.choose(values, epsilon=0.0, rng=np.random.default_rng(0)).tolist() == [1, 0]
    many = explore.choose(values[:1].repeat(3_000, axis=0), epsilon=0.5, rng=np.random.default_rng(0))
    # half are random, of which a third hit the best: ⅓ depart from it, ± 4 standard deviations
    assert np.mean(many != 1) == pytest.approx(1 / 3, abs=0.035)


def test_only_epsilon_greedy_departs_from_the_network() -> None:
    assert (Greedy().epsilon_at(0), Sampled().epsilon_at(0)) == (0.0, 0.0)
    assert EpsilonGreedy(evaluation=0.001).evaluation_epsilon() == 0.001
