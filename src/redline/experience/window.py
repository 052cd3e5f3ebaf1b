"""Which frames of a window were really seen: pure arithmetic for stacks of K frames and returns of n steps."""

from __future__ import annotations

import numpy as np

from redline.types import Array, BoolArray, IntArray


def needed_frames(step: Array, offset: IntArray, *, stack: int, n_steps: int) -> BoolArray:
    """Mark the frames of a window that were seen: after the episode's start, up to the state that follows."""
    position = np.arange(1 - stack, n_steps + 1)  # [K + n], 0 is the frame at which the transition starts
    needed: BoolArray = (position >= -step[:, None]) & (position <= offset[:, None])  # [B, K + n]
    return needed
