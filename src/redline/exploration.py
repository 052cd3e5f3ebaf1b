"""Exploration: how an actor chooses an action from preferences."""

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from redline.errors import UserError
from redline.schedules import Linear
from redline.types import FloatArray, IntArray


@runtime_checkable
class Exploration(Protocol):
    """Chooses actions from preferences."""

    def evaluation_epsilon(self) -> float:
        """Share of random actions when the agent is evaluated."""
        return 0.0

    def epsilon_at(self, steps: int) -> float:
        """Return the share of random actions after `steps` steps; during the warm-up all are random anyway."""
        return 0.0

    def choose(self, preferences: FloatArray, *, epsilon: float, rng: np.random.Generator) -> IntArray:
        """Choose an action for each row of preferences [N, A]: the best one, or a random one with probability ε."""
        return epsilon_greedy(preferences.argmax(axis=1), epsilon=epsilon, num_actions=preferences.shape[1], rng=rng)


@dataclass(frozen=True)
class EpsilonGreedy(Exploration):
    """Take a uniformly random action with probability ε, drawn for each env."""

    epsilon: Linear = field(default_factory=Linear)
    """ε over the steps of the run; during the warm-up it is 1."""
    evaluation: float = 0.05
    """ε in evaluations, as in the algorithm's paper."""

    def __post_init__(self) -> None:
        for value in (self.epsilon.start, self.epsilon.end, self.evaluation):
            if not 0.0 <= value <= 1.0:
                raise UserError(f"explore.epsilon is a probability, but {value} is not between 0 and 1")

    def evaluation_epsilon(self) -> float:
        return self.evaluation

    def epsilon_at(self, steps: int) -> float:
        return self.epsilon.at(steps)


@dataclass(frozen=True)
class Greedy(Exploration):
    """Take the best action: the network's own noise explores; only the warm-up is random."""


@dataclass(frozen=True)
class Sampled(Exploration):
    """Draw the action from the policy: preferences are logits."""

    def choose(self, preferences: FloatArray, *, epsilon: float, rng: np.random.Generator) -> IntArray:
        # the largest of logits + Gumbel noise is a draw from their softmax
        drawn: IntArray = (preferences + rng.gumbel(size=preferences.shape)).argmax(axis=1)
        return drawn


def epsilon_greedy(greedy: IntArray, *, epsilon: float, num_actions: int, rng: np.random.Generator) -> IntArray:
    """Replace each greedy action [N] by a random one with probability `epsilon`, one coin per env."""
    is_random = rng.random(len(greedy)) < epsilon  # [N]
    return np.where(is_random, rng.integers(num_actions, size=len(greedy)), greedy)
