"""A window: what one candidate did in a few seconds, as its process tells it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


class CandidateLostError(Exception):
    """A candidate can't be measured any more, for the reason that it says."""


@dataclass(frozen=True)
class RoleUse:
    """What one process of a candidate took in a window."""

    cores: float
    memory_bytes: int


@dataclass(frozen=True)
class Window:
    """What a candidate did in one window."""

    steps: int
    updates: int
    seconds: float
    others_percent: float = 0.0  # share of all cores that other processes used meanwhile
    weights_age_updates: float = 0.0
    gpu_memory_bytes: int | None = None  # of an inline run; None without a GPU
    phases: Mapping[str, float] = field(default_factory=dict)  # share of an inline run's time by phase
    waits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # share of the time by role and reason
    roles: Mapping[str, RoleUse] = field(default_factory=dict)

    @property
    def steps_per_s(self) -> float:
        """Speed in the window."""
        return self.steps / self.seconds
