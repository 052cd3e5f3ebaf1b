"""Charts as values. A page draws them with uPlot and HTML, `png` draws them with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median

import numpy as np

NUM_COLOURS = 8


@dataclass(frozen=True)
class Line:
    """One series: its name, its points and its style."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    colour: int = 0
    dash: int = 0
    is_faint: bool = False
    is_points: bool = False
    in_legend: bool = True
    low: Sequence[float] = ()  # with `high`, a band round the line: one value for each of x
    high: Sequence[float] = ()


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
    is_sampled: bool = False  # values come at a steady rate: a missing one breaks the line


@dataclass(frozen=True)
class Bar:
    """One row of shares; equal names have equal colours."""

    label: str
    shares: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class ShareChart:
    """Rows of shares that add up to a whole."""

    name: str
    title: str
    unit: str
    bars: tuple[Bar, ...]
    rest: str = ""  # name of the part drawn in grey
    pale: frozenset[str] = frozenset()  # names of parts that are waiting, not work

    def inks(self) -> dict[str, tuple[int | None, bool]]:
        """Return the colour (None: grey) of each part and whether it is pale, in the order of the legend."""
        parts = dict.fromkeys(name for bar in self.bars for name, _ in bar.shares)
        work = [name for name in parts if name not in self.pale and name != self.rest]
        pale = [name for name in parts if name in self.pale and name != self.rest]
        inks: dict[str, tuple[int | None, bool]] = {
            name: (place % NUM_COLOURS, group is pale) for group in (work, pale) for place, name in enumerate(group)
        }
        return inks | ({self.rest: (None, False)} if self.rest in parts else {})


@dataclass(frozen=True)
class Spread:
    """The value of each run of a group, their mean and its interval."""

    label: str
    values: tuple[float, ...]
    mean: float
    low: float | None
    high: float | None
    colour: int


@dataclass(frozen=True)
class SpreadChart:
    """One row per group: a dot per run, a band for the interval of the mean."""

    name: str
    title: str
    unit: str
    rows: tuple[Spread, ...]

    def limits(self) -> tuple[float, float]:
        """Return the ends of the axis, which holds 0 and every run; a wide interval is cut."""
        values = [0.0, *(value for row in self.rows for value in (row.mean, *row.values))]
        ends = [end for row in self.rows for end in (row.low, row.high) if end is not None]
        low, high = min(values), max(values)
        room = (high - low) * BAND_ROOM or 1.0
        high = min(max([high, *ends]), high + room)
        low = max(min([low, *ends]), low - room) if low < 0 else 0.0
        return low, high


Chart = LineChart | ShareChart | SpreadChart

SHORT_MINUTES = 3.0
GAP_STEPS = 3.0  # × the median step: a longer step is a gap
BAND_ROOM = 0.5  # for intervals beyond the runs, as a share of the runs' range
MAX_LINE_POINTS = 1_000  # more than a chart has pixels to show


def over_time(chart: LineChart) -> LineChart:
    """Return a chart against seconds instead of minutes where the minutes are few."""
    if chart.x_label != "minutes" or any(minutes > SHORT_MINUTES for line in chart.lines for minutes in line.x):
        return chart
    lines = tuple(replace(line, x=[minutes * 60 for minutes in line.x]) for line in chart.lines)
    return replace(chart, lines=lines, x_label="seconds")


def thinned(chart: LineChart, *, max_points: int, least: int = 60) -> LineChart:
    """Return a chart of at most about `max_points` points in all: neighbours are averaged, dots are kept."""
    most = max(least, min(max_points // max(len(chart.lines), 1), MAX_LINE_POINTS))
    lines = tuple(thinned_line(line, most, has_gaps=chart.is_sampled) for line in chart.lines)
    return replace(chart, lines=lines, unit=f"{chart.unit}, means of neighbours") if lines != chart.lines else chart


def pieces(line: Line) -> list[Line]:
    """Split a line where values are missing."""
    steps = [after - before for before, after in pairwise(line.x)]
    usual = median(steps) if steps else 0.0
    ends = [place for place, step in enumerate(steps, start=1) if usual > 0 and step > GAP_STEPS * usual]
    cuts = pairwise([0, *ends, len(line.x)])
    return [replace(line, x=line.x[begin:end], y=line.y[begin:end]) for begin, end in cuts]


def thinned_line(line: Line, most: int, *, has_gaps: bool) -> Line:
    """Return a line of about `most` points; no mean reaches across a gap."""
    count = len(line.x)
    if line.is_points or line.low or count <= most:
        return line
    x: list[float] = []
    y: list[float] = []
    for part in pieces(line) if has_gaps else [line]:
        number = max(1, most * len(part.x) // count)
        for begin, end in pairwise(place * len(part.x) // number for place in range(number + 1)):
            x.append(fmean(part.x[begin:end]))
            y.append(fmean(part.y[begin:end]))
    return replace(line, x=x, y=y)


def finite(line: Line) -> Line:
    """Return a series sorted by x, without points that are not finite."""
    columns = np.asarray([line.x, line.y, *([line.low, line.high] if line.low else [])], dtype=np.float64)
    columns = columns[:, np.isfinite(columns).all(0)]
    columns = columns[:, np.argsort(columns[0], kind="stable")]
    return replace(line, **dict(zip(("x", "y", "low", "high"), columns.tolist(), strict=False)))


def shown(chart: LineChart) -> LineChart:
    """Return a chart without its empty series."""
    return replace(chart, lines=tuple(line for line in map(finite, chart.lines) if line.x))


def page_data(chart: LineChart) -> dict[str, object]:
    """Return what the page's script draws: each column of x once, gaps as null."""
    columns: list[list[float]] = []
    lines: list[dict[str, object]] = []
    key = -1
    for line in shown(chart).lines:
        key += line.in_legend  # a line without a legend entry belongs to the entry before
        x, values = _columns(line, has_gaps=chart.is_sampled and not line.is_points)
        if x not in columns:
            columns.append(x)
        kinds = {"points": line.is_points or len(line.x) == 1, "faint": line.is_faint, "dash": line.dash}
        lines.append(
            {"label": line.label, "key": key, "colour": line.colour % NUM_COLOURS, "x": columns.index(x), **values}
            | {name: kind for name, kind in kinds.items() if kind}
        )
    ends = {"bottom": chart.bottom, "top": chart.top}
    return {"axis": chart.x_label, "columns": columns, "lines": lines} | {
        name: end for name, end in ends.items() if end is not None
    }


def _columns(line: Line, *, has_gaps: bool) -> tuple[list[float], dict[str, list[float | None]]]:
    """Return x and values of a line, rounded to keep the page small; every x is unique."""
    x: list[float] = []
    y: list[float | None] = []
    for piece in pieces(line) if has_gaps else [line]:
        if x:
            x.append((x[-1] + piece.x[0]) / 2.0)
            y.append(None)
        x += [_rounded(place, 7) for place in piece.x]
        y += [_rounded(value, 4) for value in piece.y]
    for place in range(1, len(x)):
        if x[place] <= x[place - 1]:  # uPlot has one value for each x
            x[place] = math.nextafter(x[place - 1], math.inf)
    band = {"low": line.low, "high": line.high} if line.low else {}
    return x, {"y": y, **{name: [_rounded(value, 4) for value in values] for name, values in band.items()}}


def _rounded(value: float, digits: int) -> float:
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() else short
