"""The parts of a page as Markdown, for terminals, diffs and mail: what a chart draws is a table of a few points."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import numpy as np

from redline import __version__
from redline.jsonl import plain_text
from redline.report.charts import Bar, Chart, Line, LineChart, ShareChart, Spread, shown
from redline.report.parts import (
    DASH,
    Content,
    Notice,
    Part,
    Section,
    Table,
    Text,
    Tiles,
    amount,
    moment,
    share,
)

MAX_TEXT_CHARACTERS = 2_000
SHARES = (0.25, 0.5, 0.75, 1.0)  # of a line, at which its height is told
MEANT = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")  # an underscore within a word means nothing
AT_BEGIN = re.compile(r"^(\d*)([-#+=.)]+)(?=\s|$)")  # of a heading, a list, a rule
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def write_markdown(title: str, subtitle: str, parts: Sequence[Part], *, unix_s: float) -> str:
    """Return the whole page."""
    head = [f"# {escaped(title)}", escaped(subtitle), f"Report of {moment(unix_s)}, Redline {__version__}."]
    return "\n\n".join([*filter(None, head), *(block for part in parts for block in _blocks(part, level=2))]) + "\n"


def escaped(text: str) -> str:
    """Return a text as one line that means nothing in Markdown and is no HTML."""
    line = plain_text(text, MAX_TEXT_CHARACTERS).strip()
    line = MEANT.sub(lambda found: "\\" + found[0], line)
    line = "".join(ENTITIES.get(letter, letter) for letter in line)
    return AT_BEGIN.sub(r"\1\\\2", line)


def _blocks(part: Part, *, level: int) -> list[str]:
    if isinstance(part, Section):
        head = [f"{'#' * min(level, 6)} {escaped(part.title)}", escaped(part.lead)]
        return [*filter(None, head), *(block for inner in part.parts for block in _blocks(inner, level=level + 1))]
    if isinstance(part, Text):
        return [escaped(part.text)]
    if isinstance(part, Table):
        return [_table(part.head, part.rows, part.numeric)]
    if isinstance(part, Tiles):
        return ["\n".join(f"- {_fact(*fact)}" for fact in part.facts)]
    if isinstance(part, Notice):
        return [f"**{escaped(part.title)}**", "\n".join(f"- {_cell(sentence)}" for sentence in part.sentences)]
    return [block for chart in part.charts for block in _chart(chart)]


def _fact(name: str, value: str, note: str) -> str:
    return f"{escaped(name)}: {escaped(value)}" + (f" ({escaped(note)})" if note else "")


def _cell(content: Content) -> str:
    if isinstance(content, str):
        return escaped(content)
    text = escaped(content.text if content.scale is None else amount(content.scale[1]))
    text = f"**{text}**" if content.is_strong and text else text
    return f"{text} ({escaped(content.note)})" if content.note else text


def _table(head: Sequence[str], rows: Sequence[Sequence[Content]], numeric: Collection[int] = ()) -> str:
    lines = [
        [escaped(title) for title in head],
        ["---:" if place in numeric else "---" for place in range(len(head))],
        *([_cell(content) for content in row] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _chart(chart: Chart) -> list[str]:
    about = f"**{escaped(chart.title)}** ({escaped(chart.unit)})" if chart.unit else f"**{escaped(chart.title)}**"
    if isinstance(chart, LineChart):
        head = ("line", chart.x_label, *(f"at {portion:.0%} of it" for portion in SHARES))
        return [about, _table(head, [_line(line) for line in shown(chart).lines], range(1, len(head)))]
    if isinstance(chart, ShareChart):
        return [about, _table(("row", "shares"), [_bar(bar) for bar in chart.bars])]
    return [about, _table(("row", "mean", "interval", "values"), [_spread(row) for row in chart.rows], (1,))]


def _line(line: Line) -> list[str]:
    """Return how far a line goes, and its height at some places."""
    first, last = line.x[0], line.x[-1]
    heights = []
    for portion in SHARES:
        at = first + portion * (last - first)
        value, *ends = (float(np.interp(at, line.x, side)) for side in (line.y, line.low, line.high) if len(side))
        heights.append(amount(value) + (f" ({amount(ends[0])} … {amount(ends[1])})" if ends else ""))
    return [line.label, f"{amount(first)} … {amount(last)}", *heights]


def _bar(bar: Bar) -> list[str]:
    return [bar.label, ", ".join(f"{name} {share(part)}" for name, part in bar.shares)]


def _spread(row: Spread) -> list[str]:
    interval = DASH if row.low is None or row.high is None else f"{amount(row.low)} … {amount(row.high)}"
    return [row.label, amount(row.mean), interval, ", ".join(map(amount, row.values))]
