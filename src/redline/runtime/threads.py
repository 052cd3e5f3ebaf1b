"""Thread counts follow from the configuration and the cores, never from timing."""

import os
from dataclasses import dataclass

from redline.errors import UserError


@dataclass(frozen=True)
class Threads:
    """Threads for each kind of work; 0 lets Redline choose."""

    learner: int = 0
    """Threads of the learner (0: all cores for pictures, 1 for vectors)."""
    envs: int = 0
    """Threads that step native environments (0: all cores, at most one per env)."""

    def __post_init__(self) -> None:
        for name, count in (("learner", self.learner), ("envs", self.envs)):
            if not 0 <= count <= 1024:
                raise UserError(f"threads.{name} is {count}: use 0 to let Redline choose, or 1 to 1024")

    def settle(self, *, is_image: bool, num_envs: int) -> "Threads":
        """Return the counts that will be used, none of them 0."""
        cores = usable_cores()
        return Threads(
            learner=self.learner or (cores if is_image else 1),
            envs=self.envs or min(cores, num_envs),
        )


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
