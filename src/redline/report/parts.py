"""The parts of a page as values, and the one function that makes a file of them: `page.html.j2` knows how they look.

Text from files is escaped by the template, so that it can't become markup.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import ClassVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from redline import __version__
from redline.report.amounts import amount, moment, share
from redline.report.charts import Chart, LineChart, ShareChart, page_data, shown, thinned

# nothing may be loaded but a run's videos, and only our own scripts may run, whatever a run directory holds
POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:{place}; {media}"
    "base-uri 'none'; form-action 'none'"
)
RESOURCES = ("uPlot.LICENSE", "uPlot.iife.min.js", "uPlot.min.css", "page.css", "page.js")
REPLACEMENT = "�"  # for what has no place in a document: control characters, halves of surrogate pairs


@dataclass(frozen=True)
class Compared:
    """Several runs as what a chart shows; no run's label equals it, whatever a run is called."""

    name: str

    def __str__(self) -> str:
        return self.name


Owner = str | Compared  # the label of a run, or several runs


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
    kind: ClassVar[str] = "text"


@dataclass(frozen=True)
class Table:
    """A table that scrolls where it is large; the columns at `numeric` are aligned to the right."""

    name: str  # for those who can't see it
    head: Sequence[str]
    rows: Sequence[Sequence[Content]]
    numeric: Collection[int] = ()
    css: str = "card"
    kind: ClassVar[str] = "table"


@dataclass(frozen=True)
class Tiles:
    """Figures: name, value, and a word below each."""

    facts: Sequence[tuple[str, str, str]]
    kind: ClassVar[str] = "tiles"


@dataclass(frozen=True)
class Facts:
    """Names and values, in columns."""

    facts: Sequence[tuple[str, str]]
    is_code: bool = False
    kind: ClassVar[str] = "facts"


@dataclass(frozen=True)
class Notice:
    """What must not be overlooked."""

    title: str
    sentences: Sequence[Content]
    css: str  # "missing" or "caveats"
    kind: ClassVar[str] = "notice"


@dataclass(frozen=True)
class Video:
    """A video or a moving picture that plays in the page."""

    address: str
    caption: str
    is_picture: bool = False
    kind: ClassVar[str] = "video"

    @property
    def is_embedded(self) -> bool:
        """Whether the page holds all of it."""
        return self.address.startswith("data:")

    @property
    def preload(self) -> str:
        """How much a browser reads before the video is played: only what the page holds anyway."""
        return "metadata" if self.is_embedded else "none"


@dataclass(frozen=True)
class Grid:
    """Charts side by side, as many in a row as there is room for."""

    charts: Sequence[Chart]
    owner: Owner  # what they show
    beside: Sequence[Part] = ()
    kind: ClassVar[str] = "grid"


@dataclass(frozen=True)
class Fold:
    """A part that opens when it is clicked."""

    summary: str
    parts: Sequence[Part]
    css: str = "fold"
    identity: str = ""
    note: str = ""
    lead: str = ""
    level: int = 0  # of a heading; 0 for none
    is_open: bool = False
    kind: ClassVar[str] = "fold"


@dataclass(frozen=True)
class Section:
    """A part of the page with its heading and, where it needs one, a sentence under it."""

    title: str
    parts: Sequence[Part]
    identity: str = ""
    lead: str = ""
    level: int = 2
    kind: ClassVar[str] = "section"


Part = Text | Table | Tiles | Facts | Notice | Video | Grid | Fold | Section


@dataclass(frozen=True)
class PageParts:
    """A whole page."""

    title: str
    subtitle: str
    parts: Sequence[Part]
    links: Sequence[tuple[str, str]] = ()  # identity of a part, and how it is called

    def walk(self) -> Iterator[Part]:
        """Yield every part, outer ones first."""
        todo: list[Part] = list(reversed(self.parts))
        while todo:
            part = todo.pop()
            yield part
            inner = part.parts if isinstance(part, Section | Fold) else part.beside if isinstance(part, Grid) else ()
            todo += reversed(inner)

    def charts(self) -> dict[tuple[Owner, str], Chart]:
        """Return the charts by what they show and their name."""
        grids = (part for part in self.walk() if isinstance(part, Grid))
        return {(grid.owner, chart.name): chart for grid in grids for chart in grid.charts}


def grid(charts: Iterable[Chart], *, owner: Owner, max_points: int, beside: Sequence[Part] = ()) -> Grid:
    """Return charts of at most about so many points each."""
    small = [
        thinned(shown(chart), max_points=max_points) if isinstance(chart, LineChart) else chart for chart in charts
    ]
    return Grid(small, owner, beside)


def render_page(page: PageParts, *, unix_s: float) -> str:
    """Return the page as one file that needs nothing else: style, scripts and data are inside."""
    package = files("redline.report")
    read = {name: package.joinpath(name).read_text(encoding="utf-8") for name in RESOURCES}
    scripts = [f"/*\n{read['uPlot.LICENSE']}\n*/\n{read['uPlot.iife.min.js']}", read["page.js"]]
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    videos = [part for part in page.walk() if isinstance(part, Video)]
    place = " 'self' file:" if any(not video.is_embedded for video in videos) else ""
    policy = POLICY.format(
        scripts=" ".join(f"'sha256-{digest}'" for digest in digests),
        place=place,
        media=f"media-src data:{place}; " if any(not video.is_picture for video in videos) else "",
    )
    ours = {"policy": policy, "style": f"{read['uPlot.min.css']}\n{read['page.css']}"}
    markup = {name: Markup(text) for name, text in ours.items()}  # noqa: S704 - nothing of a run is in it
    html = (
        _environment()
        .get_template("page.html.j2")
        .render(
            page=page,
            scripts=[Markup(script) for script in scripts],  # noqa: S704 - our own
            written=moment(unix_s),
            version=__version__,
            **markup,
        )
    )
    return html.lstrip()


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
