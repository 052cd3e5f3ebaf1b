"""How many updates are due: samples trained per step, by one rule in every topology."""

from dataclasses import dataclass

TAKES_PER_UPDATE = 16  # most vector steps between two updates in unpaced mode


@dataclass(frozen=True)
class Pacing:
    """The replay ratio: samples per step, counted from the end of the warm-up."""

    samples_per_step: float
    warmup_steps: int
    is_free: bool = False  # unpaced: one update after the other, however many steps are played meanwhile

    def is_learning(self, steps: int) -> bool:
        """Tell whether the warm-up is over."""
        return steps > self.warmup_steps

    def updates_due(self, *, steps: int, samples: int, batch_size: int, since: tuple[int, int] = (0, 0)) -> int:
        """Return how many updates of `batch_size` the steps played so far have earned and not yet had.

        A pure function of the counters. It counts samples, not updates, so the batch size may change midway. `since`
        are the steps and samples when unpaced mode last ran: nothing is owed from before.
        """
        if self.is_free:
            return int(self.is_learning(steps))
        free_steps, free_samples = since
        earned = (steps - max(self.warmup_steps, free_steps)) * self.samples_per_step
        return max(0, int((earned - (samples - free_samples)) // batch_size))

    def achieved(self, *, steps: int, samples: int) -> float | None:
        """Return the replay ratio since the warm-up."""
        learning_steps = steps - self.warmup_steps
        return samples / learning_steps if learning_steps > 0 else None

    def horizon_vector_steps(self, *, batches_ahead: int, batch_size: int, num_envs: int) -> int:
        """Return the most vector steps that pass between drawing a batch and learning from it."""
        if batches_ahead == 0:
            return 0
        if self.is_free:
            return (batches_ahead + 1) * TAKES_PER_UPDATE
        return int(batches_ahead * batch_size / self.samples_per_step // num_envs) + 2
