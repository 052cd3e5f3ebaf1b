"""The learners of other libraries behind one interface: their own update, on the batches that Redline learns from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.optimizers import Adam
from redline.algorithms.q_learning import QLearning
from redline.bench.measuring import Contender
from redline.bench.peer_install import why_missing
from redline.types import AnyBatch, Batch, EnvSpec


@dataclass(frozen=True)
class LearnerPeer:
    """A peer by name: what must be installed, what it is compared at, and how its updates are done."""

    module: str
    package: str
    how: str
    algorithms: tuple[str, ...]
    build: Callable[[QLearning | OnPolicy, EnvSpec, Sequence[AnyBatch]], Contender]

    @property
    def missing(self) -> str | None:
        """Why it can't be measured here, or None if it can."""
        return why_missing(self.module, self.package)


def sb3_dqn(algorithm: QLearning | OnPolicy, spec: EnvSpec, batches: Sequence[AnyBatch]) -> Contender:
    """Return Stable-Baselines3's own updates of a DQN, on batches that are ready when they are asked for."""
    from stable_baselines3 import DQN  # noqa: PLC0415
    from stable_baselines3.common.logger import Logger  # noqa: PLC0415

    if not isinstance(algorithm.optimizer, Adam):
        raise TypeError("SB3's DQN learns by Adam")
    model = DQN(
        "CnnPolicy",
        _seen_by(spec),
        buffer_size=1,
        batch_size=algorithm.batch_size,
        gamma=algorithm.returns.gamma,
        learning_rate=algorithm.optimizer.lr_at(0),
        policy_kwargs={"optimizer_kwargs": {"eps": algorithm.optimizer.eps}},
        seed=1,
        device="cpu",
    )
    model.set_logger(Logger(folder=None, output_formats=[]))
    model.replay_buffer = ReadyBatches([as_sb3(batch, spec) for batch in batches])

    def learn(count: int) -> None:
        model.train(gradient_steps=count, batch_size=algorithm.batch_size)

    return learn


class ReadyBatches:
    """What SB3 asks for batches: gives those it has in turn."""

    def __init__(self, batches: Sequence[Any]) -> None:
        self._batches = cycle(batches)

    def sample(self, batch_size: int, env: object = None) -> Any:
        """Return the next batch."""
        return next(self._batches)


def as_sb3(batch: AnyBatch, spec: EnvSpec) -> Any:
    """Return the same transitions as SB3's memory returns them."""
    from stable_baselines3.common.type_aliases import ReplayBufferSamples  # noqa: PLC0415

    if not isinstance(batch, Batch):
        raise TypeError("SB3 learns from single transitions")
    n_steps = int(batch.offset[0])
    return ReplayBufferSamples(
        observations=batch.frames[:, : spec.stack].contiguous(),
        actions=batch.action.unsqueeze(1),
        next_observations=batch.frames[:, n_steps : n_steps + spec.stack].contiguous(),
        dones=(batch.discount == 0.0).float().unsqueeze(1),
        rewards=batch.reward.unsqueeze(1),
    )


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
        "DQN.train() on the same batches, ready in turn, in this process and with its torch settings",
        ("dqn",),
        sb3_dqn,
    )
}
