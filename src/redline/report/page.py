"""One self-contained page about one run or several: markup, style, script and charts in a single file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from redline import __version__
from redline.report.amounts import moment
from redline.report.charts import Chart
from redline.report.comparison_section import comparison_sections, describe
from redline.report.html_parts import Content, Gallery, Html, Owner, element, folded, join, notice
from redline.report.relation import Relation
from redline.report.run_files import RunFiles
from redline.report.run_section import run_sections
from redline.report.run_summary import RunSummary
from redline.report.shown_run import ShownRun, title_of

# nothing may be loaded but a run's videos, and only our own script may run, whatever a run directory holds
POLICY = (
    "default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; {media}"
    "base-uri 'none'; form-action 'none'"
)
MEDIA = "media-src 'self' file:; "
NO_ICON = "data:,"  # without it, a browser asks for /favicon.ico
LOGO = (
    '<svg class="logo" viewBox="0 0 40 24" aria-hidden="true"><path class="dial" d="M4 22a16 16 0 0 1 27.3-11.3"/>'
    '<path class="red" d="M31.3 10.7A16 16 0 0 1 36 22"/><path class="needle" d="M20 22 30 9"/></svg>'
)
MAX_POINTS = 2_000  # of a chart of a page that shows one run
RUNS = '<section id="runs"><h2>Each run</h2>'
PLACES = (
    ("#learning-0", "learning"),
    ("#use-0", "use, speed and cost"),
    ("#all-runs", "all runs"),
    ("#relation", "utilisation and learning"),
)
SECTIONS = ("learning", "recordings", "time", "hardware", "settings", "events", "episodes")


@dataclass(frozen=True)
class Page:
    """A page, and the charts on it by what they show and their name."""

    html: str
    charts: dict[tuple[Owner, str], Chart]


def build_page(
    runs: Sequence[tuple[RunFiles, RunSummary]],
    relation: Relation | None,
    *,
    unix_s: float,
    folder: Path | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> Page:
    """Return the page that will lie in `folder`; `relation` is that of several runs, `progress` told the share done."""
    shown = [
        ShownRun(files=found, summary=summary, key=f"run-{place}", page_folder=folder)
        for place, (found, summary) in enumerate(runs, start=1)
    ]
    # a page is to stay small: the more runs there are, the coarser is what stands folded
    gallery = Gallery(max_points=MAX_POINTS // len(shown))
    if relation is None:
        (run,) = shown
        title, body = title_of(run), _one_run(run, gallery)
    else:
        title, body = f"{len(shown)} runs compared", _several_runs(shown, relation, gallery, progress)
    return Page(html=document(title, body, unix_s=unix_s), charts=gallery.charts)


def _one_run(run: ShownRun, gallery: Gallery) -> Html:
    head = _heading(title_of(run), run.files.label if run.files.label != title_of(run) else "")
    sections = run_sections(run, gallery, level=2)
    places = [f"{run.key}-{name}" for name in SECTIONS]
    links = _links(
        (f"#{place}", place.removeprefix(f"{run.key}-")) for place in places if f'id="{place}"' in sections.markup
    )
    return join([head, links, sections])


def _several_runs(
    runs: Sequence[ShownRun], relation: Relation, gallery: Gallery, progress: Callable[[float], None]
) -> Html:
    comparison = comparison_sections(runs, relation, gallery)
    places = (*PLACES, ("#runs", "each run"))
    links = _links((target, words) for target, words in places if f'id="{target[1:]}"' in comparison.markup + RUNS)
    parts: list[Content] = [_heading(f"{len(runs)} runs compared", describe([run.summary for run in runs])), links]
    troubles = [
        Html(f"<strong>{Html.of(run.files.label).markup}</strong> {Html.of(problem).markup}")
        for run in runs
        for problem in run.files.problems
    ]
    if troubles:
        parts.append(notice("What is missing", troubles, css="missing"))
    parts += [comparison, Html(RUNS)]
    for place, run in enumerate(runs):
        progress(place / len(runs))
        words = title_of(run) if title_of(run) != run.files.label else ""
        name = join([element("strong", run.files.label), element("span", words)])
        parts.append(folded(name, run_sections(run, gallery, level=3), css="run", identity=run.key))
    parts.append(Html("</section>"))
    return join(parts)


def _heading(title: str, words: str) -> Html:
    under = [element("p", words, css="under")] if words else []
    return element("header", join([element("h1", title), *under]), css="head")


def _links(places: Iterable[tuple[str, str]]) -> Html:
    items = "".join(f'<a href="{target}">{words}</a>' for target, words in places)
    return Html(f'<nav aria-label="Parts of this page">{items}</nav>')


def document(title: str, body: Html, *, unix_s: float) -> str:
    """Return a whole page around its content."""
    package = files("redline.report")
    style = package.joinpath("page.css").read_text(encoding="utf-8")
    script = package.joinpath("page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = POLICY.format(digest=digest, media=MEDIA if "<video " in body.markup else "")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{Html.of(title).markup} · Redline</title>
<link rel="icon" href="{NO_ICON}">
<style>
{style}</style>
</head>
<body>
<div class="bar">{LOGO}<b>Redline</b><span>report of {moment(unix_s)}, version {__version__}</span></div>
<main>
{body.markup}
</main>
<script>{script}</script>
</body>
</html>
"""
