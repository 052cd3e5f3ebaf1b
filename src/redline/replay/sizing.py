"""The size of a replay memory: what a user may set, whether it fits into the machine, and what would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from redline.errors import UserError, check_range, unknown_name
from redline.replay.frame_codec import CODECS
from redline.replay.layout import MIN_BLOBS_PER_SEGMENT, SEGMENTS, ReplayLayout
from redline.units import size

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
