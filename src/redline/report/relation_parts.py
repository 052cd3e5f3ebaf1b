"""The part of a page on how utilisation relates to learning across runs, and on what that can't tell."""

from __future__ import annotations

from collections.abc import Sequence

from redline.report.amounts import DASH, amount, share
from redline.report.charts import Line, LineChart
from redline.report.comparison import MAX_POINTS, MEASURES, Game, estimate
from redline.report.parts import Cell, Content, Fold, Notice, Part, Section, Table, grid
from redline.report.relation import OUTCOMES, UTILISATIONS, Correlation, Group, Relation

GROUP_WORDS = (
    "Means over runs, each with its 90 % interval (Student's t) below; fewer than three runs have no interval."
)
RHO_WORDS = (
    "ρ is Spearman's rank correlation over settings, seeds averaged: 1 where more use always went with more, "
    "−1 where it went with less."
)
OUTCOME_WORDS = dict(
    zip(OUTCOMES, ("steps per second", "updates per second", "return, last 100", "mean return of the run"), strict=True)
)
USE_WORDS = dict(zip(UTILISATIONS, ("CPU", "GPU"), strict=True))


def relation_charts(game: Game) -> list[LineChart]:
    """Return utilisation against speed and learning, a dot for each run."""
    charts = []
    for use, use_words, factor in (
        ("cpu_share_of_machine", "CPU utilisation, % of the cores it may use", 100.0),
        ("gpu_utilisation_percent", "GPU utilisation, %", 1.0),
    ):
        for outcome, title in (("final_return", "Return, last 100"), ("steps_per_s", "Steps per second")):
            points: dict[str, list[tuple[float, float]]] = {}
            for run in game.runs:
                x, y = getattr(run.summary, use), getattr(run.summary, outcome)
                if x is not None and y is not None:
                    points.setdefault(game.kind(run), []).append((x * factor, y))
            lines = tuple(
                Line(game.words(name), [x for x, _ in found], [y for _, y in found], game.colours[name], is_points=True)
                for name, found in points.items()
            )
            if lines:
                name = f"{use}-{outcome}".replace("_", "-")
                charts.append(LineChart(name, f"{title}, and use", "one dot for each run", use_words, lines))
    return charts


def relation_fold(games: Sequence[Game], relation: Relation) -> Fold:
    """Return the caveats, utilisation against what came of it, and the groups with all their means."""
    parts: list[Part] = []
    if relation.caveats:
        parts.append(Notice("Read this first", relation.caveats, css="caveats"))
    for game in games:
        if charts := relation_charts(game):
            parts.append(grid(charts, owner=game.owner, max_points=MAX_POINTS))
    if relation.correlations:
        table = _correlation_table(relation.correlations)
        parts.append(Section("Utilisation and what came of it", [table], level=3, lead=RHO_WORDS))
    for by in dict.fromkeys(group.by for group in relation.groups):
        groups = [group for group in relation.groups if group.by == by]
        # a group that holds all runs of a game would mix whatever else they differ in
        if by == "algorithm" or len(groups) > len({group.env for group in groups}):
            parts.append(Section(f"By {by}", [_group_table(by, groups)], lead=GROUP_WORDS, level=3))
    note = f"and {len(relation.caveats)} things to keep in mind" if relation.caveats else ""
    title = "How utilisation relates to learning"
    return Fold(title, parts, css="chapter", identity="relation", note=note, level=2)


def _group_table(by: str, groups: Sequence[Group]) -> Table:
    measures = [
        name
        for name, measure in MEASURES.items()
        if measure.column and any(name in group.estimates for group in groups)
    ]
    rows: list[list[Content]] = [
        [group.env, group.name, amount(len(group.labels)), *(estimate(name, group) for name in measures)]
        for group in groups
    ]
    head = ("game", by, "runs", *(MEASURES[name].column for name in measures))
    return Table(f"Runs by {by}", head, rows, numeric=range(2, len(head)))


def _correlation_table(correlations: Sequence[Correlation]) -> Table:
    rows: list[list[Content]] = [
        [
            found.env,
            found.within,
            USE_WORDS[found.utilisation],
            OUTCOME_WORDS[found.outcome],
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
    head = ("game", "within", "use of", "against", "settings", "runs", "ρ", "90 % interval", "−1 · 0 · 1")
    return Table("Rank correlations", (*head, "by chance", "reading"), rows, numeric=(4, 5, 6, 7, 9))


def _rho(value: float | None) -> str:
    return DASH if value is None else f"{value:+.2f}".replace("-", "−")


def _scale(found: Correlation) -> Content:
    """Return a correlation and its interval, to be drawn between −1 and 1."""
    if found.rho is None:
        return ""
    low, high = found.interval or (found.rho, found.rho)
    return Cell("", scale=(low, found.rho, high))
