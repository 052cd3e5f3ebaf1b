"""What a contender did in a window of steady training: counts and the clock, read at the same point of its loop."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from redline.bench.other_work import own_cpu_s


@dataclass(frozen=True)
class Reading:
    """Counters of a training at one moment."""

    time_s: float
    steps: int
    updates: int


@dataclass
class SteadyWindow:
    """Opens once `opens_at_steps` are played and learning is under way, closes `seconds` later.

    With `every_steps` it opens and closes only after a multiple of so many steps: at the end of a rollout, before it is
    learnt from, so that the window holds as much learning as playing.
    """

    seconds: float
    opens_at_steps: int
    every_steps: int = 1
    first: Reading | None = None
    last: Reading | None = None
    cpu_s: float = 0.0  # in the window, of this process and its children
    returns_in_window: list[float] = field(default_factory=list)  # unclipped
    returns_before: list[float] = field(default_factory=list)

    def read(self, *, steps: int, updates: int) -> bool:
        """Take a reading between two vector steps; return whether the window has closed."""
        if steps % self.every_steps:
            return False
        now = Reading(time.perf_counter(), steps, updates)
        if self.first is None:
            if steps >= self.opens_at_steps and updates > 0:
                self.first, self.cpu_s = now, -own_cpu_s()
            return False
        self.last = now
        if now.time_s - self.first.time_s < self.seconds:
            return False
        self.cpu_s += own_cpu_s()
        return True

    def add_return(self, value: float) -> None:
        """Take in the unclipped return of an episode that ended."""
        (self.returns_before if self.first is None else self.returns_in_window).append(value)

    def row(self) -> dict[str, Any]:
        """Return what happened in the window."""
        if self.first is None or self.last is None:
            raise RuntimeError("the training ended before its window did")
        window_s = self.last.time_s - self.first.time_s
        steps, updates = self.last.steps - self.first.steps, self.last.updates - self.first.updates
        return {
            "steps_per_s": steps / window_s,
            "updates_per_s": updates / window_s,
            "updates_per_step": updates / steps,
            "cores_used": self.cpu_s / window_s,
            "window_s": window_s,
            "steps": steps,
            "updates": updates,
            "first_step": self.first.steps,
            "episodes": len(self.returns_in_window),
            "mean_return": _mean(self.returns_in_window),
            "mean_return_with_warmup": _mean([*self.returns_before, *self.returns_in_window]),
        }


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
