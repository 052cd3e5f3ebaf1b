"""Losses on value predictions: pure functions of tensors, one number per row."""

import torch
from torch.nn import functional as F  # noqa: N812  the name every PyTorch reader knows


def td_target(reward: torch.Tensor, discount: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """Return reward + discount · value of what follows, all [B]; discount is 0 where the return ends."""
    return reward + discount * following


def huber(predicted: torch.Tensor, target: torch.Tensor, delta: float) -> torch.Tensor:
    """Return the Huber loss [B]: quadratic up to an error of `delta`, linear beyond."""
    return F.huber_loss(predicted, target, reduction="none", delta=delta)


def weighted_mean(loss: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the mean over all rows of weight · loss; a row of weight 0 still counts as a row."""
    return (loss * weight).mean()
