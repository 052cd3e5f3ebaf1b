"""Settings that change while training runs, as pure functions of the step count."""

from dataclasses import dataclass

from redline.errors import UserError


@dataclass(frozen=True)
class Linear:
    """A straight line from `start` to `end`, constant before and after."""

    start: float = 1.0
    """Value at step 0."""
    end: float = 0.01
    """Value at the end, after `over-steps`."""
    over_steps: int = 250_000
    """Steps (not frames) that the change takes."""
    after_steps: int = 0
    """Steps before it begins."""

    def __post_init__(self) -> None:
        if self.over_steps < 1:
            raise UserError(f"over-steps is {self.over_steps}, but a schedule takes at least 1 step")
        if self.after_steps < 0:
            raise UserError(f"after-steps is {self.after_steps}: use 0 or more")

    def at(self, steps: int) -> float:
        """Return the value after `steps` steps."""
        done = min(max(steps - self.after_steps, 0) / self.over_steps, 1.0)
        return self.start + (self.end - self.start) * done
