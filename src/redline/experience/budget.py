"""Whether a replay memory fits into the machine, and what would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from redline.errors import UserError
from redline.experience.layout import MIN_BLOBS_PER_SEGMENT, SEGMENTS, ReplayLayout

RESERVE_BYTES = 512 * 1024**2  # of memory, for networks, emulators and the rest of the program
SURPLUS = 1.3  # a trained agent sees richer pictures than a random one


def with_budget(layout: ReplayLayout, frame_bytes_per_transition: float) -> ReplayLayout:
    """Give a memory of compressed frames the bytes that its capacity needs, by what frames were measured to take."""
    blobs = min(layout.capacity * frame_bytes_per_transition * SURPLUS, layout.num_slots * layout.max_blob_bytes)
    # what segments leave empty: two of them, and the end of each
    space = blobs * SEGMENTS / (SEGMENTS - 3) * MIN_BLOBS_PER_SEGMENT / (MIN_BLOBS_PER_SEGMENT - 1)
    least = replace(layout, budget_bytes=None).min_bytes
    return replace(layout, budget_bytes=max(layout.metadata_bytes + int(space), least))


def check_fits(
    layout: ReplayLayout, *, free_ram_bytes: int, free_disk_bytes: int = 0, reserve_bytes: int = RESERVE_BYTES
) -> None:
    """Raise if a memory of this layout would leave less than the reserve, and say what fits."""
    fits = _fits_in(free_ram_bytes - reserve_bytes, free_disk_bytes)
    if fits(layout):
        return
    if layout.path is not None and layout.disk_bytes > free_disk_bytes:
        fact = f"replay needs {bytes_in_words(layout.disk_bytes)} on disk, {layout.path} has "
        fact += f"{bytes_in_words(free_disk_bytes)} free"
    else:
        fact = f"replay needs {bytes_in_words(layout.ram_bytes)}, {bytes_in_words(free_ram_bytes)} is free"
        if layout.ram_bytes <= free_ram_bytes:
            fact += f" and {bytes_in_words(reserve_bytes)} of it is for the rest"
    remedies = []
    if layout.is_picture and layout.effective_codec == "raw":
        remedies.append("--replay.codec zstd")
    if capacity := _largest_capacity(layout, fits):
        remedies.append(f"--replay.capacity {capacity:_}")
    if capacity and layout.budget_bytes is not None:
        remedies.append(f"--replay.bytes {_share(layout, capacity):_}")
    raise UserError(f"{fact}: " + (f"use {' or '.join(remedies)}" if remedies else "free some first"))


def bytes_in_words(num_bytes: int) -> str:
    """Return a number of bytes for people."""
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 100_000_000 else f"{num_bytes / 1e6:.1f} MB"


def _fits_in(free_ram_bytes: int, free_disk_bytes: int) -> Callable[[ReplayLayout], bool]:
    return lambda layout: layout.ram_bytes <= free_ram_bytes and layout.disk_bytes <= free_disk_bytes


def _largest_capacity(layout: ReplayLayout, fits: Callable[[ReplayLayout], bool]) -> int:
    # two significant digits, largest first
    for exponent in range(len(str(layout.capacity)) - 2, -1, -1):
        for digits in range(99, 9, -1):
            capacity: int = digits * 10**exponent
            if capacity < layout.capacity and _would_fit(layout, capacity, fits):
                return capacity
    return 0


def _would_fit(layout: ReplayLayout, capacity: int, fits: Callable[[ReplayLayout], bool]) -> bool:
    try:
        return fits(replace(layout, capacity=capacity, budget_bytes=_share(layout, capacity)))
    except UserError:
        return False


def _share(layout: ReplayLayout, capacity: int) -> int | None:
    """Return the part of the budget that a smaller capacity needs."""
    return None if layout.budget_bytes is None else layout.num_bytes * capacity // layout.capacity
