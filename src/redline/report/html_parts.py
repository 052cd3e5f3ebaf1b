"""Pieces of a page; text from files is always escaped, so that it can't become markup."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from redline.report.chart_drawing import draw
from redline.report.charts import Chart, LineChart, thinned
from redline.report.inline_svg import inline_svg, readout

SIGN = "�"  # in place of what has no place in a document: control characters, halves of surrogate pairs


@dataclass(frozen=True)
class Html:
    """Markup, as opposed to text: a plain string is never taken for it."""

    markup: str

    @staticmethod
    def of(text: object) -> Html:
        """Return text as markup that shows it."""
        return Html(escape(printable(str(text))))


Content = Html | str


def printable(text: str) -> str:
    """Return a text in which what a document can't hold is replaced."""
    return "".join(char if char.isprintable() or char in "\n\t" else SIGN for char in text)


def render(content: Content) -> str:
    """Return markup as it is, and text escaped."""
    return content.markup if isinstance(content, Html) else Html.of(content).markup


def join(parts: Iterable[Content]) -> Html:
    """Put pieces one after the other."""
    return Html("\n".join(render(part) for part in parts))


def element(tag: str, content: Content = "", *, css: str = "", identity: str = "") -> Html:
    """Return an element; `css` and `identity` are attributes, escaped like text."""
    names = "".join(f' {name}="{escape(value)}"' for name, value in (("class", css), ("id", identity)) if value)
    return Html(f"<{tag}{names}>{render(content)}</{tag}>")


def section(title: str, *content: Content, identity: str = "", lead: str = "", level: int = 2) -> Html:
    """Return a part of the page with its heading and, where it needs one, a sentence under it."""
    words = [element("p", lead, css="lead")] if lead else []
    return element("section", join([element(f"h{level}", title), *words, *content]), identity=identity)


def table(
    name: str,
    head: Sequence[Content],
    rows: Iterable[Sequence[Content]],
    *,
    numeric: Collection[int] = (),
    css: str = "",
) -> Html:
    """Return a table that scrolls where it is large; the columns at `numeric` are aligned to the right.

    `name` is for those who can't see it.
    """
    align = [' class="n"' if place in numeric else "" for place in range(len(head))]
    cells = "".join(f'<th scope="col"{side}>{render(title)}</th>' for title, side in zip(head, align, strict=True))
    lines = [
        "<tr>" + "".join(f"<td{side}>{render(cell)}</td>" for cell, side in zip(row, align, strict=True)) + "</tr>"
        for row in rows
    ]
    body = "\n".join(lines)
    inner = f"<table><thead><tr>{cells}</tr></thead><tbody>\n{body}\n</tbody></table>"
    about = f'role="region" aria-label="{Html.of(name).markup}" tabindex="0"'
    return Html(f'<div class="{escape(f"scroll {css}".strip())}" {about}>{inner}</div>')


def folded(summary: Content, *content: Content, css: str = "", identity: str = "", is_open: bool = False) -> Html:
    """Return a part that opens when it is clicked."""
    name = f' id="{escape(identity)}"' if identity else ""
    state = " open" if is_open else ""
    inner = join(content).markup
    return Html(f'<details class="{escape(css)}"{name}{state}><summary>{render(summary)}</summary>\n{inner}</details>')


def tiles(facts: Iterable[tuple[str, str, str]]) -> Html:
    """Return figures with their names and a word beside each."""
    items = [
        Html(f"<div><dt>{render(name)}</dt><dd>{render(value)}<small>{render(note)}</small></dd></div>")
        for name, value, note in facts
    ]
    return element("dl", join(items), css="tiles")


def notice(title: str, sentences: Sequence[Content], *, css: str) -> Html:
    """Return what must not be overlooked."""
    items = join(element("li", sentence) for sentence in sentences)
    return element("aside", join([element("h3", title), element("ul", items)]), css=f"notice {css}")


@dataclass(frozen=True)
class Compared:
    """Several runs as what a chart shows; no run's label equals it, whatever a run is called."""

    name: str

    def __str__(self) -> str:
        return self.name


Owner = str | Compared  # the label of a run, or several runs


class Gallery:
    """Draws the charts of one page: each has ids of its own, and the values that a cursor reads."""

    def __init__(self, *, max_points: int) -> None:
        self.max_points = max_points  # of each chart
        self.charts: dict[tuple[Owner, str], Chart] = {}  # by owner and name; a figure would take a megabyte
        self._drawn = 0

    def chart(self, chart: Chart, *, owner: Owner, max_points: int | None = None) -> Html:
        """Return a chart as a figure; `owner` is what it shows: a run, or the comparison."""
        if isinstance(chart, LineChart):
            chart = thinned(chart, max_points=max_points or self.max_points)
        drawing = draw(chart)
        key = f"c{self._drawn}"
        self._drawn += 1
        self.charts[owner, chart.name] = chart
        picture = inline_svg(drawing, prefix=f"{key}-", title=printable(f"{chart.title}, {chart.unit}"))
        values = readout(drawing)
        data = "" if values is None else f'<script type="application/json">{as_script_data(values)}</script>'
        return Html(f'<figure class="card" id="{key}">{picture}{data}</figure>')

    def grid(self, charts: Iterable[Chart], *, owner: Owner, max_points: int | None = None) -> Html:
        """Return charts side by side, as many in a row as there is room for."""
        drawn = [self.chart(chart, owner=owner, max_points=max_points) for chart in charts]
        return element("div", join(drawn), css="grid")


def as_script_data(value: object) -> str:
    """Return JSON that can't end the element it stands in."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)  # ASCII only
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
