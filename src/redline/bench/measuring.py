"""Rates of several contenders, measured by turns: whatever else slows the machine slows all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

COVERAGE = 0.9  # of the rounds lie between low and high
SETTLE_BYTES = 16 * 1024**2

Progress = Callable[[str], None]  # is told what goes on
Contender = Callable[[int], None]  # does its work so many times in a row


def silent(_: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Rate:
    """The median of the rounds, and the range that holds 90 % of them."""

    median: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float]:
        """Return it as plain data."""
        return asdict(self)


def rate_of(rounds: Sequence[float]) -> Rate:
    """Return median, low and high of the rounds."""
    if not rounds:
        raise ValueError("nothing was measured: a rate needs at least one round")
    low, median, high = np.quantile(rounds, [(1 - COVERAGE) / 2, 0.5, (1 + COVERAGE) / 2]).tolist()
    return Rate(median=median, low=low, high=high)


class RoundProgress:
    """Tells which round begins and how long the rest takes: by the rounds so far, before that by a guess."""

    def __init__(self, progress: Progress, *, rounds: int, guess_s: float) -> None:
        self._progress, self._rounds, self._guess_s = progress, rounds, guess_s
        self._begun_s = time.monotonic()

    def begin(self, number: int) -> None:
        """Tell that round `number`, counted from 0, begins."""
        round_s = (time.monotonic() - self._begun_s) / number if number else self._guess_s
        left_s = (self._rounds - number) * round_s
        words = f"about {left_s:.0f} s" if left_s < 90 else f"about {left_s / 60:.0f} min"
        self._progress(f"round {number + 1} of {self._rounds}, {words} left")


def alternate(
    contenders: Mapping[str, Contender],
    *,
    rounds: int,
    turn_s: float,
    slices: int = 1,
    progress: Progress = silent,
) -> dict[str, list[float]]:
    """Let each contender work once per round, in rotating order; return its times per second, round by round.

    With several slices, the turns of a round are cut into as many and alternate too: a disturbance that is shorter than
    a turn then hits all alike. One excluded turn of each comes before the first round: it warms up, and shows how often
    the work fits into `turn_s`.
    """
    settle_allocator()
    counts = {name: _count_for(contender, turn_s / slices) for name, contender in contenders.items()}
    names = list(contenders)
    measured: dict[str, list[float]] = {name: [] for name in names}
    telling = RoundProgress(progress, rounds=rounds, guess_s=turn_s * len(names))
    for number in range(rounds):
        telling.begin(number)
        start = number * (len(names) // rounds or 1) % len(names) if names else 0
        spent_s = dict.fromkeys(names, 0.0)
        for name in (names[start:] + names[:start]) * slices:
            begin_s = time.perf_counter()
            contenders[name](counts[name])
            spent_s[name] += time.perf_counter() - begin_s
        for name in names:
            measured[name].append(slices * counts[name] / spent_s[name])
    return measured


def settle_allocator() -> None:
    """Free a large block, as any training process does before long.

    From then on the C library keeps blocks of a batch's size instead of returning them to the system. Without this, a
    contender that allocates every batch pays for new pages each time, which it would not do in a real training.
    """
    np.ones(SETTLE_BYTES, np.uint8)


def _count_for(contender: Contender, turn_s: float) -> int:
    count, spent_s = 1, 0.0
    while True:
        begin_s = time.perf_counter()
        contender(count)
        spent_s = time.perf_counter() - begin_s
        if spent_s >= turn_s / 4:
            return max(round(count * turn_s / spent_s), 1)
        count = min(max(round(count * turn_s / 2 / max(spent_s, 1e-9)), count + 1), count * 10)
