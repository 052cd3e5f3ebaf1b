"""DQN on envs whose values are known: each probe fails in its own way if one part of the learner is wrong."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from redline.algorithms.dqn import DQN_CLASSIC
from redline.algorithms.parts import Adam
from redline.algorithms.q_learning import QLearning
from redline.envs.config import EnvConfig
from redline.experience import ReplayConfig
from redline.exploration import EpsilonGreedy
from redline.networks import Mlp
from redline.returns import NStep
from redline.runtime.building import build_trainer, settle
from redline.runtime.inline import InlineTrainer
from redline.runtime.job import Job
from redline.schedules import Linear

PROBE_DQN = replace(
    DQN_CLASSIC,
    network=Mlp((32,)),
    returns=NStep(gamma=0.9, clip_rewards=False),
    explore=EpsilonGreedy(Linear(1.0, 0.2, over_steps=1_000)),
    optimizer=Adam(lr=3e-3, eps=1e-8),
    replay=ReplayConfig(capacity=2_000),
    batch_size=32,
    samples_per_step=8.0,
    warmup_steps=100,
    target_sync_updates=25,
)


def learnt(env_id: str, *, steps: int, algorithm: QLearning = PROBE_DQN) -> InlineTrainer:
    job = Job(env=EnvConfig(env_id, stack=1, skip=1), algorithm=algorithm, num_envs=4)
    trainer = build_trainer(settle(job), env_seed=1)
    trainer.begin()
    while trainer.counters.steps < steps:
        trainer.vector_step()
    trainer.close()
    return trainer


def values(trainer: InlineTrainer, *observation: float) -> np.ndarray:
    with torch.no_grad():
        out: np.ndarray = trainer.learner.online(torch.tensor([[observation]])).squeeze().numpy()
    return out


def test_a_constant_reward_is_valued_exactly() -> None:
    assert values(learnt("redline/Constant-v0", steps=1_500), 0.0) == pytest.approx(1.0, abs=0.02)


def test_a_value_depends_on_what_is_seen() -> None:
    trainer = learnt("redline/ObsValue-v0", steps=2_000)
    assert values(trainer, 1.0) == pytest.approx(1.0, abs=0.05)
    assert values(trainer, -1.0) == pytest.approx(-1.0, abs=0.05)


def test_a_reward_one_step_away_is_discounted_once() -> None:
    trainer = learnt("redline/Discount-v0", steps=3_000)
    assert values(trainer, 0.5, 1.0) == pytest.approx(1.0, abs=0.05)
    assert values(trainer, 0.0, 0.5) == pytest.approx(0.9, abs=0.05)


def test_the_right_action_is_found_for_each_observation() -> None:
    trainer = learnt("redline/ActionReward-v0", steps=2_500)
    assert values(trainer, -1.0).argmax() == 0
    assert values(trainer, 1.0).argmax() == 1
    assert values(trainer, 1.0) == pytest.approx([-1.0, 1.0], abs=0.2)


@pytest.mark.parametrize("n_steps", [1, 3, 8])
def test_a_reward_five_steps_away_reaches_the_action_that_earned_it(n_steps: int) -> None:
    returns = NStep(n=n_steps, gamma=0.9, clip_rewards=False)
    trainer = learnt("redline/Delayed-v0", steps=6_000, algorithm=replace(PROBE_DQN, returns=returns))
    first = values(trainer, 0.0, 0.5)
    assert first == pytest.approx([0.0, 0.9**4], abs=0.1)


def test_a_truncated_episode_is_worth_what_an_endless_one_is() -> None:
    job = Job(
        env=EnvConfig("redline/Endless-v0", stack=1, skip=1, max_episode_frames=3), algorithm=PROBE_DQN, num_envs=4
    )
    trainer = build_trainer(settle(job), env_seed=1)
    trainer.begin()
    while trainer.counters.steps < 6_000:
        trainer.vector_step()
    trainer.close()
    assert trainer.counters.episodes == 2_000
    # 1 / (1 − 0.9); taken for a terminal, three steps would be worth 2.71
    assert values(trainer, 0.0) == pytest.approx(10.0, abs=0.5)


def test_learning_from_clipped_rewards_leaves_the_scores_unclipped() -> None:
    clipped = replace(PROBE_DQN, returns=NStep(gamma=0.0, clip_rewards=True))
    trainer = learnt("redline/Counting-v0", steps=600, algorithm=clipped)
    # episodes of 3, 1, 7, 2, 5 steps with reward t at step t: 6, 1, 28, 3, 15
    assert set(trainer.scores.recent) == {6.0, 1.0, 28.0, 3.0, 15.0}


@pytest.mark.slow
def test_catch_is_learnt_through_the_convolutions_and_the_picture_replay() -> None:
    from redline.algorithms.dqn import DQN
    from redline.networks import Small

    algorithm = replace(
        DQN,
        network=Small(),
        explore=EpsilonGreedy(Linear(1.0, 0.01, over_steps=10_000)),
        optimizer=Adam(lr=2.5e-4, eps=1e-5),
        replay=ReplayConfig(capacity=20_000),
        warmup_steps=2_000,
        target_sync_updates=200,
    )
    trainer = learnt("redline/Catch-v0", steps=24_000, algorithm=algorithm)
    assert trainer.scores.mean is not None
    assert trainer.scores.mean >= 0.8
