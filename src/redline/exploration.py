"""How an actor departs from its greedy action."""

from dataclasses import dataclass, field

import numpy as np

from redline.errors import UserError
from redline.schedules import Linear
from redline.types import IntArray


@dataclass(frozen=True)
class EpsilonGreedy:
    """Take a uniformly random action with probability ε, decided for each env on its own."""

    epsilon: Linear = field(default_factory=Linear)
    """ε over the steps of the run; during the warm-up it is 1."""

    def __post_init__(self) -> None:
        for value in (self.epsilon.start, self.epsilon.end):
            if not 0.0 <= value <= 1.0:
                raise UserError(f"explore.epsilon is a probability, but {value} is not between 0 and 1")

    def epsilon_at(self, steps: int) -> float:
        """Return ε after `steps` steps."""
        return self.epsilon.at(steps)


def epsilon_greedy(greedy: IntArray, *, epsilon: float, num_actions: int, rng: np.random.Generator) -> IntArray:
    """Replace each greedy action [N] by a random one with probability `epsilon`, one coin per env."""
    is_random = rng.random(len(greedy)) < epsilon  # [N]
    return np.where(is_random, rng.integers(num_actions, size=len(greedy)), greedy)
