"""Learning curves of groups of runs: one line per group, and a band over its runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from redline.report.charts import NUM_COLOURS, Line, LineChart
from redline.report.run_charts import AXES, TITLES
from redline.report.run_series import WINDOW_EPISODES, Axis, Series

BAND_POINTS = 200
SHORT_SHARE = 0.5  # of the longest run of a group: a shorter one is drawn apart, and does not cut the band
UNIT = f"mean of the last {WINDOW_EPISODES} episodes, unclipped"

Curve = tuple[str, Series]  # with the label of its run


@dataclass(frozen=True)
class CurveGroup:
    """The curves of runs that belong together."""

    label: str
    colour: int
    curves: Sequence[Curve]


def learning_chart(
    axis: Axis, groups: Sequence[CurveGroup], *, name: str = "", title: str = "", unit: str = UNIT
) -> LineChart | None:
    """Return returns against an axis with one line per group; None if no run has a curve."""
    lines = [line for group in groups for line in _lines(group)]
    if not lines:
        return None
    name = name or f"return-{axis.replace('_', '-')}"
    return LineChart(name, title or f"Return against {TITLES[axis]}", unit, AXES[axis], tuple(lines))


def _lines(group: CurveGroup) -> list[Line]:
    """Return the median of a group's long runs with their band, and each shorter run."""
    found = [(label, curve) for label, curve in group.curves if curve.x]
    if not found:
        return []
    least = SHORT_SHARE * max(curve.x[-1] for _, curve in found)
    long = [(label, curve) for label, curve in found if curve.x[-1] >= least]
    short = [(label, curve) for label, curve in found if curve.x[-1] < least]
    first, last = max(curve.x[0] for _, curve in long), min(curve.x[-1] for _, curve in long)
    dash = group.colour // NUM_COLOURS
    if len(long) > 1 and first < last:
        return [_band(group, long, first, last), *_apart(short, group.colour, dash + 1)]
    if len(found) == 1:
        found = [(group.label, found[0][1])]
    return _apart(found, group.colour, dash)


def _band(group: CurveGroup, found: Sequence[Curve], first: float, last: float) -> Line:
    x = np.linspace(first, last, BAND_POINTS)
    values = np.stack([np.interp(x, curve.x, curve.y) for _, curve in found])  # [runs, points]
    middle, low, high = (part.tolist() for part in (np.median(values, axis=0), values.min(0), values.max(0)))
    label, dash = f"{group.label}, {len(found)} runs", group.colour // NUM_COLOURS
    return Line(label, x.tolist(), middle, group.colour, dash, low=low, high=high)


def _apart(found: Sequence[Curve], colour: int, dash: int) -> list[Line]:
    """Return a line for each run."""
    return [Line(label, curve.x, curve.y, colour, dash + place) for place, (label, curve) in enumerate(found)]
