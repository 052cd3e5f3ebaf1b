"""Mistakes that others made: each is caught by a test, here or where the table says.

| mistake | caught by |
|---|---|
| dueling: mean over the whole batch | `networks/test_heads.py`: a row's output does not depend on the other rows |
| C51: mass lost where an atom is met exactly | `test_distributional_losses.py`: ends on an atom; loses no mass |
| QR: γ forgotten | `algorithms/test_predictions.py`: quantile loss discounts what follows |
| QR: wrong axis of the differences | `test_distributional_losses.py`: naive loop with unequal numbers |
| QR: wrong sign of τ | `test_distributional_losses.py`: gradient descent ends at the quantiles |
| noise that is not factorised | `networks/test_layers.py`: noise is factorised |
| noise never drawn again, or shared with the target | `networks/test_layers.py`: different noise, redrawn |
| n-step: tails dropped, γⁿ on short windows, lanes mixed | here; `replay/test_windows.py`; `test_returns.py` |
| one ε coin for all envs | `test_exploration.py`: each env has its own coin |
| PER: α applied twice, stale index | `replay/test_prioritized_sampler.py`: exponent applied once; stale handle |
| PER: β never annealed | here |
| actor fed 0–255, learner /255 | here; `networks/test_torsos.py`: pixels count as if divided by 255 |
| truncation taken for termination, or the reverse | here; `runtime/test_sources.py`; `learning/test_probes.py` |
| bootstrapping from the next episode's first frame | here; `runtime/test_sources.py` |
| a schedule in frames instead of steps, ε constant from step 0 | here |
| PPO: advantages normalised over the wrong rows | `algorithms/test_objectives.py`: over the rows of the update |
| PPO: value of a cut episode's final state ignored | `runtime/test_sources.py`: worth its final frames |
| A2C that silently used GAE | here |
| a batch size that the algorithm never read | here |
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from redline.algorithms.catalog import ALGORITHMS
from redline.algorithms.named.dqn import DQN, DQN_CLASSIC
from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.optimizers import Adam
from redline.algorithms.q_learning import QLearning
from redline.envs.config import EnvConfig
from redline.exploration import EpsilonGreedy
from redline.networks import Gru, Mlp, Small, Torso
from redline.replay import ReplayConfig, RolloutBuffer
from redline.replay.sampler import Prioritized
from redline.returns import NStep
from redline.runtime.building import build_trainer
from redline.runtime.config import Job
from redline.runtime.resolve import resolve_job
from redline.runtime.training import Trainer
from redline.schedules import Linear
from redline.types import AnyBatch, Batch, EnvSpec, SequenceBatch

COUNTING_LENGTHS = (3, 1, 7, 2, 5)  # steps of the episodes of probe/Counting-v0, by turns


def small(algorithm: QLearning | OnPolicy, network: Torso) -> QLearning | OnPolicy:
    """Return the algorithm with all of its parts, but small and quick to begin learning."""
    if isinstance(algorithm, OnPolicy):
        return replace(algorithm, network=network, rollout_steps=16, batch_size=96)
    core = algorithm.core if algorithm.core.sequence() is None else Gru(width=8, length_steps=4, burn_in_steps=2)
    replay = ReplayConfig(capacity=1_000, codec="raw")
    return replace(algorithm, network=network, core=core, replay=replay, warmup_steps=60, samples_per_step=8.0)


def trainer_for(algorithm: QLearning | OnPolicy, env: EnvConfig, num_envs: int = 6) -> Trainer:
    trainer = build_trainer(resolve_job(Job(env=env, algorithm=algorithm, num_envs=num_envs)), env_seed=1)
    trainer.begin()
    return trainer


def watch_updates(trainer: Trainer, seen: Callable[[AnyBatch, int], None]) -> None:
    """Call `seen` with each batch and the steps that its update is told."""
    update = trainer.learner.update

    def watched(batch: AnyBatch, *, steps: int, **rest: Any) -> torch.Tensor:
        seen(batch, steps)
        return update(batch, steps=steps, **rest)

    trainer.learner.update = watched  # type: ignore[method-assign]


@pytest.mark.parametrize("batch_size", [48, 24])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_learns_from_batches_of_the_size_asked_for(name: str, batch_size: int) -> None:
    algorithm = replace(small(ALGORITHMS[name].classic.algorithm, Mlp((8,))), batch_size=batch_size)
    trainer = trainer_for(algorithm, EnvConfig("CartPole-v1", stack=1, skip=1))
    rows: list[int] = []

    def count(batch: AnyBatch, steps: int) -> None:
        learnt = batch.action[2:] if isinstance(batch, SequenceBatch) else batch.action  # without the burn-in
        rows.append(learnt.numel())

    watch_updates(trainer, count)
    for _ in range(20):
        trainer.vector_step()
    assert len(rows) >= 2
    assert set(rows) == {batch_size}
    assert trainer.counters.samples == len(rows) * batch_size
    trainer.close()


@pytest.mark.parametrize("n_steps", [1, 3])
def test_every_row_that_is_learnt_from_is_a_return_of_one_episode_of_one_env(n_steps: int) -> None:
    """Frames of the env say seed, episode and t; the reward of a step is the t that it leads to."""
    gamma = 0.9
    returns = NStep(n_steps, gamma=gamma, clip_rewards=False)
    algorithm = replace(small(DQN_CLASSIC, Mlp((8,))), returns=returns, batch_size=64)
    trainer = trainer_for(algorithm, EnvConfig("probe/Counting-v0", stack=1, skip=1), num_envs=3)
    endings: set[tuple[bool, bool, int]] = set()  # terminated, cut, steps short of n
    last_steps = 0

    def check(batch: AnyBatch, steps: int) -> None:
        nonlocal last_steps
        assert isinstance(batch, Batch)
        for row in range(len(batch.action)):
            offset = int(batch.offset[row])
            state, following = batch.frames[row, 0].tolist(), batch.frames[row, offset].tolist()
            assert state[:2] == following[:2]  # one env, one episode: never the next one's first frame
            t, length = int(state[2]), COUNTING_LENGTHS[int(state[1]) % 5]
            assert (int(following[2]), int(batch.frames[row, 1, 3])) == (t + offset, int(batch.action[row]))
            assert offset == min(n_steps, length - t)  # tails are there, and only they are short
            reward = sum(gamma**k * (t + k + 1) for k in range(offset))
            is_over, is_cut_kind = t + offset == length, int(state[1]) % 2 == 1
            discount = 0.0 if is_over and not is_cut_kind else gamma**offset
            assert batch.reward[row].item() == pytest.approx(reward)
            assert batch.discount[row].item() == pytest.approx(discount)
            endings.add((is_over and not is_cut_kind, is_over and is_cut_kind, n_steps - offset))
            last_steps += t + 1 == length

    watch_updates(trainer, check)
    for _ in range(60):
        trainer.vector_step()
    assert last_steps > 100
    assert {ending[:2] for ending in endings} == {(False, False), (True, False), (False, True)}
    assert {ending[2] for ending in endings} == set(range(n_steps))
    trainer.close()


@pytest.mark.parametrize("name", ["dqn", "drqn", "rainbow", "ppo", "pqn"])
def test_actor_and_learner_see_pixels_of_the_same_scale(name: str) -> None:
    preset = ALGORITHMS[name].atari
    algorithm = small(preset.algorithm, Small(width=16))
    trainer = trainer_for(algorithm, EnvConfig("redline/Catch-v0", stack=preset.stack, skip=1), num_envs=6)
    seen: dict[str, set[tuple[torch.dtype, int]]] = {"acting": set(), "learning": set()}
    phase = "acting"
    choose, update = trainer.world.actor.choose, trainer.learner.update

    def note(_: Any, inputs: tuple[torch.Tensor]) -> None:
        seen[phase] |= {(inputs[0].dtype, pixel) for pixel in inputs[0].unique().tolist()}

    def acting(*args: Any) -> Any:
        nonlocal phase
        phase = "acting"
        return choose(*args)

    def learning(*args: Any, **kwargs: Any) -> Any:
        nonlocal phase
        phase = "learning"
        return update(*args, **kwargs)

    for network in (trainer.learner.online, trainer.learner.target):
        network.torso.register_forward_pre_hook(note)
    trainer.world.actor.choose = acting  # type: ignore[method-assign]
    trainer.learner.update = learning  # type: ignore[method-assign]
    for _ in range(20):
        trainer.vector_step()
    assert trainer.counters.updates >= 1
    # the ground, the paddle and the ball, as the env draws them
    assert seen["acting"] == seen["learning"] == {(torch.uint8, 0), (torch.uint8, 128), (torch.uint8, 255)}
    trainer.close()


def test_schedules_count_steps_and_not_frames() -> None:
    """Pong takes four frames per step: counted in frames, every schedule would be over four times too early."""
    algorithm = replace(
        small(DQN, Small(width=16)),
        explore=EpsilonGreedy(Linear(1.0, 0.0, over_steps=200)),
        sample=Prioritized(beta=Linear(0.4, 1.0, over_steps=200)),
        optimizer=Adam(lr=1e-3, anneal_steps=200),
    )
    trainer = trainer_for(algorithm, EnvConfig("pong", size=40), num_envs=4)
    draw = trainer.source.sampler.draw  # type: ignore[attr-defined]
    betas: dict[int, float] = {}
    rates: dict[int, float] = {}

    def watched_draw(rng: np.random.Generator, batch_size: int, *, beta: float) -> Any:
        betas[trainer.counters.steps] = beta
        return draw(rng, batch_size, beta=beta)

    trainer.source.sampler.draw = watched_draw  # type: ignore[attr-defined]
    watch_updates(trainer, lambda _, steps: rates.update({steps: trainer.learner.algorithm.optimizer.lr_at(steps)}))
    for _ in range(25):
        trainer.vector_step()
    assert (trainer.counters.steps, trainer.world.env.spec.frames_per_step) == (100, 4)
    assert trainer.epsilon == pytest.approx(1.0 - 100 / 200)
    # 96 steps were played when the last batch was drawn
    assert len(betas) > 3
    assert betas == {steps: pytest.approx(0.4 + 0.6 * steps / 200) for steps in betas}
    assert betas[96] == pytest.approx(0.4 + 0.6 * 96 / 200)
    assert rates == {steps: pytest.approx(1e-3 * (1 - steps / 200)) for steps in betas}
    assert trainer.learner.optimizer.param_groups[0]["lr"] == pytest.approx(1e-3 * (1 - 96 / 200))
    trainer.close()


@pytest.mark.parametrize("domain", ["atari", "classic"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_is_scheduled_really_changes(name: str, domain: str) -> None:
    algorithm = getattr(ALGORITHMS[name], domain).algorithm
    if isinstance(algorithm.explore, EpsilonGreedy):
        over = algorithm.explore.epsilon.over_steps
        start, half, end = (algorithm.explore.epsilon_at(steps) for steps in (0, over // 2, over))
        assert start == 1.0
        assert start > half > end
        assert end <= 0.1
    if isinstance(algorithm, QLearning) and isinstance(algorithm.sample, Prioritized):
        over = algorithm.sample.beta.over_steps
        assert [algorithm.sample.beta_at(steps) for steps in (0, over)] == [0.4, 1.0]


@pytest.mark.parametrize("domain", ["atari", "classic"])
def test_a2c_learns_from_n_step_returns_and_not_from_generalised_advantages(domain: str) -> None:
    algorithm, mixing = (getattr(ALGORITHMS[name], domain).algorithm for name in ("a2c", "a2c-gae"))
    spec = EnvSpec("test", (1,), "float32", stack=1, num_actions=2, frames_per_step=1)
    rng = np.random.default_rng(0)
    steps, lanes = algorithm.rollout_steps, 3
    buffer = RolloutBuffer(spec, num_envs=lanes, steps=steps)
    reward, value = (rng.uniform(-1, 1, size=(steps, lanes)).astype(np.float32) for _ in range(2))
    nothing = np.zeros(lanes, np.float32)
    for t in range(steps):
        buffer.append(
            obs=np.zeros((lanes, 1, 1), np.float32),
            action=np.zeros(lanes, np.int64),
            log_probability=nothing,
            value=value[t],
            reward=reward[t],
            final_value=nothing,
            return_ends=nothing > 0,
            episode_ends=nothing > 0,
        )
    last = rng.normal(size=lanes).astype(np.float32)

    def advantages(of: OnPolicy) -> np.ndarray:
        gamma, trace = of.returns.gamma, of.returns.trace
        return of.objective.targets(buffer.rollout(last, gamma=gamma, trace=trace, clip_rewards=False))[0]

    gamma = algorithm.returns.gamma
    for t in range(steps):
        n_step = sum(gamma**k * reward[t + k] for k in range(steps - t)) + gamma ** (steps - t) * last
        np.testing.assert_allclose(advantages(algorithm)[t], n_step - value[t], rtol=1e-4, atol=1e-4)
    assert not np.allclose(advantages(algorithm), advantages(mixing), atol=1e-3)
