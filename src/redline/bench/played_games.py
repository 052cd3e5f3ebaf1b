"""Games played at random and kept in memory, so that every contender is given the same experience."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from redline.envs import stacking
from redline.envs.catalog import make_vector_env
from redline.envs.config import EnvConfig
from redline.experience import ReplayMemory
from redline.types import Array, BoolArray, FloatArray, IntArray

LANES = 8
STACK = 4
Progress = Callable[[int], None]  # told the transitions played so far


@dataclass(frozen=True)
class Transitions:
    """One step of every lane as most replay memories take it: whole stacks."""

    state: Array  # [L, K, *frame]
    next_state: Array  # [L, K, *frame]
    action: IntArray  # [L]
    reward: FloatArray  # [L]
    terminated: BoolArray  # [L]
    truncated: BoolArray  # [L]

    @property
    def done(self) -> BoolArray:
        """Where the episode is over, for whatever reason."""
        return self.terminated | self.truncated


@dataclass(frozen=True)
class PlayedGame:
    """What a game showed: T steps in L lanes, each frame once."""

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

    def transitions(self, stack: int = STACK) -> Iterator[Transitions]:
        """Return the steps in order, with the stacks that an actor saw."""
        state = stacking.begin(self.begin_frames, stack)
        for t in range(self.num_steps):
            next_state = stacking.push(state, self.frames[t])
            step = Transitions(state, next_state, self.action[t], self.reward[t], self.terminated[t], self.truncated[t])
            yield step
            state = stacking.restart(next_state, step.done, self.first_frames.get(t, next_state))

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
    progress: Progress | None = None,
) -> PlayedGame:
    """Play a game with random actions until `num_transitions` are kept, rounded up to whole vector steps."""
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
            if progress is not None:
                progress((t + 1) * lanes)
    finally:
        env.close()
    return PlayedGame(
        game, begin_frames, frames, first_frames, action, reward, return_ends, terminated, truncated, spec.num_actions
    )
