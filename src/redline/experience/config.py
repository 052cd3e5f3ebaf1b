"""What a user may set about the replay memory."""

from dataclasses import dataclass

from redline.errors import UserError


@dataclass(frozen=True)
class ReplayConfig:
    """How much experience is kept, and how early it is drawn."""

    capacity: int = 100_000
    """Transitions kept; the oldest leave first."""

    prefetch: int = 0
    """Updates whose rows are drawn ahead."""

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise UserError(f"replay.capacity is {self.capacity}: use 1 or more")
        if not 0 <= self.prefetch <= 64:
            raise UserError(f"replay.prefetch is {self.prefetch}: use 0 to 64")
