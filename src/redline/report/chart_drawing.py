"""Draws charts with matplotlib: the figure that becomes inline SVG in a page is also saved as PNG."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from redline.report.charts import Chart, Line, LineChart, ShareChart, SpreadChart, pieces

PIXELS_PER_INCH = 72  # a figure's point is a pixel of the page
WIDTH_PX = 430
PLOT_HEIGHT_PX = 178
HEAD_PX, FOOT_PX, LEFT_PX, RIGHT_PX = 48, 40, 48, 20
BARE_FOOT_PX = 26  # of an axis whose unit stands above
LEGEND_ROW_PX = 18
BAR_PX = 25
PALE = 0.4
BAND_ROOM = 0.5  # of the reach of the runs themselves
LABEL_CHARS = 36  # a longer label is cut in its middle
TITLE_CHARS, UNIT_CHARS = 44, 62
CHAR_PX = 6.7  # of the text of a legend, rather too wide than too narrow

# Okabe and Ito's colours, told apart by colour-blind eyes too; the pale ones are darkened for thin lines on white
SERIES = ("#0072b2", "#d55e00", "#009e73", "#b8609b", "#b98500", "#4aa5dc", "#882255", "#5f6b78")
SOLID = (0.0, ())
DASHES: tuple[tuple[float, tuple[float, ...]], ...] = (SOLID, (0, (5, 2)), (0, (1, 1)), (0, (6, 2, 1, 2)), (0, (9, 3)))
INK, MUTED, GRID, REST = "#1b2027", "#66707d", "#e4e7eb", "#d3d8de"

# text stays text, also where a run is called $x$, and ids are the same every time
OWN: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "redline",
    "text.parse_math": False,
    "path.simplify_threshold": 0.2,
}
LOOKS = ("axes.", "font.", "grid.", "lines.", "patch.", "path.", "savefig.", "svg.", "text.", "xtick.", "ytick.")
SETTINGS = {name: value for name, value in mpl.rcParamsDefault.items() if name.startswith(LOOKS)} | OWN


@dataclass(frozen=True)
class Drawing:
    """A figure, and where in it the values lie, in pixels from its top left corner."""

    chart: Chart
    figure: Figure
    box_px: tuple[float, float, float, float]  # left, top, width, height
    x_limits: tuple[float, float]
    y_limits: tuple[float, float]


@dataclass(frozen=True)
class Entry:
    """One entry of a legend."""

    label: str
    colour: str
    opacity: float = 1.0
    dash: int = 0
    is_block: bool = False


@contextmanager
def settings() -> Iterator[None]:
    """Let matplotlib draw as we need it and nobody's matplotlibrc has it; a letter without a glyph is no warning."""
    with mpl.rc_context(SETTINGS), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def draw(chart: Chart) -> Drawing:
    """Draw a chart."""
    with settings():
        if isinstance(chart, LineChart):
            return _draw_lines(chart)
        if isinstance(chart, ShareChart):
            return _draw_shares(chart)
        return _draw_spreads(chart)


def shorten(text: str, limit: int = LABEL_CHARS) -> str:
    """Return a label that fits: without what cannot be printed, and cut in its middle where it is long."""
    clean = "".join(char if char.isprintable() else "�" for char in text)
    if len(clean) <= limit:
        return clean
    half = (limit - 1) // 2
    return f"{clean[:half]}…{clean[-half:]}"


def tick_text(value: float, reach: float) -> str:
    """Return a number as an axis shows it that reaches to `reach`: all its numbers in one unit."""
    for limit, divisor, unit in ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if reach >= limit:
            return "0" if value == 0 else f"{value / divisor:.4g}{unit}".replace("-", "−")
    return (f"{value:.0f}" if reach >= 1e3 else f"{value:.4g}").replace("-", "−")


def finite(line: Line) -> Line:
    """Return a series without the points that have no place."""
    points = [(x, y) for x, y in zip(line.x, line.y, strict=False) if math.isfinite(x) and math.isfinite(y)]
    return replace(line, x=[x for x, _ in points], y=[y for _, y in points])


def _draw_lines(chart: LineChart) -> Drawing:
    lines = tuple(line for line in map(finite, chart.lines) if line.x)
    listed = [line for line in lines if line.in_legend]
    entries = [
        Entry(line.label, SERIES[line.colour % len(SERIES)], dash=line.dash, is_block=line.is_points) for line in listed
    ]
    figure, axes, box = _frame(chart.title, chart.unit, entries if len(entries) > 1 else [], PLOT_HEIGHT_PX)
    for line in lines:
        for piece in pieces(line) if chart.is_sampled and not line.is_points else [line]:
            _draw_line(axes, piece)
    if not lines:
        axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center", va="center", color=MUTED, size=11)
        axes.set_xlim(0.0, 1.0)
    _limit(axes, chart, lines)
    axes.set_xlabel(shorten(chart.x_label), color=MUTED, size=11, labelpad=4)
    _number_axis(axes.xaxis, axes.get_xlim(), bins=7)
    _number_axis(axes.yaxis, axes.get_ylim(), bins=5)
    return _drawing(replace(chart, lines=lines), figure, axes, box)


