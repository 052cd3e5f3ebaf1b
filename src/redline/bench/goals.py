"""What must be shown, and whether it was: by the median, and by what 90 % of the rounds stay above."""

from __future__ import annotations

from typing import Any

from redline.bench.measuring import Rate

LEAST_ROUNDS = 5  # for a verdict
LOW_SHARE = 0.9  # of the goal, for the lower bound


def goal(rate: Rate | None, wanted: float, *, judged: bool = True) -> dict[str, Any]:
    """Compare with what is wanted; `met` is None where this run can't tell."""
    if rate is None:
        return {"value": None, "low": None, "goal": wanted, "met": None}
    met = rate.median >= wanted and rate.low >= LOW_SHARE * wanted
    return {"value": rate.median, "low": rate.low, "goal": wanted, "met": met if judged else None}
