"""The settings in which contenders train, the same for all; a worker process reads them as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

SETTLE_STEPS = 400  # a hundred updates: allocator and caches have seen every shape
FIRST_GAME_STEPS = 800  # in each env: about when its first game ends, so that some end in the window
PONG = "PongNoFrameskip-v4"  # skip 4, 84×84 grey, stack 4, no sticky actions, no-op starts


@dataclass(frozen=True)
class DqnSetting:
    """DQN as in the Nature paper, with Adam."""

    algorithm: str = "dqn"
    env: str = PONG
    seconds: float = 15.0
    seed: int = 1
    num_envs: int = 8
    batch_size: int = 32
    steps_per_update: int = 4
    learning_rate: float = 1e-4
    adam_eps: float = 1.5e-4
    gamma: float = 0.99
    replay_capacity: int = 20_000
    replay_codec: str = "zstd"  # only for Redline
    replay_prefetch: int = 0  # only for Redline
    replay_path: str | None = None  # only for Redline: folder that holds the frames
    warmup_steps: int = 6_000  # 750 in each env: about when its first game ends, so that some end in the window
    # ε is low when the window opens, so that the network acts there as it does in nearly all of a training
    epsilon_end: float = 0.01
    epsilon_over_steps: int = 6_000
    target_sync_steps: int = 4_000
    peer_vec_env: str = "dummy"  # only for Stable-Baselines3

    @property
    def opens_at_steps(self) -> int:
        """Return the step at which the window opens."""
        return self.warmup_steps + SETTLE_STEPS

    @property
    def updates_per_step(self) -> float:
        """Return the updates that all must do."""
        return 1 / self.steps_per_update

    @property
    def window_every_steps(self) -> int:
        """Return the steps after a multiple of which the window may open and close."""
        return 1


@dataclass(frozen=True)
class OnPolicySetting:
    """PPO or A2C, Nature CNN with policy and value on the same features, orthogonal first weights."""

    algorithm: str
    num_envs: int
    rollout_steps: int
    epochs: int
    batch_size: int
    learning_rate: float
    gae_lambda: float
    anneal_steps: int  # over which the learning rate falls to 0; 0: it stays
    opens_at_steps: int
    optimizer_eps: float = 1e-5
    gamma: float = 0.99
    entropy_weight: float = 0.01
    value_weight: float = 0.5
    max_grad_norm: float = 0.5
    clip: float | None = None  # only PPO's
    env: str = PONG
    seconds: float = 15.0
    seed: int = 1
    peer_vec_env: str = "dummy"  # only for Stable-Baselines3

    @property
    def window_every_steps(self) -> int:
        """Return the steps of all envs between two times of learning: a window holds whole rollouts."""
        return self.num_envs * self.rollout_steps

    @property
    def updates_per_step(self) -> float:
        """Return the updates that all must do."""
        return self.epochs / self.batch_size


Setting = DqnSetting | OnPolicySetting

SETTINGS: Mapping[str, Setting] = {
    "dqn": DqnSetting(),
    "ppo": OnPolicySetting(
        algorithm="ppo",
        num_envs=8,
        rollout_steps=128,
        epochs=4,
        batch_size=256,
        learning_rate=2.5e-4,
        gae_lambda=0.95,
        anneal_steps=10_000_000,
        clip=0.1,
        opens_at_steps=8 * FIRST_GAME_STEPS,
    ),
    "a2c": OnPolicySetting(
        algorithm="a2c",
        num_envs=16,
        rollout_steps=5,
        epochs=1,
        batch_size=80,
        learning_rate=7e-4,
        gae_lambda=1.0,
        anneal_steps=0,
        opens_at_steps=16 * FIRST_GAME_STEPS,
    ),
}


def to_json(setting: Setting) -> str:
    """Return a setting as an argument for a worker."""
    return json.dumps(asdict(setting))


def from_json(text: str) -> Setting:
    """Return the setting that a worker was started with."""
    values = json.loads(text)
    return DqnSetting(**values) if "steps_per_update" in values else OnPolicySetting(**values)
