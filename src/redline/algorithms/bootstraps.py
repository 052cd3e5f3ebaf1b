"""How the next state is valued: which network chooses the action, which one values it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from redline.algorithms.predictions import Prediction, take_actions

Predict = Callable[[], torch.Tensor]  # what a network predicts for the next states, [B, A, outputs]


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
