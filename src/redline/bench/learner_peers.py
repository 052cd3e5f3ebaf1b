"""The learners of other libraries behind one interface: their own update on a replay memory of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.q_learning import QLearning
from redline.bench.measuring import Contender
from redline.bench.peer_install import why_missing
from redline.types import EnvSpec

FILLED_TRANSITIONS = 1_000


@dataclass(frozen=True)
class LearnerPeer:
    """A peer by name: what must be installed, what it is compared at, and how its updates are done."""

    module: str
    package: str
    how: str
    algorithms: tuple[str, ...]
    build: Callable[[QLearning | OnPolicy, EnvSpec], Contender]

    @property
    def missing(self) -> str | None:
        """Why it can't be measured here, or None if it can."""
        return why_missing(self.module, self.package)


def sb3_dqn(algorithm: QLearning | OnPolicy, spec: EnvSpec) -> Contender:
    """Return Stable-Baselines3's own updates of a DQN, drawn from its memory of random transitions."""
    from stable_baselines3 import DQN  # noqa: PLC0415
    from stable_baselines3.common.logger import Logger  # noqa: PLC0415

    model = DQN(
        "CnnPolicy",
        _seen_by(spec),
        buffer_size=FILLED_TRANSITIONS,
        batch_size=algorithm.batch_size,
        learning_rate=algorithm.optimizer.lr_at(0),
        seed=1,
        device="cpu",
    )
    model.set_logger(Logger(folder=None, output_formats=[]))
    rng = np.random.default_rng(1)
    shape = (1, spec.stack, *spec.frame_shape)
    for _ in range(FILLED_TRANSITIONS):
        before, after = (rng.integers(256, size=shape, dtype=np.uint8) for _ in range(2))
        action, reward = rng.integers(spec.num_actions, size=(1, 1)), rng.integers(-1, 2, size=1)
        model.replay_buffer.add(before, after, action, reward, np.zeros(1), [{}])

    def learn(count: int) -> None:
        model.train(gradient_steps=count, batch_size=algorithm.batch_size)

    return learn


def _seen_by(spec: EnvSpec) -> Any:
    """Return an env that is never played: a library asks it only what it shows."""
    import gymnasium  # noqa: PLC0415

    class Shown(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(0, 255, (spec.stack, *spec.frame_shape), np.uint8)
        action_space = gymnasium.spaces.Discrete(spec.num_actions)

    return Shown()


LEARNER_PEERS = {
    "sb3": LearnerPeer(
        "stable_baselines3",
        "stable_baselines3",
        "DQN.train(), with the batches drawn from its own replay memory, in this process and with its torch settings",
        ("dqn",),
        sb3_dqn,
    )
}
