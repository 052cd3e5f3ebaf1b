"""The part of a page that compares runs: charts first, then the table of all runs, then how use relates to learning."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from redline.report.amounts import DASH, amount, share, span
from redline.report.comparison_charts import (
    BY_RUN,
    FEW,
    MEASURES,
    Game,
    games_of,
    learning_charts,
    relation_charts,
    spread_charts,
)
from redline.report.html_parts import Compared, Content, Gallery, Html, element, join, notice, section, table
from redline.report.relation import Correlation, Group, Relation
from redline.report.run_summary import RunSummary
from redline.report.shown_run import ShownRun

SPREAD_WORDS = "A dot is a run, a stroke the mean, a band the mean's 90 % interval (cut if too wide)."
NO_GROUPS = "One row for each run: they do not tell their game, so nothing groups them."
MAX_POINTS = 2_000  # of a chart that holds all runs

OUTCOMES = {
    "steps_per_s": "steps per second",
    "updates_per_s": "updates per second",
    "final_return": "final return",
    "mean_return": "mean return of the whole run",
}
UTILISATIONS = {"cpu_share_of_machine": "CPU", "gpu_utilisation_percent": "GPU"}
SENTENCE = (
    "Groups: mean over runs, with its 90 % interval (Student's t) below; one run has no interval. "
    "ρ is Spearman's rank correlation over settings, seeds averaged: 1 where more use always went with more, "
    "−1 where it went with less."
)


def comparison_sections(runs: Sequence[ShownRun], relation: Relation, gallery: Gallery) -> Html:
    """Return the comparison of several runs."""
    games = games_of(runs, relation)
    parts: list[Content] = []
    for place, game in enumerate(games):
        suffix = f" on {game.env}" if len(games) > 1 else ""
        owner = _owner(place, games)
        if curves := learning_charts(game):
            drawn = gallery.grid(curves, owner=owner, max_points=MAX_POINTS)
            parts.append(section(f"Learning{suffix}", drawn, identity=f"learning-{place}", lead=_legend_words(game)))
        if spreads := spread_charts(game):
            lead = f"By {game.by}. {SPREAD_WORDS}" if game.by != BY_RUN else NO_GROUPS
            drawn = gallery.grid(spreads, owner=owner)
            parts.append(section(f"Use, speed and cost{suffix}", drawn, identity=f"use-{place}", lead=lead))
    parts.append(section("All runs", _all_runs(runs), identity="all-runs"))
    parts.append(_relation_section(games, relation, gallery))
    return join(parts)


def _owner(place: int, games: Sequence[Game]) -> Compared:
    return Compared(f"comparison-{place}" if len(games) > 1 else "comparison")


def _legend_words(game: Game) -> str:
    return f"Colour is the {game.by}, dashes tell its runs apart." if len(game.groups) < len(game.runs) <= FEW else ""


def _all_runs(runs: Sequence[ShownRun]) -> Html:
    """Return one row for each run; columns that no run has are left out."""
    columns: dict[str, Callable[[RunSummary], str]] = {
        "algorithm": lambda found: found.algorithm or DASH,
        "env": lambda found: found.env or DASH,
        "seed": lambda found: amount(found.seed),
        "batch": lambda found: amount(found.batch_size),
        "envs": lambda found: amount(found.num_envs),
        "threads": lambda found: amount(found.learner_threads),
        "steps": lambda found: amount(found.steps),
        "time": lambda found: span(None if found.minutes is None else found.minutes * 60),
        "steps/s": lambda found: amount(found.steps_per_s),
        "updates/s": lambda found: amount(found.updates_per_s),
        "cores used": lambda found: amount(found.cpu_cores_used),
        "CPU use": lambda found: share(found.cpu_share_of_machine),
        "GPU use": lambda found: amount(found.gpu_utilisation_percent, "%"),
        "CPU time": lambda found: span(found.cpu_s),
        "GPU time": lambda found: span(found.gpu_s),
        "energy": lambda found: amount(None if found.energy_j is None else found.energy_j / 1e3, "kJ"),
        "final return": lambda found: amount(found.final_return),
        "best": lambda found: amount(found.best_return),
    }
    shown = {
        name: cells for name, cell in columns.items() if set(cells := [cell(run.summary) for run in runs]) != {DASH}
    }
    links = [Html(f'<a href="#{run.key}">{Html.of(run.files.label).markup}</a>') for run in runs]
    rows: list[list[Content]] = [
        [link, *(cells[place] for cells in shown.values())] for place, link in enumerate(links)
    ]
    words = ("algorithm", "env")
    numeric = [place for place, name in enumerate(shown, start=1) if name not in words]
    return table("All runs", ("run", *shown), rows, numeric=numeric, css="card")


def _relation_section(games: Sequence[Game], relation: Relation, gallery: Gallery) -> Html:
    parts: list[Content] = []
    if relation.caveats:
        parts.append(notice("Read this first", relation.caveats, css="caveats"))
    for place, game in enumerate(games):
        owner = _owner(place, games)
        if charts := relation_charts(game):
            parts.append(gallery.grid(charts, owner=owner))
    if relation.correlations:
        parts += [element("h3", "Utilisation and what came of it"), _correlation_table(relation.correlations)]
    for by in dict.fromkeys(group.by for group in relation.groups):
        groups = [group for group in relation.groups if group.by == by]
        parts += [element("h3", f"By {by}"), _group_table(by, groups)]
    return section("How utilisation relates to learning", *parts, identity="relation", lead=SENTENCE)


def _group_table(by: str, groups: Sequence[Group]) -> Html:
    measures = [name for name in MEASURES if any(name in group.estimates for group in groups)]
    rows: list[list[Content]] = [
        [
            group.env,
            group.name,
            amount(len(group.labels)),
            *(_estimate(name, group) for name in measures),
        ]
        for group in groups
    ]
    head = ("game", by, "runs", *(MEASURES[name].column for name in measures))
    return table(f"Runs by {by}", head, rows, numeric=range(2, len(head)), css="card")


def _estimate(measure: str, group: Group) -> Html:
    found = group.estimates.get(measure)
    if found is None:
        return Html(DASH)
    write = MEASURES[measure].write
    band = "" if found.interval is None else f"{write(found.interval[0])} … {write(found.interval[1])}"
    if found.n != len(group.labels):  # some of its runs do not tell this
        band = " · ".join(filter(None, (f"n = {found.n}", band)))
    band = band or "one run"
    return Html(f"{Html.of(write(found.mean)).markup}<small>{Html.of(band).markup}</small>")


def _correlation_table(correlations: Sequence[Correlation]) -> Html:
    rows: list[list[Content]] = [
        [
            found.env,
            found.within,
            UTILISATIONS.get(found.utilisation, found.utilisation),
            OUTCOMES.get(found.outcome, found.outcome),
            amount(found.n),
            amount(found.runs),
            _rho(found.rho),
            DASH if found.interval is None else f"{_rho(found.interval[0])} … {_rho(found.interval[1])}",
            _scale(found),
            share(found.by_chance),
            found.verdict,
        ]
        for found in correlations
    ]
    head = (
        "game",
        "within",
        "use of",
        "against",
        "settings",
        "runs",
        "ρ",
        "90 % interval",
        "−1 · 0 · 1",
        "by chance",
        "reading",
    )
    return table("Rank correlations", head, rows, numeric=(4, 5, 6, 7, 9), css="card")


def _rho(value: float | None) -> str:
    return DASH if value is None else f"{value:+.2f}".replace("-", "−")


def _scale(found: Correlation) -> Html:
    """Draw a correlation and its interval between −1 and 1."""
    if found.rho is None:
        return Html("")
    low, high = found.interval or (found.rho, found.rho)
    band = f'<i style="left:{50 + 50 * low:.1f}%;width:{50 * (high - low):.1f}%"></i>'
    return Html(f'<span class="scale">{band}<b style="left:{50 + 50 * found.rho:.1f}%"></b></span>')


def describe(summaries: Sequence[RunSummary]) -> str:
    """Say in one line what is compared."""
    kinds = (
        ("algorithm", {summary.algorithm for summary in summaries}),
        ("game", {summary.env for summary in summaries}),
        ("machine", {summary.host for summary in summaries}),
    )
    words = []
    for kind, names in kinds:
        known = sorted(name for name in names if name)
        if len(known) == 1:
            words.append(known[0])
        elif known:
            words.append(f"{len(known)} {kind}s")
    return " · ".join(words)
