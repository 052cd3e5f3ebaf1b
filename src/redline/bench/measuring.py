"""Rates of several contenders, measured by turns so that whatever else slows the machine slows all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

COVERAGE = 0.9  # of the rounds lie between low and high
SETTLE_BYTES = 16 * 1024**2

Told = Callable[[str], None]
Contender = Callable[[int], None]  # does its work so many times in a row


@dataclass(frozen=True)
class Rate:
    """Times per second: the median of the rounds, and what 90 % of them lie between."""

    median: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float]:
        """Return it as plain data."""
        return asdict(self)


def rate_of(rounds: Sequence[float]) -> Rate:
    """Return median, low and high of what the rounds measured."""
    if not rounds:
        raise ValueError("nothing was measured: a rate needs at least one round")
    low, median, high = np.quantile(rounds, [(1 - COVERAGE) / 2, 0.5, (1 + COVERAGE) / 2]).tolist()
    return Rate(median=median, low=low, high=high)


def alternate(
    contenders: Mapping[str, Contender],
    *,
    rounds: int,
    turn_s: float,
    slices: int = 1,
    told: Told = lambda _: None,
) -> dict[str, list[float]]:
    """Let each contender work once per round, in an order that rotates; return its times per second, round by round.

    With several slices the turns of a round are cut into as many, by turns again: what disturbs the machine for less
    than a turn then disturbs all alike. A turn is excluded before the first round: it warms up, and shows how often the
    work fits into `turn_s`.
    """
    settle_allocator()
    counts = {name: _count_for(contender, turn_s / slices) for name, contender in contenders.items()}
    names = list(contenders)
    measured: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        told(f"round {number + 1} of {rounds}")
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
    """Free a large block, as any training process has done before long.

    From then on the C library keeps blocks of a batch's size instead of giving them back to the system. Without it a
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
