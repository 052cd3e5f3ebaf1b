"""Which transitions an update learns from: the interface of samplers, and the uniform sampler."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from redline.replay.lane_table import Bounds
from redline.replay.memory import ReplayMemory
from redline.types import Array, Draw, Handles


class Sampler(Protocol):
    """Chooses transitions; may adapt to their priorities."""

    wants_priorities: bool  # whether `update` has any effect

    def draw(self, rng: np.random.Generator, batch_size: int, *, beta: float = 1.0) -> Draw:
        """Draw rows; `beta` is how fully their weights correct for the choice."""

    def update(self, handles: Handles, priorities: Array) -> None:
        """Set how surprising each transition was."""

    def state(self) -> dict[str, Array]:
        """Return what `load_state` needs to continue with the same draws."""

    def load_state(self, arrays: dict[str, Array]) -> None:
        """Load a saved state, once the memory is restored."""


class UniformSampler:
    """Draws every sampleable transition with the same probability, with replacement."""

    wants_priorities = False

    def __init__(self, memory: ReplayMemory) -> None:
        self._memory = memory
        self._bounds: Bounds | None = None

    def draw(self, rng: np.random.Generator, batch_size: int, *, beta: float = 1.0) -> Draw:
        """Draw `batch_size` rows of weight 1; one call of the generator whatever the memory holds."""
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

    def update(self, handles: Handles, priorities: Array) -> None:
        """Ignore priorities: all transitions are alike."""

    def state(self) -> dict[str, Array]:
        """Return nothing: the memory holds all state."""
        return {}

    def load_state(self, arrays: dict[str, Array]) -> None:
        """Load nothing."""
