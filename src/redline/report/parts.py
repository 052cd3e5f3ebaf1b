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
    """Return a number with three digits that matter, thousands grouped, a true minus sign."""
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
    """Return a time span in the unit that suits it."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    for limit, unit in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min")):
        if seconds >= 2 * limit:
            return amount(seconds / limit, unit)
    return amount(seconds, "s")


def size_unit(count_bytes: float) -> tuple[float, str]:
    """Return by what to divide bytes of this size, and the unit that this gives."""
    return next((found for found in SIZES if abs(count_bytes) >= found[0]), SIZES[-1])


def size(count_bytes: float | None) -> str:
    """Return bytes in decimal units."""
    if count_bytes is None or not math.isfinite(count_bytes):
        return DASH
    divisor, unit = size_unit(count_bytes)
    return amount(count_bytes / divisor, unit)


def moment(unix_s: float | None) -> str:
    """Return a moment of the wall clock, UTC."""
    try:
        return DASH if unix_s is None else f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return DASH


# nothing may be loaded but a run's videos, and only our own scripts may run, whatever a run directory holds
POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:{place}; {media}"
    "base-uri 'none'; form-action 'none'"
)
RESOURCES = ("uPlot.LICENSE", "uPlot.iife.min.js", "uPlot.min.css", "page.css", "page.js")
REPLACEMENT = "�"  # for what has no place in a document: control characters, halves of surrogate pairs


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
    """A table that scrolls where it is large; the columns at `numeric` are aligned to the right."""

    name: str  # for those who can't see it
    head: Sequence[str]
    rows: Sequence[Sequence[Content]]
    numeric: Collection[int] = ()
    css: str = "card"


@dataclass(frozen=True)
class Tiles:
    """Figures: name, value, and a word below each."""

    facts: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Notice:
    """What must not be overlooked."""

    title: str
    sentences: Sequence[Content]
    css: str  # "missing" or "caveats"


@dataclass(frozen=True)
class Grid:
    """Charts side by side, as many in a row as there is room for."""

    charts: Sequence[Chart]


@dataclass(frozen=True)
class Section:
    """A part of the page with its heading and, where it needs one, a sentence under it."""

    title: str
    parts: Sequence[Part]
    identity: str = ""
    lead: str = ""


Part = Text | Table | Tiles | Notice | Grid | Section


@dataclass(frozen=True)
class Video:
    """A video or a moving picture that plays in the page."""

    address: str
    caption: str
    is_picture: bool = False

    @property
    def is_embedded(self) -> bool:
        """Whether the page holds all of it."""
        return self.address.startswith("data:")


def small(charts: Iterable[Chart], max_points: int) -> list[Chart]:
    """Return charts of at most about so many points each."""
    return [
        thinned(over_time(shown(chart)), max_points=max_points) if isinstance(chart, LineChart) else chart
        for chart in charts
    ]


def grid(charts: Iterable[Chart], *, max_points: int) -> Grid:
    """Return charts of at most about so many points each, side by side."""
    return Grid(small(charts, max_points))


def render(template: str, *, unix_s: float, videos: Sequence[Video] = (), **values: object) -> str:
    """Return a page as one file that needs nothing else but `videos`: style, scripts and data are inside."""
    package = files("redline.report")
    read = {name: package.joinpath(name).read_text(encoding="utf-8") for name in RESOURCES}
    scripts = [f"/*\n{read['uPlot.LICENSE']}\n*/\n{read['uPlot.iife.min.js']}", read["page.js"]]
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    place = " 'self' file:" if any(not video.is_embedded for video in videos) else ""
    policy = POLICY.format(
        scripts=" ".join(f"'sha256-{digest}'" for digest in digests),
        place=place,
        media=f"media-src data:{place}; " if any(not video.is_picture for video in videos) else "",
    )
    ours = {"policy": policy, "style": f"{read['uPlot.min.css']}\n{read['page.css']}"}
    values |= {name: Markup(text) for name, text in ours.items()}  # noqa: S704 - nothing of a run is in it
    values["scripts"] = [Markup(script) for script in scripts]  # noqa: S704 - our own
    found = _environment().get_template(template)
    return found.render(written=moment(unix_s), version=__version__, **values).lstrip()


def render_parts(title: str, subtitle: str, parts: Sequence[Part], *, unix_s: float) -> str:
    """Return a page of parts."""
    return render("parts.html.j2", unix_s=unix_s, title=title, subtitle=subtitle, links=[], parts=parts)


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
    """Return text in which what a document can't hold is replaced, before it is escaped; markup as it is."""
    if isinstance(value, Markup):
        return value
    return "".join(char if char.isprintable() or char in "\n\t" else REPLACEMENT for char in str(value))


def _percent(value: float, low: float, high: float) -> float:
    """Return where a value lies between two others, 0 … 100."""
    place = (value - low) / (high - low) if high > low else 0.0
    return round(100.0 * min(max(place, 0.0), 1.0), 2) if math.isfinite(place) else 0.0
