"""Which transitions an update learns from: uniform or prioritised."""

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from redline.errors import UserError, check_positive
from redline.replay import PrioritizedSampler, ReplayMemory, Sampler, UniformSampler
from redline.schedules import Linear


@runtime_checkable
class Sampling(Protocol):
    """Which transitions an update learns from."""

    def build(self, memory: ReplayMemory) -> Sampler:
        """Return the sampler of a memory."""

    def beta_at(self, steps: int) -> float:
        """Return how fully weights correct for the choice after `steps` steps."""


@dataclass(frozen=True)
class Uniform(Sampling):
    """All transitions with the same probability."""

    def build(self, memory: ReplayMemory) -> Sampler:
        return UniformSampler(memory)

    def beta_at(self, steps: int) -> float:
        return 1.0  # all weights are 1 anyway


@dataclass(frozen=True)
class Prioritized(Sampling):
    """In proportion to |δ|^α (Schaul et al. 2016, arXiv:1511.05952, the proportional variant)."""

    alpha: float = 0.6
    """How much priorities matter: 1 fully; towards 0 sampling becomes uniform."""
    beta: Linear = field(default_factory=lambda: Linear(0.4, 1.0, over_steps=12_500_000))
    """How fully importance weights correct for the choice; 1 from 50 M frames on."""
    epsilon: float = 1e-6
    """Added to every |δ|, so that each can be drawn again."""

    def __post_init__(self) -> None:
        if not 0.0 < self.alpha <= 1.0:
            raise UserError(f"sample.alpha is {self.alpha}: use a number above 0, up to 1; 0 is --sample uniform")
        check_positive("sample.epsilon", self.epsilon)
        if not (0.0 <= self.beta.start <= 1.0 and 0.0 <= self.beta.end <= 1.0):
            raise UserError(f"sample.beta goes from {self.beta.start} to {self.beta.end}: use numbers from 0 to 1")

    def build(self, memory: ReplayMemory) -> Sampler:
        return PrioritizedSampler(memory, alpha=self.alpha, epsilon=self.epsilon)

    def beta_at(self, steps: int) -> float:
        return self.beta.at(steps)
