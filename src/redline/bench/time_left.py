"""How much longer a measurement takes, said with every round."""

from __future__ import annotations

from itertools import count

from redline.bench.measuring import Told


def with_time_left(told: Told, *, rounds: int, round_s: float) -> Told:
    """Return what passes on a line at the beginning of each round, with the time that the rest will take."""
    begun = count()

    def tell(text: str) -> None:
        told(f"{text}, {in_words((rounds - next(begun)) * round_s)} left")

    return tell


def in_words(seconds: float) -> str:
    """Return about how long that is."""
    return f"about {seconds:.0f} s" if seconds < 90 else f"about {seconds / 60:.0f} min"
