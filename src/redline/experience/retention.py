"""Which chunks leave next: whole, sealed, and oldest first across lanes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from redline.experience.chunk_pool import ChunkPool
from redline.experience.frame_store import FrameStore
from redline.experience.layout import ReplayLayout


class Retention:
    """Sealed chunks in the order in which they were sealed.

    The front of the queue is *doomed*: it could be evicted within the horizon, so no row of it is offered. Rows drawn
    from the rest stay readable for `horizon_steps` vector steps, because what the lanes can write until then frees no
    more than the doomed chunks.
    """

    def __init__(self, layout: ReplayLayout, pool: ChunkPool, frames: FrameStore) -> None:
        self._capacity = layout.capacity
        self._reserve_slots = layout.chunks_opened_within_horizon
        self._reserve_transitions = layout.lanes * layout.horizon_steps
        self._reserve_bytes = layout.chunks_opened_within_horizon * layout.max_blob_bytes
        self._pool = pool
        self._frames = frames
        self._queue: npt.NDArray[np.int32] = np.zeros(layout.num_slots + 1, np.int32)  # a ring of slots
        self.num_sealed = 0  # chunks ever sealed
        self.num_doomed = 0  # of those, withdrawn; the oldest
        self.num_evicted = 0  # of those, gone
        self.num_transitions = 0  # kept, in chunks of any kind
        self._safe_transitions = 0  # kept, and not doomed
        self._safe_bytes = 0  # of sealed frames, not doomed

    @property
    def num_bytes(self) -> int:
        """Bytes of the queue."""
        return self._queue.nbytes

    @property
    def order(self) -> list[int]:
        """Slots of all sealed chunks that are held, oldest first."""
        return self.slots(self.num_evicted, self.num_sealed)

    def slots(self, start: int, stop: int) -> list[int]:
        """Return the slots of chunks that were sealed as number `start` … `stop` − 1."""
        found: list[int] = self._queue[np.arange(start, stop) % len(self._queue)].tolist()
        return found

    @property
    def is_overfull(self) -> bool:
        """Whether more is kept than was asked for."""
        return self.num_transitions > self._capacity

    @property
    def is_doom_due(self) -> bool:
        """Whether another chunk could be evicted within the horizon."""
        budget = self._frames.budget_bytes
        return self.num_doomed < self.num_sealed and (
            self._safe_transitions + self._reserve_transitions > self._capacity
            or len(self._pool.free) + self.num_doomed - self.num_evicted < self._reserve_slots
            or (budget is not None and self._safe_bytes + self._reserve_bytes > budget)
        )

    def count(self, transitions: int) -> None:
        """Account for transitions just completed."""
        self.num_transitions += transitions
        self._safe_transitions += transitions

    def add(self, slot: int, num_bytes: int) -> None:
        """Append a chunk that was just sealed."""
        self._queue[self.num_sealed % len(self._queue)] = slot
        self.num_sealed += 1
        self._safe_bytes += num_bytes

    def doom_oldest(self) -> int:
        """Withdraw the oldest chunk that is not doomed yet; return its slot."""
        slot = int(self._queue[self.num_doomed % len(self._queue)])
        self.num_doomed += 1
        self._safe_transitions -= int(self._pool.num_transitions[slot])
        self._safe_bytes -= self._frames.sealed_bytes(slot)
        return slot

    def evict_oldest(self) -> int:
        """Remove the oldest doomed chunk; return its slot."""
        slot = int(self._queue[self.num_evicted % len(self._queue)])
        self.num_evicted += 1
        self.num_transitions -= int(self._pool.num_transitions[slot])
        return slot
