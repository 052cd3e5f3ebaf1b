"""Charts as PNG files, drawn by matplotlib: for `--png` and for the pictures of the docs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from redline.report.charts import Chart, Line, LineChart, ShareChart, SpreadChart, pieces, shown

PIXELS_PER_INCH = 72
SCALE = 2
WIDTH_PX = 430
PLOT_PX, BAR_PX, WORDS_PX, LEGEND_ROW_PX = 210, 25, 90, 17
PALE = 0.4
LABEL_CHARS, TITLE_CHARS, UNIT_CHARS, ROW_CHARS = 58, 44, 62, 30

# Okabe and Ito's colours, told apart by colour-blind eyes too; the pale ones are darkened for thin lines on white
SERIES = ("#0072b2", "#d55e00", "#009e73", "#b8609b", "#b98500", "#4aa5dc", "#882255", "#5f6b78")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1)), (0, (6, 2, 1, 2)), (0, (9, 3)))
INK, MUTED, GRID, REST = "#1b2027", "#66707d", "#e4e7eb", "#d3d8de"

# a run may be named $x$, and a user's matplotlibrc must not change a chart
LOOKS = ("axes.", "figure.", "font.", "grid.", "legend.", "lines.", "patch.", "path.", "savefig.", "text.", "xtick.")
SETTINGS = {name: value for name, value in mpl.rcParamsDefault.items() if name.startswith((*LOOKS, "ytick."))}
SETTINGS |= {"text.parse_math": False}


@contextmanager
def settings() -> Iterator[None]:
    """Let matplotlib draw with our settings, without warnings about missing glyphs."""
    with mpl.rc_context(SETTINGS), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def save_png(chart: Chart, path: Path) -> None:
    """Write a chart as a picture on a white background."""
    with settings():
        figure = draw(chart)
        FigureCanvasAgg(figure)
        figure.savefig(path, format="png", dpi=SCALE * PIXELS_PER_INCH, facecolor="white")


def draw(chart: Chart) -> Figure:
    """Draw a chart."""
    if isinstance(chart, LineChart):
        return _draw_lines(shown(chart))
    return _draw_shares(chart) if isinstance(chart, ShareChart) else _draw_spreads(chart)


def shorten(text: str, limit: int = LABEL_CHARS) -> str:
    """Return a label without unprintable characters, cut in the middle if it is long."""
    clean = "".join(char if char.isprintable() else "�" for char in text)
    half = (limit - 1) // 2
    return clean if len(clean) <= limit else f"{clean[:half]}…{clean[-half:]}"


def tick_text(value: float, reach: float) -> str:
    """Return a tick of an axis that reaches to `reach`; all its ticks share one unit."""
    for limit, divisor, unit in ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if reach >= limit:
            return "0" if value == 0 else f"{value / divisor:.4g}{unit}".replace("-", "−")
    return (f"{value:.0f}" if reach >= 1e3 else f"{value:.4g}").replace("-", "−")


def _draw_lines(chart: LineChart) -> Figure:
    listed = [line for line in chart.lines if line.in_legend]
    figure, axes = _frame(chart, [_key(line) for line in listed] if len(listed) > 1 else [], PLOT_PX)
    for line in chart.lines:
        _draw_line(axes, line, has_gaps=chart.is_sampled)
    if not chart.lines:
        axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center", va="center", color=MUTED)
    axes.margins(x=0.03 if any(line.is_points for line in chart.lines) else 0.01, y=0.06)
    if chart.bottom is not None:
        axes.set_ylim(bottom=min(chart.bottom, axes.dataLim.y0))
    if chart.top is not None:
        axes.set_ylim(top=max(chart.top, axes.dataLim.y1))
    axes.set_xlabel(shorten(chart.x_label), color=MUTED, size=11)
    _number_axis(axes.xaxis, axes.get_xlim(), bins=7)
    _number_axis(axes.yaxis, axes.get_ylim(), bins=5)
    return figure


def _draw_line(axes: Axes, line: Line, *, has_gaps: bool) -> None:
    colour = SERIES[line.colour % len(SERIES)]
    if line.is_points or len(line.x) == 1:
        axes.plot(line.x, line.y, linestyle="", marker="o", markersize=6, color=colour, markeredgewidth=0, zorder=4)
        return
    if line.low:
        axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.18, linewidth=0, zorder=1)
    width, opacity, depth = (0.9, 0.45, 2) if line.is_faint else (1.6, 1.0, 3)
    style = DASHES[line.dash % len(DASHES)]
    for piece in pieces(line) if has_gaps else [line]:
        axes.plot(piece.x, piece.y, linewidth=width, alpha=opacity, color=colour, linestyle=style, zorder=depth)


def _key(line: Line) -> Line2D:
    dots = {"marker": "o", "linestyle": ""} if line.is_points else {"linestyle": DASHES[line.dash % len(DASHES)]}
    return Line2D([], [], label=shorten(line.label), color=SERIES[line.colour % len(SERIES)], **dots)


def _draw_shares(chart: ShareChart) -> Figure:
    inks = {
        name: (REST if colour is None else SERIES[colour], PALE if is_pale else 1.0)
        for name, (colour, is_pale) in chart.inks().items()
    }
    keys = [Patch(label=shorten(name), color=colour, alpha=alpha) for name, (colour, alpha) in inks.items()]
    figure, axes = _frame(chart, keys, BAR_PX * max(len(chart.bars), 1))
    for row, bar in enumerate(chart.bars):
        begin = 0.0
        for name, share in bar.shares:
            colour, alpha = inks[name]
            axes.barh(row, share, left=begin, height=0.62, color=colour, alpha=alpha, linewidth=0, zorder=3)
            begin += share
    _name_rows(axes, [bar.label for bar in chart.bars])
    axes.set_xlim(0.0, 1.0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    return figure


def _draw_spreads(chart: SpreadChart) -> Figure:
    figure, axes = _frame(chart, [], BAR_PX * max(len(chart.rows), 1))
    for place, row in enumerate(chart.rows):
        colour = SERIES[row.colour % len(SERIES)]
        if row.low is not None and row.high is not None:
            axes.plot([row.low, row.high], [place, place], color=colour, linewidth=6, alpha=0.28, solid_capstyle="butt")
        axes.plot([row.mean, row.mean], [place - 0.32, place + 0.32], color=colour, linewidth=2, zorder=4)
        spots = axes.plot(row.values, [place] * len(row.values), "o", color=colour, markersize=6, markeredgewidth=0)
        spots[0].set_clip_on(False)  # a run at 0 is a whole dot
    _name_rows(axes, [row.label for row in chart.rows])
    low, high = chart.limits()
    axes.set_xlim(low, high + (high - low) * 0.03)
    _number_axis(axes.xaxis, axes.get_xlim(), bins=6)
    return figure


def _number_axis(axis: Axis, limits: tuple[float, float], *, bins: int) -> None:
    reach = max(abs(limit) for limit in limits)
    axis.set_major_locator(MaxNLocator(nbins=bins, min_n_ticks=2, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value, reach)))


def _name_rows(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), [shorten(label, ROW_CHARS) for label in labels])
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set_ylim(max(len(labels), 1) - 0.4, -0.6)  # the first on top
    axes.grid(visible=False, axis="y")


def _frame(chart: Chart, keys: Sequence[Line2D | Patch], plot_px: float) -> tuple[Figure, Axes]:
    """Return an empty figure with title and unit above the plot and the legend below."""
    columns = 1 if any(len(str(key.get_label())) > 26 for key in keys) else 2
    height_px = WORDS_PX + plot_px + LEGEND_ROW_PX * -(-len(keys) // columns)
    size = (WIDTH_PX / PIXELS_PER_INCH, height_px / PIXELS_PER_INCH)
    figure = Figure(figsize=size, dpi=PIXELS_PER_INCH, layout="constrained")
    figure.suptitle(shorten(chart.title, TITLE_CHARS), x=0.01, ha="left", size=14, weight="bold", color=INK)
    axes = figure.add_subplot()
    axes.set_title(shorten(chart.unit, UNIT_CHARS), loc="left", size=11, color=MUTED)
    if keys:
        figure.legend(handles=list(keys), loc="outside lower left", ncols=columns, frameon=False, fontsize=11)
    axes.set_axisbelow(True)
    axes.grid(visible=True, color=GRID, linewidth=1)
    axes.tick_params(left=False, bottom=False, labelsize=11, labelcolor=MUTED)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(REST)
    return figure, axes
