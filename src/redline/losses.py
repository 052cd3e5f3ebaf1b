"""Losses on value predictions: pure functions of tensors, one number per row."""

from typing import Any

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


def project_atoms(
    probabilities: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor, *, low: float, high: float
) -> torch.Tensor:
    """Shift and shrink a distribution over atoms from `low` to `high`, and put it back onto the same atoms.

    `probabilities` is [B, atoms]. Each atom's mass goes to its two neighbours by nearness, all of it to one that it
    meets exactly; what falls outside goes to the end (arXiv:1707.06887, algorithm 1).
    """
    atoms = probabilities.shape[1]
    support = torch.linspace(low, high, atoms, device=probabilities.device)
    shifted = td_target(reward[:, None], discount[:, None], support).clamp(low, high)  # [B, atoms]
    position = (shifted - low) * ((atoms - 1) / (high - low))
    below = position.floor().long().clamp(0, atoms - 1)
    above = (below + 1).clamp(max=atoms - 1)
    share = position - below  # of the mass that goes up: 0 where an atom is met exactly
    projected = torch.zeros_like(probabilities)
    projected.scatter_add_(1, below, probabilities * (1.0 - share))
    projected.scatter_add_(1, above, probabilities * share)
    return projected


def quantile_huber(predicted: torch.Tensor, target: torch.Tensor, kappa: float) -> torch.Tensor:
    """Return the quantile Huber loss [B] between predicted quantiles [B, N] and samples of the target [B, M].

    Quantile i stands for τ = (i + ½) / N; an error is weighted by τ where the target lies above it, by 1 − τ where
    below. Summed over the quantiles, averaged over the targets (arXiv:1710.10044, equation 10).
    """
    loss: torch.Tensor = _QuantileHuber.apply(predicted, target, kappa)  # type: ignore[no-untyped-call]
    return loss


class _QuantileHuber(torch.autograd.Function):
    """The loss and its gradient in one go: [B, N, M] is large, and what autograd would keep of it several times so."""

    @staticmethod
    def forward(ctx: Any, predicted: torch.Tensor, target: torch.Tensor, kappa: float) -> torch.Tensor:
        count = predicted.shape[1]
        tau = ((torch.arange(count, dtype=predicted.dtype, device=predicted.device) + 0.5) / count)[:, None]  # [N, 1]
        error = target[:, None, :] - predicted[:, :, None]  # [B, N, M]
        slope = error.clamp(-kappa, kappa)
        weighted = torch.where(error < 0.0, 1.0 - tau, tau).mul_(slope).div_(kappa)
        ctx.save_for_backward(weighted.mean(dim=2))  # [B, N] how much the loss falls as a prediction rises
        # clamped · (error − clamped / 2) is the Huber loss, quadratic within κ and linear beyond
        return error.sub_(slope.mul_(0.5)).mul_(weighted).mean(dim=2).sum(dim=1)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (fall,) = ctx.saved_tensors
        return -gradient[:, None] * fall, None, None


def clipped_surrogate(ratio: torch.Tensor, advantage: torch.Tensor, clip: float) -> torch.Tensor:
    """Return PPO's objective as a loss [B]: no gain from moving a ratio beyond 1 ± clip (arXiv:1707.06347)."""
    return -torch.minimum(ratio * advantage, ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)


def normalised(advantage: torch.Tensor) -> torch.Tensor:
    """Return advantages of any shape with mean 0 and standard deviation 1 over all of them."""
    if advantage.numel() < 2:
        return advantage
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)


def entropy(log_probabilities: torch.Tensor) -> torch.Tensor:
    """Return the entropy [B] of distributions [B, A]."""
    return -(log_probabilities.exp() * log_probabilities).sum(dim=1)
