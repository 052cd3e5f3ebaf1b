"""Which chunks leave next: whole, sealed, and oldest first across lanes."""

from __future__ import annotations

from collections import deque

from redline.experience.chunk_pool import ChunkPool
from redline.experience.layout import ReplayLayout


class Retention:
    """Sealed chunks in the order in which they were sealed.

    The front of the queue is *doomed*: it could be evicted within the horizon, so no row of it is offered. Rows drawn
    from the rest stay readable for `horizon_steps` vector steps, because what the lanes can write until then frees no
    more than the doomed chunks.
    """

    def __init__(self, layout: ReplayLayout, pool: ChunkPool) -> None:
        self._capacity = layout.capacity
        self._reserve_slots = layout.chunks_opened_within_horizon
        self._reserve_transitions = layout.lanes * layout.horizon_steps
        self._pool = pool
        self.doomed: deque[int] = deque()  # slots
        self.sealed: deque[int] = deque()  # slots
        self.num_transitions = 0  # kept, in chunks of any kind
        self.num_safe = 0  # kept, and not doomed

    @property
    def order(self) -> list[int]:
        """Slots of all sealed chunks, oldest first."""
        return [*self.doomed, *self.sealed]

    @property
    def is_overfull(self) -> bool:
        """Whether more is kept than was asked for."""
        return self.num_transitions > self._capacity

    @property
    def is_doom_due(self) -> bool:
        """Whether another chunk could be evicted within the horizon."""
        return (
            self.num_safe + self._reserve_transitions > self._capacity
            or len(self._pool.free) + len(self.doomed) < self._reserve_slots
        )

    def count(self, transitions: int) -> None:
        """Account for transitions just completed."""
        self.num_transitions += transitions
        self.num_safe += transitions

    def doom_oldest(self) -> int:
        """Withdraw the oldest chunk that is not doomed yet; return its slot."""
        slot = self.sealed.popleft()
        self.doomed.append(slot)
        self.num_safe -= int(self._pool.num_transitions[slot])
        return slot

    def evict_oldest(self) -> int:
        """Remove the oldest doomed chunk; return its slot."""
        slot = self.doomed.popleft()
        self.num_transitions -= int(self._pool.num_transitions[slot])
        return slot
