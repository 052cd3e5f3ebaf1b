"""How much of the machine others used while this process and those it started worked."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any

import psutil

MAX_BUSY_PERCENT = 15.0  # of all cores, by others
IDLE = ("idle", "iowait", "guest", "guest_nice")  # guests are counted in `user` too


class OtherWork:
    """Counts from when it is made."""

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
    """Return what was not our own work; the two are counted by different clocks, so a little may be missing."""
    return max(0.0, 100.0 * (all_cpu_s - own_cpu_s) / available_s)


def busy_facts(others_percent: float) -> dict[str, Any]:
    """Return what a result says of others."""
    return {"others_percent": others_percent, "is_busy": others_percent > MAX_BUSY_PERCENT}


def busy_words(others_percent: float) -> str:
    """Return a warning where others used the machine: that slows teams of threads that spin long far more than ours."""
    return f" while others used {others_percent:.0f} % of the CPU" if others_percent > MAX_BUSY_PERCENT else ""


def _all_cpu_s() -> float:
    """Return the seconds for which any core was at work, those lent to other machines included."""
    spent = psutil.cpu_times()._asdict()
    return float(sum(value for name, value in spent.items() if name not in IDLE))


def own_cpu_s() -> float:
    """Return the CPU seconds of this process and of all that it started."""
    return tree_cpu_s(psutil.Process())


def tree_cpu_s(root: psutil.Process) -> float:
    """Return the CPU seconds of a process and of all that it started, those that have ended included."""
    total_s = 0.0
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # ended since it was listed: counted by its parent from now on
            spent = process.cpu_times()
            total_s += spent.user + spent.system + spent.children_user + spent.children_system
    return total_s