def _draw_line(axes: Axes, line: Line) -> None:
    colour = SERIES[line.colour % len(SERIES)]
    if line.is_points or len(line.x) == 1:
        axes.plot(line.x, line.y, linestyle="", marker="o", markersize=6, color=colour, markeredgewidth=0, zorder=4)
        return
    width, opacity = (0.9, 0.45) if line.is_faint else (1.6, 1.0)
    style = DASHES[line.dash % len(DASHES)]
    axes.plot(
        line.x, line.y, linewidth=width, alpha=opacity, color=colour, linestyle=style, zorder=2 if line.is_faint else 3
    )


def _limit(axes: Axes, chart: LineChart, lines: Sequence[Line]) -> None:
    """Leave some air round the series, and none beyond the ends that were asked for."""
    values = [value for line in lines for value in line.y] or [0.0, 1.0]
    low, high = min(values), max(values)
    low = low if chart.bottom is None else min(chart.bottom, low)
    high = high if chart.top is None else max(chart.top, high)
    air = (high - low) * 0.06 or max(abs(high) * 0.1, 1e-9)
    below = 0.0 if chart.bottom is not None and low >= chart.bottom else air
    axes.set_ylim(low - below, high + (0.0 if chart.top is not None and high <= chart.top else air))
    places = [place for line in lines for place in line.x]
    if places:
        first, last = min(places), max(places)
        margin = (last - first) * (0.06 if any(line.is_points for line in lines) and len(lines) > 1 else 0.01)
        margin = margin or max(abs(last) * 0.1, 1e-9)
        axes.set_xlim(first - margin, last + margin)


def _draw_shares(chart: ShareChart) -> Drawing:
    parts = dict.fromkeys(name for bar in chart.bars for name, _ in bar.shares)
    inks = {name: ink for name, ink in _inks(chart, list(parts)).items() if name in parts}
    entries = [Entry(name, *ink, is_block=True) for name, ink in inks.items()]
    left_px = _label_room([bar.label for bar in chart.bars])
    figure, axes, box = _frame(
        chart.title, chart.unit, entries, _rows_px(chart.bars), left_px=left_px, foot_px=BARE_FOOT_PX
    )
    for row, bar in enumerate(chart.bars):
        begin = 0.0
        for name, share in bar.shares:
            colour, opacity = inks[name]
            axes.barh(row, share, left=begin, height=0.62, color=colour, alpha=opacity, linewidth=0, zorder=3)
            begin += share
    _name_rows(axes, [bar.label for bar in chart.bars])
    axes.set_xlim(0.0, 1.0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    return _drawing(chart, figure, axes, box)


def _inks(chart: ShareChart, parts: Sequence[str]) -> dict[str, tuple[str, float]]:
    """Return colour and opacity of each part, in the order of the legend: work, the pale, the rest."""
    work = [name for name in parts if name not in chart.pale and name != chart.rest]
    pale = [name for name in parts if name in chart.pale and name != chart.rest]
    inks = {name: (SERIES[place % len(SERIES)], 1.0) for place, name in enumerate(work)}
    inks |= {name: (SERIES[place % len(SERIES)], PALE) for place, name in enumerate(pale)}
    return inks | {chart.rest: (REST, 1.0)}


def _draw_spreads(chart: SpreadChart) -> Drawing:
    left_px = _label_room([row.label for row in chart.rows])
    figure, axes, box = _frame(chart.title, chart.unit, [], _rows_px(chart.rows), left_px=left_px, foot_px=BARE_FOOT_PX)
    reach = [0.0]
    for place, row in enumerate(chart.rows):
        colour = SERIES[row.colour % len(SERIES)]
        if row.low is not None and row.high is not None:
            axes.plot([row.low, row.high], [place, place], color=colour, linewidth=6, alpha=0.28, solid_capstyle="butt")
        axes.plot([row.mean, row.mean], [place - 0.32, place + 0.32], color=colour, linewidth=2, zorder=4)
        spots = axes.plot(row.values, [place] * len(row.values), "o", color=colour, markersize=6, markeredgewidth=0)
        spots[0].set_clip_on(False)  # a run at 0 is a whole dot
        reach += [row.mean, *row.values]
    _name_rows(axes, [row.label for row in chart.rows])
    low, high = min(reach), max(reach)
    room = (high - low) * BAND_ROOM or 1.0  # a band of few runs is wide: it may leave the chart, the dots may not
    ends = [end for row in chart.rows for end in (row.low, row.high) if end is not None]
    high = min(max([high, *ends]), high + room)
    low = max(min([low, *ends]), low - room) if low < 0 else 0.0
    axes.set_xlim(low - (high - low) * 0.03 if low < 0 else 0.0, high + (high - low) * 0.03)
    _number_axis(axes.xaxis, axes.get_xlim(), bins=6)
    return _drawing(chart, figure, axes, box)


def _number_axis(axis: Axis, limits: tuple[float, float], *, bins: int) -> None:
    reach = max(abs(limit) for limit in limits)
    axis.set_major_locator(MaxNLocator(nbins=bins, min_n_ticks=2, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value, reach)))


