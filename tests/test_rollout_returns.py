"""Advantages and λ-returns of a rollout: numbers worked by hand with γ = λ = ½, and plain loops."""

from typing import NamedTuple

import numpy as np
import pytest

from redline.errors import UserError
from redline.returns import Traces, generalised_advantages, lambda_returns
from redline.types import FloatArray

# three steps of one lane, followed by a state of value 8
REWARD = np.array([[1.0], [2.0], [3.0]], np.float32)
VALUE = np.array([[1.0], [2.0], [4.0]], np.float32)
FOLLOWING = np.array([[2.0], [4.0], [8.0]], np.float32)
HALF = np.full((3, 1), 0.5, np.float32)


def column(*numbers: float) -> FloatArray:
    return np.array(numbers, np.float32)[:, None]


def advantages(
    *, following: FloatArray = FOLLOWING, discount: FloatArray = HALF, trace: FloatArray = HALF
) -> list[float]:
    result: list[float] = generalised_advantages(REWARD, VALUE, following, discount, trace)[:, 0].tolist()
    return result


def returns(*, following: FloatArray = FOLLOWING, discount: FloatArray = HALF, trace: FloatArray = HALF) -> list[float]:
    result: list[float] = lambda_returns(REWARD, following, discount, trace)[:, 0].tolist()
    return result


class Played(NamedTuple):
    """A random rollout with terminations, cuts and lost lives."""

    reward: FloatArray
    value: FloatArray
    following: FloatArray
    discount: FloatArray
    goes_on: FloatArray  # 1, or 0 where what comes next in the rollout is not what followed


def play(seed: int, steps: int = 12, lanes: int = 4, gamma: float = 0.9) -> Played:
    rng = np.random.default_rng(seed)
    reward, value, final = (rng.normal(size=(steps, lanes)).astype(np.float32) for _ in range(3))
    kind = rng.choice(4, size=(steps, lanes), p=[0.7, 0.1, 0.1, 0.1])  # goes on, terminated, truncated, life lost
    following = np.concatenate([value[1:], rng.normal(size=(1, lanes))]).astype(np.float32)
    following = np.where((kind == 1) | (kind == 2), final, following)
    discount = np.where((kind == 1) | (kind == 3), 0.0, gamma).astype(np.float32)
    return Played(reward, value, following, discount, (kind == 0).astype(np.float32))


def test_advantages_worked_by_hand() -> None:
    # errors: 1 + ½·2 − 1 = 1, 2 + ½·4 − 2 = 2, 3 + ½·8 − 4 = 3; each advantage adds ¼ of the next
    assert advantages() == [1 + 0.25 * 2.75, 2 + 0.25 * 3, 3]


def test_a_terminated_episode_in_the_middle_has_no_value_after_it() -> None:
    # the second error is 2 − 2 = 0, and nothing of the third comes before the end
    assert advantages(discount=column(0.5, 0, 0.5), trace=column(0.5, 0, 0.5)) == [1, 0, 3]


def test_a_truncated_episode_bootstraps_from_its_final_value_and_not_from_the_next_episode() -> None:
    # the final observation is worth 6: the second error is 2 + ½·6 − 2 = 3
    assert advantages(following=column(2, 6, 8), trace=column(0.5, 0, 0.5)) == [1 + 0.25 * 3, 3, 3]


def test_a_lost_life_ends_the_return_although_the_episode_goes_on() -> None:
    # what follows is worth 4, and does not count
    assert advantages(following=column(2, 4, 8), discount=column(0.5, 0, 0.5), trace=column(0.5, 0, 0.5)) == [1, 0, 3]


def test_lambda_zero_gives_td_errors() -> None:
    assert advantages(trace=column(0, 0, 0)) == [1, 2, 3]


def test_lambda_one_gives_n_step_advantages() -> None:
    # n-step returns: 1 + ½·2 + ¼·3 + ⅛·8 = 3¾, 2 + ½·3 + ¼·8 = 5½, 3 + ½·8 = 7; less the values 1, 2, 4
    assert advantages(trace=column(1, 1, 1)) == [2.75, 3.5, 3]


