"""Prefetched batches: the caller draws rows, and a thread gathers their bytes while the caller computes.

The content of a batch is fixed when its rows are submitted. The thread only copies and decodes bytes that cannot change
or leave before it is done, so it needs no lock, and writers of the memory never wait for it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, Self

from redline.replay.batches import BatchT, Buffers
from redline.replay.frame_store import FrameStore
from redline.replay.memory import ReplayMemory
from redline.types import Array, Draw


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
        self._gatherer = _Gatherer() if prefetch else None

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
        if self._gatherer is None:
            memory.frames.read(plan, buffers.frames)
        else:
            self._gatherer.start(memory.frames, plan, buffers.frames)
        self._pending.append((draw, self._free.pop()))  # last: a failure must not lose buffers

    def take(self, count: int) -> list[tuple[Draw, BatchT]]:
        """Return the oldest batches, up to a group; they are overwritten after the next call."""
        taken = [self._pending.popleft() for _ in range(count)]
        self._free += self._in_hand
        self._in_hand = [buffers for _, buffers in taken]
        if self._gatherer is not None:
            for _ in taken:
                self._gatherer.finish_oldest()
        return [(draw, buffers.batch) for draw, buffers in taken]

    def clear(self) -> None:
        """Drop what is pending."""
        while self._pending:
            self.take(1)

    def close(self) -> None:
        """End the thread."""
        if self._gatherer is not None:
            self._gatherer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Gatherer:
    """A thread that reads frames, one batch after the other."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[tuple[FrameStore, Any, Array] | None] = SimpleQueue()
        self._done: SimpleQueue[Exception | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="redline-gather", daemon=True)
        self._thread.start()

    def start(self, frames: FrameStore, plan: Any, out: Array) -> None:
        """Queue a batch."""
        self._waiting.put((frames, plan, out))

    def finish_oldest(self) -> None:
        """Wait for the oldest batch not waited for yet; raise what its reading raised."""
        if not self._thread.is_alive() and self._done.empty():
            raise RuntimeError("the loader is closed: no more batches will come")
        error = self._done.get()
        if error is not None:
            raise error

    def close(self) -> None:
        """Let the thread finish its queue, and wait for it; closing twice is harmless."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (batch := self._waiting.get()) is not None:
            frames, plan, out = batch
            try:
                frames.read(plan, out)
            except Exception as error:
                self._done.put(error)
            else:
                self._done.put(None)
