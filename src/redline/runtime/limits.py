"""When a run is done."""

import math
from dataclasses import dataclass

from redline.errors import UserError
from redline.runtime.counters import Counters, Scores

SOLVED = "solved"  # the reason for which a run ends that has reached its target of evaluations


@dataclass(frozen=True)
class Limits:
    """Whichever is reached first ends the run; steps, frames and episodes are totals over all resumes."""

    max_steps: int | None = 10_000_000
    """Steps (decisions of the agent) in total."""
    max_frames: int | None = None
    """Emulator frames in total (steps × frame skip)."""
    max_episodes: int | None = None
    """Episodes in total."""
    max_minutes: float | None = None
    """Minutes of this invocation."""
    target_return: float | None = None
    """Stop when the mean return of the last 100 episodes reaches this."""
    target_eval_return: float | None = None
    """Evaluate while training, and stop when the mean of 10 episodes reaches this and 30 further ones confirm it."""

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_frames", "max_episodes", "max_minutes"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UserError(f"{name.replace('_', '-')} is {value}, but a limit is above 0 (or None for no limit)")
        for name in ("target_return", "target_eval_return"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise UserError(f"{name.replace('_', '-')} is {value}: use a finite number, or None for no target")

    def reached(self, counters: Counters, scores: Scores, *, frames_per_step: int, invocation_s: float) -> str | None:
        """Return which limit a run has reached, in words, if any."""
        if (target := self._target_reached(scores)) is not None:
            return target
        if self.max_steps is not None and counters.steps >= self.max_steps:
            return f"max-steps {self.max_steps:,} reached"
        if self.max_frames is not None and counters.steps * frames_per_step >= self.max_frames:
            return f"max-frames {self.max_frames:,} reached"
        if self.max_episodes is not None and counters.episodes >= self.max_episodes:
            return f"max-episodes {self.max_episodes:,} reached"
        if self.max_minutes is not None and invocation_s >= self.max_minutes * 60:
            return f"max-minutes {self.max_minutes:g} reached"
        return None

    def _target_reached(self, scores: Scores) -> str | None:
        if self.is_solved(scores):
            return SOLVED
        if self.target_return is not None and scores.reached(self.target_return):
            return f"target-return {self.target_return:g} reached"
        return None

    def is_solved(self, scores: Scores) -> bool:
        """Tell whether the target of evaluations was reached, and confirmed."""
        target, met = self.target_eval_return, scores.solved_target
        return target is not None and met is not None and met >= target

    def total_steps(self, *, frames_per_step: int) -> int | None:
        """Return the steps after which `max_steps` or `max_frames` ends the run."""
        totals = [self.max_steps, -(-self.max_frames // frames_per_step) if self.max_frames is not None else None]
        return min((total for total in totals if total is not None), default=None)