@pytest.mark.parametrize("seed", range(5))
def test_lambda_one_equals_n_step_advantages_in_a_plain_loop(seed: int) -> None:
    played = play(seed)
    got = generalised_advantages(*played[:4], played.goes_on)
    for t, lane in np.ndindex(got.shape):
        total, weight, step = 0.0, 1.0, t
        while True:
            total += weight * played.reward[step, lane]
            weight *= played.discount[step, lane]
            if step == len(got) - 1 or not played.goes_on[step, lane]:
                total += weight * played.following[step, lane]
                break
            step += 1
        assert got[t, lane] == pytest.approx(total - played.value[t, lane], abs=1e-4)


@pytest.mark.parametrize("trace", [0.0, 0.3, 0.95])
def test_advantages_are_sums_of_discounted_errors_in_a_plain_loop(trace: float) -> None:
    played = play(seed=1)
    got = generalised_advantages(*played[:4], trace * played.goes_on)
    for t, lane in np.ndindex(got.shape):
        total, weight = 0.0, 1.0
        for step in range(t, len(got)):
            error = played.reward[step, lane] - played.value[step, lane]
            error += played.discount[step, lane] * played.following[step, lane]
            total += weight * error
            weight *= played.discount[step, lane] * trace
            if not played.goes_on[step, lane]:
                break
        assert got[t, lane] == pytest.approx(total, abs=1e-4)


def test_q_lambda_returns_worked_by_hand() -> None:
    # 3 + ½·8 = 7; 2 + ½·(½·7 + ½·4) = 4.75; 1 + ½·(½·4.75 + ½·2) = 2.6875
    assert returns() == [2.6875, 4.75, 7]


def test_q_lambda_with_lambda_zero_bootstraps_after_every_step() -> None:
    assert returns(trace=column(0, 0, 0)) == [1 + 0.5 * 2, 2 + 0.5 * 4, 3 + 0.5 * 8]


def test_q_lambda_with_lambda_one_bootstraps_only_at_the_end() -> None:
    # 7; 2 + ½·7; 1 + ½·5½
    assert returns(trace=column(1, 1, 1)) == [3.75, 5.5, 7]


def test_q_lambda_ends_with_a_termination() -> None:
    # 2 and no more; before it 1 + ½·(½·2 + ½·2)
    assert returns(discount=column(0.5, 0, 0.5), trace=column(0.5, 0, 0.5)) == [2, 2, 7]


def test_q_lambda_bootstraps_a_truncation_from_its_final_value() -> None:
    # 2 + ½·6 = 5; before it 1 + ½·(½·5 + ½·2)
    assert returns(following=column(2, 6, 8), trace=column(0.5, 0, 0.5)) == [2.75, 5, 7]


def test_q_lambda_mixes_returns_of_all_lengths_in_a_plain_loop() -> None:
    played, trace = play(seed=2), 0.65
    got = lambda_returns(played.reward, played.following, played.discount, trace * played.goes_on)
    for t, lane in np.ndindex(got.shape):
        total, reward, weight, share = 0.0, 0.0, 1.0, 1.0
        for step in range(t, len(got)):
            reward += weight * played.reward[step, lane]
            weight *= played.discount[step, lane]
            bootstrapped = reward + weight * played.following[step, lane]  # the return of step − t + 1 steps
            if step == len(got) - 1 or not played.goes_on[step, lane]:
                total += share * bootstrapped
                break
            total += share * (1 - trace) * bootstrapped
            share *= trace
        assert got[t, lane] == pytest.approx(total, abs=1e-4)


def test_lanes_do_not_mix() -> None:
    played = play(seed=3)
    for function, arguments in ((generalised_advantages, played), (lambda_returns, played._replace(value=None))):
        arrays = [array for array in arguments if array is not None]
        together = function(*arrays)
        for lane in range(4):
            alone = function(*(array[:, lane : lane + 1] for array in arrays))
            assert np.array_equal(together[:, lane : lane + 1], alone)


def test_impossible_traces_are_refused() -> None:
    with pytest.raises(UserError, match=r"returns\.trace is 1\.5"):
        Traces(trace=1.5)
    with pytest.raises(UserError, match=r"returns\.gamma is -0\.1"):
        Traces(gamma=-0.1)
