"""The parts of a page as values, numbers as pages show them, and the function that makes a file of a template.

Templates know how parts look. They escape text from files, so that it can't become markup.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from redline import __version__
from redline.report.charts import Chart, LineChart, ShareChart, over_time, page_data, shown, thinned

DASH = "–"
SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


def amount(value: float | None, unit: str = "") -> str:
    """Return a number with three significant digits, grouped thousands and a true minus sign."""
    if value is None or not math.isfinite(value):
        return DASH
    text = f"{value:,.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:#.3g}".removesuffix(".")
    text = f"{value:.1e}" if value and abs(value) < 1e-3 else text
    text = text.replace("-", "−")
    return f"{text} {unit}" if unit else text


def share(value: float | None) -> str:
    """Return a share as a percentage."""
    return DASH if value is None or not math.isfinite(value) else f"{value:.1%}".replace("%", " %").replace("-", "−")


def span(seconds: float | None) -> str:
    """Return a time span in a unit of its size."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    for limit, unit in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min")):
        if seconds >= 2 * limit:
            return amount(seconds / limit, unit)
    return amount(seconds, "s")


def size_unit(count_bytes: float) -> tuple[float, str]:
    """Return the divisor and the unit for this many bytes."""
    return next((found for found in SIZES if abs(count_bytes) >= found[0]), SIZES[-1])


def size(count_bytes: float | None) -> str:
    """Return bytes in decimal units."""
    if count_bytes is None or not math.isfinite(count_bytes):
        return DASH
    divisor, unit = size_unit(count_bytes)
    return amount(count_bytes / divisor, unit)


def moment(unix_s: float | None) -> str:
    """Return a time of the wall clock in UTC."""
    try:
        return DASH if unix_s is None else f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return DASH


# the page loads nothing but a run's videos and runs only our own scripts, whatever a run directory holds
POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:{place}; {media}"
    "base-uri 'none'; form-action 'none'"
)
RESOURCES = ("uPlot.LICENSE", "uPlot.iife.min.js", "uPlot.min.css", "page.css", "charts.js", "page.js")
REPLACEMENT = "�"  # for characters that a document can't hold: control characters, halves of surrogate pairs


@dataclass(frozen=True)
class Cell:
    """A cell of a table that is more than text."""

    text: str
    note: str = ""  # small, below it
    href: str = ""
    scale: tuple[float, float, float] | None = None  # drawn instead of the text: low, middle, high between −1 and 1
    is_strong: bool = False


Content = str | Cell


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Table:
    """A table, which scrolls if it is large; the columns at `numeric` are right-aligned."""

    name: str  # read by screen readers
    head: Sequence[str]
    rows: Sequence[Sequence[Content]]
    numeric: Collection[int] = ()
    css: str = "card"


@dataclass(frozen=True)
class Tiles:
    """Figures, each with a name, a value and a note."""

    facts: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Notice:
    """A warning with its reasons."""

    title: str
    sentences: Sequence[Content]
    css: str  # "missing" or "caveats"


@dataclass(frozen=True)
class Grid:
    """Charts side by side."""

    charts: Sequence[Chart]


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading and perhaps a lead sentence."""

    title: str
    parts: Sequence[Part]
    identity: str = ""
    lead: str = ""
    link: str = ""  # its name at the top of the page; empty: it is not listed there
    is_folded: bool = False
    note: str = ""  # beside the heading of a folded section


Part = Text | Table | Tiles | Notice | Grid | Section


@dataclass(frozen=True)
class Video:
    """A video or a moving picture that plays in the page."""

    address: str
    caption: str
    is_picture: bool = False

    @property
    def is_embedded(self) -> bool:
        """Whether the page contains the whole file."""
        return self.address.startswith("data:")


def small(charts: Iterable[Chart], max_points: int) -> list[Chart]:
    """Return charts with at most about `max_points` points each."""
    return [
        thinned(over_time(shown(chart)), max_points=max_points) if isinstance(chart, LineChart) else chart
        for chart in charts
    ]


def grid(charts: Iterable[Chart], *, max_points: int) -> Grid:
    """Return such charts side by side."""
    return Grid(small(charts, max_points))


def render(template: str, *, unix_s: float, videos: Sequence[Video] = (), **values: object) -> str:
    """Return a page as one file that contains style, scripts and data; only linked `videos` lie outside."""
    package = files("redline.report")
    read = {name: package.joinpath(name).read_text(encoding="utf-8") for name in RESOURCES}
    scripts = [f"/*\n{read['uPlot.LICENSE']}\n*/\n{read['uPlot.iife.min.js']}", read["charts.js"] + read["page.js"]]
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    place = " 'self' file:" if any(not video.is_embedded for video in videos) else ""
    policy = POLICY.format(
        scripts=" ".join(f"'sha256-{digest}'" for digest in digests),
        place=place,
        media=f"media-src data:{place}; " if any(not video.is_picture for video in videos) else "",
    )
    ours = {"policy": policy, "style": f"{read['uPlot.min.css']}\n{read['page.css']}"}
    values |= {name: Markup(text) for name, text in ours.items()}  # noqa: S704 - holds no text of a run
    values["scripts"] = [Markup(script) for script in scripts]  # noqa: S704 - our own
    found = _environment().get_template(template)
    return found.render(written=moment(unix_s), version=__version__, **values).lstrip()


def render_parts(title: str, subtitle: str, parts: Sequence[Part], *, unix_s: float) -> str:
    """Return a page of parts."""
    links = [(part.identity, part.link) for part in parts if isinstance(part, Section) and part.link]
    return render("parts.html.j2", unix_s=unix_s, title=title, subtitle=subtitle, links=links, parts=parts)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("redline.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "amount": amount,
        "share": share,
        "size": size,
        "page_data": page_data,
        "percent": _percent,
        "colour": lambda number: "var(--rest)" if number is None else f"var(--s{number})",
    }
    environment.tests |= {
        "line_chart": lambda chart: isinstance(chart, LineChart),
        "share_chart": lambda chart: isinstance(chart, ShareChart),
    }
    return environment


def _printable(value: object) -> object:
    """Return markup as it is, other text without characters that a document can't hold."""
    if isinstance(value, Markup):
        return value
    return "".join(char if char.isprintable() or char in "\n\t" else REPLACEMENT for char in str(value))


def _percent(value: float, low: float, high: float) -> float:
    """Return where a value lies between two others, 0 … 100."""
    place = (value - low) / (high - low) if high > low else 0.0
    return round(100.0 * min(max(place, 0.0), 1.0), 2) if math.isfinite(place) else 0.0
