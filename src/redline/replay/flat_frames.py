"""Raw frames in one array. A chunk is *open* while it is written, and *sealed* when it can no longer change.

Reading has two halves, here as for packed frames: the thread that writes the memory makes a plan, which says where
every frame is; any thread can then move the bytes, because they stay in place for as long as drawn rows stay readable.
"""

from __future__ import annotations

import numpy as np

from redline.replay.backing import Ram, ReplayError
from redline.replay.frame_codec import find_codec
from redline.replay.layout import ReplayLayout
from redline.types import Array, BoolArray, IntArray

GROWTH_BYTES = 16 * 1024**2
SNAPSHOT_CODEC = "zstd"  # raw in memory, but small on disk


class FlatFrames:
    """Each frame at its address in the pool: one copy in, one copy out. The first chunk holds zeros."""

    budget_bytes: int | None = None  # of sealed chunks that may be offered: slots are the only bound

    def __init__(self, layout: ReplayLayout) -> None:
        self._frames_per_chunk = layout.frames_per_chunk
        self._chunk_bytes = layout.frames_per_chunk * layout.frame_bytes
        self._num_bytes = layout.frame_space_bytes
        self._ram = Ram(self._num_bytes, huge_pages=True)
        self.frames: Array = self._ram.array.view(layout.frame_dtype).reshape(-1, *layout.frame_shape)
        self._codec = find_codec(SNAPSHOT_CODEC)
        self._num_frames: IntArray = np.zeros(layout.num_slots + 1, np.int64)  # of sealed chunks
        self._ahead_bytes = layout.chunks_opened_within_horizon * self._chunk_bytes
        self._least_bytes = (layout.least_slots + 1) * self._chunk_bytes
        self.is_short = False  # the machine had less memory than was asked for
        if not self._ram.reserve(self._chunk_bytes):
            raise ReplayError("no memory is left for a replay: free some first")

    @property
    def used_bytes(self) -> int:
        """Bytes of all chunks ever written."""
        return self.reserved_bytes

    @property
    def reserved_bytes(self) -> int:
        """Bytes taken from the machine so far."""
        return self._ram.reserved_bytes

    def has_place_for(self, slot: int) -> bool:
        """Reserve memory up to this slot and for the horizon, in large pieces."""
        needed = (slot + 1) * self._chunk_bytes
        ahead = min(needed + self._ahead_bytes, self._num_bytes)
        if ahead > self._ram.reserved_bytes and not self.is_short:
            self.is_short = not self._ram.reserve(min(ahead + GROWTH_BYTES, self._num_bytes))
            if self.is_short and self._ram.reserved_bytes < self._least_bytes:
                raise ReplayError("the replay cannot be kept, no memory is left: free some first")
        return needed <= self._ram.reserved_bytes

    def open(self, slot: int) -> None:
        """Do nothing: every slot has its place."""

    def write(self, address: IntArray, frames: Array) -> None:
        """Write frames [N, *frame]."""
        self.frames[address] = frames

    def has_room(self) -> bool:
        """Return True: a sealed chunk stays where it was opened."""
        return True

    def seal(self, slot: int, num_frames: int) -> int:
        """Store how many frames the chunk has."""
        self._num_frames[slot] = num_frames
        return 0

    def drop(self, slot: int) -> None:
        """Do nothing: the slot is simply used again."""

    def sealed_bytes(self, slot: int) -> int:
        """Return 0: slots are the only bound."""
        return 0

    def plan(self, address: IntArray, needed: BoolArray | None) -> IntArray:
        """Return the addresses, with that of a zero frame where none is needed."""
        return address if needed is None else np.where(needed, address, 0)

    def read(self, plan: IntArray, out: Array) -> None:
        """Copy the frames [B, W, *frame]."""
        # "clip" because "raise" would copy through a second buffer
        np.take(self.frames, plan, axis=0, out=out, mode="clip")

    def read_open(self, slot: int, num_frames: int) -> Array:
        """Return the frames of a chunk [F, *frame]."""
        return self.frames[slot * self._frames_per_chunk :][:num_frames]

    def encoded(self, slot: int) -> tuple[str, bytes | memoryview]:
        """Return the frames of a sealed chunk, compressed."""
        frames = self.read_open(slot, int(self._num_frames[slot]))
        return SNAPSHOT_CODEC, self._codec.encode(frames.data.cast("B"))

    def put_encoded(self, slot: int, codec: str, blob: memoryview, num_frames: int) -> int:
        """Decode a chunk into its place."""
        find_codec(codec).decode_into(blob, self.read_open(slot, num_frames).data.cast("B"))
        return self.seal(slot, num_frames)

    def close(self) -> None:
        """Free the memory."""
        self._ram.close()
