"""The ladder as a picture: steps per second of every rung, and what it learnt beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH_INCHES = 10.0
ROW_INCHES, FRAME_INCHES = 0.3, 1.2
DOTS_PER_INCH = 130
INK, MUTED, GRID = "#1b2027", "#66707d", "#e4e7eb"
PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # behind words, where a line crosses them
MISSING_CHARACTERS = 70
VERDICTS = {True: "", False: "\nVOID: it does not keep up", None: "\nNOT JUDGED whether it keeps up"}
RUNG, BASE, LEARNT, PEER = "#0072b2", "#5f6b78", "#009e73", "#d55e00"


def draw_ladder(result: Mapping[str, Any], path: Path) -> None:
    """Write the picture of a result as PNG."""
    rows = result["rungs"]
    with rc_context({"font.size": 9, "text.color": INK, "text.parse_math": False}):
        figure = Figure(figsize=(WIDTH_INCHES, FRAME_INCHES + ROW_INCHES * len(rows)), layout="constrained")
        speed, learnt = figure.subplots(1, 2, sharey=True, width_ratios=(2.6, 1))
        _draw_speeds(speed, rows, result["base"])
        _draw_returns(learnt, rows, steps=result["config"]["learning"]["steps"])
        figure.savefig(path, dpi=DOTS_PER_INCH, format="png")


def _draw_speeds(axes: Axes, rows: Sequence[Mapping[str, Any]], base: Mapping[str, Any]) -> None:
    peer = base["peer_steps_per_s"]
    reach = max([row["steps_per_s"]["high"] for row in rows if row["steps_per_s"]] + ([peer["median"]] if peer else []))
    for place, row in enumerate(rows):
        rate = row["steps_per_s"]
        if rate is None:
            axes.text(reach * 0.01, place, shorten(row["missing"], MISSING_CHARACTERS), color=MUTED, va="center")
            continue
        axes.barh(place, rate["median"], height=0.62, color=BASE if row["name"] == base["name"] else RUNG)
        axes.plot([rate["low"], rate["high"]], [place, place], color=INK, linewidth=1.4, solid_capstyle="butt")
        gain = row["gain_over_base"]["median"]
        axes.text(rate["high"] + reach * 0.012, place, f"{rate['median']:,.0f} · {gain:.2f} ×", va="center", bbox=PAPER)
    if peer is not None:
        axes.axvline(peer["median"], color=PEER, linewidth=1.2, linestyle=(0, (5, 2)), zorder=0)
        side = "left" if peer["median"] < reach / 2 else "right"
        axes.text(peer["median"], -0.75, f" {base['peer']} ", color=PEER, va="center", ha=side)
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    axes.set_ylim(len(rows) - 0.4, -1.1)  # the first on top
    axes.set_xlim(0.0, reach * 1.22)
    text = f"Pong, steps per second (line: 90 % of the rounds) · gain over {base['name']}{VERDICTS[base['valid']]}"
    axes.set_xlabel(text, color=MUTED if base["valid"] else PEER)
    _clear(axes)


def _draw_returns(axes: Axes, rows: Sequence[Mapping[str, Any]], *, steps: int) -> None:
    for place, row in enumerate(rows):
        known = [value for value in row["learning"]["by_seed"] if value is not None]
        axes.plot(known, [place] * len(known), "o", color=LEARNT, markersize=4, alpha=0.5, markeredgewidth=0)
        if known:
            mean = row["learning"]["mean_return"]
            axes.plot([mean, mean], [place - 0.3, place + 0.3], color=LEARNT, linewidth=2)
    if not any(row["learning"]["by_seed"] for row in rows):
        axes.text(0.0, (len(rows) - 1) / 2, "not measured", color=MUTED, ha="center", va="center", bbox=PAPER)
    axes.set_xlim(-1.08, 1.08)
    axes.set_xlabel(f"Catch, return after {steps:,} steps", color=MUTED)
    _clear(axes)


def _clear(axes: Axes) -> None:
    axes.set_axisbelow(True)
    axes.grid(visible=True, axis="x", color=GRID)
    axes.tick_params(left=False, bottom=False, labelcolor=INK)
    for spine in axes.spines.values():
        spine.set_visible(False)
