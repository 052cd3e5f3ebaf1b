"""What a user may set about the replay memory."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ReplayConfig:
    """How much experience is kept, and how early it is drawn."""

    capacity: int = 100_000
    """Transitions kept; the oldest leave first."""

    prefetch: int = 0
    """Updates whose rows are drawn ahead."""
