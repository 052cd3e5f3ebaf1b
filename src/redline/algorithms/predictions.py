"""What is predicted for each action, an expected return or a distribution; and how the next state is valued."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from redline.errors import UserError, check_positive, check_range
from redline.losses import huber, project_atoms, quantile_huber, td_target

Predict = Callable[[], torch.Tensor]  # what a network predicts for the next states, [B, A, outputs]


@runtime_checkable
class Prediction(Protocol):
    """What is predicted for each action; it owns its loss."""

    def num_outputs(self) -> int:
        """Return the number of network outputs per action."""

    def values(self, out: torch.Tensor) -> torch.Tensor:
        """Turn network outputs [B, A, outputs] into expected values [B, A]."""

    def losses(
        self, predicted: torch.Tensor, following: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compare predicted and following [B, outputs]; return a loss [B] and a priority [B]."""


@dataclass(frozen=True)
class Expected(Prediction):
    """The expected return, learnt with the Huber loss."""

    huber_delta: float = 1.0
    """Error beyond which the loss grows linearly."""

    def __post_init__(self) -> None:
        check_positive("predict.huber-delta", self.huber_delta)

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


@dataclass(frozen=True)
class Categorical(Prediction):
    """Probabilities of returns on fixed atoms, learnt by cross-entropy (arXiv:1707.06887)."""

    atoms: int = 51
    """Atoms between the lowest and the highest return."""
    low: float = -10.0
    """Lowest return that can be predicted; ±10 suits clipped rewards, the support is per domain."""
    high: float = 10.0
    """Highest return that can be predicted."""

    def __post_init__(self) -> None:
        check_range("predict.atoms", self.atoms, 2, 4_096)
        if not -math.inf < self.low < self.high < math.inf:
            raise UserError(f"predict.low is {self.low} and predict.high {self.high}: use finite numbers, low < high")

    def num_outputs(self) -> int:
        return self.atoms

    def values(self, out: torch.Tensor) -> torch.Tensor:
        support = torch.linspace(self.low, self.high, self.atoms, device=out.device)
        return out.softmax(-1) @ support  # [B, A]

    def losses(
        self, predicted: torch.Tensor, following: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        target = project_atoms(following.softmax(-1), reward, discount, low=self.low, high=self.high)  # [B, atoms]
        cross_entropy = -(target * predicted.log_softmax(-1)).sum(-1)  # [B]
        # the KL divergence, as in Rainbow: cross-entropy minus the entropy of the target
        return cross_entropy, (cross_entropy.detach() + torch.xlogy(target, target).sum(-1)).clamp(min=0.0)


@dataclass(frozen=True)
class Quantiles(Prediction):
    """Returns at evenly spaced quantiles, learnt with the quantile Huber loss (arXiv:1710.10044)."""

    quantiles: int = 200
    """Quantiles of the return."""
    kappa: float = 1.0
    """Error beyond which the loss grows linearly."""

    def __post_init__(self) -> None:
        check_range("predict.quantiles", self.quantiles, 1, 4_096)
        check_positive("predict.kappa", self.kappa)

    def num_outputs(self) -> int:
        return self.quantiles

    def values(self, out: torch.Tensor) -> torch.Tensor:
        return out.mean(-1)  # [B, A]

    def losses(
        self, predicted: torch.Tensor, following: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        target = td_target(reward[:, None], discount[:, None], following)  # [B, quantiles]
        loss = quantile_huber(predicted, target, self.kappa)
        return loss, loss.detach()


@runtime_checkable
class Bootstrap(Protocol):
    """Which action the value of the next state is read at."""

    def following(self, *, online: Predict, target: Predict, predict: Prediction) -> torch.Tensor:
        """Return the prediction [B, outputs] for the next state; a network that is not called costs nothing."""


@dataclass(frozen=True)
class TargetChooses(Bootstrap):
    """The target network both chooses the next action and values it."""

    def following(self, *, online: Predict, target: Predict, predict: Prediction) -> torch.Tensor:
        out = target()  # [B, A, outputs]
        return take_actions(out, predict.values(out).argmax(dim=1))


@dataclass(frozen=True)
class OnlineChooses(Bootstrap):
    """The online network chooses the next action, the target network values it (arXiv:1509.06461)."""

    def following(self, *, online: Predict, target: Predict, predict: Prediction) -> torch.Tensor:
        return take_actions(target(), predict.values(online()).argmax(dim=1))


def take_actions(out: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Select out[b, action[b]] from [B, A, outputs]; gives [B, outputs]."""
    index = action[:, None, None].expand(-1, 1, out.shape[2])  # [B, 1, outputs]
    return out.gather(1, index).squeeze(1)


def best_values(values: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return mean and maximum over the states of the best action's value; `values` is [B, A]."""
    best = values.amax(1)
    return {"mean_q": best.mean(), "largest_q": best.max()}
