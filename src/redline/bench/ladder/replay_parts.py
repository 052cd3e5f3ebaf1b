"""Replay for the plain loop: whole stacks copied, or each frame kept once in Redline's memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch

from redline.bench.ladder.env_parts import StackedStep
from redline.bench.ladder.task import GAMMA, SAMPLES_PER_STEP
from redline.experience import BatchBuffers, BatchLoader, ReplayLayout, ReplayMemory, UniformSampler
from redline.runtime.pacing import Pacing
from redline.types import Array, Batch, IntArray


class Transitions(NamedTuple):
    """What one update learns from; B rows of K stacked frames."""

    state: torch.Tensor  # [B, K, *frame] uint8
    action: torch.Tensor  # [B] int64
    reward: torch.Tensor  # [B]
    next_state: torch.Tensor  # [B, K, *frame] uint8
    discount: torch.Tensor  # [B] γ, or 0 where the return ends

    def cut(self) -> Transitions:
        """Return it as it is."""
        return self


class Windows(NamedTuple):
    """The same with each frame once; a copy of it to a GPU is one block, unlike those of the stacks that overlap."""

    frames: torch.Tensor  # [B, K + 1, *frame] uint8
    action: torch.Tensor  # [B] int64
    reward: torch.Tensor  # [B]
    discount: torch.Tensor  # [B]

    def cut(self) -> Transitions:
        """Return the two stacks of each window, as views."""
        return Transitions(self.frames[:, :-1], self.action, self.reward, self.frames[:, 1:], self.discount)


Drawn = Transitions | Windows


@dataclass(frozen=True)
class Room:
    """What a replay must be made for."""

    obs_shape: tuple[int, ...]  # [N, K, *frame]
    capacity: int
    batch_size: int
    pin_memory: bool


class Replay(Protocol):
    """Keeps what was played, and draws from it uniformly."""

    def begin(self, obs: Array) -> None:
        """Note the first observations [N, K, *frame]."""
        ...

    def add(self, obs: Array, actions: IntArray, step: StackedStep) -> None:
        """Keep one step of all lanes that began at `obs`."""
        ...

    def next_batch(self, rng: np.random.Generator) -> Drawn:
        """Return rows drawn at random; overwritten after the next call."""
        ...

    def close(self) -> None:
        """Give memory and threads back."""
        ...


class ReplayPart(Protocol):
    """A recipe for a replay."""

    def bytes_per_transition(self, obs_bytes: int) -> int:
        """Return what a transition takes at most, from the bytes of one observation."""
        ...

    def make(self, room: Room) -> Replay:
        """Return an empty replay."""
        ...


@dataclass(frozen=True)
class Stacks:
    """Both observations of every transition, copied whole."""

    def bytes_per_transition(self, obs_bytes: int) -> int:
        """Return the bytes of two observations."""
        return 2 * obs_bytes

    def make(self, room: Room) -> Replay:
        """Return an empty replay."""
        return _StackReplay(room)


@dataclass(frozen=True)
class FramesOnce:
    """Redline's replay memory: each frame once, stacks are cut when rows are drawn."""

    codec: str = "raw"
    prefetch: int = 0  # updates whose rows are drawn ahead, and gathered by a thread meanwhile

    def bytes_per_transition(self, obs_bytes: int) -> int:
        """Return the bytes of one frame, which compression can only lower."""
        return obs_bytes // 4

    def make(self, room: Room) -> Replay:
        """Return an empty memory."""
        return _FrameReplay(room, codec=self.codec, prefetch=self.prefetch)


class _StackReplay:
    def __init__(self, room: Room) -> None:
        num_envs, *shape = room.obs_shape
        self._capacity, self._batch_size = room.capacity, room.batch_size
        self._state = np.empty((room.capacity, *shape), np.uint8)
        self._next_state = np.empty_like(self._state)
        self._action = np.empty(room.capacity, np.int64)
        self._reward = np.empty(room.capacity, np.float32)
        self._discount = np.empty(room.capacity, np.float32)
        self._offsets = np.arange(num_envs)
        self._written = 0

    def begin(self, obs: Array) -> None:
        pass

    def add(self, obs: Array, actions: IntArray, step: StackedStep) -> None:
        at = (self._written + self._offsets) % self._capacity
        self._state[at] = obs
        self._next_state[at] = step.obs
        self._action[at] = actions
        self._reward[at] = step.reward
        self._discount[at] = np.where(step.return_ends, 0.0, GAMMA)
        self._written += len(at)

    def next_batch(self, rng: np.random.Generator) -> Transitions:
        at = rng.integers(min(self._written, self._capacity), size=self._batch_size)
        columns = (self._state, self._action, self._reward, self._next_state, self._discount)
        return Transitions(*(torch.from_numpy(column[at]) for column in columns))

    def close(self) -> None:
        pass


class _FrameReplay:
    def __init__(self, room: Room, *, codec: str, prefetch: int) -> None:
        num_envs, stack, *frame_shape = room.obs_shape
        pacing = Pacing(samples_per_step=SAMPLES_PER_STEP, warmup_steps=0)
        horizon = pacing.horizon_vector_steps(batches_ahead=prefetch, batch_size=room.batch_size, num_envs=num_envs)
        layout = ReplayLayout(
            capacity=room.capacity,
            frame_shape=tuple(frame_shape),
            frame_dtype="uint8",
            stack=stack,
            lanes=num_envs,
            horizon_steps=horizon,
            codec=codec,
        )
        self._batch_size = room.batch_size
        self._memory = ReplayMemory(layout)
        self._sampler = UniformSampler(self._memory)
        self._loader: BatchLoader[Batch] = BatchLoader(
            self._memory,
            make_buffers=lambda: BatchBuffers(layout, batch_size=room.batch_size, pin_memory=room.pin_memory),
            gamma=GAMMA,
            clip_rewards=False,  # they come as they are to be learnt from
            prefetch=prefetch,
        )

    def begin(self, obs: Array) -> None:
        self._memory.begin(self._memory.lanes, obs[:, -1])

    def add(self, obs: Array, actions: IntArray, step: StackedStep) -> None:
        self._memory.append(
            self._memory.lanes,
            actions=actions,
            reward=step.reward,
            return_ends=step.return_ends,
            episode_ends=step.ended,
            frames=step.obs[:, -1],
            first_frames=step.next_obs[:, -1],
        )

    def next_batch(self, rng: np.random.Generator) -> Windows:
        while self._loader.is_short_of(1):
            self._loader.submit(self._sampler.draw(rng, self._batch_size))
        ((_, batch),) = self._loader.take(1)
        return Windows(batch.frames, batch.action, batch.reward, batch.discount)

    def close(self) -> None:
        self._loader.close()
        self._memory.close()
