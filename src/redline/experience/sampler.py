"""Which transitions an update learns from."""

from __future__ import annotations

import numpy as np

from redline.experience.memory import ReplayMemory
from redline.types import Draw, Handles


class UniformSampler:
    """Draws every sampleable transition with the same probability, with replacement."""

    def __init__(self, memory: ReplayMemory) -> None:
        self._memory = memory

    def draw(self, rng: np.random.Generator, batch_size: int) -> Draw:
        """Draw `batch_size` rows; one call of the generator whatever the memory holds."""
        first, size = self._memory.intervals()
        ends = np.cumsum(size)
        total = int(ends[-1])
        if total == 0:
            raise LookupError("no transition can be drawn yet: append more steps first")
        position = rng.integers(total, size=batch_size)
        row = np.searchsorted(ends, position, side="right")
        number = first[row] + position - (ends[row] - size[row])
        handles = Handles(lane=row + self._memory.table.first_lane, number=number)
        return Draw(handles, weight=np.ones(batch_size, np.float32))
