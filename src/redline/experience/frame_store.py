"""What a replay memory asks of the part that keeps its frames.

A chunk is *open* while it is written and *sealed* when it will not change any more. Reading has two halves: a plan is
made where the memory is written, and says where every frame is; the bytes can then be moved by any thread, because
what a plan names stays where it is for as long as rows that were drawn stay readable.
"""

from __future__ import annotations

from typing import Any, Protocol

from redline.types import Array, BoolArray, IntArray


class FrameStore(Protocol):
    """Frames by their address in the pool."""

    @property
    def budget_bytes(self) -> int | None:
        """Bytes of sealed chunks that may be offered; None if slots are the only bound."""
        ...

    @property
    def is_short(self) -> bool:
        """Whether the machine had less memory or disk than was asked for."""
        ...

    @property
    def used_bytes(self) -> int:
        """Bytes that the frames take now."""
        ...

    @property
    def reserved_bytes(self) -> int:
        """Bytes taken from the machine so far."""
        ...

    def has_place_for(self, slot: int) -> bool:
        """Tell whether a chunk can be opened in this slot."""
        ...

    def open(self, slot: int) -> None:
        """Make a slot ready to be written."""
        ...

    def write(self, address: IntArray, frames: Array) -> None:
        """Write frames [N, *frame] of open chunks."""
        ...

    def has_room(self) -> bool:
        """Tell whether one more chunk can be sealed."""
        ...

    def seal(self, slot: int, num_frames: int) -> int:
        """Keep the frames of an open chunk for good; return the bytes that count towards the budget."""
        ...

    def drop(self, slot: int) -> None:
        """Forget a sealed chunk."""
        ...

    def sealed_bytes(self, slot: int) -> int:
        """Return the bytes that a sealed chunk counts."""
        ...

    def plan(self, address: IntArray, needed: BoolArray | None) -> Any:
        """Note where the frames at `address` are; those not needed will read as zeros. None: all are."""
        ...

    def read(self, plan: Any, out: Array) -> None:
        """Copy the planned frames [B, W, *frame] into `out`; any thread may."""
        ...

    def read_open(self, slot: int, num_frames: int) -> Array:
        """Return the frames of an open chunk [F, *frame]."""
        ...

    def encoded(self, slot: int) -> tuple[str, bytes | memoryview]:
        """Return the frames of a sealed chunk and the codec that made them."""
        ...

    def put_encoded(self, slot: int, codec: str, blob: memoryview, num_frames: int) -> int:
        """Keep a chunk that `encoded` gave, here or elsewhere; return the bytes that count towards the budget."""
        ...

    def close(self) -> None:
        """Give memory and disk back."""
        ...
