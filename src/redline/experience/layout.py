"""The sizes of a replay memory, known before anything is allocated."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from redline.errors import UserError

MAX_FRAMES_PER_CHUNK = 64
CHUNKS_PER_LANE = 8  # at least, so that evicting one chunk never empties a lane
ROW_BYTES = 13  # action, reward, step and flags beside each frame
NUMBER_BYTES = 8
SMALL_FRAME_BYTES = 1_024  # below it, room for an extra frame per transition costs little


@dataclass(frozen=True)
class ReplayLayout:
    """Everything that decides how much memory a replay memory reserves and which rows it may offer."""

    capacity: int  # transitions kept
    frame_shape: tuple[int, ...]
    frame_dtype: str  # "uint8" or "float32"
    stack: int  # frames that make one observation
    lanes: int  # lanes written at the same time
    horizon_steps: int = 0  # vector steps for which a drawn row stays readable
    max_n_steps: int = 1  # the longest window that will be gathered
    chunk_frames: int | None = None  # frames per chunk; None chooses from capacity and lanes

    def __post_init__(self) -> None:
        for name in ("lanes", "stack", "max_n_steps", "frames_per_chunk"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.horizon_steps < 0:
            raise ValueError(f"horizon_steps must not be negative, got {self.horizon_steps}")
        if self.capacity < self.min_capacity:
            raise UserError(
                f"a replay of {self.capacity:_} transitions is too small for {self.lanes} lanes: "
                f"use --replay.capacity {self.min_capacity:_} or more"
            )

    @property
    def frames_per_chunk(self) -> int:
        """Frames in one chunk: the unit that is evicted and written to disk."""
        if self.chunk_frames is not None:
            return self.chunk_frames
        fair_share = max(self.capacity // (self.lanes * CHUNKS_PER_LANE), 1)
        return min(MAX_FRAMES_PER_CHUNK, 1 << (fair_share.bit_length() - 1))

    @property
    def min_capacity(self) -> int:
        """The fewest transitions with which eviction only ever needs sealed chunks, horizon included."""
        # a lane holds at most C + 1 frames in chunks that are not sealed, and needs one whole window besides
        unsealed = self.frames_per_chunk + 1
        return self.lanes * (unsealed + self.horizon_steps + self.stack + self.max_n_steps)

    @property
    def chunks_opened_within_horizon(self) -> int:
        """The most chunks that the lanes can open before a row drawn now has been read."""
        if self.horizon_steps == 0:
            return 0
        # two frames per step if every episode lasts one step, and one more where an episode was cut
        frames = 2 * self.horizon_steps + 1
        return self.lanes * -(-frames // self.frames_per_chunk)

    @property
    def num_slots(self) -> int:
        """Chunks that can be held at once."""
        final_frames = self.capacity if self.frame_bytes <= SMALL_FRAME_BYTES else self.capacity // 32
        full = -(-(self.capacity + final_frames) // self.frames_per_chunk)
        return full + 4 * self.lanes + self.chunks_opened_within_horizon

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame."""
        return prod(self.frame_shape) * np.dtype(self.frame_dtype).itemsize

    @property
    def numbers_per_lane(self) -> int:
        """Transitions that a lane's table has room for before it grows: a power of two."""
        return power_of_two(self.capacity // self.lanes + 2 * self.frames_per_chunk + 2)

    @property
    def chunks_per_lane(self) -> int:
        """Chunks that a lane's table has room for before it grows: a power of two."""
        return power_of_two(self.num_slots // self.lanes + 1)

    @property
    def num_bytes(self) -> int:
        """Bytes that a memory of this layout reserves."""
        rows = (self.num_slots + 1) * self.frames_per_chunk * (self.frame_bytes + ROW_BYTES)
        return rows + self.lanes * NUMBER_BYTES * (self.numbers_per_lane + self.chunks_per_lane)


def power_of_two(at_least: int) -> int:
    """Return the smallest power of two that is not below `at_least`."""
    return 1 << max(at_least - 1, 0).bit_length()
