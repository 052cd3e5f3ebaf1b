"""The setting in which contenders train Pong, the same for all; a worker process reads it as JSON."""

import json
import sys
from dataclasses import asdict, dataclass

SETTLE_STEPS = 400  # a hundred updates: allocator and caches have seen every shape


@dataclass(frozen=True)
class SpeedSetting:
    """DQN on Pong as in the Nature paper, with Adam."""

    env: str = "PongNoFrameskip-v4"  # skip 4, 84×84 grey, stack 4, no sticky actions, no-op starts
    seconds: float = 25.0
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

    def to_json(self) -> str:
        """Return the setting as an argument for a worker."""
        return json.dumps(asdict(self))


def setting_from_argv() -> SpeedSetting:
    """Return the setting this worker was started with."""
    return SpeedSetting(**json.loads(sys.argv[1]))
