"""Games played at random and held in memory, so that every contender gets the same experience."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from redline.envs.catalog import make_vector_env
from redline.envs.config import EnvConfig
from redline.replay import ReplayMemory
from redline.types import Array, BoolArray, FloatArray, IntArray

LANES = 8
STACK = 4


@dataclass(frozen=True)
class PlayedGame:
    """A game that was played: T steps in L lanes, each frame once."""

    game: str
    begin_frames: Array  # [L, *frame] before the first step
    frames: Array  # [T, L, *frame] after each action; the episode's final frame where it ended
    first_frames: dict[int, Array]  # step → [L, *frame] first of the next episodes; only where one ended
    action: IntArray  # [T, L]
    reward: FloatArray  # [T, L] unclipped
    return_ends: BoolArray  # [T, L] terminated, or a life lost
    terminated: BoolArray  # [T, L]
    truncated: BoolArray  # [T, L]
    num_actions: int

    @property
    def num_steps(self) -> int:
        """Steps of each lane."""
        return len(self.frames)

    @property
    def lanes(self) -> int:
        """Lanes."""
        return int(self.frames.shape[1])

    @property
    def num_transitions(self) -> int:
        """Steps of all lanes."""
        return self.num_steps * self.lanes

    def put_into(self, memory: ReplayMemory, *, num_steps: int | None = None) -> None:
        """Append the first `num_steps` of each lane, or all, as one more stretch of play."""
        lanes = memory.lanes
        memory.cut(lanes)
        memory.begin(lanes, self.begin_frames)
        for t in range(self.num_steps if num_steps is None else min(num_steps, self.num_steps)):
            memory.append(
                lanes,
                actions=self.action[t],
                reward=self.reward[t],
                return_ends=self.return_ends[t],
                episode_ends=self.terminated[t] | self.truncated[t],
                frames=self.frames[t],
                first_frames=self.first_frames.get(t, self.frames[t]),
            )


def play_game(
    game: str,
    *,
    num_transitions: int,
    seed: int,
    lanes: int = LANES,
    threads: int = 0,
) -> PlayedGame:
    """Play `num_transitions` of a game with random actions, rounded up to whole vector steps."""
    num_steps = -(-num_transitions // lanes)
    rng = np.random.default_rng(seed)
    env = make_vector_env(EnvConfig(id=game, stack=STACK), num_envs=lanes, seed=seed, threads=threads or lanes)
    try:
        spec = env.spec
        begin_frames = env.reset().copy()
        frames = np.empty((num_steps, lanes, *spec.frame_shape), spec.frame_dtype)
        reward = np.empty((num_steps, lanes), np.float32)
        return_ends, terminated, truncated = (np.empty((num_steps, lanes), np.bool_) for _ in range(3))
        action = rng.integers(spec.num_actions, size=(num_steps, lanes))
        first_frames: dict[int, Array] = {}
        for t in range(num_steps):
            env.send(action[t])
            step = env.recv()
            frames[t], reward[t] = step.frames, step.reward
            terminated[t], truncated[t] = step.terminated, step.truncated
            return_ends[t] = step.return_ends
            if step.ended.any():
                first_frames[t] = step.first_frames.copy()
    finally:
        env.close()
    return PlayedGame(
        game, begin_frames, frames, first_frames, action, reward, return_ends, terminated, truncated, spec.num_actions
    )
