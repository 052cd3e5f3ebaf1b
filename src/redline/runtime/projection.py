"""How long a run will still take, and what that costs: the steps that are left, at the pace of its learning so far.

The warm-up is many times faster than learning and tells nothing. The learning of this invocation is cut into windows
of equal steps. The newest half of them gives the pace, so that slow drift and the first, slower updates fade out.
The interval takes the rest of the run for one more window: Student's t over the logarithms of all windows' paces.
Evaluations slow it by their time ÷ that of the learning up to the newest one. One in the first seconds tells nothing:
after a resume it may come at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log, sqrt
from statistics import fmean, stdev

import numpy as np

from redline.runtime.config import Limits
from redline.runtime.counters import Counters

MOST_WINDOWS = 10
T_95 = {2: 2.920, 3: 2.353, 4: 2.132, 5: 2.015, 6: 1.943, 7: 1.895, 8: 1.860, 9: 1.833}  # Student's t, by freedom
LEAST_LEARNING_S = 3.0  # before it, one slow update decides
LONG_PAUSE_S = 0.2  # an evaluation, not what a caller does with a reading
MOST_POINTS = 512  # of a run of days; every second one is dropped beyond

SECONDS_PER_HOUR, MILLION = 3_600.0, 1_000_000


@dataclass(frozen=True)
class Pace:
    """Wall seconds that a step takes; 90 % of such windows lie between low and high, None while there are too few."""

    s_per_step: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class TimeLeft:
    """Wall seconds until a limit, with their 90 % interval; None where they are not known."""

    remaining_s: float | None = None
    remaining_low_s: float | None = None
    remaining_high_s: float | None = None


@dataclass(frozen=True)
class Bill:
    """Money that a run has cost and will cost, in the currency of its price; None where the time is not known."""

    price_per_hour: float
    cost: float
    cost_remaining: float | None
    cost_remaining_low: float | None
    cost_remaining_high: float | None
    cost_per_million_steps: float | None  # of learning


def pace_of(steps: Sequence[float], seconds: Sequence[float]) -> Pace | None:
    """Return the pace of a curve of steps and the seconds at which they were reached, both rising; None for one point.

    Fewer than four points have no interval.
    """
    num_windows = min(MOST_WINDOWS, len(steps) - 1)
    if num_windows < 1:
        return None
    edges = np.linspace(steps[0], steps[-1], num_windows + 1)
    width = (steps[-1] - steps[0]) / num_windows
    paces = [(end_s - begin_s) / width for begin_s, end_s in pairwise(np.interp(edges, steps, seconds).tolist())]
    newest = paces[num_windows // 2 :]
    expected = fmean(newest)
    if num_windows - 1 not in T_95:
        return Pace(expected)
    factor = exp(T_95[num_windows - 1] * stdev(map(log, paces)) * sqrt(1 + 1 / len(newest)))
    return Pace(expected, expected / factor, expected * factor)


class PaceMeter:
    """Follows the learning of one invocation, and returns its pace."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._steps, self._seconds = [float(_learning_steps(counters))], [_learning_s(counters)]
        self._paused_before_s = self._paused_s = 0.0
        self._pauses_at_s: tuple[float, float] | None = None  # of learning: the first long pause, and the newest

    def add(self, *, paused_s: float) -> None:
        """Take a reading of the counters; training has been paused for so long in this invocation."""
        if not self._counters.updates:
            self._paused_before_s = paused_s  # in the warm-up
        elif paused_s - self._paused_s >= LONG_PAUSE_S:
            at_s = self._seconds[-1] - self._seconds[0]
            self._pauses_at_s = (self._pauses_at_s[0] if self._pauses_at_s else at_s, at_s)
        self._paused_s = paused_s
        steps, seconds = float(_learning_steps(self._counters)), _learning_s(self._counters)
        if steps <= self._steps[-1] or seconds <= self._seconds[-1]:
            return
        if len(self._steps) == MOST_POINTS:
            self._steps, self._seconds = self._steps[::2], self._seconds[::2]
        self._steps.append(steps)
        self._seconds.append(seconds)

    def pace(self) -> Pace | None:
        """Return the pace with its pauses; that of earlier invocations right after a resume, None in the warm-up."""
        learning_s = self._seconds[-1] - self._seconds[0]
        if learning_s >= LEAST_LEARNING_S:
            found = pace_of(self._steps, self._seconds)
        else:
            steps_per_s = self._counters.learning_steps_per_s
            is_known = steps_per_s and _learning_s(self._counters) >= LEAST_LEARNING_S
            found = Pace(1 / steps_per_s) if steps_per_s and is_known else None
        first_s, newest_s = self._pauses_at_s or (0.0, learning_s)
        if found is None or newest_s < LEAST_LEARNING_S:  # too early to tell how often evaluations come
            return found
        # evaluations come at even distances: the next is not due yet, and the first may have come early
        slower = 1 + (self._paused_s - self._paused_before_s) / max(newest_s, learning_s - first_s)
        ends = [None if end is None else end * slower for end in (found.low, found.high)]
        return Pace(found.s_per_step * slower, *ends)


