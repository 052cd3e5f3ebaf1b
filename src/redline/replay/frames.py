"""The frames of chunks: raw in one array, or compressed chunk by chunk into an arena.

A chunk is *open* while it is written, and *sealed* when it can no longer change. Reading has two halves: the thread
that writes the memory makes a plan, which says where every frame is; any thread can then move the bytes, because they
stay in place for as long as drawn rows stay readable. A plan of packed frames copies those of open chunks at once,
because these bytes move when the chunk is sealed.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from redline.replay.backing import Arena, Disk, Ram, ReplayError
from redline.replay.frame_codec import FrameCodec, find_codec
from redline.replay.layout import ReplayLayout
from redline.types import Array, BoolArray, IntArray

GROWTH_BYTES = 16 * 1024**2
SNAPSHOT_CODEC = "zstd"  # raw in memory, but small on disk
OPEN = -1  # in place of a blob's length


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


@dataclass(frozen=True)
class PackedPlan:
    """Where the frames of a batch are."""

    blobs: list[tuple[int, int, int]]  # offset, length, frames
    source: IntArray  # [B, W] frame among those decoded, blob after blob; 0 is a frame of zeros
    open_at: tuple[IntArray, ...]  # places [b, w] of frames from open chunks
    open_frames: Array  # [M, *frame]


class _Workspace(threading.local):
    """What each decoding thread owns."""

    codec: FrameCodec | None = None
    frames: Array | None = None  # [decoded, *frame]


class PackedFrames:
    """Open chunks in a few raw buffers, sealed ones in an arena in memory or on disk."""

    def __init__(self, layout: ReplayLayout) -> None:
        self.budget_bytes = layout.blob_budget_bytes
        self._layout = layout
        self._frames_per_chunk = layout.frames_per_chunk
        self._max_blob_bytes = layout.max_blob_bytes
        self._backing = Disk(layout.path) if layout.path else Ram(layout.frame_space_bytes)
        self._arena = Arena(
            self._backing,
            segment_bytes=layout.segment_bytes,
            max_segments=layout.num_segments,
            segments_ahead=layout.segments_within_horizon,
        )
        self._codec = find_codec(layout.effective_codec)
        self._workspace = _Workspace()
        slots = layout.num_slots + 1
        self._offset: IntArray = np.zeros(slots, np.int64)
        self._length: npt.NDArray[np.int32] = np.full(slots, OPEN, np.int32)  # of the blob
        self._num_frames: npt.NDArray[np.int32] = np.zeros(slots, np.int32)
        self._stage: npt.NDArray[np.int32] = np.zeros(slots, np.int32)  # of open chunks
        self._free_stages = list(range(layout.num_stages))
        rows = layout.num_stages * self._frames_per_chunk
        self._staged: Array = np.zeros((rows, *layout.frame_shape), layout.frame_dtype)
        self._blob_bytes = 0
        self.has_room()  # the first segments are there, or refused, before anything is written

    @property
    def is_short(self) -> bool:
        """Whether the machine had less memory or disk than was asked for."""
        return self._arena.is_short

    @property
    def used_bytes(self) -> int:
        """Bytes of blobs, of chunks being written, and of the columns about them."""
        notes = self._offset.nbytes + self._length.nbytes + self._num_frames.nbytes + self._stage.nbytes
        return self._blob_bytes + self._staged.nbytes + notes

    @property
    def reserved_bytes(self) -> int:
        """Bytes taken from the machine so far, for blobs."""
        return self._backing.reserved_bytes

    def has_place_for(self, slot: int) -> bool:
        """Return True: chunks of any slot can be opened."""
        return True

    def open(self, slot: int) -> None:
        """Take a raw buffer."""
        self._stage[slot] = self._free_stages.pop()
        self._length[slot] = OPEN

    def write(self, address: IntArray, frames: Array) -> None:
        """Write frames [N, *frame]."""
        self._staged[self._staged_rows(address)] = frames

    def has_room(self) -> bool:
        """Tell whether a chunk fits into the budget and the arena, however badly it compresses."""
        arena_has_room = self._arena.has_room(self._max_blob_bytes)
        if self._arena.is_short:
            # offer less at once; evictions follow the arena's free room, so that rows drawn before stay readable:
            # room for the horizon was reserved ahead
            self.budget_bytes = self._layout.blob_bytes_in(self._arena.num_reserved)
            if self.budget_bytes < self._layout.min_blob_bytes:
                place = f"{self._layout.path} has no space" if self._layout.path else "no memory is left"
                raise ReplayError(f"the replay cannot be kept, {place}: free some, or use a smaller --replay.capacity")
        return arena_has_room and self._blob_bytes + self._max_blob_bytes <= self._layout.blob_budget_bytes

    def seal(self, slot: int, num_frames: int) -> int:
        """Compress a chunk and free its raw buffer."""
        frames = self.read_open(slot, num_frames)
        length = self._keep(slot, self._codec.encode(frames.data.cast("B")), num_frames)
        self._free_stages.append(int(self._stage[slot]))
        return length

    def drop(self, slot: int) -> None:
        """Free a blob's room."""
        self._arena.drop(int(self._offset[slot]))
        self._blob_bytes -= int(self._length[slot])

    def sealed_bytes(self, slot: int) -> int:
        """Return the length of a blob."""
        return int(self._length[slot])

    def plan(self, address: IntArray, needed: BoolArray | None) -> PackedPlan:
        """Copy the frames of open chunks, and find the blobs of the others."""
        chunk_frames = self._frames_per_chunk
        slot = address // chunk_frames
        is_open = self._length[slot] == OPEN
        is_packed = ~is_open
        if needed is not None:
            is_open &= needed
            is_packed &= needed
        slots, nth = np.unique(slot[is_packed], return_inverse=True)
        source = np.zeros(address.shape, np.int64)
        source[is_packed] = 1 + nth * chunk_frames + address[is_packed] % chunk_frames
        blobs = zip(
            self._offset[slots].tolist(), self._length[slots].tolist(), self._num_frames[slots].tolist(), strict=True
        )
        open_at = np.nonzero(is_open)
        return PackedPlan(list(blobs), source, open_at, self._staged[self._staged_rows(address[open_at])])

    def read(self, plan: PackedPlan, out: Array) -> None:
        """Decode each chunk once, and copy the frames [B, W, *frame] from there."""
        chunk_frames, frame_bytes = self._frames_per_chunk, self._layout.frame_bytes
        codec, frames = self._decoder(1 + len(plan.blobs) * chunk_frames)
        decoded = frames.data.cast("B")
        for i, (offset, length, num_frames) in enumerate(plan.blobs):
            start = (1 + i * chunk_frames) * frame_bytes
            try:
                codec.decode_into(self._backing.read(offset, length), decoded[start : start + num_frames * frame_bytes])
            except ValueError as error:
                raise ReplayError(str(error)) from None
        # "clip" because "raise" would copy through a second buffer
        np.take(frames, plan.source, axis=0, out=out, mode="clip")
        out[plan.open_at] = plan.open_frames

    def read_open(self, slot: int, num_frames: int) -> Array:
        """Return the frames of an open chunk [F, *frame]."""
        return self._staged[int(self._stage[slot]) * self._frames_per_chunk :][:num_frames]

    def encoded(self, slot: int) -> tuple[str, bytes | memoryview]:
        """Return a blob as it is."""
        return self._layout.effective_codec, self._backing.read(int(self._offset[slot]), int(self._length[slot]))

    def put_encoded(self, slot: int, codec: str, blob: memoryview, num_frames: int) -> int:
        """Store a blob, encoded anew if another codec made it."""
        if codec == self._layout.effective_codec:
            return self._keep(slot, blob, num_frames)
        raw = bytearray(num_frames * self._layout.frame_bytes)
        find_codec(codec).decode_into(blob, memoryview(raw))
        return self._keep(slot, self._codec.encode(memoryview(raw)), num_frames)

    def close(self) -> None:
        """Free memory and disk."""
        self._backing.close()

    def _keep(self, slot: int, blob: bytes | memoryview, num_frames: int) -> int:
        self._offset[slot] = self._arena.put(blob)
        self._length[slot] = len(blob)
        self._num_frames[slot] = num_frames
        self._blob_bytes += len(blob)
        return len(blob)

    def _staged_rows(self, address: IntArray) -> IntArray:
        rows: IntArray = (
            self._stage[address // self._frames_per_chunk] * np.int64(self._frames_per_chunk)
            + address % self._frames_per_chunk
        )
        return rows

    def _decoder(self, num_frames: int) -> tuple[FrameCodec, Array]:
        """Return this thread's codec and its room for decoded frames, the first of them zeros."""
        own = self._workspace
        if own.codec is None:
            own.codec = find_codec(self._layout.effective_codec)
        if own.frames is None or len(own.frames) < num_frames:
            own.frames = np.zeros((num_frames, *self._layout.frame_shape), self._layout.frame_dtype)
        return own.codec, own.frames
