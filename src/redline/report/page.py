"""One self-contained page about one run or several, from what was read of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from redline.report.charts import Chart
from redline.report.comparison import Comparison
from redline.report.parts import render
from redline.report.relation import Relation
from redline.report.run_files import RunFiles
from redline.report.run_page import ShownRun
from redline.report.run_summary import RunSummary

MAX_POINTS = 2_000  # of a chart of a page that shows one run


@dataclass(frozen=True)
class Page:
    """A page, and the charts on it, each with the label of its run or "comparison"."""

    html: str
    charts: list[tuple[str, Chart]]


def build_page(
    runs: Sequence[tuple[RunFiles, RunSummary]],
    relation: Relation | None,
    *,
    unix_s: float,
    folder: Path | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> Page:
    """Return the page, to be put into `folder`; `relation` compares several runs, `progress` gets the share done."""
    shown = []
    for place, (files, summary) in enumerate(runs):
        progress(place / len(runs))
        # to keep the page small, charts of single runs get coarser with the number of runs
        points = MAX_POINTS // len(runs)
        shown.append(ShownRun(files, summary, f"run-{place + 1}", page_folder=folder, max_points=points))
    charts = [(run.files.label, chart) for run in shown for chart in run.charts]
    if relation is None:
        compared, title, subtitle, links = None, shown[0].title, shown[0].name, shown[0].links
    else:
        compared = Comparison(shown, relation)
        count = len(compared.runs)
        title, subtitle, links = f"{count} run{'' if count == 1 else 's'} compared", compared.describe(), compared.links
        names = [
            f"comparison-{place}" if len(compared.games) > 1 else "comparison" for place in range(len(compared.games))
        ]
        together = zip(names, compared.games.values(), strict=True)
        charts = [(name, chart) for name, game in together for chart in game.charts] + charts
    html = render(
        "report.html.j2",
        unix_s=unix_s,
        videos=[video for run in shown if run.seen is not None for video in run.seen.players],
        title=title,
        subtitle=subtitle,
        links=links,
        runs=shown,
        compared=compared,
    )
    return Page(html, charts)
