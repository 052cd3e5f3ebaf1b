"""Returns: discounting, the steps a return spans, and reward clipping."""

from dataclasses import dataclass

import numpy as np

from redline.errors import UserError
from redline.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class Discounted:
    """What the returns of every family have."""

    gamma: float = 0.99
    """Discount per step."""
    clip_rewards: bool = True
    """Clip rewards to [−1, 1] for learning; scores are always reported unclipped."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.gamma <= 1.0:
            raise UserError(f"returns.gamma is {self.gamma}, but a discount lies between 0 and 1")


@dataclass(frozen=True)
class NStep(Discounted):
    """Sum `n` discounted rewards, then bootstrap; fewer where the return or the episode ends."""

    n: int = 1
    """Steps that a return spans before it bootstraps."""

    def __post_init__(self) -> None:
        if not 1 <= self.n <= 64:
            raise UserError(f"returns.n is {self.n}, but a return spans 1 to 64 steps")
        super().__post_init__()


def steps_spanned(ends: BoolArray) -> IntArray:
    """Return m, 1 … n: the steps up to and including the first end, or n if there is none; `ends` is [B, n]."""
    n_steps = ends.shape[1]
    spanned: IntArray = np.where(ends.any(1), ends.argmax(1) + 1, n_steps)  # [B]
    return spanned


def discounted_rewards(reward: FloatArray, offset: IntArray, gamma: float) -> FloatArray:
    """Return the discounted sum of the first `offset` rewards of each row; `reward` is [B, n]."""
    steps = np.arange(reward.shape[1])
    weight = np.where(steps < offset[:, None], gamma**steps, 0.0)  # [B, n] float64
    total: FloatArray = (weight * reward).sum(1).astype(np.float32)  # [B]
    return total


def bootstrap_discounts(return_ends: BoolArray, offset: IntArray, gamma: float) -> FloatArray:
    """Return γ^m, or 0 where the return ended with step m; `return_ends` is [B, n]."""
    ended = return_ends[np.arange(len(offset)), offset - 1]
    return np.where(ended, 0.0, gamma**offset).astype(np.float32)  # [B]


@dataclass(frozen=True)
class Traces(Discounted):
    """λ-returns: mix bootstrapped returns of all lengths within a rollout."""

    trace: float = 0.95
    """λ: 0 bootstraps after every step, 1 only where a rollout or an episode ends."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.trace <= 1.0:
            raise UserError(f"returns.trace is {self.trace}, but λ lies between 0 and 1")
        super().__post_init__()


def generalised_advantages(
    reward: FloatArray, value: FloatArray, following: FloatArray, discount: FloatArray, trace: FloatArray
) -> FloatArray:
    """Return the advantages [T, N] of the actions of a rollout (arXiv:1506.02438).

    `following` is the value of what really followed each step, `discount` γ or 0 where the return ended, `trace` λ or
    0 where what comes next in the rollout is not what followed. With λ = 1 these are n-step advantages.
    """
    error = reward + discount * following - value
    advantage = np.zeros_like(reward)
    last = np.zeros_like(reward[0])
    for t in range(len(reward) - 1, -1, -1):
        last = error[t] + discount[t] * trace[t] * last
        advantage[t] = last
    return advantage


def lambda_returns(reward: FloatArray, following: FloatArray, discount: FloatArray, trace: FloatArray) -> FloatArray:
    """Return Q(λ)'s targets [T, N] (arXiv:2407.04811): what follows is valued by itself and by its own return.

    Arguments as in `generalised_advantages`; the last step of a rollout has nothing but the value of what follows.
    """
    target = np.zeros_like(reward)
    later = following[-1]
    for t in range(len(reward) - 1, -1, -1):
        target[t] = reward[t] + discount[t] * (trace[t] * later + (1.0 - trace[t]) * following[t])
        later = target[t]
    return target
