"""The parts that value learners are made of: what they predict, how they bootstrap, what moves the weights."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from redline.errors import UserError
from redline.losses import huber, td_target


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
