"""How much is learnt per step played: the one rule, in every topology."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pacing:
    """Samples per step, counted from the end of the warm-up."""

    samples_per_step: float
    warmup_steps: int

    def updates_due(self, *, steps: int, samples: int, batch_size: int) -> int:
        """Return how many updates of `batch_size` the steps played so far have earned and not yet had.

        A pure function of the counters. It counts samples, not updates, so the batch size may change midway.
        """
        earned = (steps - self.warmup_steps) * self.samples_per_step
        return max(0, int((earned - samples) // batch_size))

    def achieved(self, *, steps: int, samples: int) -> float | None:
        """Return the samples per step that a run really had since its warm-up."""
        learning_steps = steps - self.warmup_steps
        return samples / learning_steps if learning_steps > 0 else None

    def horizon_vector_steps(self, *, batches_ahead: int, batch_size: int, num_envs: int) -> int:
        """Return the most vector steps that pass between drawing a batch and learning from it."""
        steps = batches_ahead * batch_size / self.samples_per_step
        return 0 if batches_ahead == 0 else int(steps // num_envs) + 2
