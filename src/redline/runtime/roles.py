"""Who runs where: what a user can choose about each role of a run, and what Redline chooses instead.

Thread counts follow from the configuration and the cores, never from timing.
"""

import math
import os
from dataclasses import dataclass

from redline.errors import UserError

EVALUATION_EVERY_MINUTES = 5.0  # beside asynchronous training, unless the user says otherwise
TARGET_EVALUATION_EVERY_MINUTES = 0.5  # the same where the run waits for an evaluation to reach its target
MOST = 1024  # threads, or environments


@dataclass(frozen=True)
class ActorConfig:
    """What each actor has."""

    envs: int = 0
    """Environments of each actor (0: --num-envs shared out evenly)."""
    device: str | None = None
    """Where actors compute, if not where --device says."""
    threads: int = 0
    """Threads that step native environments, in each actor (0: all cores, at most one per env)."""
    sync_steps: int = 32
    """Steps that an actor plays between two looks for newer weights (--topology async)."""

    def __post_init__(self) -> None:
        _require_count("actor.envs", self.envs, lowest=0, otherwise="0 to share --num-envs out, or ")
        _require_count("actor.threads", self.threads, lowest=0, otherwise="0 to let Redline choose, or ")
        _require_count("actor.sync-steps", self.sync_steps, lowest=1, highest=1_000_000)


@dataclass(frozen=True)
class LearnerConfig:
    """What the learner has."""

    device: str | None = None
    """Where the learner computes, if not where --device says."""
    threads: int = 0
    """Threads of the learner (0: all cores for pictures, 1 for vectors)."""

    def __post_init__(self) -> None:
        _require_count("learner.threads", self.threads, lowest=0, otherwise="0 to let Redline choose, or ")


@dataclass(frozen=True)
class EvaluatorConfig:
    """How whole episodes are played without exploration while a run trains."""

    every_minutes: float | None = None
    """Minutes between two evaluations beside training (--topology async: 5 if not given, 0: none)."""
    episodes: int = 5
    """Episodes of each evaluation."""
    envs: int = 1
    """Environments that the evaluator plays side by side."""
    device: str | None = None
    """Where the evaluator computes, if not where --device says."""
    threads: int = 1
    """Threads of the evaluator, for its network and for native environments."""

    def __post_init__(self) -> None:
        every = self.every_minutes
        if every is not None and not (math.isfinite(every) and every >= 0.0):
            raise UserError(f"evaluator.every-minutes is {every}: use 0 for no evaluation, or a number above 0")
        _require_count("evaluator.episodes", self.episodes, lowest=1, highest=1_000_000)
        _require_count("evaluator.envs", self.envs, lowest=1)
        _require_count("evaluator.threads", self.threads, lowest=1)


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _require_count(name: str, count: int, *, lowest: int, highest: int = MOST, otherwise: str = "") -> None:
    if not lowest <= count <= highest:
        raise UserError(f"{name} is {count}: use {otherwise}{max(lowest, 1)} to {highest:_}")
