"""A small replay memory whose content is known: two lanes, every kind of ending, frames that tell their place."""

import numpy as np

from redline.replay import ReplayLayout, ReplayMemory
from redline.types import Array


def frame_of(lane: int, time: int, shape: tuple[int, ...], dtype: str) -> Array:
    """Return the frame that lane `lane` showed as its `time`-th."""
    values = 40 * lane + 3 * time + np.arange(np.prod(shape)).reshape(shape) % 7
    return values.astype(dtype)


def make_memory(
    shape: tuple[int, ...] = (6, 5), dtype: str = "uint8", *, stack: int = 3, codec: str = "zstd"
) -> ReplayMemory:
    """Play a script of eight steps in two lanes.

    Lane 0: an episode of 3 steps that terminates, then one of 2 that is truncated, then 3 steps under way.
    Lane 1: a life is lost at the second step, the episode terminates at the sixth, then 2 steps under way.
    """
    layout = ReplayLayout(
        capacity=200, frame_shape=shape, frame_dtype=dtype, stack=stack, lanes=2, chunk_frames=4, codec=codec
    )
    memory = ReplayMemory(layout)
    seen = [0, 0]

    def show(lanes: tuple[int, ...]) -> Array:
        frames = np.zeros((2, *shape), dtype)
        for lane in lanes:
            frames[lane] = frame_of(lane, seen[lane], shape, dtype)
            seen[lane] += 1
        return frames

    memory.begin(memory.lanes, show((0, 1)))
    terminated = {(0, 2), (1, 5)}
    truncated = {(0, 4)}
    life_lost = {(1, 1)}
    for time in range(8):
        places = [(lane, time) for lane in (0, 1)]
        over = np.array([place in terminated | truncated for place in places])
        frames = show((0, 1))
        memory.append(
            memory.lanes,
            actions=np.array([time % 3, 1]),
            reward=np.array([time == 2, -2.0 * (time == 5)], np.float32),
            return_ends=np.array([place in terminated | life_lost for place in places]),
            episode_ends=over,
            frames=frames,
            first_frames=show(tuple(np.flatnonzero(over).tolist())),
        )
    return memory
