"""The size of a replay memory, known before anything is allocated: what a user may set, and what fits the machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path

import numpy as np

from redline.errors import UserError, check_range, unknown_name
from redline.replay.frame_codec import CODECS, max_encoded_bytes
from redline.units import size

RAW_CHUNK_FRAMES = 64
PACKED_CHUNK_FRAMES = 8  # of 4, 8 and 16 the best for size and speed together: see the record `replay-chunks`
CHUNKS_PER_LANE = 8  # at least, so that evicting one chunk never empties a lane
ROW_BYTES = 13  # action, reward, step and flags beside each frame
CHUNK_BYTES = 56  # columns of each chunk
NUMBER_BYTES = 8
SMALL_FRAME_BYTES = 1_024  # below it, room for an extra frame per transition costs little
MIN_BLOBS_PER_SEGMENT = 16  # the end of a segment may stay empty: at most this part of it
SEGMENTS = 64
PAGE_BYTES = 4_096
RESERVE_BYTES = 512 * 1024**2  # of memory, for networks, emulators and the rest of the program
SURPLUS = 1.3  # a trained agent sees richer pictures than a random one


@dataclass(frozen=True)
class ReplayConfig:
    """How much experience is kept, where and how."""

    capacity: int = 100_000
    """Transitions kept; the oldest leave first."""

    codec: str = "zstd"
    """How frames are compressed: zstd (smallest), lz4 (faster, larger) or raw; vectors are always raw."""

    bytes: int | None = None
    """Byte limit of the whole memory; by default what the capacity needs, measured by playing the game."""

    path: Path | None = None
    """Folder on a fast disk for the frames; by default they are in memory."""

    prefetch: int = 0
    """Updates whose batches a thread gathers ahead; 0 gathers each batch when it is needed."""

    def __post_init__(self) -> None:
        check_range("replay.capacity", self.capacity, 1)
        if self.codec not in CODECS:
            raise unknown_name("replay.codec", self.codec, CODECS)
        if self.bytes is not None:
            check_range("replay.bytes", self.bytes, 1)
        check_range("replay.prefetch", self.prefetch, 0, 64)


@dataclass(frozen=True)
class ReplayLayout:
    """Everything that decides how much a replay memory reserves and which rows it may offer.

    Derived sizes are computed once: some are read at every step.
    """

    capacity: int  # transitions kept
    frame_shape: tuple[int, ...]
    frame_dtype: str  # "uint8" or "float32"
    stack: int  # frames that make one observation
    lanes: int  # lanes written at the same time
    horizon_steps: int = 0  # vector steps for which a drawn row stays readable
    max_n_steps: int = 1  # the longest window that will be gathered
    chunk_frames: int | None = None  # frames per chunk; None chooses from codec, capacity and lanes
    codec: str = "zstd"  # of pictures; anything else is kept raw
    budget_bytes: int | None = None  # for everything; None reserves for frames that can't be compressed
    path: Path | None = None  # folder that holds the frames; None keeps them in memory

    def __post_init__(self) -> None:
        for name in ("lanes", "stack", "max_n_steps", "frames_per_chunk"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.horizon_steps < 0:
            raise ValueError(f"horizon_steps must not be negative, got {self.horizon_steps}")
        if self.codec not in CODECS:
            raise unknown_name("replay codec", self.codec, CODECS)
        if self.capacity < self.min_capacity:
            raise UserError(
                f"a replay of {self.capacity:_} transitions is too small for {self.lanes} lanes: "
                f"use --replay.capacity {self.min_capacity:_} or more"
            )
        if self.budget_bytes is not None and self.budget_bytes < self.min_bytes:
            raise UserError(
                f"{self.budget_bytes:_} bytes are too few for a replay that may hold {self.capacity:_} transitions: "
                f"use --replay.bytes {self.min_bytes:_} or more, or a smaller --replay.capacity"
            )

    @cached_property
    def is_picture(self) -> bool:
        """Whether frames are pictures, which compress."""
        return self.frame_dtype == "uint8" and len(self.frame_shape) >= 2

    @cached_property
    def effective_codec(self) -> str:
        """The codec that is used: vectors stay raw."""
        return self.codec if self.is_picture else "raw"

    @cached_property
    def is_packed(self) -> bool:
        """Whether sealed chunks become blobs; otherwise frames stay where they are written."""
        return self.effective_codec != "raw" or self.path is not None

    # Chunks

    @cached_property
    def frames_per_chunk(self) -> int:
        """Frames in one chunk: the unit that is compressed, evicted and written to disk."""
        if self.chunk_frames is not None:
            return self.chunk_frames
        longest = RAW_CHUNK_FRAMES if self.effective_codec == "raw" else PACKED_CHUNK_FRAMES
        fair_share = max(self.capacity // (self.lanes * CHUNKS_PER_LANE), 1)
        return min(longest, 1 << (fair_share.bit_length() - 1))

    @cached_property
    def min_capacity(self) -> int:
        """The fewest transitions with which eviction only needs sealed chunks, horizon included."""
        # a lane holds at most C + 1 frames in unsealed chunks, and needs one whole window besides
        unsealed = self.frames_per_chunk + 1
        return self.lanes * (unsealed + self.horizon_steps + self.stack + self.max_n_steps)

    @cached_property
    def chunks_opened_within_horizon(self) -> int:
        """The most chunks that the lanes can open or seal within the horizon of a row drawn now."""
        if self.horizon_steps == 0:
            return 0
        # two frames per step if every episode lasts one step, and one more where an episode was cut
        frames = 2 * self.horizon_steps + 1
        return self.lanes * -(-frames // self.frames_per_chunk)

    @cached_property
    def num_slots(self) -> int:
        """Chunks that can be held at once."""
        if self.budget_bytes is None or self.is_packed:
            return self._full_slots
        per_slot = self.frames_per_chunk * (self.frame_bytes + ROW_BYTES) + CHUNK_BYTES
        return min(self._full_slots, (self.budget_bytes - self._ring_bytes) // per_slot - 1)

    @cached_property
    def expected_transitions(self) -> int:
        """About how many transitions fit: fewer than the capacity if the byte budget allows fewer slots."""
        if self.num_slots == self._full_slots:
            return self.capacity
        share = (self.num_slots - self.least_slots) / (self._full_slots - self.least_slots)
        return int(self.capacity * share)

    @cached_property
    def _full_slots(self) -> int:
        if self.frame_bytes <= SMALL_FRAME_BYTES:
            final_frames = self.capacity
        else:
            final_frames = self.capacity // (8 if self.is_packed else 32)  # a packed one costs its row, no frame
        full = -(-(self.capacity + final_frames) // self.frames_per_chunk)
        return full + 4 * self.lanes + self.chunks_opened_within_horizon

    @cached_property
    def least_slots(self) -> int:
        """The fewest chunks with which a memory can work."""
        # two that are being written and one that can leave in each lane, and what the horizon holds back
        return 4 * self.lanes + self.chunks_opened_within_horizon + 1

    # Bytes

    @cached_property
    def frame_bytes(self) -> int:
        """Bytes of one frame."""
        return prod(self.frame_shape) * np.dtype(self.frame_dtype).itemsize

    @cached_property
    def max_blob_bytes(self) -> int:
        """The most that a chunk's frames can take."""
        return max_encoded_bytes(self.frames_per_chunk * self.frame_bytes)

    @cached_property
    def numbers_per_lane(self) -> int:
        """Transitions that fit into a lane's table before it grows: a power of two."""
        return power_of_two(self.capacity // self.lanes + 2 * self.frames_per_chunk + 2)

    @cached_property
    def chunks_per_lane(self) -> int:
        """Chunks that fit into a lane's table before it grows: a power of two."""
        return power_of_two(self._full_slots // self.lanes + 1)

    @cached_property
    def num_stages(self) -> int:
        """Chunks written at the same time, if sealed ones are kept elsewhere."""
        # a chunk is sealed one frame late, and the next is opened before
        return (3 if self.frames_per_chunk == 1 else 2) * self.lanes if self.is_packed else 0

    @cached_property
    def _ring_bytes(self) -> int:
        return self.lanes * NUMBER_BYTES * (self.numbers_per_lane + self.chunks_per_lane)

    @cached_property
    def metadata_bytes(self) -> int:
        """Bytes of everything but sealed frames; always in memory."""
        rows = (self.num_slots + 1) * (self.frames_per_chunk * ROW_BYTES + CHUNK_BYTES)
        stages = self.num_stages * self.frames_per_chunk * self.frame_bytes
        return rows + self._ring_bytes + stages

    @cached_property
    def segment_bytes(self) -> int:
        """Bytes of a segment: the piece in which room for blobs is reserved."""
        share = self._full_slots * self.max_blob_bytes // SEGMENTS
        if self.budget_bytes is not None:
            share = min(share, (self.budget_bytes - self.metadata_bytes) // SEGMENTS)
        return whole_pages(max(share, MIN_BLOBS_PER_SEGMENT * self.max_blob_bytes))

    @cached_property
    def num_segments(self) -> int:
        """Segments that may be reserved: as the budget allows, and never more than frames can fill."""
        most = -(-self._full_slots * self.max_blob_bytes // (self.segment_bytes - self.max_blob_bytes)) + 2
        if self.budget_bytes is None:
            return most
        return min(most, (self.budget_bytes - self.metadata_bytes) // self.segment_bytes)

    @cached_property
    def blob_budget_bytes(self) -> int:
        """Bytes of blobs that may be held: two segments may be partly empty, and the end of each."""
        return self.blob_bytes_in(self.num_segments)

    def blob_bytes_in(self, num_segments: int) -> int:
        """Return the bytes of blobs that `num_segments` are sure to hold."""
        return (num_segments - 2) * (self.segment_bytes - self.max_blob_bytes)

    @cached_property
    def min_blob_bytes(self) -> int:
        """The least room for blobs with which drawn rows stay for the horizon."""
        return self.least_slots * self.max_blob_bytes

    @cached_property
    def segments_within_horizon(self) -> int:
        """Segments that the blobs sealed within the horizon may need."""
        blobs_bytes = self.chunks_opened_within_horizon * self.max_blob_bytes
        return -(-blobs_bytes // (self.segment_bytes - self.max_blob_bytes))

    @cached_property
    def frame_space_bytes(self) -> int:
        """Most bytes reserved for sealed frames, in memory or on disk."""
        if self.is_packed:
            return self.num_segments * self.segment_bytes
        return (self.num_slots + 1) * self.frames_per_chunk * self.frame_bytes

    @cached_property
    def min_bytes(self) -> int:
        """The smallest budget with which this memory can work."""
        if self.is_packed:
            segment = whole_pages(MIN_BLOBS_PER_SEGMENT * self.max_blob_bytes)
            return self.metadata_bytes + (-(-self.min_blob_bytes // (segment - self.max_blob_bytes)) + 3) * segment
        per_slot = self.frames_per_chunk * (self.frame_bytes + ROW_BYTES) + CHUNK_BYTES
        return self._ring_bytes + (self.least_slots + 1) * per_slot

    @cached_property
    def ram_bytes(self) -> int:
        """Most bytes reserved in memory."""
        return self.metadata_bytes + (0 if self.path else self.frame_space_bytes)

    @cached_property
    def disk_bytes(self) -> int:
        """Most bytes reserved on disk."""
        return self.frame_space_bytes if self.path else 0

    @cached_property
    def num_bytes(self) -> int:
        """Most bytes reserved, in memory and on disk."""
        return self.metadata_bytes + self.frame_space_bytes


def power_of_two(at_least: int) -> int:
    """Return the smallest power of two that is not below `at_least`."""
    return 1 << max(at_least - 1, 0).bit_length()


def whole_pages(num_bytes: int) -> int:
    """Round up to whole pages."""
    return -(-num_bytes // PAGE_BYTES) * PAGE_BYTES


def with_budget(layout: ReplayLayout, frame_bytes_per_transition: float) -> ReplayLayout:
    """Give a memory of compressed frames the bytes that its capacity needs, from a measurement of frames."""
    blobs = min(layout.capacity * frame_bytes_per_transition * SURPLUS, layout.num_slots * layout.max_blob_bytes)
    # what segments leave empty: two of them, and the end of each
    space = blobs * SEGMENTS / (SEGMENTS - 3) * MIN_BLOBS_PER_SEGMENT / (MIN_BLOBS_PER_SEGMENT - 1)
    least = replace(layout, budget_bytes=None).min_bytes
    return replace(layout, budget_bytes=max(layout.metadata_bytes + int(space), least))


def check_fits(
    layout: ReplayLayout, *, free_ram_bytes: int, free_disk_bytes: int = 0, reserve_bytes: int = RESERVE_BYTES
) -> None:
    """Raise if a memory of this layout would leave less than the reserve, and say what fits."""

    def fits(layout: ReplayLayout) -> bool:
        return layout.ram_bytes <= free_ram_bytes - reserve_bytes and layout.disk_bytes <= free_disk_bytes

    if fits(layout):
        return
    if layout.path is not None and layout.disk_bytes > free_disk_bytes:
        fact = f"replay needs {size(layout.disk_bytes, 1)} on disk, {layout.path} has "
        fact += f"{size(free_disk_bytes, 1)} free"
    else:
        fact = f"replay needs {size(layout.ram_bytes, 1)}, {size(free_ram_bytes, 1)} is free"
        if layout.ram_bytes <= free_ram_bytes:
            fact += f" and {size(reserve_bytes, 1)} of it is for the rest of the program"
    remedies = []
    if layout.is_picture and layout.effective_codec == "raw":
        remedies.append("--replay.codec zstd")
    smaller = largest_capacity(
        layout.capacity - 1,
        lambda capacity: fits(at_capacity(layout, capacity)),
    )
    if smaller:
        remedies.append(f"--replay.capacity {smaller:_}")
    if smaller and layout.budget_bytes is not None:
        remedies.append(f"--replay.bytes {_share(layout, smaller):_}")
    raise UserError(f"{fact}: " + (f"use {' or '.join(remedies)}" if remedies else "free some first"))


def largest_capacity(bound: int, fits: Callable[[int], bool]) -> int:
    """Return the largest capacity up to `bound`, in two significant digits, that fits; 0 if none does.

    A capacity for which `fits` raises UserError does not fit.
    """
    for exponent in range(max(len(str(bound)) - 2, 0), -1, -1):
        for digits in range(99, 9 if exponent else 0, -1):
            capacity: int = digits * 10**exponent
            try:
                if capacity <= bound and fits(capacity):
                    return capacity
            except UserError:  # too few for the lanes
                continue
    return 0


def at_capacity(layout: ReplayLayout, capacity: int) -> ReplayLayout:
    """Return the layout of a smaller memory, with its share of the bytes."""
    return replace(layout, capacity=capacity, budget_bytes=_share(layout, capacity))


def _share(layout: ReplayLayout, capacity: int) -> int | None:
    """Return the part of the budget that a smaller capacity needs."""
    return None if layout.budget_bytes is None else layout.num_bytes * capacity // layout.capacity
