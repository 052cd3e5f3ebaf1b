"""Cutting windows: pure arithmetic on what was stored, for stacks of K frames and returns of n steps."""

from __future__ import annotations

import numpy as np

from redline.types import BoolArray, FloatArray, IntArray


def steps_spanned(ends: BoolArray) -> IntArray:
    """Return m, 1 … n: the steps up to and with the first end, or n if there is none; `ends` is [B, n]."""
    n_steps = ends.shape[1]
    spanned: IntArray = np.where(ends.any(1), ends.argmax(1) + 1, n_steps)  # [B]
    return spanned


def needed_frames(step: IntArray, offset: IntArray, *, stack: int, n_steps: int) -> BoolArray:
    """Mark the frames of a window that were seen: after the episode's start, up to the state that follows."""
    position = np.arange(1 - stack, n_steps + 1)  # [K + n], 0 is the frame at which the transition starts
    return (position >= -step[:, None]) & (position <= offset[:, None])  # [B, K + n]


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
