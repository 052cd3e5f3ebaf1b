"""MinAtar's games (Young & Tian 2019) as a suite of Redline: pictures of 10 × 10, a boolean channel for each object."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from minatar import Environment

import redline

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
PIXELS = 16  # that a cell is drawn as, each way
COLOURS = np.array([(90, 200, 120), (240, 84, 84), (245, 180, 70), (80, 140, 250), (200, 120, 220), (120, 220, 220)])


class Game(gymnasium.Env[np.ndarray, np.int64]):
    """One game, with the actions that it knows."""

    def __init__(self, name: str) -> None:
        self.game = Environment(name)
        self.actions = self.game.minimal_action_set()
        self.observation_space = Box(0, 1, tuple(self.game.state_shape()), np.bool_)
        self.action_space = Discrete(len(self.actions))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.game.seed(seed)
        self.game.last_action = 0  # it would repeat an action of the game before
        self.game.reset()
        return self.game.state(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward, is_over = self.game.act(self.actions[action])
        return self.game.state(), float(reward), bool(is_over), False, {}


def draw(env: gymnasium.Env[Any, Any]) -> np.ndarray:
    """Return a picture [H, W, 3] with a colour for each channel."""
    state = env.unwrapped.game.state()  # type: ignore[attr-defined]
    picture = np.zeros((*state.shape[:2], 3), np.uint8)
    for channel in range(state.shape[2]):
        picture[state[..., channel]] = COLOURS[channel % len(COLOURS)]
    return picture.repeat(PIXELS, 0).repeat(PIXELS, 1)


SUITE = redline.Suite(
    names=GAMES,
    make=Game,
    presets={
        "any": {"network": {"name": "strided", "channels": [16, 32]}, "env": {"stack": 1}},
        "ppo": {
            "network": {"name": "strided", "channels": [16, 32]},
            "layers": "normed",
            "env": {"stack": 1},
            "optimizer": {"lr": 1e-3},
            "batch_size": 64,
            "epochs": 3,
        },
    },
    draw=draw,
)
