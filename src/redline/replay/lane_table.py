"""Per lane: how far it is written, what is still held, and where each chunk and transition is.

Numbers of frames, chunks and transitions only grow; rings whose width is a power of two hold the resident part.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from redline.replay.layout import ReplayLayout, power_of_two
from redline.types import IntArray


class LaneRing:
    """One value per lane and resident number."""

    def __init__(self, lanes: int, width: int) -> None:
        self.values: IntArray = np.zeros((lanes, width), np.int64)
        self.width = width  # numbers that fit: a power of two
        self._mask = width - 1

    def read(self, rows: IntArray, numbers: IntArray) -> IntArray:
        """Return the values at `numbers`; any value where a number is not resident."""
        found: IntArray = self.values[rows, numbers & self._mask]
        return found

    def write(self, rows: IntArray | int, numbers: IntArray | int, values: IntArray | int) -> None:
        """Set the values at `numbers`."""
        self.values[rows, numbers & self._mask] = values

    def widen(self, needed: int, *, first: IntArray, end: IntArray) -> None:
        """Make room for `needed` numbers in each lane, keeping those from `first` to `end`."""
        if needed <= self.width:
            return
        wider = LaneRing(len(self.values), power_of_two(needed))
        for row, (lo, hi) in enumerate(zip(first.tolist(), end.tolist(), strict=True)):
            numbers = np.arange(lo, hi)
            wider.write(row, numbers, self.values[row, numbers & self._mask])
        self.values, self.width, self._mask = wider.values, wider.width, wider.width - 1


class Bounds(NamedTuple):
    """What may be drawn from each lane of the table."""

    first: IntArray  # first transition
    size: IntArray  # how many
    complete_before: IntArray  # the first transition whose window is not complete yet


class LaneTable:
    """Columns over lanes; row r is lane `first_lane + r`, so that lanes long gone cost nothing."""

    num_frames: IntArray  # written so far: the number of the next frame
    num_transitions: IntArray  # completed so far: the number of the next transition
    ended_before: IntArray  # transitions up to and including the last one that ended a return or an episode
    step: IntArray  # of the newest frame in its episode
    head: IntArray  # address of the newest frame
    is_open: IntArray  # 1 while an episode is running
    num_sealed: IntArray  # chunks that can no longer change
    first_chunk: IntArray  # first resident chunk
    first_number: IntArray  # first resident transition
    floor_frame: IntArray  # first frame that cannot be evicted within the horizon
    floor_number: IntArray  # first transition that starts at the floor or above
    first_whole: IntArray  # first transition whose whole stack lies at the floor or above

    def __init__(self, layout: ReplayLayout) -> None:
        self.frames_per_chunk = layout.frames_per_chunk
        self.first_lane = 0
        self.bounds: Bounds | None = None  # kept until the next write
        for name in COLUMNS:
            setattr(self, name, np.zeros(0, np.int64))
        self.slots = LaneRing(0, layout.chunks_per_lane)
        self.frame_of = LaneRing(0, layout.numbers_per_lane)

    def __len__(self) -> int:
        return len(self.num_frames)

    @property
    def num_bytes(self) -> int:
        """Bytes of both rings."""
        return self.slots.values.nbytes + self.frame_of.values.nbytes

    @property
    def num_chunks(self) -> IntArray:
        """Chunks opened so far, per lane."""
        return -(-self.num_frames // self.frames_per_chunk)

    def add(self, lanes: int) -> None:
        """Append empty lanes."""
        for name in COLUMNS:
            setattr(self, name, np.concatenate([getattr(self, name), np.zeros(lanes, np.int64)]))
        for ring in (self.slots, self.frame_of):
            ring.values = np.concatenate([ring.values, np.zeros((lanes, ring.width), np.int64)])

    def drop(self, lanes: int) -> None:
        """Forget the oldest lanes."""
        for name in COLUMNS:
            setattr(self, name, getattr(self, name)[lanes:].copy())
        for ring in (self.slots, self.frame_of):
            ring.values = ring.values[lanes:].copy()
        self.first_lane += lanes

    def address(self, rows: IntArray, frames: IntArray) -> IntArray:
        """Return the addresses of frames in the pool; some valid address where a frame is not resident."""
        chunk = frames // self.frames_per_chunk
        return self.slots.read(rows, chunk) * self.frames_per_chunk + (frames - chunk * self.frames_per_chunk)

    def make_room(self, row: int) -> None:
        """Widen the rings if one more chunk of a lane could outgrow them."""
        chunks = int(self.num_frames[row] // self.frames_per_chunk - self.first_chunk[row]) + 2
        self.slots.widen(chunks, first=self.first_chunk, end=self.num_chunks)
        # the current transition and those that will start in the new chunk
        numbers = int(self.num_transitions[row] - self.first_number[row]) + self.frames_per_chunk + 2
        self.frame_of.widen(numbers, first=self.first_number, end=self.num_transitions)


COLUMNS = tuple(LaneTable.__annotations__)
