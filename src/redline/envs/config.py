"""The settings of an env."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from redline.errors import UserError

MAX_FRAMES = 2**31 - 1


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
        _require("size", self.size, lowest=16, highest=256)
        _require("stack", self.stack, lowest=1, highest=16)
        _require("skip", self.skip, lowest=1, highest=16)
        if self.max_episode_frames > MAX_FRAMES:
            raise UserError(
                f"env.max_episode_frames is {self.max_episode_frames}: the emulator counts to {MAX_FRAMES:_}"
            )
        if self.max_episode_frames < self.skip:
            raise UserError(
                f"env.max_episode_frames is {self.max_episode_frames}, less than one step of {self.skip} frames:"
                f" use --env.max-episode-frames {self.skip} or more"
            )


def _require(field: str, value: int, *, lowest: int, highest: int) -> None:
    if not lowest <= value <= highest:
        nearest = min(max(value, lowest), highest)
        raise UserError(
            f"env.{field} is {value}, not within {lowest} … {highest}: the nearest is --env.{field} {nearest}"
        )
