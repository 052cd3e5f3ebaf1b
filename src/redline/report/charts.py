"""Charts as values: what they show; `chart_drawing` draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median


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
    is_sampled: bool = False  # values come at a steady pace: a line ends where some are missing


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
GAP_STEPS = 3.0  # usual steps beyond which a step is a gap
OF_NEIGHBOURS = "means of neighbours"


def over_time(chart: LineChart) -> LineChart:
    """Return a chart whose axis is minutes, in seconds where it is over soon."""
    if any(minutes > SHORT_MINUTES for line in chart.lines for minutes in line.x):
        return chart
    lines = tuple(replace(line, x=[minutes * 60 for minutes in line.x]) for line in chart.lines)
    return replace(chart, lines=lines, x_label="seconds")


def thinned(chart: LineChart, *, max_points: int, least: int = 60) -> LineChart:
    """Return a chart of at most about so many points in all, as means of neighbours; dots are left as they are."""
    most = max(least, max_points // max(len(chart.lines), 1))
    lines = tuple(_thinned(line, most, pieces(line) if chart.is_sampled else [line]) for line in chart.lines)
    return means_of_neighbours(replace(chart, lines=lines)) if lines != chart.lines else chart


def means_of_neighbours(chart: LineChart) -> LineChart:
    """Return a chart that says that its values are means."""
    return chart if OF_NEIGHBOURS in chart.unit else replace(chart, unit=f"{chart.unit}, {OF_NEIGHBOURS}")


def pieces(line: Line) -> list[Line]:
    """Return the parts of a line between which values are missing."""
    steps = [after - before for before, after in pairwise(line.x)]
    usual = median(steps) if steps else 0.0
    ends = [place for place, step in enumerate(steps, start=1) if usual > 0 and step > GAP_STEPS * usual]
    cuts = pairwise([0, *ends, len(line.x)])
    return [replace(line, x=line.x[begin:end], y=line.y[begin:end]) for begin, end in cuts]


def _thinned(line: Line, most: int, parts: Sequence[Line]) -> Line:
    """Return a line of about so many points, none of which is the mean of values of two parts."""
    count = len(line.x)
    if line.is_points or count <= most:
        return line
    x: list[float] = []
    y: list[float] = []
    for part in parts:
        number = max(1, most * len(part.x) // count)
        for begin, end in pairwise(place * len(part.x) // number for place in range(number + 1)):
            x.append(fmean(part.x[begin:end]))
            y.append(fmean(part.y[begin:end]))
    return replace(line, x=x, y=y)


Chart = LineChart | ShareChart | SpreadChart
