"""Room for blobs of any length that leave in the order in which they came.

Blobs are written one after another into segments; a segment is free again when its last blob has left. Because the
oldest leave first, at most two segments are not full at any time, and what is wasted is known beforehand.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from redline.experience.backing import Backing
from redline.types import IntArray


class Arena:
    """Segments of a backing, reserved one at a time."""

    def __init__(self, backing: Backing, *, segment_bytes: int, max_segments: int, segments_ahead: int = 0) -> None:
        self.backing = backing
        self._segment_bytes = segment_bytes
        self._max_segments = max_segments
        self._segments_ahead = segments_ahead  # reserved before they are needed
        self.num_reserved = 0
        self._free: deque[int] = deque()  # segments that hold nothing
        self._blobs: IntArray = np.zeros(max_segments, np.int64)  # held in each segment
        self._current = -1  # the segment being filled; none yet
        self._used_bytes = segment_bytes  # of it
        self.is_short = False  # the machine had less than was asked for

    def has_room(self, length: int) -> bool:
        """Tell whether a blob of `length` fits, reserving another segment if need be."""
        while len(self._free) < self._segments_ahead and self._reserve_another():
            pass
        return self._fits_current(length) or bool(self._free) or self._reserve_another()

    def put(self, blob: bytes | memoryview) -> int:
        """Write a blob for which there is room; return its offset."""
        if not self._fits_current(len(blob)):
            full = self._current
            self._current = self._free.popleft()
            self._used_bytes = 0
            if full >= 0 and not self._blobs[full]:
                self._free.append(full)
        offset = self._current * self._segment_bytes + self._used_bytes
        self.backing.write(offset, blob)
        self._used_bytes += len(blob)
        self._blobs[self._current] += 1
        return offset

    def drop(self, offset: int) -> None:
        """Give up the blob at `offset`."""
        segment = offset // self._segment_bytes
        self._blobs[segment] -= 1
        if not self._blobs[segment] and segment != self._current:
            self._free.append(segment)

    def _fits_current(self, length: int) -> bool:
        return self._used_bytes + length <= self._segment_bytes

    def _reserve_another(self) -> bool:
        if self.num_reserved == self._max_segments or self.is_short:
            return False
        if not self.backing.reserve((self.num_reserved + 1) * self._segment_bytes):
            self.is_short = True
            return False
        self._free.append(self.num_reserved)
        self.num_reserved += 1
        return True
