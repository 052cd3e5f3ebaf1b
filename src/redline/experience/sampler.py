"""Which transitions an update learns from."""

from __future__ import annotations

import numpy as np

from redline.experience.memory import Bounds, ReplayMemory
from redline.types import Draw, Handles


class UniformSampler:
    """Draws every sampleable transition with the same probability, with replacement."""

    def __init__(self, memory: ReplayMemory) -> None:
        self._memory = memory
        self._bounds: Bounds | None = None

    def draw(self, rng: np.random.Generator, batch_size: int) -> Draw:
        """Draw `batch_size` rows; one call of the generator whatever the memory holds."""
        bounds = self._memory.bounds()
        if bounds is not self._bounds:
            self._bounds = bounds
            self._ends = np.cumsum(bounds.size)
            self._base = bounds.first - (self._ends - bounds.size)
        total = int(self._ends[-1])
        if total == 0:
            raise LookupError("no transition can be drawn yet: append more steps first")
        position = (rng.random(batch_size) * total).astype(np.int64)  # integers() takes twice as long
        row = self._ends.searchsorted(position, side="right")
        handles = Handles(lane=row + self._memory.table.first_lane, number=self._base[row] + position)
        return Draw(handles, weight=np.ones(batch_size, np.float32), bounds=bounds)
