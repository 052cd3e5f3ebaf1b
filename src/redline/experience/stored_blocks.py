"""Which sealed chunks are on disk already, and where: blocks of consecutive chunks, oldest first."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

Location = Any  # whatever the store returned: a JSON value


@dataclass(frozen=True)
class StoredBlock:
    """Consecutive chunks that were stored together."""

    location: Location
    num_chunks: int
    num_transitions: int


class StoredBlocks:
    """The blocks that hold the oldest chunks of a memory; those at the front of the first may have left it."""

    def __init__(self) -> None:
        self.blocks: deque[StoredBlock] = deque()
        self.num_gone = 0  # chunks of the first block that are no longer in the memory

    @property
    def num_chunks(self) -> int:
        """Chunks of the memory that are stored: the oldest."""
        return sum(block.num_chunks for block in self.blocks) - self.num_gone

    def forget_oldest(self) -> None:
        """Note that the oldest chunk has left the memory."""
        if not self.blocks:
            return
        self.num_gone += 1
        if self.num_gone == self.blocks[0].num_chunks:
            self.blocks.popleft()
            self.num_gone = 0
