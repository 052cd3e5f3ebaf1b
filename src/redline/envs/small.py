"""Two small envs of our own: a game of pixels that any learner masters in minutes, and a slow simulator."""

import time
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.spaces import Box, Discrete

from redline.types import Array

SLEEP_S = 0.005


class Catch(gymnasium.Env[Array, np.int64]):
    """A ball falls over a 12 × 12 grid drawn as 84 × 84 pixels; under it a paddle of three: +1 if caught, −1 if not.

    Actions: stay, left, right. The ball drifts by at most one column per row, so the paddle can always reach it.
    """

    observation_space = Box(0, 255, (84, 84), np.uint8)
    action_space = Discrete(3)
    GRID: ClassVar[int] = 12
    CELL: ClassVar[int] = 7
    MOVES: ClassVar[tuple[int, ...]] = (0, -1, 1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._row = 0
        self._column = int(self.np_random.integers(self.GRID))
        self._drift = int(self.np_random.integers(-1, 2))
        self._paddle = self.GRID // 2
        return self._drawn(), {}

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self._paddle = int(np.clip(self._paddle + self.MOVES[action], 1, self.GRID - 2))
        self._row += 1
        if not 0 <= self._column + self._drift < self.GRID:
            self._drift = -self._drift
        self._column += self._drift
        done = self._row == self.GRID - 1
        caught = abs(self._column - self._paddle) <= 1
        reward = (1.0 if caught else -1.0) if done else 0.0
        return self._drawn(), reward, done, False, {}

    def _drawn(self) -> Array:
        grid = np.zeros((self.GRID, self.GRID), np.uint8)
        grid[-1, self._paddle - 1 : self._paddle + 2] = 128
        grid[self._row, self._column] = 255
        return grid.repeat(self.CELL, axis=0).repeat(self.CELL, axis=1)


class SleepyCartPole(CartPoleEnv):
    """CartPole whose every step takes 5 ms without computing: stands for a slow simulator."""

    def step(self, action: Any) -> Any:
        time.sleep(SLEEP_S)
        return super().step(action)  # type: ignore[no-untyped-call]


def register() -> None:
    """Make both known to Gymnasium."""
    gymnasium.register("redline/Catch-v0", entry_point=f"{__name__}:Catch")
    sleepy = f"{__name__}:SleepyCartPole"
    gymnasium.register("redline/SleepyCartPole-v0", entry_point=sleepy, max_episode_steps=500)
