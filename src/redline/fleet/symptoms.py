"""What may be wrong with one run, by what is seen of it every few seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from redline.fleet.growth import Series
from redline.units import duration, number, size

# memory
SETTLE_S = 20.0  # after the first steps: buffers have seen every shape
LEAST_LEAK_BYTES = 64_000_000
LEAST_LEAK_SHARE = 0.03  # of what it held
REPLAY_SURPLUS = 1.2  # a replay memory takes somewhat more than it counts
# hangs
QUIET_S = 30.0  # without a step, and without work
BUSY_QUIET_S = 600.0  # without a step, at work: an evaluation may take long
PAUSES = 3.0  # times the longest pause so far
IDLE_CORES = 0.05  # heartbeat and monitor take less
STOPPED = "T"
# workers
REPLACEMENT_S = 30.0  # a lost worker is replaced within that time
# learning
HALF = 0.5
FIRST_EPISODES = 20
LEAST_EPISODES = 10
RECENT_EPISODES = 100
DEVIATIONS = 2.0


@dataclass(frozen=True)
class Look:
    """What one look at a run tells."""

    time_s: float  # monotonic
    steps: int
    updates: float = 0.0
    progress: float | None = None
    mean_return: float | None = None  # of the newest episodes
    episodes: int = 0
    replay_bytes: float = 0.0  # that its replay memory has touched by design
    cpu_s: float | None = None  # of its processes so far; None on another machine
    private_bytes: int | None = None
    is_stopped: bool = False  # by a signal
    workers: int = 1  # as it says
    workers_alive: int = 1


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a run."""

    kind: str
    message: str
    remedy: str = ""


class Leak:
    """Memory that grows although the replay memory does not."""

    def __init__(self) -> None:
        self._series = Series()
        self._begun_s: float | None = None

    @property
    def slope_bytes_per_h(self) -> float | None:
        """The slope since the run has settled; None until it is known."""
        return self._series.slope_per_h()

    def look(self, look: Look, available_bytes: int) -> Finding | None:
        """Return what is wrong now."""
        if look.private_bytes is None or look.steps <= 0:
            return None
        self._begun_s = look.time_s if self._begun_s is None else self._begun_s
        if look.time_s - self._begun_s < SETTLE_S:
            return None
        self._series.add(look.time_s, look.private_bytes - REPLAY_SURPLUS * look.replay_bytes)
        growth = self._series.growth(max(LEAST_LEAK_BYTES, LEAST_LEAK_SHARE * look.private_bytes))
        if growth is None:
            return None
        left = f"{size(available_bytes, 1)} free is gone in {duration(available_bytes / growth.per_s)}"
        what = f"its memory grows by {size(growth.per_h, 1)} per hour, {size(growth.gained, 1)} in the last"
        remedy = "redline fleet stop saves all runs; a resume begins with fresh memory"
        return Finding("leak", f"{what} {duration(growth.span_s)}: {left}", remedy)


class Hang:
    """A process that lives and takes no step."""

    def __init__(self) -> None:
        self._last: Look | None = None
        self._stepped_s = self._worked_s = 0.0
        self._longest_pause_s = 0.0

    def look(self, look: Look) -> Finding | None:
        """Return what is wrong now."""
        last, self._last = self._last, look
        if last is None or look.steps != last.steps:
            if last is not None and last.steps > 0:
                self._longest_pause_s = max(self._longest_pause_s, look.time_s - self._stepped_s)
            self._stepped_s = self._worked_s = look.time_s
            return None
        if _worked(last, look):
            self._worked_s = look.time_s
        quiet_s, idle_s = look.time_s - self._stepped_s, look.time_s - self._worked_s
        if idle_s >= QUIET_S:
            if look.is_stopped:
                return Finding("hang", f"no step for {duration(quiet_s)}: it was stopped by a signal", "kill -CONT it")
            return Finding(
                "hang", f"no step for {duration(quiet_s)}, and it computes nothing", "kill it: the fleet resumes it"
            )
        if quiet_s >= max(BUSY_QUIET_S, PAUSES * self._longest_pause_s):
            said = f"no step for {duration(quiet_s)} although it computes"
            return Finding("hang", said, "look at its log; an evaluation may take long")
        return None


def _worked(last: Look, look: Look) -> bool:
    """Tell whether a run has computed between two looks; on another machine nobody knows."""
    if look.cpu_s is None or last.cpu_s is None:
        return True
    return look.cpu_s - last.cpu_s >= IDLE_CORES * (look.time_s - last.time_s)


class Workers:
    """Processes of a run that are gone, and not replaced."""

    def __init__(self) -> None:
        self._missing_s: float | None = None

    def look(self, look: Look) -> Finding | None:
        """Return what is wrong now."""
        if look.workers_alive >= look.workers:
            self._missing_s = None
            return None
        self._missing_s = look.time_s if self._missing_s is None else self._missing_s
        if look.time_s - self._missing_s < REPLACEMENT_S:
            return None
        return Finding("workers", f"{look.workers_alive} of its {look.workers} processes are alive")


def learns_nothing(look: Look, first_returns: Sequence[float]) -> Finding | None:
    """Say so if the returns of a run are those of its first episodes although half of its budget is spent."""
    if look.progress is None or look.progress < HALF or look.mean_return is None:
        return None
    if len(first_returns) < LEAST_EPISODES or look.episodes < FIRST_EPISODES + LEAST_EPISODES:
        return None
    first = fmean(first_returns)
    recent = min(look.episodes, RECENT_EPISODES)
    noise = stdev(first_returns) * sqrt(1 / len(first_returns) + 1 / recent)
    if look.mean_return > first + DEVIATIONS * noise:
        return None
    said = f"mean return {number(look.mean_return)} after {look.progress:.0%} of its budget"
    return Finding("no-learning", f"{said}, and {number(first)} in its first {len(first_returns)} episodes")
