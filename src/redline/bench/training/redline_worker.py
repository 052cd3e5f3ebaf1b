"""Trains with Redline through its own runtime, whenever it is its turn.

The whole session runs, with records, metrics and curves; only the checkpoints at start and end lie outside the window.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from redline.algorithms.named.a2c import A2C
from redline.algorithms.named.dqn import DQN
from redline.algorithms.named.ppo import PPO
from redline.algorithms.objectives import Clipped, PolicyGradient
from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.optimizers import Adam, Rmsprop
from redline.algorithms.q_learning import QLearning
from redline.bench.training.settings import DqnSetting, OnPolicySetting, Setting, from_json
from redline.bench.training.turns import Turns
from redline.envs.config import EnvConfig
from redline.exploration import EpsilonGreedy
from redline.returns import Traces
from redline.runtime.config import Job
from redline.runtime.gauges import SilentDisplay
from redline.runtime.launch import start_run
from redline.runtime.session import Session
from redline.schedules import Linear


def make_job(setting: Setting, log_dir: Path) -> Job:
    """Return the setting as a job."""
    algorithm = replay_learner(setting) if isinstance(setting, DqnSetting) else rollout_learner(setting)
    return Job(
        env=EnvConfig(id=setting.env),
        algorithm=algorithm,
        num_envs=setting.num_envs,
        seed=setting.seed,
        device="cpu",
        log_dir=log_dir,
    )


def replay_learner(setting: DqnSetting) -> QLearning:
    """Return DQN as Redline's catalog has it, with the setting's numbers."""
    epsilon = Linear(1.0, setting.epsilon_end, over_steps=setting.epsilon_over_steps)
    return replace(
        DQN,
        returns=replace(DQN.returns, gamma=setting.gamma),
        explore=EpsilonGreedy(epsilon),
        optimizer=Adam(lr=setting.learning_rate, eps=setting.adam_eps),
        replay=replace(
            DQN.replay,
            capacity=setting.replay_capacity,
            codec=setting.replay_codec,
            prefetch=setting.replay_prefetch,
            path=None if setting.replay_path is None else Path(setting.replay_path),
        ),
        batch_size=setting.batch_size,
        samples_per_step=setting.batch_size / setting.steps_per_update,
        warmup_steps=setting.warmup_steps,
        target_sync_updates=setting.target_sync_steps // setting.steps_per_update,
    )


def rollout_learner(setting: OnPolicySetting) -> OnPolicy:
    """Return PPO or A2C as Redline's catalog has it, with the setting's numbers."""
    entropy_weight, value_weight, is_ppo = setting.entropy_weight, setting.value_weight, setting.clip is not None
    return replace(
        PPO if is_ppo else A2C,
        objective=PolicyGradient(entropy_weight=entropy_weight, value_weight=value_weight)
        if setting.clip is None
        else Clipped(clip=setting.clip, entropy_weight=entropy_weight, value_weight=value_weight),
        optimizer=(Adam if is_ppo else Rmsprop)(
            lr=setting.learning_rate,
            eps=setting.optimizer_eps,
            clip_norm=setting.max_grad_norm,
            anneal_steps=setting.anneal_steps,
        ),
        returns=Traces(trace=setting.gae_lambda, gamma=setting.gamma),
        rollout_steps=setting.rollout_steps,
        epochs=setting.epochs,
        batch_size=setting.batch_size,
    )


def train(job: Job, algorithm: str, turns: Turns) -> None:
    """Train whenever it is its turn, until no more are wanted."""
    session = start_run(job, algorithm, SilentDisplay())
    if not isinstance(session, Session):
        raise TypeError("this job trains inline")
    with session:
        counters, recent, told = session.trainer.counters, session.trainer.scores.recent, 0

        def no_more_turns() -> str | None:  # asked before every vector step
            nonlocal told
            for value in list(recent)[len(recent) - (counters.episodes - told) :]:
                turns.add_return(value)
            told = counters.episodes
            return "no more turns" if turns.read(steps=counters.steps, updates=counters.updates) else None

        session.train(no_more_turns)


def main() -> None:
    """Train in the folder that is given."""
    setting, folder = from_json(sys.argv[1]), Path(sys.argv[2])
    turns = Turns.of_this_process(setting)
    train(make_job(setting, folder / "runs"), setting.algorithm, turns)


if __name__ == "__main__":
    main()
