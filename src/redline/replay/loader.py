"""Prefetched batches: the caller draws rows, and a thread gathers their bytes while the caller computes.

The content of a batch is fixed when its rows are submitted. The thread only copies and decodes bytes that cannot change
or leave before it is done, so it needs no lock, and writers of the memory never wait for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Generic, Self

from redline.replay.batches import BatchT, Buffers
from redline.replay.memory import ReplayMemory
from redline.types import Draw
from redline.worker import Worker


class BatchLoader(Generic[BatchT]):
    """Turns draws into batches, in their order; with `prefetch` 0 there is no thread."""

    def __init__(
        self,
        memory: ReplayMemory,
        *,
        make_buffers: Callable[[], Buffers[BatchT]],
        gamma: float,
        clip_rewards: bool,
        prefetch: int = 0,
        group: int = 1,
    ) -> None:
        self._memory = memory
        self._gamma = gamma
        self._clip_rewards = clip_rewards
        self.prefetch = prefetch
        # for each pending batch, and for those that the learner holds: up to a group
        self._free = [make_buffers() for _ in range(prefetch + 2 * group)]
        self._in_hand: list[Buffers[BatchT]] = []
        self._pending: deque[tuple[Draw, Buffers[BatchT]]] = deque()
        self._worker = Worker("redline-gather") if prefetch else None

    @property
    def pending(self) -> list[Draw]:
        """What was drawn and not yet learnt from; oldest first."""
        return [draw for draw, _ in self._pending]

    def is_short_of(self, count: int) -> bool:
        """Tell whether another draw belongs in the queue before the next `count` batches are taken."""
        return len(self._pending) < self.prefetch + count

    def submit(self, draw: Draw) -> None:
        """Queue rows that the memory offers now; later writes do not change them."""
        memory, buffers = self._memory, self._free[-1]
        plan = buffers.plan(memory, draw, gamma=self._gamma, clip_rewards=self._clip_rewards)
        if self._worker is None:
            memory.frames.read(plan, buffers.frames)
        else:
            self._worker.submit(partial(memory.frames.read, plan, buffers.frames))
        self._pending.append((draw, self._free.pop()))  # last: a failure must not lose buffers

    def take(self, count: int) -> list[tuple[Draw, BatchT]]:
        """Return the oldest batches, up to a group; they are overwritten after the next call."""
        taken = [self._pending.popleft() for _ in range(count)]
        self._free += self._in_hand
        self._in_hand = [buffers for _, buffers in taken]
        if self._worker is not None:
            for _ in taken:
                if self._worker.is_over:
                    raise RuntimeError("the loader is closed: no more batches will come")
                self._worker.result()
        return [(draw, buffers.batch) for draw, buffers in taken]

    def clear(self) -> None:
        """Drop what is pending."""
        while self._pending:
            self.take(1)

    def close(self) -> None:
        """End the thread."""
        if self._worker is not None:
            self._worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
