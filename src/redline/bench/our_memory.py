"""Redline's replay memory at work: filled with a played game, sampled, and written to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from redline.bench.measuring import Contender
from redline.bench.played_games import STACK, PlayedGame
from redline.experience import BatchBuffers, BatchLoader, ReplayLayout, ReplayMemory, UniformSampler, gather
from redline.experience.prioritized import PrioritizedSampler
from redline.types import Batch, Draw, Handles

BATCH_SIZE = 32
GAMMA = 0.99
ALPHA, BETA = 0.5, 0.4
SEED = 1


def layout_for(
    played: PlayedGame, *, codec: str, path: Path | None = None, chunk_frames: int | None = None
) -> ReplayLayout:
    """Return a layout that holds the whole game."""
    return ReplayLayout(
        capacity=played.num_transitions,
        frame_shape=played.frames.shape[2:],
        frame_dtype=str(played.frames.dtype),
        stack=STACK,
        lanes=played.lanes,
        codec=codec,
        path=path,
        chunk_frames=chunk_frames,
    )


def filled_memory(
    played: PlayedGame, *, codec: str, path: Path | None = None, chunk_frames: int | None = None
) -> ReplayMemory:
    """Return a memory that holds the whole game."""
    memory = ReplayMemory(layout_for(played, codec=codec, path=path, chunk_frames=chunk_frames))
    played.put_into(memory)
    return memory


def staging_bytes(memory: ReplayMemory) -> int:
    """Return the bytes of the buffers in which chunks are written: the same for any capacity."""
    layout = memory.layout
    return layout.num_stages * layout.frames_per_chunk * layout.frame_bytes


def bytes_per_transition(memory: ReplayMemory) -> float:
    """Return what a transition takes, with everything noted beside its frame; staging is not of any transition."""
    return (memory.used_bytes - staging_bytes(memory)) / memory.num_transitions


class Sampling:
    """Draws batches and hands over state and next state, as a learner asks for them."""

    def __init__(self, memory: ReplayMemory, *, prioritized: bool, prefetch: int) -> None:
        self._memory = memory
        self._rng = np.random.default_rng(SEED)
        self._priorities = self._rng.random((64, BATCH_SIZE))
        self._uniform = UniformSampler(memory)
        self._prioritized = PrioritizedSampler(memory, alpha=ALPHA) if prioritized else None
        self._prefetch = prefetch
        self._loader: BatchLoader[Batch] | None = None
        if prefetch:
            self._loader = BatchLoader(
                memory,
                make_buffers=lambda: BatchBuffers(memory.layout, batch_size=BATCH_SIZE),
                gamma=GAMMA,
                clip_rewards=True,
                prefetch=prefetch,
            )
        self._buffers = BatchBuffers(memory.layout, batch_size=BATCH_SIZE)
        self.last: tuple[torch.Tensor, torch.Tensor] | None = None  # what was handed over last

    def __call__(self, count: int) -> None:
        """Take `count` batches; all that is drawn ahead is taken too."""
        if self._loader is None:
            for i in range(count):
                draw = self._draw()
                batch = gather(self._memory, draw, gamma=GAMMA, clip_rewards=True, out=self._buffers)
                self._hand_over(batch, draw.handles, i)
            return
        for _ in range(min(self._prefetch, count)):
            self._loader.submit(self._draw())
        for i in range(count):
            if i + self._prefetch < count:
                self._loader.submit(self._draw())
            ((draw, batch),) = self._loader.take(1)
            self._hand_over(batch, draw.handles, i)

    def close(self) -> None:
        """End the thread that gathers."""
        if self._loader is not None:
            self._loader.close()

    def _draw(self) -> Draw:
        if self._prioritized is not None:
            return self._prioritized.draw(self._rng, BATCH_SIZE, beta=BETA)
        return self._uniform.draw(self._rng, BATCH_SIZE)

    def _hand_over(self, batch: Batch, handles: Handles, number: int) -> None:
        # one step: the state that follows begins a frame later in every row
        self.last = batch.frames[:, :STACK], batch.frames[:, 1:]
        if self._prioritized is not None:
            self._prioritized.update(handles, self._priorities[number % len(self._priorities)])


def inserting(memory: ReplayMemory, played: PlayedGame, num_steps: int) -> Contender:
    """Return what appends the first `num_steps` of each lane, again and again, to a memory that is full."""

    def insert(count: int) -> None:
        for _ in range(count):
            played.put_into(memory, num_steps=num_steps)

    return insert
