"""Random numbers as a function of (seed, purpose, index): nothing to save, nothing to restore, nothing to race."""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a stream of random numbers is for; the value is part of the stream, so never renumber."""

    ACT = 1  # index: vector steps before this one
    DRAW = 2  # index: batches drawn before this one
    LEARN = 3  # index: updates before this one
    EVALUATE = 4  # index: vector steps of an evaluation before this one


def stream(seed: int, purpose: Purpose, index: int) -> np.random.Generator:
    """Return the generator for one event of a run."""
    # Philox counts in its lowest word while drawing, so the words above it keep the streams apart
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, int(purpose), index]))
