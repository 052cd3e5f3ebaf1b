"""What every result says: where it was measured, what other processes did meanwhile, and whether goals are met."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psutil

from redline.bench.measuring import Rate
from redline.jsonl import SCHEMA
from redline.runs.host import host_facts, version

MAX_BUSY_PERCENT = 15.0  # of all cores, used by other processes
IDLE = ("idle", "iowait", "guest", "guest_nice")  # guests are counted in `user` too
LEAST_ROUNDS = 5  # for a verdict
LOW_SHARE = 0.9  # of the goal, which the lower end must reach


def result_head(packages: Sequence[str] = ()) -> dict[str, Any]:
    """Return schema, machine, commit and versions, those of `packages` included."""
    facts = host_facts()
    versions: Any = facts["versions"]
    return {
        "schema": SCHEMA,
        "host": facts["host"],
        "commit": facts["commit"],
        "versions": versions | {name: version(name) for name in packages},
    }


def goal(rate: Rate, wanted: float, *, why_not: str | None = None) -> dict[str, Any]:
    """Compare a rate with its goal: the median must reach it, the lower end nine tenths of it.

    `met` is None where this run can't tell, for the reason that `why_not` gives.
    """
    met = rate.median >= wanted and rate.low >= LOW_SHARE * wanted
    return {
        "value": rate.median,
        "low": rate.low,
        "goal": wanted,
        "met": met if why_not is None else None,
        "reason": why_not,
    }


def why_not_judged(*, rounds: int, others_percent: float) -> str | None:
    """Return why no bench could give a verdict under these conditions, None if it could."""
    if rounds < LEAST_ROUNDS:
        return f"a verdict needs {LEAST_ROUNDS} rounds"
    if others_percent > MAX_BUSY_PERCENT:
        return f"others used {others_percent:.0f} % of the CPU"
    return None


class OtherWork:
    """Measures how much of the machine other processes use, from when it is made."""

    def __init__(self) -> None:
        self._begun = time.perf_counter(), _all_cpu_s(), own_cpu_s()

    def percent(self) -> float:
        """Return the share of all cores that others used."""
        begun_s, all_before_s, own_before_s = self._begun
        return percent_of_others(
            all_cpu_s=_all_cpu_s() - all_before_s,
            own_cpu_s=own_cpu_s() - own_before_s,
            available_s=(time.perf_counter() - begun_s) * (os.cpu_count() or 1),
        )


def percent_of_others(*, all_cpu_s: float, own_cpu_s: float, available_s: float) -> float:
    """Return the share that was not our own work; two clocks count the two, so a little may be missing."""
    return max(0.0, 100.0 * (all_cpu_s - own_cpu_s) / available_s)


def busy_facts(others_percent: float) -> dict[str, Any]:
    """Return what a result says of other processes."""
    return {"others_percent": others_percent, "is_busy": others_percent > MAX_BUSY_PERCENT}


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
