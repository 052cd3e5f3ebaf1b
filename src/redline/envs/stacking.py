"""How frames become an observation: the newest K, with zeros before an episode's first frame.

This is the emulator's own padding, byte for byte; the replay memory follows the same rule.
"""

import numpy as np

from redline.types import Array, BoolArray


def begin(frames: Array, stack: int) -> Array:
    """Return the stack of lanes that have just begun with `frames` [N, *frame]."""
    zeros = np.zeros((len(frames), stack, *frames.shape[1:]), frames.dtype)
    return push(zeros, frames)


def push(stack: Array, frames: Array) -> Array:
    """Return a new stack [N, K, *frame] whose newest frame, at K − 1, is `frames` [N, *frame]."""
    return np.concatenate([stack[:, 1:], frames[:, None]], axis=1)


def restart(stack: Array, lanes: BoolArray, first_frames: Array) -> Array:
    """Return the stack with `lanes` [N] begun anew: zeros, then their first frame; `stack` itself if there are none."""
    if not lanes.any():
        return stack
    fresh = stack.copy()
    fresh[lanes] = 0
    fresh[lanes, -1] = first_frames[lanes]
    return fresh
