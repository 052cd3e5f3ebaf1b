"""Every algorithm on envs whose values are known: each probe fails in its own way if one part is wrong."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from redline.algorithms.catalog import ALGORITHMS
from redline.algorithms.named.dqn import DQN_CLASSIC
from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.optimizers import Adam
from redline.algorithms.predictions import Categorical, Quantiles
from redline.algorithms.q_learning import QLearning
from redline.envs.config import EnvConfig
from redline.exploration import EpsilonGreedy
from redline.networks import Gru, Mlp
from redline.replay import ReplayConfig
from redline.returns import NStep
from redline.runtime.building import build_trainer
from redline.runtime.config import Job
from redline.runtime.resolve import resolve_job
from redline.runtime.training import Trainer
from redline.schedules import Linear

GAMMA = 0.9
# two for most algorithms in `make test` (dqn's for one that is not named), so chosen that together they need values,
# discounting, sight and action
QUICK = {
    "a2c": ("ObsValue", "ActionReward"),
    "a2c-gae": ("Discount", "ActionReward"),
    "c51": ("Discount", "ActionReward"),
    "double-dqn": ("Discount", "ActionReward"),
    "dqn": ("Discount", "Delayed"),
    "drqn": ("ActionReward",),  # one, for it learns slowly
    "dueling-dqn": ("ObsValue", "ActionReward"),
    "n-step-dqn": ("Discount", "Delayed"),
    "noisy-dqn": ("ObsValue", "ActionReward"),
    "ppo": ("Discount", "ActionReward"),
    "pqn": ("Discount", "ActionReward"),
    "prioritized-dqn": ("ObsValue", "ActionReward"),
    "qr-dqn": ("Discount", "ActionReward"),
    "quantile-rainbow": ("ActionReward",),
    "rainbow": ("ActionReward",),
}


def for_probes(algorithm: QLearning | OnPolicy) -> QLearning | OnPolicy:
    """Return an algorithm with settings that suit episodes of a few steps and returns within ±1."""
    if isinstance(algorithm, OnPolicy):
        explores = isinstance(algorithm.explore, EpsilonGreedy)
        return replace(
            algorithm,
            network=Mlp((32,)),
            explore=EpsilonGreedy(Linear(1.0, 0.2, over_steps=1_000)) if explores else algorithm.explore,
            optimizer=Adam(lr=5e-3, eps=1e-5, clip_norm=0.5),
            returns=replace(algorithm.returns, gamma=GAMMA),
            rollout_steps=4 if algorithm.epochs == 1 else 16,
            epochs=min(algorithm.epochs, 4),
            batch_size=16,
        )
    changes: dict[str, Any] = {}
    if isinstance(algorithm.explore, EpsilonGreedy):
        changes["explore"] = EpsilonGreedy(Linear(1.0, 0.2, over_steps=1_000))
    if isinstance(algorithm.predict, Categorical):
        changes["predict"] = Categorical(atoms=21, low=-2.0, high=2.0)
    if isinstance(algorithm.predict, Quantiles):
        changes["predict"] = Quantiles(quantiles=11)
    if isinstance(algorithm.core, Gru):
        changes["core"] = Gru(width=32, length_steps=4, burn_in_steps=6)
    return replace(
        algorithm,
        network=Mlp((32,)),
        returns=replace(algorithm.returns, gamma=GAMMA),
        optimizer=Adam(lr=3e-3, eps=1e-8),
        replay=ReplayConfig(capacity=2_000),
        batch_size=32,
        samples_per_step=8.0,
        warmup_steps=100,
        target_sync_updates=25,
        **changes,
    )


PROBE_DQN = for_probes(DQN_CLASSIC)


def learnt(
    probe: str, *, steps: int, algorithm: QLearning | OnPolicy = PROBE_DQN, stack: int = 1, **env: Any
) -> Trainer:
    config = EnvConfig(f"probe/{probe}-v0", stack=stack, skip=1, **env)
    trainer = build_trainer(resolve_job(Job(env=config, algorithm=algorithm, num_envs=4)), env_seed=1)
    trainer.begin()
    while trainer.counters.steps < steps:
        trainer.vector_step()
    trainer.close()
    return trainer


def output(trainer: Trainer, *observation: float) -> torch.Tensor:
    network = trainer.learner.online
    network.silence()
    with torch.no_grad():
        out, _ = network.step(torch.tensor([[observation]]), torch.zeros(1, network.state_width))
    return out


def preferences(trainer: Trainer, *observation: float) -> list[float]:
    values: list[float] = trainer.job.algorithm.preferences(output(trainer, *observation))[0].tolist()
    return values


def value(trainer: Trainer, *observation: float) -> float:
    algorithm = trainer.job.algorithm
    if isinstance(algorithm, OnPolicy):
        return float(algorithm.objective.state_values(output(trainer, *observation)))
    return max(preferences(trainer, *observation))


def greedy(trainer: Trainer, *observation: float) -> int:
    scores = preferences(trainer, *observation)
    return scores.index(max(scores))


def constant_is_one(algorithm: QLearning | OnPolicy) -> None:
    assert value(learnt("Constant", steps=6_000, algorithm=algorithm), 0.0) == pytest.approx(1.0, abs=0.05)


def value_follows_the_observation(algorithm: QLearning | OnPolicy) -> None:
    trainer = learnt("ObsValue", steps=3_000, algorithm=algorithm)
    assert value(trainer, 1.0) == pytest.approx(1.0, abs=0.1)
    assert value(trainer, -1.0) == pytest.approx(-1.0, abs=0.1)


def reward_is_discounted_once(algorithm: QLearning | OnPolicy) -> None:
    trainer = learnt("Discount", steps=4_000, algorithm=algorithm)
    # within 0.05 of each other neither "not at all" (1) nor "twice" (0.81) would pass
    assert value(trainer, 0.0, 0.5) == pytest.approx(GAMMA, abs=0.05)


def right_action_is_found(algorithm: QLearning | OnPolicy) -> None:
    trainer = learnt("ActionReward", steps=3_000, algorithm=algorithm)
    assert greedy(trainer, -1.0) == 0
    assert greedy(trainer, 1.0) == 1


def first_action_earns_the_late_reward(algorithm: QLearning | OnPolicy) -> None:
    trainer = learnt("Delayed", steps=6_000, algorithm=algorithm)
    assert greedy(trainer, 0.0, 0.5) == 1


PROBES: dict[str, Callable[[QLearning | OnPolicy], None]] = {
    "Constant": constant_is_one,
    "ObsValue": value_follows_the_observation,
    "Discount": reward_is_discounted_once,
    "ActionReward": right_action_is_found,
    "Delayed": first_action_earns_the_late_reward,
}


def probes_of_all() -> Iterator[Any]:
    for name in ALGORITHMS:
        for probe in PROBES:
            is_quick = probe in QUICK.get(name, QUICK["dqn"])
            yield pytest.param(name, probe, marks=() if is_quick else pytest.mark.slow)


@pytest.mark.parametrize(("name", "probe"), [*probes_of_all()])
def test_every_algorithm_solves_every_probe(name: str, probe: str) -> None:
    PROBES[probe](for_probes(ALGORITHMS[name].classic.algorithm))


def cue_return(name: str, *, steps: int) -> float:
    trainer = learnt("Cue", steps=steps, algorithm=for_probes(ALGORITHMS[name].classic.algorithm), stack=4)
    mean = trainer.scores.mean
    assert mean is not None
    return mean


def test_a_cue_older_than_the_stack_is_used_by_a_network_that_remembers() -> None:
    # a fifth of the actions is random when it ends, so the best mean is 0.8
    assert cue_return("drqn", steps=4_000) > 0.6


def test_a_cue_older_than_the_stack_is_lost_on_a_network_that_does_not() -> None:
    assert cue_return("dqn", steps=8_000) == pytest.approx(0.0, abs=0.35)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["n-step-dqn", "rainbow", "ppo", "pqn"])
def test_no_other_algorithm_uses_the_cue_either(name: str) -> None:
    assert cue_return(name, steps=8_000) == pytest.approx(0.0, abs=0.35)


def test_expected_values_are_exact() -> None:
    trainer = learnt("ActionReward", steps=2_500)
    assert preferences(trainer, 1.0) == pytest.approx([-1.0, 1.0], abs=0.2)
    trainer = learnt("Discount", steps=3_000)
    assert value(trainer, 0.5, 1.0) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("n_steps", [1, 3, 8])
def test_a_reward_five_steps_away_reaches_the_action_that_earned_it(n_steps: int) -> None:
    returns = NStep(n=n_steps, gamma=GAMMA, clip_rewards=False)
    trainer = learnt("Delayed", steps=6_000, algorithm=replace(PROBE_DQN, returns=returns))  # type: ignore[arg-type]
    assert preferences(trainer, 0.0, 0.5) == pytest.approx([0.0, GAMMA**4], abs=0.1)


@pytest.mark.parametrize(
    "name",
    [
        "dqn",
        "a2c",
        "a2c-gae",
        "ppo",
        "pqn",
        *(pytest.param(slow, marks=pytest.mark.slow) for slow in ("n-step-dqn", "drqn")),
    ],
)
def test_a_truncated_episode_is_worth_what_an_endless_one_is(name: str) -> None:
    algorithm = for_probes(ALGORITHMS[name].classic.algorithm)
    # a value of 10 is a long way from 0, above all for a network that sees 0 and starts with biases of 0
    quick = replace(algorithm, optimizer=Adam(lr=5e-2 if isinstance(algorithm, OnPolicy) else 1e-2, eps=1e-5))
    trainer = learnt("Endless", steps=4_800, algorithm=quick, max_episode_frames=3)
    assert trainer.counters.episodes == 1_600
    # 1 / (1 − 0.9); taken for a terminal, three steps would be worth 2.71
    assert value(trainer, 0.0) == pytest.approx(10.0, abs=1.0)


@pytest.mark.parametrize("name", ["dqn", "ppo"])
def test_learning_from_clipped_rewards_leaves_the_scores_unclipped(name: str) -> None:
    algorithm = for_probes(ALGORITHMS[name].classic.algorithm)
    returns = replace(algorithm.returns, gamma=0.0, clip_rewards=True)
    trainer = learnt("Counting", steps=600, algorithm=replace(algorithm, returns=returns))  # type: ignore[arg-type]
    # episodes of 3, 1, 7, 2, 5 steps with reward t at step t: 6, 1, 28, 3, 15
    assert set(trainer.scores.recent_returns) == {6.0, 1.0, 28.0, 3.0, 15.0}
