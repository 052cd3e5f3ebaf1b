"""Charts as values: what they show; `chart_drawing` draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean


@dataclass(frozen=True)
class Line:
    """One series: what it is called, where it goes, and how it is told from the others."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    colour: int = 0
    dash: int = 0
    is_faint: bool = False
    is_points: bool = False
    in_legend: bool = True


@dataclass(frozen=True)
class LineChart:
    """Series against one axis, or points in a plane."""

    name: str
    title: str
    unit: str
    x_label: str
    lines: tuple[Line, ...]
    bottom: float | None = None
    top: float | None = None


@dataclass(frozen=True)
class Bar:
    """One row of shares; the colour of each part is that of its name."""

    label: str
    shares: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class ShareChart:
    """Rows of shares that make up a whole: who did what."""

    name: str
    title: str
    unit: str
    bars: tuple[Bar, ...]
    rest: str = ""  # the part that is drawn in grey
    pale: frozenset[str] = frozenset()  # parts that are no work


@dataclass(frozen=True)
class Spread:
    """What several runs of one group gave: every run, their mean and its interval."""

    label: str
    values: tuple[float, ...]
    mean: float
    low: float | None
    high: float | None
    colour: int


@dataclass(frozen=True)
class SpreadChart:
    """One row for each group: a dot for each run, a bar for the interval of the mean."""

    name: str
    title: str
    unit: str
    rows: tuple[Spread, ...]


SHORT_MINUTES = 3.0


def over_time(chart: LineChart) -> LineChart:
    """Return a chart whose axis is minutes, in seconds where it is over soon."""
    if any(minutes > SHORT_MINUTES for line in chart.lines for minutes in line.x):
        return chart
    lines = tuple(replace(line, x=[minutes * 60 for minutes in line.x]) for line in chart.lines)
    return replace(chart, lines=lines, x_label="seconds")


def thinned(chart: LineChart, *, max_points: int, least: int = 60) -> LineChart:
    """Return a chart of at most about so many points in all, as means of neighbours; dots are left as they are."""
    most = max(least, max_points // max(len(chart.lines), 1))
    return replace(chart, lines=tuple(line if line.is_points else _thinned(line, most) for line in chart.lines))


def _thinned(line: Line, most: int) -> Line:
    if len(line.x) <= most:
        return line
    cuts = [place * len(line.x) // most for place in range(most + 1)]
    pieces = [slice(begin, end) for begin, end in pairwise(cuts)]
    return replace(line, x=[fmean(line.x[piece]) for piece in pieces], y=[fmean(line.y[piece]) for piece in pieces])


Chart = LineChart | ShareChart | SpreadChart
