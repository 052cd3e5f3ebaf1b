"""Figures → SVG that can stand inside a page, and PNG; nothing outside the figure is touched."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG

from redline.report.chart_drawing import GRID, INK, MUTED, PIXELS_PER_INCH, REST, SERIES, Drawing, settings
from redline.report.charts import LineChart

PNG_SCALE = 2
NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}
# colours of the figure → custom properties of the page, so that light and dark share one drawing
PROPERTIES = {colour: f"var(--s{place})" for place, colour in enumerate(SERIES)} | {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    REST: "var(--rest)",
}

COLOUR = re.compile("|".join(PROPERTIES))
TAG = re.compile(r"<[^>]*>")
NUMBER = re.compile(r"-?\d+\.\d+")
OUTLINE = re.compile(r'(?<= d=")[^"]*')
IDENTITY = re.compile(r' id="([^"]*)"')
REFERENCE = re.compile(r'(?:xlink:href="#|url\(#)([^")]*)')
FONT = re.compile(r"font-family: [^;\"]*;? ?")
LEVEL = re.compile(r' transform="rotate\(-0 [^"]*"')  # text that is turned by nothing
GLOBAL_STYLE = re.compile(r"<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)
ROOT = re.compile(r"<svg[^>]*viewBox=\"([^\"]*)\"[^>]*>")
STYLE = re.compile(r'(?<=style=")[^"]*')
# what the page says of all outlines and words
OUTLINES = ("fill: none", "stroke-linecap: square", "stroke-dashoffset: 0")
WORDS = ("font-size: 11px", "text-anchor: start", "fill: var(--muted)")
USUAL = frozenset({*OUTLINES, *WORDS})
UNSEEN = re.compile(r'<path [^<>]*style=""/>')
MARK = re.compile(r"<defs>\s*<path id=[^<>]*/>\s*</defs>")
MARKS = re.compile(r'(?:<use [^<>]*style="fill:([^";]*)[^<>]*/>\s*)+')
PLACE = re.compile(r' x="([^"]*)" y="([^"]*)"')
EMPTY_GROUP = re.compile(r"<g>\s*(<(?:path|text|use)\b[^<>]*/>|<text\b[^<>]*>[^<]*</text>)\s*</g>")


def inline_svg(drawing: Drawing, *, prefix: str, title: str) -> str:
    """Return the figure as an <svg> element; ids begin with `prefix`, colours are properties of the page.

    `title` is for those who can't see it.
    """
    buffer = io.StringIO()
    with settings():
        FigureCanvasSVG(drawing.figure)
        drawing.figure.savefig(buffer, format="svg", dpi=PIXELS_PER_INCH, facecolor="none", metadata=NO_METADATA)
    text = buffer.getvalue()
    text = GLOBAL_STYLE.sub("", text[text.index("<svg") :])
    used = set(REFERENCE.findall(text))
    opening = f'<svg class="chart" role="img" aria-label="{escape(title)}" viewBox='
    text = ROOT.sub(lambda root: f'{opening}"{root[1]}">', text, count=1)
    text = TAG.sub(lambda tag: _clean_tag(tag[0], used, prefix), text)
    text = MARKS.sub(_dots, MARK.sub("", UNSEEN.sub("", text)))
    text = text.replace('<text style="" ', "<text ")
    return re.sub(r"\s*\n\s*", "\n", EMPTY_GROUP.sub(r"\1", text)).strip()


def save_png(drawing: Drawing, path: Path) -> None:
    """Write the figure as a picture on white."""
    with settings():
        FigureCanvasAgg(drawing.figure)
        drawing.figure.savefig(path, format="png", dpi=PNG_SCALE * PIXELS_PER_INCH, facecolor="white")


def readout(drawing: Drawing) -> dict[str, object] | None:
    """Return what a cursor over the chart may show: series, and the scales that lead from pixels to values."""
    chart = drawing.chart
    if not isinstance(chart, LineChart) or not chart.lines:
        return None
    columns: list[list[float]] = []
    lines = []
    for line in chart.lines:
        x = _rounded(line.x)
        if x not in columns:
            columns.append(x)
        kind = {"points": 1} if line.is_points else {}
        colour = line.colour % len(SERIES)
        lines.append({"label": line.label, "colour": colour, "x": columns.index(x), "y": _rounded(line.y), **kind})
    return {
        "box": _rounded(drawing.box_px),
        "xs": list(drawing.x_limits),
        "ys": list(drawing.y_limits),
        "unit": chart.unit,
        "axis": chart.x_label,
        "columns": columns,
        "lines": lines,
    }


def _rounded(values: Sequence[float]) -> list[float]:
    """Return numbers with four digits: a page is to be small."""
    short = [float(f"{value:.4g}") for value in values]
    return [int(value) if value.is_integer() else value for value in short]


def _clean_tag(tag: str, used: set[str], prefix: str) -> str:
    """Return a tag without what the page has no use for: unused names, fonts, digits beyond a pixel's."""
    tag = IDENTITY.sub(lambda found: f' id="{prefix}{found[1]}"' if found[1] in used else "", tag)
    tag = tag.replace('xlink:href="#', f'href="#{prefix}').replace("url(#", f"url(#{prefix}")
    tag = OUTLINE.sub(lambda found: _short_outline(found[0]), tag)
    if tag.startswith("<text"):
        tag = NUMBER.sub(_pixel, LEVEL.sub("", FONT.sub("", tag)))
    tag = COLOUR.sub(lambda found: PROPERTIES[found[0]], tag)
    return STYLE.sub(lambda found: ";".join(part for part in found[0].split("; ") if part not in USUAL), tag).replace(
        ": ", ":"
    )


def _short_outline(outline: str) -> str:
    """Return an outline without the letters and spaces that it can do without."""
    words = " ".join(NUMBER.sub(_pixel, outline).split())
    return words.replace(" L ", " ").replace("M ", "M").replace(" z", "z")


def _dots(found: re.Match[str]) -> str:
    """Return marks as one outline of points; the page gives them their size."""
    places = "".join(f"M{_short(x)} {_short(y)}h0" for x, y in PLACE.findall(found[0]))
    return f'<path class="dots" d="{places}" style="stroke:{found[1]}"/>'


def _short(number: str) -> str:
    return f"{float(number):.1f}".removesuffix(".0")


def _pixel(found: re.Match[str]) -> str:
    return _short(found[0])
