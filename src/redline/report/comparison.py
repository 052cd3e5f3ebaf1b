"""The parts of a page that compare runs: learning, every run, what it took, and how use relates to learning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from redline.report.amounts import DASH, amount, share, span
from redline.report.charts import NUM_COLOURS, Line, LineChart, Spread, SpreadChart, over_time
from redline.report.parts import Cell, Compared, Content, Fold, Notice, Part, Section, Table, grid
from redline.report.relation import OUTCOMES, UTILISATIONS, Correlation, Group, Relation
from redline.report.run_charts import AXES, TITLES
from redline.report.run_parts import ShownRun, headline, newest_evaluation, span_words
from redline.report.run_series import Axis, Series, learning_curve
from redline.report.run_summary import RunSummary

UNKNOWN = "unknown"
BY_RUN = "run"  # where nothing groups them
BAND_POINTS = 200
MAX_POINTS = 2_000  # of a chart that holds all runs
BAND_WORDS = "A line is the median of a group's runs, a band reaches from the lowest to the highest."
SPREAD_WORDS = (
    "A dot is a run, a stroke the mean, a band the mean's 90 % interval (from three runs on, cut if too wide)."
)
NO_GROUPS = "One row for each run: they do not tell their game, so nothing groups them."
RELATION_WORDS = (
    "Groups: mean over runs, with its 90 % interval (Student's t) below; fewer than three runs have no interval. "
    "ρ is Spearman's rank correlation over settings, seeds averaged: 1 where more use always went with more, "
    "−1 where it went with less."
)


@dataclass(frozen=True)
class Measure:
    """How a measure of `RunSummary` that has estimates across runs is shown."""

    title: str  # of its chart
    unit: str
    column: str  # of a table
    write: Callable[[float | None], str] = amount
    factor: float = 1.0  # from the measure to the unit of the chart
    over: str = ""  # field of the summary that tells its span


MEASURES = {
    "final_return": Measure("Return", "mean of the last 100 episodes, unclipped", "return, last 100"),
    "steps_per_s": Measure("Steps per second", "steps/s", "steps/s", over="speed_over"),
    "updates_per_s": Measure("Updates per second", "updates/s", "updates/s", over="speed_over"),
    "cpu_share_of_machine": Measure(
        "CPU utilisation", "% of the cores it may use", "CPU utilisation", write=share, factor=100.0, over="use_over"
    ),
    "gpu_utilisation_percent": Measure("GPU utilisation", "%, mean over GPUs", "GPU utilisation, %", over="use_over"),
    "cpu_s_per_1000_steps": Measure("CPU time for 1,000 steps", "CPU seconds", "CPU s per 1,000 steps"),
    "return_gained_per_cpu_minute": Measure(
        "Return gained per CPU minute", "final − first return, per CPU minute", "return gained per CPU min"
    ),
}
# what has no estimate across runs → title, unit, value
COSTS: dict[str, tuple[str, str, Callable[[RunSummary], float | None]]] = {
    "cpu_s": ("CPU time in all", "CPU seconds", lambda summary: summary.cpu_s),
    "gpu_s": ("GPU time in all", "GPU seconds", lambda summary: summary.gpu_s),
    "energy_j": ("GPU energy", "kJ", lambda summary: None if summary.energy_j is None else summary.energy_j / 1e3),
    "power_w": (
        "GPU power",
        "W, mean while it was sampled",
        lambda summary: (
            summary.energy_j / summary.power_s if summary.energy_j is not None and summary.power_s else None
        ),
    ),
}
COLUMNS: dict[str, Callable[[RunSummary], Content]] = {
    "return, last 100": headline,
    "newest evaluation": newest_evaluation,
    "best episode": lambda found: amount(found.best_return),
    "seed": lambda found: amount(found.seed),
    "steps": lambda found: amount(found.steps),
    "time": lambda found: span(None if found.minutes is None else found.minutes * 60),
    "steps/s": lambda found: amount(found.steps_per_s),
    "updates/s": lambda found: amount(found.updates_per_s),
    "algorithm": lambda found: found.algorithm or DASH,
    "env": lambda found: found.env or DASH,
    "batch": lambda found: amount(found.batch_size),
    "envs": lambda found: amount(found.num_envs),
    "threads": lambda found: amount(found.learner_threads),
    "cores used": lambda found: amount(found.cpu_cores_used),
    "CPU use": lambda found: share(found.cpu_share_of_machine),
    "GPU use": lambda found: amount(found.gpu_utilisation_percent, "%"),
    "CPU time": lambda found: span(found.cpu_s),
    "GPU time": lambda found: span(found.gpu_s),
    "GPU energy": lambda found: amount(None if found.energy_j is None else found.energy_j / 1e3, "kJ"),
}
WORDS = {"algorithm", "env"}  # columns that are no numbers
OUTCOME_WORDS = dict(
    zip(OUTCOMES, ("steps per second", "updates per second", "return, last 100", "mean return of the run"), strict=True)
)
USE_WORDS = dict(zip(UTILISATIONS, ("CPU", "GPU"), strict=True))


@dataclass(frozen=True)
class Game:
    """Runs of one game, and by what they are told apart: returns of different games have nothing in common."""

    env: str
    runs: list[ShownRun]
    by: str  # the first that differs among them: algorithm, batch size, threads / cores; the run where nothing is known
    groups: list[Group]
    colours: dict[str, int]  # of each group, the same in every chart of the page

    def kind(self, run: ShownRun) -> str:
        """Return the group of a run."""
        found = (group.name for group in self.groups if run.files.label in group.labels)
        return run.files.label if self.by == BY_RUN else next(found, run.summary.algorithm or UNKNOWN)

    def words(self, kind: str) -> str:
        """Return how a legend names a group."""
        return kind if self.by in ("algorithm", BY_RUN) else f"{self.by} {kind}"


def games_of(runs: Sequence[ShownRun], relation: Relation) -> list[Game]:
    """Return the runs by their game."""
    envs: dict[str, list[ShownRun]] = {}
    for run in runs:
        envs.setdefault(run.summary.env or UNKNOWN, []).append(run)
    colours: dict[str, int] = {}
    games = []
    for env, members in envs.items():
        groupings: dict[str, list[Group]] = {}
        for group in relation.groups:
            if group.env == env:
                groupings.setdefault(group.by, []).append(group)
        by = next((name for name, groups in groupings.items() if len(groups) > 1), "algorithm" if groupings else BY_RUN)
        game = Game(env, members, by, groupings.get(by, []), colours)
        for kind in (*(group.name for group in game.groups), *map(game.kind, members)):
            colours.setdefault(kind, len(colours))
        games.append(game)
    return games


def comparison_parts(runs: Sequence[ShownRun], relation: Relation) -> list[Part]:
    """Return the comparison of several runs."""
    games = games_of(runs, relation)
    owners = [Compared(f"comparison-{place}" if len(games) > 1 else "comparison") for place in range(len(games))]
    parts: list[Part] = []
    if relation.left_out:
        named = [Cell(run.label, note=run.why, is_strong=True) for run in relation.left_out]
        parts.append(Notice("Not compared", named, css="missing"))
    for place, (game, owner) in enumerate(zip(games, owners, strict=True)):
        inner: list[Part] = [_group_scores(game)] if game.by != BY_RUN else []
        if curves := learning_charts(game, ("steps", "minutes")):
            inner.append(grid(curves, owner=owner, max_points=MAX_POINTS))
        title, lead = _on("Learning", game, games), BAND_WORDS if len(game.groups) < len(game.runs) else ""
        if inner:
            parts.append(Section(title, inner, identity=f"learning-{place}", lead=lead))
    if runs:
        parts.append(Section("All runs", [_all_runs(runs)], identity="all-runs"))
    for place, (game, owner) in enumerate(zip(games, owners, strict=True)):
        charts = [*spread_charts(game), *learning_charts(game, ("cpu_s", "gpu_s"))]
        if charts:
            lead = f"By {game.by}. {SPREAD_WORDS}" if game.by != BY_RUN else NO_GROUPS
            drawn = grid(charts, owner=owner, max_points=MAX_POINTS)
            title = _on("Speed, hardware and cost", game, games)
            parts.append(Fold(title, [drawn], css="chapter", identity=f"use-{place}", lead=lead, level=2))
    parts.append(_relation_fold(games, owners, relation))
    return parts


def _on(title: str, game: Game, games: Sequence[Game]) -> str:
    return f"{title} on {game.env}" if len(games) > 1 else title


def learning_charts(game: Game, axes: tuple[Axis, ...]) -> list[LineChart]:
    """Return the curves of all runs, a chart for each axis: one line for each group, with a band over its runs."""
    charts = []
    for axis in axes:
        groups: dict[str, list[tuple[ShownRun, Series]]] = {}
        for run in game.runs:
            curve = learning_curve(run.files, axis)
            if curve.x:
                groups.setdefault(game.kind(run), []).append((run, curve))
        lines = [line for name, found in groups.items() for line in _group_lines(game, name, found)]
        if lines:
            title, unit = f"Return against {TITLES[axis]}", "mean of the last 20 episodes, unclipped"
            chart = LineChart(f"return-{axis.replace('_', '-')}", title, unit, AXES[axis], tuple(lines))
            charts.append(over_time(chart) if axis == "minutes" else chart)
    return charts


def _group_lines(game: Game, name: str, found: Sequence[tuple[ShownRun, Series]]) -> list[Line]:
    """Return the median of a group with its band; its runs one by one where they have no part of the axis in common."""
    colour, label = game.colours[name], game.words(name)
    dash = colour // NUM_COLOURS
    curves = [curve for _, curve in found]
    first, last = max(curve.x[0] for curve in curves), min(curve.x[-1] for curve in curves)
    if len(curves) == 1 or first >= last:
        labels = [label if len(found) == 1 and game.by != BY_RUN else run.files.label for run, _ in found]
        return [
            Line(label, curve.x, curve.y, colour, dash + place)
            for place, (label, curve) in enumerate(zip(labels, curves, strict=True))
        ]
    x = np.linspace(first, last, BAND_POINTS)
    values = np.stack([np.interp(x, curve.x, curve.y) for curve in curves])  # [runs, points]
    middle, low, high = np.median(values, axis=0), values.min(0), values.max(0)
    band = Line(
        f"{label}, {len(curves)} runs", x.tolist(), middle.tolist(), colour, dash, low=low.tolist(), high=high.tolist()
    )
    return [band]


def _group_scores(game: Game) -> Table:
    """Return the headline score of each group, and beside it what its runs took."""
    summaries = {run.files.label: run.summary for run in game.runs}
    rows: list[list[Content]] = []
    for group in game.groups:
        members = [summaries[label] for label in group.labels if label in summaries]
        evaluated = [run.evaluation_return for run in members if run.evaluation_return is not None]
        steps = [run.steps for run in members if run.steps is not None]
        note = f"{len(evaluated)} runs" if len(evaluated) != len(members) else ""
        rows.append(
            [
                Cell(game.words(group.name), is_strong=True),
                str(len(members)),
                _estimate("final_return", group, is_strong=True),
                Cell(amount(fmean(evaluated)), note=note) if evaluated else DASH,
                amount(fmean(steps)) if steps else DASH,
                _estimate("steps_per_s", group),
            ]
        )
    head = (game.by, "runs", "return, last 100", "newest evaluation", "steps", "steps/s")
    return Table("Scores", head, rows, numeric=range(1, len(head)))


def _all_runs(runs: Sequence[ShownRun]) -> Table:
    """Return one row for each run; columns that no run has are left out."""
    shown: dict[str, list[Content]] = {}
    for name, cell in COLUMNS.items():
        cells = [cell(run.summary) for run in runs]
        if any((found.text if isinstance(found, Cell) else found) != DASH for found in cells):
            shown[name] = cells
    rows: list[list[Content]] = [
        [
            Cell(run.files.label, note=run.files.path.resolve().name, href=f"#{run.key}"),
            *(cells[place] for cells in shown.values()),
        ]
        for place, run in enumerate(runs)
    ]
    numeric = [place for place, name in enumerate(shown, start=1) if name not in WORDS]
    return Table("All runs", ("run", *shown), rows, numeric=numeric)


def spread_charts(game: Game) -> list[SpreadChart]:
    """Return what each group used and reached, every run as a dot; a row for each run where nothing groups them."""
    summaries = {run.files.label: run.summary for run in game.runs}
    groups = game.groups if game.by != BY_RUN else [Group(game.env, BY_RUN, name, (name,), {}) for name in summaries]
    charts = []
    for name, measure in MEASURES.items():
        told = [summary for summary in summaries.values() if getattr(summary, name) is not None]
        over = span_words(getattr(summary, measure.over) for summary in told) if measure.over else ""
        unit = ", ".join(filter(None, (measure.unit, over)))
        rows = [_spread(group, name, summaries, game.colours, _value_of(name, measure.factor)) for group in groups]
        charts.append(SpreadChart(name.replace("_", "-"), measure.title, unit, tuple(filter(None, rows))))
    for name, (title, unit, value) in COSTS.items():
        rows = [_spread(group, name, summaries, game.colours, value) for group in groups]
        charts.append(SpreadChart(name.replace("_", "-"), title, unit, tuple(filter(None, rows))))
    return [chart for chart in charts if chart.rows]


def _value_of(measure: str, factor: float) -> Callable[[RunSummary], float | None]:
    def value(summary: RunSummary) -> float | None:
        found: float | None = getattr(summary, measure)
        return None if found is None else found * factor

    return value


def _spread(
    group: Group,
    measure: str,
    summaries: dict[str, RunSummary],
    colours: dict[str, int],
    value: Callable[[RunSummary], float | None],
) -> Spread | None:
    """Return the runs of a group that tell a measure; None where none does."""
    values = tuple(found for label in group.labels if (found := value(summaries[label])) is not None)
    if not values:
        return None
    low = high = None
    if (estimate := group.estimates.get(measure)) is not None and estimate.interval is not None:
        low, high = (end * MEASURES[measure].factor for end in estimate.interval)
    return Spread(group.name, values, fmean(values), low, high, colours.get(group.name, 0))


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
                Line(game.words(name), *map(list, zip(*found, strict=True)), game.colours[name], is_points=True)
                for name, found in points.items()
            )
            if lines:
                name = f"{use}-{outcome}".replace("_", "-")
                charts.append(LineChart(name, f"{title}, and use", "one dot for each run", use_words, lines))
    return charts


def _relation_fold(games: Sequence[Game], owners: Sequence[Compared], relation: Relation) -> Fold:
    parts: list[Part] = []
    if relation.caveats:
        parts.append(Notice("Read this first", relation.caveats, css="caveats"))
    for game, owner in zip(games, owners, strict=True):
        if charts := relation_charts(game):
            parts.append(grid(charts, owner=owner, max_points=MAX_POINTS))
    if relation.correlations:
        table = _correlation_table(relation.correlations)
        parts.append(Section("Utilisation and what came of it", [table], level=3, lead=RELATION_WORDS))
    for by in dict.fromkeys(group.by for group in relation.groups):
        groups = [group for group in relation.groups if group.by == by]
        parts.append(Section(f"By {by}", [_group_table(by, groups)], level=3))
    note = f"and {len(relation.caveats)} things to keep in mind" if relation.caveats else ""
    title = "How utilisation relates to learning"
    return Fold(title, parts, css="chapter", identity="relation", note=note, level=2)


def _group_table(by: str, groups: Sequence[Group]) -> Table:
    measures = [name for name in MEASURES if any(name in group.estimates for group in groups)]
    rows: list[list[Content]] = [
        [group.env, group.name, amount(len(group.labels)), *(_estimate(name, group) for name in measures)]
        for group in groups
    ]
    head = ("game", by, "runs", *(MEASURES[name].column for name in measures))
    return Table(f"Runs by {by}", head, rows, numeric=range(2, len(head)))


def _estimate(measure: str, group: Group, *, is_strong: bool = False) -> Content:
    found = group.estimates.get(measure)
    if found is None:
        return DASH
    write = MEASURES[measure].write
    band = "" if found.interval is None else f"{write(found.interval[0])} … {write(found.interval[1])}"
    if found.n != len(group.labels):  # some of its runs do not tell this
        band = " · ".join(filter(None, (f"n = {found.n}", band)))
    return Cell(write(found.mean), note=band or ("one run" if found.n == 1 else ""), is_strong=is_strong)


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
