"""Minutes of a run by the wall clock, from its start, without the time in which it was stopped."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redline.report.row_values import moment, number

if TYPE_CHECKING:
    from redline.report.run_files import RunFiles  # which itself looks at the clock

# a gap of no more is no pause: a resume tells that the run was stopped, but a monitor may just be slow to start
MIN_PAUSE_S = {"resume": 0.0, "monitor-start": 60.0}
MAX_START_UP_S = 600.0  # before the first row; what lies further back is another run's clock


@dataclass(frozen=True)
class RunClock:
    """Turns the wall clock into minutes of the run."""

    begin_unix_s: float
    end_unix_s: float
    pauses: tuple[tuple[float, float], ...]  # (begin, end) by the wall clock, in order, disjoint

    def minutes(self, unix_s: float) -> float:
        """Return the minutes from the start; a moment in a pause is its beginning."""
        paused_s = sum(min(max(unix_s - begin_s, 0.0), end_s - begin_s) for begin_s, end_s in self.pauses)
        return (unix_s - self.begin_unix_s - paused_s) / 60.0

    @property
    def total_s(self) -> float:
        """Seconds from the start to the last row, without pauses."""
        return self.minutes(self.end_unix_s) * 60.0


def run_clock(run: RunFiles) -> RunClock | None:
    """Return the clock of a run, None where no row tells a time."""
    rows = (run.metrics, run.episodes, run.events, run.hardware)
    moments = sorted(unix_s for kind in rows for row in kind if (unix_s := moment(row)) is not None)
    if not moments:
        return None
    first_s = moments[0]
    if run.hardware:
        first_s = min(first_s, run.hardware[0]["unix_s"] - run.hardware[0]["interval_s"])
    created_s = None if run.run is None else number(run.run, "created_unix_s")
    if created_s is not None and 0 <= first_s - created_s <= MAX_START_UP_S:
        first_s = created_s
    begins = sorted(
        (unix_s, MIN_PAUSE_S[row["event"]])
        for row in run.events
        if row["event"] in MIN_PAUSE_S and (unix_s := moment(row)) is not None
    )
    return RunClock(first_s, moments[-1], tuple(_pauses(moments, begins)))


def _pauses(moments: Sequence[float], begins: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the gaps before a resume or a new recording: only these show that nothing ran."""
    found: list[tuple[float, float]] = []
    for begin_s, least_s in begins:
        place = bisect_left(moments, begin_s)
        pause = (moments[place - 1], begin_s) if place > 0 else (begin_s, begin_s)
        if pause[1] - pause[0] > least_s and pause not in found[-1:]:
            found.append(pause)
    return found
