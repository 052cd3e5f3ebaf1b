"""The parts that value learners are made of: what they predict, how they bootstrap, what moves the weights."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch

from redline.errors import UserError
from redline.experience import PrioritizedSampler, ReplayMemory, Sampler, UniformSampler
from redline.losses import huber, td_target
from redline.schedules import Linear


@runtime_checkable
class Prediction(Protocol):
    """What is predicted for each action; it owns its loss."""

    def num_outputs(self) -> int:
        """Return how many numbers the network gives for each action."""
        ...

    def values(self, out: torch.Tensor) -> torch.Tensor:
        """Turn network outputs [B, A, outputs] into expected values [B, A]."""
        ...

    def losses(
        self, predicted: torch.Tensor, following: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compare predicted and following [B, outputs]; return a loss [B] and a priority [B]."""
        ...


@dataclass(frozen=True)
class Expected(Prediction):
    """The expected return, learnt with the Huber loss."""

    huber_delta: float = 1.0
    """Error beyond which the loss grows linearly."""

    def __post_init__(self) -> None:
        if not 0.0 < self.huber_delta < math.inf:
            raise UserError(f"predict.huber-delta is {self.huber_delta}: use a finite number above 0")

    def num_outputs(self) -> int:
        return 1

    def values(self, out: torch.Tensor) -> torch.Tensor:
        return out.squeeze(-1)  # [B, A]

    def losses(
        self, predicted: torch.Tensor, following: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        target = td_target(reward, discount, following.squeeze(-1))  # [B]
        value = predicted.squeeze(-1)  # [B]
        return huber(value, target, self.huber_delta), (target - value.detach()).abs()


@runtime_checkable
class Bootstrap(Protocol):
    """Which action the value of the next state is read at."""

    def following(
        self, next_frames: torch.Tensor, online: torch.nn.Module, target: torch.nn.Module, predict: Prediction
    ) -> torch.Tensor:
        """Return what the target network predicts [B, outputs] for the action that is chosen."""
        ...


@dataclass(frozen=True)
class TargetChooses(Bootstrap):
    """The target network both chooses the next action and values it."""

    def following(
        self, next_frames: torch.Tensor, online: torch.nn.Module, target: torch.nn.Module, predict: Prediction
    ) -> torch.Tensor:
        out = target(next_frames)  # [B, A, outputs]
        return take_actions(out, predict.values(out).argmax(dim=1))


def take_actions(out: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Select out[b, action[b]] from [B, A, outputs]; gives [B, outputs]."""
    index = action[:, None, None].expand(-1, 1, out.shape[2])  # [B, 1, outputs]
    return out.gather(1, index).squeeze(1)


@runtime_checkable
class Sampling(Protocol):
    """Which transitions an update learns from."""

    def build(self, memory: ReplayMemory) -> Sampler:
        """Return the sampler of a memory."""
        ...

    def beta_at(self, steps: int) -> float:
        """Return how fully weights make up for the choice after `steps` steps."""
        ...


@dataclass(frozen=True)
class Uniform:
    """All transitions alike."""

    def build(self, memory: ReplayMemory) -> Sampler:
        """Return the sampler of a memory."""
        return UniformSampler(memory)

    def beta_at(self, steps: int) -> float:
        """Return 1: all weights are 1 anyway."""
        return 1.0


@dataclass(frozen=True)
class Prioritized:
    """In proportion to |δ|^α (Schaul et al. 2016, arXiv:1511.05952, the proportional variant)."""

    alpha: float = 0.6
    """How much priorities matter: 1 fully; towards 0 all transitions become alike."""
    beta: Linear = field(default_factory=lambda: Linear(0.4, 1.0, over_steps=12_500_000))
    """How fully importance weights make up for the choice; 1 from 50 M frames on."""
    epsilon: float = 1e-6
    """Added to every |δ|, so that none is never drawn again."""

    def __post_init__(self) -> None:
        if not 0.0 < self.alpha <= 1.0:
            raise UserError(f"sample.alpha is {self.alpha}: use a number above 0, up to 1; 0 is --sample uniform")
        if not 0.0 < self.epsilon < math.inf:
            raise UserError(f"sample.epsilon is {self.epsilon}: use a finite number above 0")
        if not (0.0 <= self.beta.start <= 1.0 and 0.0 <= self.beta.end <= 1.0):
            raise UserError(f"sample.beta goes from {self.beta.start} to {self.beta.end}: use numbers from 0 to 1")

    def build(self, memory: ReplayMemory) -> Sampler:
        """Return the sampler of a memory."""
        return PrioritizedSampler(memory, alpha=self.alpha, epsilon=self.epsilon)

    def beta_at(self, steps: int) -> float:
        """Return β after `steps` steps."""
        return self.beta.at(steps)


SAMPLINGS: dict[str, Sampling] = {"uniform": Uniform(), "prioritized": Prioritized()}


@dataclass(frozen=True)
class Adam:
    """Adam, fused into one pass over the parameters."""

    lr: float = 1e-4
    """Learning rate."""
    eps: float = 1.5e-4
    """Added to the denominator; large, as is usual for DQN, so that small gradients stay small."""

    def __post_init__(self) -> None:
        for name, value in (("lr", self.lr), ("eps", self.eps)):
            if not 0.0 < value < math.inf:
                raise UserError(f"optimizer.{name} is {value}: use a finite number above 0")

    def build(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """Return the optimiser over `parameters`."""
        return torch.optim.Adam(parameters, lr=self.lr, eps=self.eps, fused=True)
