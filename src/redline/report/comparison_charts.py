"""Which charts put runs beside each other: learning, use of the machine, speed, and what it cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from redline.report.chart_drawing import SERIES
from redline.report.charts import Line, LineChart, Spread, SpreadChart, over_time
from redline.report.relation import Group, Relation
from redline.report.run_charts import AXES, TITLES
from redline.report.run_series import learning_curve
from redline.report.run_summary import RunSummary
from redline.report.shown_run import ShownRun

UNKNOWN = "unknown"
FEW = 8  # runs beyond this share the entry of their group in a legend


def mean_power_w(summary: RunSummary) -> float | None:
    """Return what the GPUs drew on average."""
    if summary.energy_j is None or not summary.minutes:
        return None
    return summary.energy_j / (summary.minutes * 60)


# measure → title, unit, factor
SPREADS = {
    "cpu_share_of_machine": ("CPU utilisation", "% of the machine's cores", 100.0),
    "gpu_utilisation_percent": ("GPU utilisation", "%, mean over GPUs", 1.0),
    "steps_per_s": ("Steps per second", "steps/s while learning", 1.0),
    "updates_per_s": ("Updates per second", "updates/s while learning", 1.0),
    "cpu_s_per_1000_steps": ("CPU time for 1,000 steps", "CPU seconds", 1.0),
    "final_return": ("Final return", "mean of the last fifth of the episodes, unclipped", 1.0),
    "return_gained_per_cpu_minute": ("Return gained per CPU minute", "final − first return, per CPU minute", 1.0),
}
# what has no estimate across runs → title, unit, value
COSTS: dict[str, tuple[str, str, Callable[[RunSummary], float | None]]] = {
    "cpu_s": ("CPU time in all", "CPU seconds", lambda summary: summary.cpu_s),
    "gpu_s": ("GPU time in all", "GPU seconds", lambda summary: summary.gpu_s),
    "energy_j": (
        "Energy of the GPUs",
        "kJ",
        lambda summary: None if summary.energy_j is None else summary.energy_j / 1e3,
    ),
    "power_w": ("Power of the GPUs", "W, mean", mean_power_w),
}


@dataclass(frozen=True)
class Game:
    """Runs of one game, and by what they are told apart: returns of different games have nothing in common."""

    env: str
    runs: list[ShownRun]
    by: str  # the first that differs among them: algorithm, batch size, threads / cores
    groups: list[Group]
    colours: dict[str, int]  # of each group, the same in every chart of the page

    def kind(self, run: ShownRun) -> str:
        """Return the group of a run."""
        found = (group.name for group in self.groups if run.files.label in group.labels)
        return next(found, run.summary.algorithm or UNKNOWN)

    def words(self, kind: str) -> str:
        """Return how a legend names a group."""
        return kind if self.by == "algorithm" else f"{self.by} {kind}"


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
        by = next((name for name, groups in groupings.items() if len(groups) > 1), "algorithm")
        game = Game(env, members, by, groupings.get(by, []), colours)
        for kind in (*(group.name for group in game.groups), *map(game.kind, members)):
            colours.setdefault(kind, len(colours))
        games.append(game)
    return games


def learning_charts(game: Game) -> list[LineChart]:
    """Return the curves of all runs, a chart for each axis; colour is the group, dashes are its runs."""
    charts = []
    is_many = len(game.runs) > FEW
    for axis, words in AXES.items():
        lines = []
        seen: dict[str, int] = {}
        for run in game.runs:
            curve = learning_curve(run.files, axis)
            if not curve.x:
                continue
            name = game.kind(run)
            colour = game.colours[name]
            place = seen[name] = seen.get(name, -1) + 1
            label = game.words(name) if is_many and place == 0 else run.files.label
            dash = colour // len(SERIES) if is_many else place
            lines.append(Line(label, curve.x, curve.y, colour, dash, in_legend=not is_many or place == 0))
        if lines:
            title, unit = f"Return against {TITLES[axis]}", "mean of the last 20 episodes, unclipped"
            chart = LineChart(f"return-{axis.replace('_', '-')}", title, unit, words, tuple(lines))
            charts.append(over_time(chart) if axis == "minutes" else chart)
    return charts


def spread_charts(game: Game) -> list[SpreadChart]:
    """Return what each group used and reached, with every run as a dot."""
    groups, colours = game.groups, game.colours
    by_label = {run.files.label: run.summary for run in game.runs}
    charts = []
    for measure, (title, unit, factor) in SPREADS.items():
        rows = [_spread(group, measure, by_label, colours, factor) for group in groups if measure in group.estimates]
        if rows:
            charts.append(SpreadChart(measure.replace("_", "-"), title, unit, tuple(rows)))
    for name, (title, unit, value) in COSTS.items():
        rows = []
        for group in groups:
            values = [found for label in group.labels if (found := value(by_label[label])) is not None]
            if values:
                rows.append(Spread(group.name, tuple(values), fmean(values), None, None, colours.get(group.name, 0)))
        if rows:
            charts.append(SpreadChart(name.replace("_", "-"), title, unit, tuple(rows)))
    return charts


def _spread(
    group: Group, measure: str, by_label: dict[str, RunSummary], colours: dict[str, int], factor: float
) -> Spread:
    estimate = group.estimates[measure]
    low, high = estimate.interval or (None, None)
    found = [getattr(by_label[label], measure) for label in group.labels]
    return Spread(
        label=group.name,
        values=tuple(value * factor for value in found if value is not None),
        mean=estimate.mean * factor,
        low=None if low is None else low * factor,
        high=None if high is None else high * factor,
        colour=colours.get(group.name, 0),
    )


def relation_charts(game: Game) -> list[LineChart]:
    """Return utilisation against speed and learning, a dot for each run."""
    charts = []
    for use, use_words, factor in (
        ("cpu_share_of_machine", "CPU utilisation, % of the machine", 100.0),
        ("gpu_utilisation_percent", "GPU utilisation, %", 1.0),
    ):
        for outcome, title in (("final_return", "Final return"), ("steps_per_s", "Steps per second")):
            points: dict[str, list[tuple[float, float]]] = {}
            for run in game.runs:
                x, y = getattr(run.summary, use), getattr(run.summary, outcome)
                if x is not None and y is not None:
                    points.setdefault(game.kind(run), []).append((x * factor, y))
            if points:
                lines = tuple(
                    Line(
                        game.words(name),
                        [x for x, _ in found],
                        [y for _, y in found],
                        game.colours[name],
                        is_points=True,
                    )
                    for name, found in points.items()
                )
                name = f"{use}-{outcome}".replace("_", "-")
                charts.append(LineChart(name, f"{title} and use", "one dot for each run", use_words, lines))
    return charts
