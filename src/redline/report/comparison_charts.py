"""Which charts put runs beside each other: learning, use of the machine, speed, and what it cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from redline.report.amounts import amount, share
from redline.report.chart_drawing import SERIES
from redline.report.charts import Line, LineChart, Spread, SpreadChart, over_time
from redline.report.relation import Group, Relation
from redline.report.run_charts import AXES, TITLES
from redline.report.run_series import learning_curve
from redline.report.run_summary import RunSummary
from redline.report.shown_run import ShownRun, span_words

UNKNOWN = "unknown"
BY_RUN = "run"  # where nothing groups them
FEW = 8  # runs beyond this share the entry of their group in a legend


def mean_power_w(summary: RunSummary) -> float | None:
    """Return what the GPUs drew on average while that was sampled."""
    return summary.energy_j / summary.power_s if summary.energy_j is not None and summary.power_s else None


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
    "cpu_share_of_machine": Measure(
        "CPU utilisation", "% of the cores it may use", "CPU utilisation", write=share, factor=100.0, over="use_over"
    ),
    "gpu_utilisation_percent": Measure("GPU utilisation", "%, mean over GPUs", "GPU utilisation, %", over="use_over"),
    "steps_per_s": Measure("Steps per second", "steps/s", "steps/s", over="speed_over"),
    "updates_per_s": Measure("Updates per second", "updates/s", "updates/s", over="speed_over"),
    "cpu_s_per_1000_steps": Measure("CPU time for 1,000 steps", "CPU seconds", "CPU s per 1,000 steps"),
    "final_return": Measure("Final return", "mean of the last fifth of the episodes, unclipped", "final return"),
    "return_gained_per_cpu_minute": Measure(
        "Return gained per CPU minute", "final − first return, per CPU minute", "return gained per CPU min"
    ),
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
    """Return what each group used and reached, every run as a dot; a row for each run where nothing groups them."""
    summaries = {run.files.label: run.summary for run in game.runs}
    groups = game.groups if game.by != BY_RUN else [Group(game.env, BY_RUN, name, (name,), {}) for name in summaries]
    charts = []
    for name, measure in MEASURES.items():
        rows = [_spread(group, name, summaries, game.colours, _value_of(name, measure.factor)) for group in groups]
        told = [summary for summary in summaries.values() if getattr(summary, name) is not None]
        over = span_words(getattr(summary, measure.over) for summary in told) if measure.over else ""
        unit = ", ".join(filter(None, (measure.unit, over)))
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
