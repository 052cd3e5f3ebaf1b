"""Settings that change while training runs, as pure functions of the step count."""

from dataclasses import dataclass

from redline.errors import check_range


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
        check_range("over-steps", self.over_steps, 1)
        check_range("after-steps", self.after_steps, 0)

    def at(self, steps: int) -> float:
        """Return the value after `steps` steps."""
        done = min(max(steps - self.after_steps, 0) / self.over_steps, 1.0)
        return self.start + (self.end - self.start) * done