def _rows_px(rows: Sequence[object]) -> float:
    return max(len(rows), 1) * BAR_PX + 6.0


def _label_room(labels: Sequence[str]) -> float:
    longest = max((len(shorten(label, 24)) for label in labels), default=0)
    return min(12 + longest * 6.7, 176.0)


def _name_rows(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), [shorten(label, 24) for label in labels])
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set_ylim(max(len(labels), 1) - 0.4, -0.6)  # the first on top
    axes.grid(visible=False, axis="y")


def _frame(
    title: str,
    unit: str,
    entries: Sequence[Entry],
    plot_px: float,
    *,
    left_px: float = LEFT_PX,
    foot_px: float = FOOT_PX,
) -> tuple[Figure, Axes, tuple[float, float, float, float]]:
    """Return an empty figure with its words: title, unit and legend stand above the plot and never cover it."""
    places, legend_px = _flow([shorten(entry.label) for entry in entries])
    top_px = HEAD_PX + legend_px
    height_px = top_px + plot_px + foot_px
    figure = Figure(figsize=(WIDTH_PX / PIXELS_PER_INCH, height_px / PIXELS_PER_INCH), dpi=PIXELS_PER_INCH)
    width_px = WIDTH_PX - left_px - RIGHT_PX
    box = (left_px, top_px, width_px, plot_px)
    axes = figure.add_axes((left_px / WIDTH_PX, foot_px / height_px, width_px / WIDTH_PX, plot_px / height_px))
    figure.text(2 / WIDTH_PX, 1 - 16 / height_px, shorten(title, TITLE_CHARS), size=14, weight="bold", color=INK)
    figure.text(2 / WIDTH_PX, 1 - 34 / height_px, shorten(unit, UNIT_CHARS), size=11, color=MUTED)
    for entry, (x_px, y_px) in zip(entries, places, strict=True):
        _draw_entry(figure, entry, x_px / WIDTH_PX, 1 - (HEAD_PX + y_px) / height_px)
    axes.set_axisbelow(True)
    axes.set_facecolor("none")
    axes.grid(visible=True, color=GRID, linewidth=1, clip_on=False)
    axes.tick_params(left=False, bottom=False, labelsize=11, labelcolor=MUTED, pad=5)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(REST)
    return figure, axes, box


def _draw_entry(figure: Figure, entry: Entry, x: float, y: float) -> None:
    height_px = figure.get_figheight() * PIXELS_PER_INCH
    end = x + (9 if entry.is_block else 18) / WIDTH_PX
    style = SOLID if entry.is_block else DASHES[entry.dash % len(DASHES)]
    width = 8 if entry.is_block else 2.2
    key = Line2D([x, end], [y, y], color=entry.colour, alpha=entry.opacity, linewidth=width, linestyle=style)
    key.set_solid_capstyle("butt")
    figure.add_artist(key)
    figure.text(end + 5 / WIDTH_PX, y - 3.6 / height_px, shorten(entry.label), size=11, color=INK)


def _flow(labels: Sequence[str]) -> tuple[list[tuple[float, float]], float]:
    """Place the entries of a legend one after the other, in as many rows as they need."""
    places, x_px, y_px = [], 2.0, 0.0
    for label in labels:
        need_px = 18 + 5 + len(label) * CHAR_PX + 12
        if x_px > 2.0 and x_px + need_px > WIDTH_PX:
            x_px, y_px = 2.0, y_px + LEGEND_ROW_PX
        places.append((x_px, y_px))
        x_px += need_px
    return places, y_px + LEGEND_ROW_PX if labels else 0.0


def _drawing(chart: Chart, figure: Figure, axes: Axes, box: tuple[float, float, float, float]) -> Drawing:
    x_limits, y_limits = axes.get_xlim(), axes.get_ylim()
    return Drawing(chart=chart, figure=figure, box_px=box, x_limits=x_limits, y_limits=y_limits)
