"""One self-contained page about one run or several, from what was read of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from redline.report.charts import Chart
from redline.report.comparison import comparison_parts, describe, games_of
from redline.report.parts import Cell, Fold, Notice, Owner, PageParts, Part, Section, render_page
from redline.report.relation import Relation
from redline.report.relation_parts import relation_fold
from redline.report.run_files import RunFiles
from redline.report.run_parts import ShownRun, run_parts
from redline.report.run_summary import RunSummary

MAX_POINTS = 2_000  # of a chart of a page that shows one run
LINKS = {
    "learning-0": "learning",
    "all-runs": "all runs",
    "use-0": "speed, hardware and cost",
    "relation": "utilisation and learning",
    "runs": "each run",
}


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
    page = _one_run(shown[0]) if relation is None else _several_runs(shown, relation, progress)
    return Page(html=render_page(page, unix_s=unix_s), charts=page.charts())


def _one_run(run: ShownRun) -> PageParts:
    parts = run_parts(run, max_points=MAX_POINTS, level=2)
    identities = [part.identity for part in parts if isinstance(part, Section | Fold)]
    links = [(identity, identity.removeprefix(f"{run.key}-")) for identity in identities]
    return PageParts(run.title, run.files.path.resolve().name, parts, links)


def _several_runs(runs: Sequence[ShownRun], relation: Relation, progress: Callable[[float], None]) -> PageParts:
    left_out = {run.label for run in relation.left_out}
    compared = [run for run in runs if run.files.label not in left_out]
    games = games_of(compared, relation)
    parts = [*comparison_parts(games, relation), relation_fold(games, relation)]
    troubles = [Cell(run.files.label, note=problem, is_strong=True) for run in runs for problem in run.files.problems]
    if troubles:
        parts.append(Fold(f"What is missing: {len(troubles)} notes", [Notice("What is missing", troubles, "missing")]))
    each: list[Part] = []
    for place, run in enumerate(runs):
        progress(place / len(runs))
        # a page is to stay small: the more runs there are, the coarser is what stands folded
        inner = run_parts(run, max_points=MAX_POINTS // len(runs), level=3)
        name = run.files.path.resolve().name
        each.append(Fold(run.files.label, inner, css="run", identity=run.key, note=f"{run.title} · {name}"))
    parts.append(Section("Each run", each, identity="runs"))
    identities = {part.identity for part in parts if isinstance(part, Section | Fold)}
    links = [(identity, words) for identity, words in LINKS.items() if identity in identities]
    title = f"{len(compared)} run{'' if len(compared) == 1 else 's'} compared"
    return PageParts(title, describe([run.summary for run in compared]), parts, links)
