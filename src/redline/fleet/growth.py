"""Whether a series grows steadily, and how fast: a step, a spike or noise is no growth."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import median

BLOCKS = 5  # into which a window is cut: the medians of all must rise
LEAST_RISE = 0.125  # of the whole, between two blocks: half of an even share
MOST_KEPT = 120
SLOPE_POINTS = 40

Point = tuple[float, float]  # seconds, value


@dataclass(frozen=True)
class Growth:
    """What a steady growth amounts to."""

    per_s: float  # Theil–Sen
    gained: float
    span_s: float

    @property
    def per_h(self) -> float:
        """The slope in an hour."""
        return self.per_s * 3600.0


class Series:
    """A series of any length in little room: its newest points as they are, all of it at a spacing that doubles."""

    def __init__(self) -> None:
        self._newest: deque[Point] = deque(maxlen=BLOCKS)
        self._whole: list[Point] = []
        self._spacing_s = 0.0

    def add(self, time_s: float, value: float) -> None:
        """Add a point; times rise."""
        self._newest.append((time_s, value))
        if not self._whole or time_s - self._whole[-1][0] >= self._spacing_s:
            self._whole.append((time_s, value))
        if len(self._whole) > MOST_KEPT:
            self._whole = self._whole[::2]
            self._spacing_s = 0.9 * (self._whole[1][0] - self._whole[0][0])

    def growth(self, least: float) -> Growth | None:
        """Return a steady growth by at least so much: of the newest points, or of a longer time until now."""
        for points in self._windows():
            if is_steady(points, least):
                return Growth(theil_sen(points), points[-1][1] - points[0][1], points[-1][0] - points[0][0])
        return None

    def slope_per_h(self) -> float | None:
        """Return the slope of the whole series; None before there is enough of it."""
        return theil_sen(self._whole) * 3600.0 if len(self._whole) >= 2 * BLOCKS else None

    def _windows(self) -> Iterator[Sequence[Point]]:
        if len(self._newest) == BLOCKS:
            yield list(self._newest)
        length = len(self._whole)
        while length >= 2 * BLOCKS:
            yield self._whole[-length:]
            length //= 2


def is_steady(points: Sequence[Point], least: float) -> bool:
    """Tell whether a series has risen by at least so much, and in each part of its time."""
    cuts = [len(points) * block // BLOCKS for block in range(BLOCKS + 1)]
    levels = [median(value for _, value in points[begin:end]) for begin, end in pairwise(cuts)]
    gained = levels[-1] - levels[0]
    return gained >= least and all(after - before >= LEAST_RISE * gained for before, after in pairwise(levels))


def theil_sen(points: Sequence[Point]) -> float:
    """Return the median of the slopes between any two points; of very many, some are taken evenly."""
    step = -(-len(points) // SLOPE_POINTS)
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points[::step], 2) if b[0] > a[0]]
    return median(slopes) if slopes else 0.0
