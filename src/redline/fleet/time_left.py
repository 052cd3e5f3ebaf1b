"""How long a fleet will still train, from what its runs tell."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from redline.fleet.slots import SlotStatus

SECONDS_PER_MINUTE = 60.0
LEAST_S = 10.0  # of training, before what a run expects is worth anything


def time_left(statuses: Sequence[SlotStatus], concurrency: int) -> float | None:
    """Return the seconds until the last run ends, as one starts when another ends; None if none is left, or unknown.

    A run that has not begun takes as long as others of its game and algorithm, else its limit in minutes, else as
    long as all others on average.
    """
    known = {status.slot.name: total for status in statuses if (total := _total_s(status)) is not None}
    ends = [0.0] * max(1, concurrency)
    for status in sorted(statuses, key=lambda status: status.state != "running"):
        if status.state not in ("running", "waiting"):
            continue
        total_s = _expected_s(status, statuses, known)
        if total_s is None:
            return None
        left_s = max(0.0, total_s - (status.time_s or 0.0))
        place = ends.index(min(ends))
        ends[place] += left_s
    return max(ends) or None


def _expected_s(status: SlotStatus, statuses: Sequence[SlotStatus], known: dict[str, float]) -> float | None:
    """Return how long a run takes from begin to end."""
    if (own := known.get(status.slot.name)) is not None:
        return own
    kind = (status.slot.game, status.slot.algorithm, status.slot.variant)
    like = [
        known[other.slot.name]
        for other in statuses
        if other.slot.name in known and (other.slot.game, other.slot.algorithm, other.slot.variant) == kind
    ]
    if like:
        return fmean(like)
    minutes = status.slot.settings.get("max-minutes")
    if isinstance(minutes, int | float):
        return minutes * SECONDS_PER_MINUTE
    return fmean(known.values()) if known else None


def _total_s(status: SlotStatus) -> float | None:
    """Return how long a run takes in all, if it can tell that."""
    if status.time_s is None:
        return None
    if status.state == "done":
        return status.time_s
    return None if status.remaining_s is None or status.time_s < LEAST_S else status.time_s + status.remaining_s
