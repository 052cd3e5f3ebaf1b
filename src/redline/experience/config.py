"""What a user may set about the replay memory."""

from dataclasses import dataclass
from pathlib import Path

from redline.errors import UserError, unknown_name
from redline.experience.frame_codec import CODECS


@dataclass(frozen=True)
class ReplayConfig:
    """How much experience is kept, where and how, and how early it is drawn."""

    capacity: int = 100_000
    """Transitions kept; the oldest leave first."""

    codec: str = "zstd"
    """How frames are kept: zstd (smallest), lz4 (faster, larger) or raw; vectors are always raw."""

    bytes: int | None = None
    """Bytes for all of it; by default what the capacity needs, measured by playing the game."""

    path: Path | None = None
    """Folder on a fast disk that holds the frames; by default they are in memory."""

    prefetch: int = 0
    """Updates whose rows are drawn ahead, and gathered by a thread meanwhile; 0 gathers when it is needed."""

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise UserError(f"replay.capacity is {self.capacity}: use 1 or more")
        if self.codec not in CODECS:
            raise unknown_name("replay.codec", self.codec, CODECS)
        if self.bytes is not None and self.bytes < 1:
            raise UserError(f"replay.bytes is {self.bytes}: use 1 or more")
        if not 0 <= self.prefetch <= 64:
            raise UserError(f"replay.prefetch is {self.prefetch}: use 0 to 64")
