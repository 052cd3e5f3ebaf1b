"""The settings of an env."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from redline.errors import check_range

MAX_FRAMES = 2**31 - 1  # that the emulator counts to


@dataclass(frozen=True)
class EnvConfig:
    """The env to learn in, and how it is observed."""

    id: Annotated[str, tyro.conf.arg(aliases=("--env",))] = "pong"
    """Atari game (pong, PongNoFrameskip-v4, ALE/Pong-v5), Gymnasium id (CartPole-v1) or redline/Catch-v0."""

    size: int = 84
    """Height and width in pixels to which Atari frames are scaled; other envs keep their size."""

    stack: int = 4
    """How many of the newest frames make one observation."""

    skip: int = 4
    """Emulator frames for which an action is repeated in Atari games; other envs take one per step."""

    max_episode_frames: int = 108_000
    """Emulator frames after which an episode is truncated, not terminated: 108,000 are 30 minutes of play."""

    def __post_init__(self) -> None:
        check_range("env.size", self.size, 16, 256)
        check_range("env.stack", self.stack, 1, 16)
        check_range("env.skip", self.skip, 1, 16)
        check_range("env.max-episode-frames", self.max_episode_frames, self.skip, MAX_FRAMES)  # at least one step
