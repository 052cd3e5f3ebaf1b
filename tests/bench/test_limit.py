"""The limit: FLOP worked out by hand, and the formula."""

import pytest

from redline.algorithms.catalog import ALGORITHMS
from redline.bench.learner_speed import Limit, Sgemm, Work, count_forward, count_work
from redline.types import EnvSpec

PONG = EnvSpec(name="pong", frame_shape=(84, 84), frame_dtype="uint8", stack=4, num_actions=6, frames_per_step=4)

# two FLOP for each multiply-add: outputs × (inputs of one output)
CONV1 = 2 * (20 * 20 * 32) * (8 * 8 * 4)
CONV2 = 2 * (9 * 9 * 64) * (4 * 4 * 32)
CONV3 = 2 * (7 * 7 * 64) * (3 * 3 * 64)
DENSE = 2 * 512 * (7 * 7 * 64)
FORWARD = CONV1 + CONV2 + CONV3 + DENSE + 2 * 6 * 512
BACKWARD = 2 * FORWARD - CONV1  # nobody needs the gradient of the pixels


def test_a_forward_pass_of_the_nature_network() -> None:
    assert count_forward(ALGORITHMS["dqn"].atari.algorithm, PONG) == FORWARD
    assert pytest.approx(18.7e6, rel=0.001) == FORWARD


def test_an_update_of_dqn_is_two_forwards_and_a_backward() -> None:
    work = count_work(ALGORITHMS["dqn"].atari.algorithm, PONG)
    assert work.flop_per_update == 32 * (2 * FORWARD + BACKWARD)
    assert work.flop_per_update == pytest.approx(2.18e9, rel=0.002)
    assert work.flop_per_step == pytest.approx(545e6, rel=0.002)  # one update per 4 steps; acting is not counted


@pytest.mark.parametrize(("name", "epochs", "mflop_per_step"), [("ppo", 4, 217), ("a2c", 1, 68)])
def test_with_rollouts_each_step_is_also_acted_on(name: str, epochs: int, mflop_per_step: float) -> None:
    value_head = 2 * 1 * 512
    work = count_work(ALGORITHMS[name].atari.algorithm, PONG)
    by_hand = epochs * (FORWARD + BACKWARD + 3 * value_head) + FORWARD + value_head
    assert work.flop_per_step == pytest.approx(by_hand)
    assert work.flop_per_step == pytest.approx(mflop_per_step * 1e6, rel=0.005)


def test_every_algorithm_can_be_counted() -> None:
    for name in ("rainbow", "drqn", "pqn"):
        work = count_work(ALGORITHMS[name].atari.algorithm, PONG)
        assert work.flop_per_update > work.flop_per_step > FORWARD


def test_the_limit_adds_arithmetic_and_emulation() -> None:
    limit = Limit(sgemm_gflops=100.0, work=Work(flop_per_update=2e9, flop_per_step=5e8), env_s_per_step=0.005)
    assert limit.updates_per_s == pytest.approx(50.0)
    assert limit.steps_per_s == pytest.approx(1 / (0.005 + 0.005))


def test_the_best_matrix_product_is_kept_and_the_threads_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr("redline.bench.learner_speed.SIZES", (32, 64))
    monkeypatch.setattr("redline.bench.learner_speed.TRY_SECONDS", 0.002)
    before = torch.get_num_threads()
    sgemm = Sgemm([1])
    rates = [sgemm.measure() for _ in range(3)]
    assert sgemm.best_gflops == max(rates) > 0.0
    assert torch.get_num_threads() == before