def _learning_steps(counters: Counters) -> int:
    return counters.steps - counters.warmup_steps if counters.updates else 0


def _learning_s(counters: Counters) -> float:
    return counters.time_s - counters.warmup_time_s if counters.updates else 0.0


def project(
    limits: Limits,
    counters: Counters,
    *,
    frames_per_step: int,
    episode_steps: float | None,
    invocation_s: float,
    pace: Pace | None,
) -> tuple[float | None, TimeLeft]:
    """Return the share done of the limit that will be reached first, and the time left until then.

    Episodes that are left are taken to be `episode_steps` long, by default as long as all so far. Without a pace only
    minutes can be projected.
    """
    total_steps = limits.total_steps(frames_per_step=frames_per_step)
    ends: list[tuple[float, float | None]] = []  # share done, steps left
    if total_steps is not None:
        ends.append((counters.steps / total_steps, total_steps - counters.steps))
    if limits.max_episodes is not None:
        length_steps = episode_steps or (counters.steps / counters.episodes if counters.episodes else None)
        left_steps = length_steps and (limits.max_episodes - counters.episodes) * length_steps
        ends.append((counters.episodes / limits.max_episodes, left_steps))
    if any(share >= 1.0 for share, _ in ends):
        return 1.0, TimeLeft(0.0, 0.0, 0.0)
    known = [] if pace is None else [(_at_pace(steps, pace), share) for share, steps in ends if steps is not None]
    if limits.max_minutes is not None:
        total_s = limits.max_minutes * 60
        left_s = max(total_s - invocation_s, 0.0)
        known.append((TimeLeft(left_s, left_s, left_s), min(invocation_s / total_s, 1.0)))
    if not known:
        return max((share for share, _ in ends), default=None), TimeLeft()
    first, share = min(known, key=lambda one: one[0].remaining_s or 0.0)
    return share, _with_interval(first, [left for left, _ in known])


def _at_pace(steps: float, pace: Pace) -> TimeLeft:
    low, high = (None if end is None else steps * end for end in (pace.low, pace.high))
    return TimeLeft(steps * pace.s_per_step, low, high)


def _with_interval(first: TimeLeft, options: Sequence[TimeLeft]) -> TimeLeft:
    """Return the time to the first limit, with an interval in which any of the others may come before it."""
    if first.remaining_low_s is None:
        return first
    lows_s = [left.remaining_low_s for left in options if left.remaining_low_s is not None]
    highs_s = [left.remaining_high_s for left in options if left.remaining_high_s is not None]
    return TimeLeft(first.remaining_s, min(lows_s), min(highs_s))


def bill(price_per_hour: float, elapsed_s: float, left: TimeLeft, pace: Pace | None) -> Bill:
    """Return what the hours cost: those so far, those left, and those of a million steps at the present pace."""

    def cost(seconds: float | None) -> float | None:
        return None if seconds is None else price_per_hour / SECONDS_PER_HOUR * seconds

    return Bill(
        price_per_hour,
        cost=price_per_hour / SECONDS_PER_HOUR * elapsed_s,
        cost_remaining=cost(left.remaining_s),
        cost_remaining_low=cost(left.remaining_low_s),
        cost_remaining_high=cost(left.remaining_high_s),
        cost_per_million_steps=None if pace is None else cost(MILLION * pace.s_per_step),
    )
