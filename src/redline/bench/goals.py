"""What must be shown, and whether it was: by the median and by `low`, the lower end of the middle 90 % of rounds."""

from __future__ import annotations

from typing import Any

from redline.bench.measuring import Rate
from redline.bench.other_work import MAX_BUSY_PERCENT

LEAST_ROUNDS = 5  # for a verdict
LOW_SHARE = 0.9  # of the goal, for the lower end


def goal(rate: Rate | None, wanted: float, *, why_not: str | None = None) -> dict[str, Any]:
    """Compare with what is wanted; `met` is None where this run can't tell, for the reason that is given."""
    if rate is None:
        return {"value": None, "low": None, "goal": wanted, "met": None, "reason": "not measured"}
    met = rate.median >= wanted and rate.low >= LOW_SHARE * wanted
    return {
        "value": rate.median,
        "low": rate.low,
        "goal": wanted,
        "met": met if why_not is None else None,
        "reason": why_not,
    }


def why_not_judged(*, rounds: int, others_percent: float) -> str | None:
    """Return what keeps any bench from a verdict, None if nothing does."""
    if rounds < LEAST_ROUNDS:
        return f"a verdict needs {LEAST_ROUNDS} rounds"
    if others_percent > MAX_BUSY_PERCENT:
        return f"others used {others_percent:.0f} % of the CPU"
    return None
