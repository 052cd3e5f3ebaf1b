"""What a search tells whoever watches it, and settings as it words them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class TrialView:
    """One trial as it stands."""

    number: int
    state: str  # running, done, pruned, failed or interrupted
    settings: Mapping[str, Any]  # those that vary
    told: str  # its value, or how far it is
    score: float | None  # None while it runs, and where it has none


@dataclass(frozen=True)
class SearchView:
    """A whole search as it stands."""

    phase: str
    trials: Sequence[TrialView]
    best: int | None  # number of the best trial so far
    share: float  # of the phase, 0 … 1
    left_s: float | None  # at most, until the phase ends; None where nobody can tell


class Display(Protocol):
    """Shows a search."""

    def note(self, text: str) -> None:
        """Take a line."""
        ...

    def show(self, view: SearchView) -> None:
        """Take how everything stands."""
        ...


def describe_settings(settings: Mapping[str, Any]) -> str:
    """Return settings in one line."""
    return ", ".join(f"{key} {describe_value(value)}" for key, value in settings.items())


def describe_value(value: Any) -> str:
    """Return a setting as a table shows it."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
