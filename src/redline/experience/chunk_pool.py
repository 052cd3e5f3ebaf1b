"""Slots, each for one chunk: C frames of a lane and the transitions that start at them.

A transition is stored at the frame it starts at, so one address serves the frame, the action taken there and all
that came of it; inside an episode the frames of a window lie at consecutive frame numbers. A final frame is a row
without a transition. Slot 0 is never given away: padding is read from it. The frames themselves are elsewhere
(`flat_frames`, `packed_frames`), at the same addresses.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from redline.experience.layout import ReplayLayout
from redline.types import Array, IntArray

STARTS = 1  # a transition starts at this frame
RETURN_ENDS = 2  # it was the last one of its return: terminated, or a life lost
EPISODE_ENDS = 4  # it was the last one of its episode: terminated, truncated or cut


class ChunkPool:
    """All rows but their frames in flat arrays, the list of free slots, and what each used slot holds."""

    def __init__(self, layout: ReplayLayout) -> None:
        self.frames_per_chunk = layout.frames_per_chunk
        slots = layout.num_slots + 1
        rows = slots * self.frames_per_chunk
        self.action = np.zeros(rows, np.int32)  # zeros: untouched pages
        self.reward = np.zeros(rows, np.float32)
        self.step = np.zeros(rows, np.int32)  # in the episode
        self.flags = np.zeros(rows, np.uint8)
        self.free = list(range(slots - 1, 0, -1))
        self.lane: IntArray = np.zeros(slots, np.int64)
        self.chunk: IntArray = np.zeros(slots, np.int64)  # index within the lane
        self.first_number: IntArray = np.zeros(slots, np.int64)  # of the first transition that starts here
        self.num_transitions: npt.NDArray[np.int32] = np.zeros(slots, np.int32)  # set when sealed
        self.num_frames: npt.NDArray[np.int32] = np.zeros(slots, np.int32)  # set when sealed

    @property
    def columns(self) -> dict[str, Array]:
        """The arrays of rows by name."""
        return {"action": self.action, "reward": self.reward, "step": self.step, "flags": self.flags}

    @property
    def num_bytes(self) -> int:
        """Bytes of all rows and of what is noted of chunks."""
        chunks = (self.lane, self.chunk, self.first_number, self.num_transitions, self.num_frames)
        return sum(column.nbytes for column in (*self.columns.values(), *chunks))

    def rows(self, slot: int, count: int) -> slice:
        """Return the addresses of the first `count` rows of a slot."""
        start = slot * self.frames_per_chunk
        return slice(start, start + count)

    def take(self, *, lane: int, chunk: int, first_number: int) -> int:
        """Take a free slot for a chunk whose rows hold no transitions yet."""
        slot = self.free.pop()
        self.lane[slot] = lane
        self.chunk[slot] = chunk
        self.first_number[slot] = first_number
        rows = self.rows(slot, self.frames_per_chunk)
        for column in (self.action, self.reward, self.step, self.flags):
            column[rows] = 0  # the same bytes whatever was here before
        return slot

    def release(self, slot: int) -> None:
        """Give a slot back."""
        self.free.append(slot)
