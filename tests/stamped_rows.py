"""Checks of rows that the probe `redline/Stamped-v0` gave: a row that is not whole shows it."""

import numpy as np

from redline.envs.probe import STAMP_BYTES, STAMPED_SHAPE, stamped_frame, stamped_outcome
from redline.types import Array


def read_stamp(frame: Array) -> tuple[int, int] | None:
    """Return seed and step of a picture, or None if any pixel is not as it should be."""
    seed, step = np.ascontiguousarray(frame).reshape(-1)[:STAMP_BYTES].view("<u4").tolist()
    return (seed, step) if np.array_equal(frame, stamped_frame(seed, step)) else None


def stamped_row_error(
    frames: Array, *, action: int, reward: float, terminated: bool, truncated: bool | None = None
) -> str | None:
    """Say what is wrong with a row of K + 1 frames: the state, of zeros before an episode, and the frame that follows.

    Where it can't be told whether an episode was cut, `truncated` is None.
    """
    stamp = read_stamp(frames[-2])
    if stamp is None:
        return "the newest frame of the state is torn"
    seed, step = stamp
    for age in range(-1, len(frames) - 1):
        expected = stamped_frame(seed, step - age) if age <= step else np.zeros(STAMPED_SHAPE, np.uint8)
        if not np.array_equal(frames[-2 - age], expected):
            return f"frame {-age} from step {step} of episode {seed} is {read_stamp(frames[-2 - age]) or 'torn'}"
    outcome = stamped_outcome(seed, step, action)
    told = (reward, terminated, outcome[2] if truncated is None else truncated)
    return None if told == outcome else f"step {step} of episode {seed} gives {outcome}, not {told}"
