"""Rates of several contenders, measured in turn, and what every result says of machine, other processes and goals."""

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

Progress = Callable[[str], None]  # gets messages
Contender = Callable[[int], None]  # repeats its work
Rate = dict[str, float]  # median, low and high of the rounds


def silent(_: str) -> None:
    """Drop the text."""


# Rates, measured in turn


def rate_of(rounds: Sequence[float]) -> Rate:
    """Return the median of the rounds, and the range that holds 90 % of them."""
    low, median, high = np.quantile(rounds, [(1 - COVERAGE) / 2, 0.5, (1 + COVERAGE) / 2]).tolist()
    return {"median": median, "low": low, "high": high}


def told_rounds(rounds: int, progress: Progress, *, guess_s: float) -> Iterator[int]:
    """Count the rounds from 0 and report each with the time left, at first a guess."""
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
    """Let each contender work once per round, in rotating order; return its rate in each round.

    A disturbance of the machine then slows all contenders alike. With several slices, the turns of a round are cut and
    alternate as well, against disturbances shorter than a turn. One excluded turn of each comes first: it warms up and
    shows how often the work fits into `turn_s`.
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
    """Free a large block, as any training process soon does.

    The C library then keeps blocks of a batch's size instead of returning them to the system. Otherwise a contender
    that allocates every batch would pay for new pages each time, unlike a real training.
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
    """A measurement's duration, and the share of the machine that other processes used."""

    def __init__(self) -> None:
        self._begun_s, self._all_before_s, self._own_before_s = time.perf_counter(), _all_cpu_s(), own_cpu_s()

    def others_percent(self) -> float:
        """Return the share of all cores that others used."""
        available_s = (time.perf_counter() - self._begun_s) * (os.cpu_count() or 1)
        all_cpu_s, spent_s = _all_cpu_s() - self._all_before_s, own_cpu_s() - self._own_before_s
        return max(0.0, 100.0 * (all_cpu_s - spent_s) / available_s)  # two clocks: a little may be missing

    def result(self, found: Mapping[str, Any], *, others_percent: float) -> dict[str, Any]:
        """Return the findings with machine, commit, versions, load by others and duration."""
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

    `met` is None where this run can't decide it, for the reason `why_not`.
    """
    is_met = rate["median"] >= wanted and rate["low"] >= LOW_SHARE * wanted
    met = is_met if why_not is None else None
    return {"value": rate["median"], "low": rate["low"], "goal": wanted, "met": met, "reason": why_not}


def why_not_judged(*, rounds: int, others_percent: float) -> str | None:
    """Return why these conditions allow no verdict; None if they do."""
    if rounds < LEAST_ROUNDS:
        return f"a verdict needs {LEAST_ROUNDS} rounds"
    if others_percent > MAX_BUSY_PERCENT:
        return f"others used {others_percent:.0f} % of the CPU"
    return None


def busy_words(others_percent: float) -> str:
    """Return a warning if other processes used the machine."""
    return f" while others used {others_percent:.0f} % of the CPU" if others_percent > MAX_BUSY_PERCENT else ""


def _all_cpu_s() -> float:
    """Return the busy seconds of all cores, including time stolen by the host."""
    spent = psutil.cpu_times()._asdict()
    return float(sum(value for name, value in spent.items() if name not in IDLE))


def own_cpu_s() -> float:
    """Return the CPU seconds of this process and its descendants, ended ones included."""
    root, total_s = psutil.Process(), 0.0
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # ended since it was listed: its parent counts it from now on
            spent = process.cpu_times()
            total_s += spent.user + spent.system + spent.children_user + spent.children_system
    return total_s
