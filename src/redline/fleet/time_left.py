"""How long a fleet will still train, from what its runs tell."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapreplace
from statistics import fmean

from redline.fleet.listing import Slot
from redline.fleet.slots import SlotStatus

SECONDS_PER_MINUTE = 60.0
LEAST_S = 10.0  # of training, before what a run expects is worth anything

Kind = tuple[str, str, str]  # game, algorithm and variant


def time_left(statuses: Sequence[SlotStatus], concurrency: int) -> float | None:
    """Return the seconds until the last run ends, as one starts when another ends; None if none is left, or unknown.

    A run that has not begun takes as long as others of its game and algorithm, else its limit in minutes, else as
    long as all others on average.
    """
    known = {status.slot.name: total for status in statuses if (total := _total_s(status)) is not None}
    by_kind: dict[Kind, list[float]] = {}
    for status in statuses:
        if (total := known.get(status.slot.name)) is not None:
            by_kind.setdefault(_kind(status.slot), []).append(total)
    like = {kind: fmean(totals) for kind, totals in by_kind.items()}
    usual = fmean(known.values()) if known else None
    ends = [0.0] * min(max(1, concurrency), max(1, len(statuses)))  # a heap
    for status in sorted(statuses, key=lambda status: status.state != "running"):
        if status.state not in ("running", "waiting"):
            continue
        minutes = status.slot.settings.get("max-minutes")
        limit_s = minutes * SECONDS_PER_MINUTE if isinstance(minutes, int | float) else usual
        total_s = known.get(status.slot.name, like.get(_kind(status.slot), limit_s))
        if total_s is None:
            return None
        heapreplace(ends, ends[0] + max(0.0, total_s - (status.time_s or 0.0)))
    return max(ends) or None


def _kind(slot: Slot) -> Kind:
    return slot.game, slot.algorithm, slot.variant


def _total_s(status: SlotStatus) -> float | None:
    """Return how long a run takes in all, if it can tell that."""
    if status.time_s is None:
        return None
    if status.state == "done":
        return status.time_s
    return None if status.remaining_s is None or status.time_s < LEAST_S else status.time_s + status.remaining_s
