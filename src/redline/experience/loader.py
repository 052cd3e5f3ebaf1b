"""Batches ahead of their time: rows are drawn by the caller, bytes are moved by a thread while it computes.

What a batch holds is decided when its rows are submitted. The thread only copies and decodes bytes that cannot change
or go away before then, so it needs no lock, and nobody who writes to the memory ever waits for it.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from redline.experience.gather import BatchBuffers, plan_batch
from redline.experience.memory import ReplayMemory
from redline.types import Batch, Draw


class BatchLoader:
    """Turns draws into batches, in their order; with `prefetch` 0 there is no thread."""

    def __init__(
        self,
        memory: ReplayMemory,
        *,
        batch_size: int,
        n_steps: int = 1,
        gamma: float,
        clip_rewards: bool,
        prefetch: int = 0,
        pin_memory: bool = False,
    ) -> None:
        self._memory = memory
        self._gamma = gamma
        self._clip_rewards = clip_rewards
        self.prefetch = prefetch
        # one for each batch under way, and the one that the learner has in hand
        self._free = [
            BatchBuffers(memory.layout, batch_size=batch_size, n_steps=n_steps, pin_memory=pin_memory)
            for _ in range(prefetch + 2)
        ]
        self._in_hand: BatchBuffers | None = None
        self._pending: deque[tuple[Draw, BatchBuffers, Future[None] | None]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="redline-gather") if prefetch else None

    @property
    def pending(self) -> list[Draw]:
        """What was drawn and not yet learnt from, oldest first."""
        return [draw for draw, _, _ in self._pending]

    @property
    def is_due(self) -> bool:
        """Whether another draw belongs in the queue before the next batch is taken."""
        return len(self._pending) <= self.prefetch

    def submit(self, draw: Draw) -> None:
        """Queue rows that the memory offers now; whatever is written from now on makes no difference to them."""
        buffers = self._free.pop()
        plan = plan_batch(self._memory, draw, gamma=self._gamma, clip_rewards=self._clip_rewards, out=buffers)
        read = self._memory.frames.read
        if self._thread is None:
            read(plan, buffers.frames)
            self._pending.append((draw, buffers, None))
        else:
            self._pending.append((draw, buffers, self._thread.submit(read, plan, buffers.frames)))

    def next(self) -> tuple[Draw, Batch]:
        """Return the oldest batch; it is overwritten after the next call."""
        draw, buffers, gathered = self._pending.popleft()
        if gathered is not None:
            gathered.result()
        if self._in_hand is not None:
            self._free.append(self._in_hand)
        self._in_hand = buffers
        return draw, buffers.batch

    def clear(self) -> None:
        """Forget what is pending."""
        while self._pending:
            _, buffers, gathered = self._pending.popleft()
            if gathered is not None:
                gathered.result()
            self._free.append(buffers)

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
