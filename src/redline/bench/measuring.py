"""Rates of several contenders, measured by turns, and what every result says of machine, other processes and goals."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import psutil

from redline.jsonl import SCHEMA
from redline.runs.host import host_facts

COVERAGE = 0.9  # of the rounds lie between low and high
SETTLE_BYTES = 16 * 1024**2
MAX_BUSY_PERCENT = 15.0  # of all cores, used by other processes
IDLE = ("idle", "iowait", "guest", "guest_nice")  # guests are counted in `user` too
LEAST_ROUNDS = 5  # for a verdict
LOW_SHARE = 0.9  # of the goal, which the lower end must reach

Progress = Callable[[str], None]  # is told what goes on
Contender = Callable[[int], None]  # does its work so many times in a row
Rate = dict[str, float]  # median, low and high of the rounds


def silent(_: str) -> None:
    """Drop the text."""


# Rates by turns


def rate_of(rounds: Sequence[float]) -> Rate:
    """Return the median of the rounds, and the range that holds 90 % of them."""
    low, median, high = np.quantile(rounds, [(1 - COVERAGE) / 2, 0.5, (1 + COVERAGE) / 2]).tolist()
    return {"median": median, "low": low, "high": high}


def told_rounds(rounds: int, progress: Progress, *, guess_s: float) -> Iterator[int]:
    """Count the rounds from 0; tell which one begins and how long the rest takes, at first by a guess."""
    begun_s = time.monotonic()
    for number in range(rounds):
        round_s = (time.monotonic() - begun_s) / number if number else guess_s
        left_s = (rounds - number) * round_s
        words = f"about {left_s:.0f} s" if left_s < 90 else f"about {left_s / 60:.0f} min"
        progress(f"round {number + 1} of {rounds}, {words} left")
        yield number


def alternate(
    contenders: Mapping[str, Contender],
    *,
    rounds: int,
    turn_s: float,
    slices: int = 1,
    progress: Progress = silent,
) -> dict[str, list[float]]:
    """Let each contender work once per round, in rotating order; return its times per second, round by round.

    Whatever else slows the machine then slows all of them. With several slices, the turns of a round are cut into as
    many and alternate too: a disturbance that is shorter than a turn then hits all alike. One excluded turn of each
    comes before the first round: it warms up, and shows how often the work fits into `turn_s`.
    """
    settle_allocator()
    counts = {name: _count_for(contender, turn_s / slices) for name, contender in contenders.items()}
    names = list(contenders)
    measured: dict[str, list[float]] = {name: [] for name in names}
    for number in told_rounds(rounds, progress, guess_s=turn_s * len(names)):
        start = number * (len(names) // rounds or 1) % len(names)
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
    count = 1
    while True:
        begin_s = time.perf_counter()
        contender(count)
        spent_s = time.perf_counter() - begin_s
        if spent_s >= turn_s / 4:
            return max(round(count * turn_s / spent_s), 1)
        count = min(max(round(count * turn_s / 2 / max(spent_s, 1e-9)), count + 1), count * 10)


# Results


class Measuring:
    """The time since it was made, and how much of the machine other processes used meanwhile."""

    def __init__(self) -> None:
        self._begun_s, self._all_before_s, self._own_before_s = time.perf_counter(), _all_cpu_s(), own_cpu_s()

    def others_percent(self) -> float:
        """Return the share of all cores that others used."""
        available_s = (time.perf_counter() - self._begun_s) * (os.cpu_count() or 1)
        all_cpu_s, spent_s = _all_cpu_s() - self._all_before_s, own_cpu_s() - self._own_before_s
        return max(0.0, 100.0 * (all_cpu_s - spent_s) / available_s)  # two clocks: a little may be missing

    def result(self, found: Mapping[str, Any], *, others_percent: float) -> dict[str, Any]:
        """Return what was found with machine, commit, versions, the work of others and how long it took."""
        facts = host_facts()
        return {
            "schema": SCHEMA,
            **{name: facts[name] for name in ("host", "commit", "versions")},
            **found,
            "others_percent": others_percent,
            "is_busy": others_percent > MAX_BUSY_PERCENT,
            "duration_s": time.perf_counter() - self._begun_s,
        }


def goal(rate: Rate, wanted: float, *, why_not: str | None = None) -> dict[str, Any]:
    """Compare a rate with its goal: the median must reach it, the lower end nine tenths of it.

    `met` is None where this run can't tell, for the reason that `why_not` gives.
    """
    is_met = rate["median"] >= wanted and rate["low"] >= LOW_SHARE * wanted
    met = is_met if why_not is None else None
    return {"value": rate["median"], "low": rate["low"], "goal": wanted, "met": met, "reason": why_not}


def why_not_judged(*, rounds: int, others_percent: float) -> str | None:
    """Return why no bench could give a verdict under these conditions, None if it could."""
    if rounds < LEAST_ROUNDS:
        return f"a verdict needs {LEAST_ROUNDS} rounds"
    if others_percent > MAX_BUSY_PERCENT:
        return f"others used {others_percent:.0f} % of the CPU"
    return None


def busy_words(others_percent: float) -> str:
    """Return a warning where other processes used the machine."""
    return f" while others used {others_percent:.0f} % of the CPU" if others_percent > MAX_BUSY_PERCENT else ""


def _all_cpu_s() -> float:
    """Return the seconds for which any core was at work, time stolen by the host included."""
    spent = psutil.cpu_times()._asdict()
    return float(sum(value for name, value in spent.items() if name not in IDLE))


def own_cpu_s() -> float:
    """Return the CPU seconds of this process and its descendants, those that have ended included."""
    root, total_s = psutil.Process(), 0.0
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # ended since it was listed: its parent counts it from now on
            spent = process.cpu_times()
            total_s += spent.user + spent.system + spent.children_user + spent.children_system
    return total_s
